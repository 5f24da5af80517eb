"""Offline generation: a list of prompts in, a list of texts out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

from twinserve.real_backend.engine_config import EngineOptions, ModelSource
from twinserve.real_backend.engine_loader import load_engine
from twinserve.real_backend.errors import EngineError, shown
from twinserve.real_backend.model.checkpoint_config import read_checkpoint_config
from twinserve.real_backend.prompt_inputs import OnePrompt, PromptInput, prompt_list, token_ids
from twinserve.real_backend.sampling.sampling_params import SamplingParams
from twinserve.real_backend.tokenizer import FolderTokenizer
from twinserve.run_core.clock import WallClock
from twinserve.run_core.session import EventListener, ProgressListener, Session
from twinserve.run_core.traffic import Traffic
from twinserve.run_core.wall_clock_driver import run_in_real_time
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.events import Event, Finished, FinishReason
from twinserve.sched_core.policies.registry import build_policies, names
from twinserve.sched_core.requests.prompt import Prompt
from twinserve.sched_core.requests.spec import RequestSpec

_DEFAULT_MODEL_LEN = 4096


class Completion(TypedDict):
    """The generated text, without what ended it, all generated token ids, and why they end.

    ``finish_reason`` is ``stop`` (end-of-sequence or a stop id), ``length`` (max_tokens or max_model_len), or
    ``kv_capacity`` (the KV pool holds no more).
    """

    text: str
    token_ids: list[int]
    finish_reason: str


class LLM:
    """A model folder ready to generate.

    ``options`` are fields of ``EngineOptions`` (device, attention_backend, ...), ``ModelSource`` (dtype, load_format),
    ``SchedulerConfig`` (max_num_batched_tokens, block_size, ...) and policy names (policy, order, ...). The block
    size is 256 unless given, which every attention backend can serve; ``max_model_len`` is 4096, or less where the
    model has fewer positions.

    Raises:
        EngineError: an unknown option, an engine that cannot be built, or a KV pool below ``max_model_len``.
    """

    def __init__(self, model: str | Path, **options: Any) -> None:
        self._folder = Path(model)
        split = _split({name: value for name, value in options.items() if value is not None})
        source = ModelSource(path=str(model), **split["model"])
        limits = {"block_size": 256, "max_num_seqs": 256, "max_num_batched_tokens": 8192, **split["scheduler"]}
        if "max_model_len" not in limits:
            positions = read_checkpoint_config(self._folder).max_position_embeddings
            limits["max_model_len"] = min(_DEFAULT_MODEL_LEN, positions)
        loaded = load_engine(source, SchedulerConfig(num_blocks=1, **limits), EngineOptions(**split["engine"]))
        _check_pool(loaded.scheduler)
        self._runner = loaded.runner
        self._model_config = loaded.model_config
        self._policy_choices = split["policies"]
        self._engine = EngineCore(loaded.scheduler, build_policies(**self._policy_choices))
        self._counted_before: Counter[str] = Counter()
        self._clock = WallClock()
        self._num_requests = 0
        self._is_whole = True

    def generate(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        cache_salt: str | None = None,
        show_progress: bool = True,
    ) -> list[Completion]:
        """Continue every prompt, in order; one set of parameters for all, or one each.

        A prompt is a text, a list of token ids, or vLLM's dictionary of ``prompt`` or ``prompt_token_ids`` with an
        optional ``cache_salt``; a single one need not be in a list. Prompts share cached blocks only with prompts of
        the same salt. Whatever ends a call early, Ctrl-C among it, the next call finds an engine like a new one.

        Raises:
            EngineError: a prompt that can never run (then none has run), or a step that failed.
            ValueError: not as many sampling parameters as prompts.
        """
        if not self._is_whole:
            self._renew()
        wanted = prompt_list(prompts, cache_salt)
        specs = self._specs(wanted, _per_prompt(sampling_params, len(wanted)))
        ended: dict[int, Finished] = {}

        def collect(events: tuple[Event, ...]) -> None:
            ended.update((event.request_id, event) for event in events if isinstance(event, Finished))

        with self._whole_afterwards(), _progress(len(specs), shown=show_progress) as on_progress:
            self._num_requests += len(specs)
            self._run(specs, collect, on_progress)
        return [self._completion(index, spec, ended.get(spec.request_id)) for index, spec in enumerate(specs)]

    def stats(self) -> Mapping[str, int]:
        """The scheduler's counters over all calls, prefix-cache hits among them (``EngineCore.stats``)."""
        counts = self._engine.stats()
        return {name: count + self._counted_before[name] for name, count in counts.items()}

    def _run(self, specs: list[RequestSpec], on_events: EventListener, on_progress: ProgressListener) -> None:
        session = Session(
            self._engine,
            Traffic(specs),
            capture_sizes=self._runner.capture_sizes,
            on_events=on_events,
            on_progress=on_progress,
        )
        outcome = run_in_real_time(session, self._runner, self._clock)
        if outcome.error is not None:
            raise outcome.error

    @contextmanager
    def _whole_afterwards(self) -> Iterator[None]:
        """Whatever is raised inside, the engine is as new afterwards, or else at the next call."""
        self._is_whole = False
        try:
            yield
        except BaseException:
            self._renew()
            raise
        self._is_whole = True

    def _renew(self) -> None:
        """A scheduler of the same settings, and a runner that knows no request: nothing is left to put right."""
        self._runner.reset()
        engine = EngineCore(self._engine.config, build_policies(**self._policy_choices))
        counted = self._counted_before + Counter(self._engine.stats())
        self._engine, self._counted_before, self._num_requests = engine, counted, 0
        self._is_whole = True

    def _specs(self, prompts: list[OnePrompt], params: Sequence[SamplingParams]) -> list[RequestSpec]:
        first, arrival_ns = self._num_requests, self._clock.now()
        specs = [
            self._spec(first + index, self._ids(index, prompt), prompt.cache_salt, wanted, arrival_ns)
            for index, (prompt, wanted) in enumerate(zip(prompts, params, strict=True))
        ]
        self._check(specs)
        return specs

    def _spec(
        self, request_id: int, ids: list[int], cache_salt: str, params: SamplingParams, arrival_ns: int
    ) -> RequestSpec:
        longest = self._engine.config.max_model_len
        max_tokens = longest if params.max_tokens is None else min(params.max_tokens, longest)
        return RequestSpec(
            request_id=request_id,
            prompt=Prompt.of_token_ids(ids),
            max_tokens=max_tokens,
            arrival_ns=arrival_ns,
            cache_salt=cache_salt,
            sampling=params.resolved(max_tokens, self._eos_token_ids),
        )

    def _check(self, specs: list[RequestSpec]) -> None:
        """So that nothing runs when one prompt cannot."""
        vocab_size, most = self._model_config.vocab_size, self._engine.config.max_num_queued_reqs
        for index, spec in enumerate(specs):
            refusal = self._engine.refusal(spec)
            if refusal is not None:
                raise EngineError(f"prompt {index} cannot run: {refusal.detail}")
            unknown = [token_id for token_id in spec.sampling.stop_token_ids if token_id >= vocab_size]
            if unknown:
                problem = f"{unknown[0]} of stop_token_ids is outside the vocabulary of {vocab_size}"
                raise EngineError(f"prompt {index} cannot run: {problem}")
        if most is not None and len(specs) > most:
            raise EngineError(
                f"{len(specs)} prompts are more than the {most} that may be queued", key="max_num_queued_reqs"
            )

    def _ids(self, index: int, prompt: OnePrompt) -> list[int]:
        content = prompt.content
        ids = self._tokenizer.encode(index, content) if isinstance(content, str) else content
        return token_ids(index, ids, self._model_config.vocab_size)

    def _completion(self, index: int, spec: RequestSpec, ended: Finished | None) -> Completion:
        if ended is None:
            raise EngineError(f"prompt {index} was not taken by the scheduler")
        ids = list(ended.output_token_ids)
        is_stopped = ended.reason is FinishReason.STOP and ids[-1] in spec.sampling.ending_ids
        text = self._tokenizer.decode(ids[:-1] if is_stopped else ids)
        return Completion(text=text, token_ids=ids, finish_reason=ended.reason.value)

    @cached_property
    def _tokenizer(self) -> FolderTokenizer:
        return FolderTokenizer(self._folder)

    @cached_property
    def _eos_token_ids(self) -> tuple[int, ...]:
        """The tokenizer's and those of the model's configuration, as in vLLM, as far as the model can draw them."""
        ids = {*self._tokenizer.eos_token_ids, *self._model_config.eos_token_ids}
        return tuple(sorted(token_id for token_id in ids if 0 <= token_id < self._model_config.vocab_size))


