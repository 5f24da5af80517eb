"""Offline generation: a list of prompts in, a list of texts out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

from twinserve.real_backend.engine_config import EngineOptions, ModelSource
from twinserve.real_backend.engine_loader import load_engine
from twinserve.real_backend.errors import EngineError
from twinserve.real_backend.sampling.sampling_params import SamplingParams
from twinserve.run_core.clock import WallClock
from twinserve.run_core.session import ProgressListener, Session
from twinserve.run_core.traffic import Traffic
from twinserve.run_core.wall_clock_driver import run_in_real_time
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.events import Event, Finished
from twinserve.sched_core.policies.registry import build_policies, names
from twinserve.sched_core.requests.prompt import Prompt
from twinserve.sched_core.requests.spec import RequestSpec

PromptInput = str | Sequence[int]


class Completion(TypedDict):
    """The generated text, without end-of-sequence, and all generated token ids."""

    text: str
    token_ids: list[int]


class LLM:
    """A model folder ready to generate.

    ``options`` are fields of ``EngineOptions`` (device, attention_backend, ...), ``ModelSource`` (dtype, load_format),
    ``SchedulerConfig`` (max_num_batched_tokens, block_size, ...) and policy names (policy, order, ...). The block
    size is 256 unless given, which every attention backend can serve.

    Raises:
        EngineError: an unknown option, or an engine that cannot be built.
    """

    def __init__(self, model: str | Path, **options: Any) -> None:
        self._folder = Path(model)
        split = _split(options)
        source = ModelSource(path=str(model), **split["model"])
        limits = {"block_size": 256, "max_num_seqs": 256, "max_num_batched_tokens": 8192, **split["scheduler"]}
        loaded = load_engine(source, SchedulerConfig(num_blocks=1, **limits), EngineOptions(**split["engine"]))
        self._runner = loaded.runner
        self._model_config = loaded.model_config
        self._engine = EngineCore(loaded.scheduler, build_policies(**split["policies"]))
        self._clock = WallClock()
        self._num_requests = 0

    def generate(
        self,
        prompts: Sequence[PromptInput],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        show_progress: bool = True,
    ) -> list[Completion]:
        """Continue every prompt (text or token ids), in order; one set of parameters for all, or one each.

        Raises:
            EngineError: a prompt that can never run, or a step that failed.
            ValueError: not as many sampling parameters as prompts.
        """
        specs = self._specs(prompts, _per_prompt(sampling_params, len(prompts)))
        outputs: dict[int, list[int]] = {}

        def collect(events: tuple[Event, ...]) -> None:
            for event in events:
                if isinstance(event, Finished):
                    outputs[event.request_id] = list(event.output_token_ids)

        with _progress(len(specs), shown=show_progress) as on_progress:
            self._run(specs, collect, on_progress)
        return [self._completion(outputs[spec.request_id]) for spec in specs]

    def stats(self) -> Mapping[str, int]:
        """The scheduler's counters over all calls, prefix-cache hits among them (``EngineCore.stats``)."""
        return self._engine.stats()

    def _run(
        self,
        specs: list[RequestSpec],
        on_events: Callable[[tuple[Event, ...]], None],
        on_progress: ProgressListener,
    ) -> None:
        session = Session(
            self._engine,
            Traffic(specs),
            capture_sizes=self._runner.capture_sizes,
            on_events=on_events,
            on_progress=on_progress,
        )
        outcome = run_in_real_time(session, self._runner, self._clock)
        if outcome.error is not None:
            for spec in specs:
                self._engine.abort(spec.request_id, self._clock.now())
            self._runner.release(spec.request_id for spec in specs)
            raise outcome.error

    def _specs(self, prompts: Sequence[PromptInput], params: Sequence[SamplingParams]) -> list[RequestSpec]:
        first, arrival_ns = self._num_requests, self._clock.now()
        specs = [
            RequestSpec(
                request_id=first + index,
                prompt=Prompt.of_token_ids(self._token_ids(index, prompt)),
                max_tokens=wanted.max_tokens,
                arrival_ns=arrival_ns,
                sampling=wanted.with_eos(self._model_config.eos_token_ids),
            )
            for index, (prompt, wanted) in enumerate(zip(prompts, params, strict=True))
        ]
        self._check(specs)
        self._num_requests += len(specs)
        return specs

    def _check(self, specs: list[RequestSpec]) -> None:
        """Asks a throwaway core, so that nothing runs when one prompt cannot."""
        probe = EngineCore(self._engine.config)
        for index, spec in enumerate(specs):
            admission = probe.add_request(spec, spec.arrival_ns)
            if not admission.accepted:
                raise EngineError(f"prompt {index} cannot run: {admission.detail}")

    def _token_ids(self, index: int, prompt: PromptInput) -> list[int]:
        ids = self._tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        vocab_size = self._model_config.vocab_size
        if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
            raise EngineError(f"prompt {index} has token ids outside the vocabulary of {vocab_size}")
        return ids

    def _completion(self, token_ids: list[int]) -> Completion:
        text = self._tokenizer.decode(token_ids, skip_special_tokens=True) if self._has_tokenizer else ""
        return Completion(text=text, token_ids=token_ids)

    @property
    def _has_tokenizer(self) -> bool:
        """Random test models have none: prompts and results are then token ids."""
        return (self._folder / "tokenizer_config.json").is_file()

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        if not self._has_tokenizer:
            raise EngineError(f"{self._folder} has no tokenizer; give prompts as token ids")
        return AutoTokenizer.from_pretrained(self._folder)


def _per_prompt(params: SamplingParams | Sequence[SamplingParams] | None, num_prompts: int) -> Sequence[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * num_prompts
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
    unknown = options.keys() - set().union(*takers.values())
    if unknown:
        known = ", ".join(sorted(set().union(*takers.values())))
        raise EngineError(f"unknown option {', '.join(sorted(unknown))}; known are {known}")
    return {taker: {name: value for name, value in options.items() if name in taken} for taker, taken in takers.items()}


@contextmanager
def _progress(total: int, *, shown: bool) -> Iterator[ProgressListener]:
    """A bar of finished requests, on stderr: what is printed may be piped."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as bar:
        task = bar.add_task("Generating", total=total)
        yield lambda done: bar.update(task, completed=done)