def _per_prompt(params: SamplingParams | Sequence[SamplingParams] | None, num_prompts: int) -> Sequence[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * num_prompts
    if not isinstance(params, Sequence) or not all(isinstance(one, SamplingParams) for one in params):
        raise ValueError(f"sampling_params must be one SamplingParams or a list of them, got {shown(params)}")
    if len(params) != num_prompts:
        raise ValueError(f"{num_prompts} prompts but {len(params)} sampling parameters; give one, or one each")
    return params


def _split(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Options by the object that takes them."""
    takers = {
        "model": {field.name for field in fields(ModelSource)} - {"path", "config"},
        "scheduler": {field.name for field in fields(SchedulerConfig)} - {"num_blocks"},
        "engine": {field.name for field in fields(EngineOptions)},
        "policies": set(names()),
    }
    known = sorted(set().union(*takers.values()))
    for name in sorted(options.keys() - set(known)):
        near = get_close_matches(name, known, n=3, cutoff=0.5) or ["max_model_len", "max_num_seqs"]
        raise EngineError(f"unknown option {name}; among the {len(known)} known are {', '.join(near)}")
    return {taker: {name: value for name, value in options.items() if name in taken} for taker, taken in takers.items()}


def _check_pool(scheduler: SchedulerConfig) -> None:
    """A request of ``max_model_len`` must fit the pool, as in vLLM: otherwise answers would be cut off."""
    held, wanted = scheduler.num_blocks * scheduler.block_size, scheduler.max_model_len
    if held < wanted:
        raise EngineError(
            f"the KV pool holds {held} tokens ({scheduler.num_blocks} blocks of {scheduler.block_size}), fewer than "
            f"max_model_len {wanted}; lower max_model_len, or raise num_gpu_blocks_override or gpu_memory_utilization"
        )


@contextmanager
def _progress(total: int, *, shown: bool) -> Iterator[ProgressListener]:
    """A bar of finished requests, on stderr: what is printed may be piped."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as bar:
        task = bar.add_task("Generating", total=total)
        yield lambda done: bar.update(task, completed=done)
