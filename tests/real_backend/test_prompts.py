"""What ``LLM.generate`` takes: prompts, sampling values, salts, end ids; and what it refuses before anything runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.real_backend.tiny_qwen3 import VOCAB_SIZE, Reference, save_checkpoint
from twinserve.real_backend import LLM, EngineError, SamplingParams

PROMPT = tuple(range(3, 20))


def save_tokenizer(folder: Path, **special: str) -> Path:
    words = Tokenizer(models.WordLevel({f"w{index}": index for index in range(VOCAB_SIZE)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose word ``wN`` is token N."""
    return save_tokenizer(save_checkpoint(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def engine(folder: Path) -> LLM:
    return load(folder)


@pytest.fixture(scope="module")
def continued(folder: Path) -> list[int]:
    return Reference(folder).greedy(PROMPT, 8)


def load(folder: Path, **options: Any) -> LLM:
    defaults = {"device": "cpu", "block_size": 8, "num_gpu_blocks_override": 40, "max_model_len": 128}
    return LLM(folder, **{**defaults, **options})


def greedy(**values: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 0.0, "max_tokens": 8, **values})


def edit(file: Path, **changes: Any) -> None:
    known = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps({**known, **changes}))


TEXT = " ".join(f"w{token_id}" for token_id in PROMPT)


@pytest.mark.parametrize(
    "prompts",
    [
        TEXT,
        list(PROMPT),
        PROMPT,
        np.array(PROMPT),
        [np.array(PROMPT)],
        {"prompt": TEXT},
        {"prompt_token_ids": list(PROMPT)},
        [{"prompt_token_ids": PROMPT, "prompt": TEXT, "cache_salt": "me"}],
    ],
)
def test_one_prompt_in_any_form_is_one_completion(engine: LLM, continued: list[int], prompts: Any) -> None:
    (output,) = engine.generate(prompts, greedy(), show_progress=False)
    assert output["token_ids"] == continued
    assert output["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (7, "prompts must be a list"),
        (b"w1", "prompts must be a list"),
        ([None], "prompt 0 must be a text or a list of token ids, got None"),
        ([[1, 2.5]], "prompt 0 has 2.5 among its token ids"),
        ([1, 2.5], "prompt 0 has 2.5 among its token ids"),
        ([True, 1], "prompt 0 has True among its token ids"),
        ([[1], ["w2"]], "prompt 1 has 'w2' among its token ids"),
        ([[10**30]], "prompt 0 has token ids outside the vocabulary of 128"),
        ([{}], "prompt 0 has neither a text as 'prompt' nor 'prompt_token_ids'"),
        ([{"prompt": 3}], "prompt 0 has neither a text"),
        ([{"prompt": "w1", "multi_modal_data": {}}], "prompt 0 has the key 'multi_modal_data'; known are prompt"),
        ([{"prompt": "w1", "cache_salt": 5}], "prompt 0 has the cache_salt 5"),
        ([{"prompt": "w1", "cache_salt": "\ud800"}], "prompt 0 has the cache_salt"),
        (["w1 \ud800"], "prompt 0 cannot be turned into tokens"),
        (["w1", ""], "prompt 1 cannot run: the prompt has no tokens"),
    ],
)
def test_a_prompt_of_another_kind_is_refused_in_one_line(
    engine: LLM, continued: list[int], prompts: Any, message: str
) -> None:
    before = engine.stats()["num_steps"]
    with pytest.raises(EngineError) as error:
        engine.generate(prompts, greedy(), show_progress=False)
    assert str(error.value).startswith(message)
    assert str(error.value).isprintable()
    assert engine.stats()["num_steps"] == before
    assert engine.generate([PROMPT], greedy(), show_progress=False)[0]["token_ids"] == continued


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("seed", value) for value in (2**63, -(2**63) - 1, 1 << 900, 1.5, True, "1")),
        *(("top_k", value) for value in (-2, 2**31, 2**40, 1.0, True, "3")),
        *(("top_p", value) for value in (0, -0.1, 1.1, math.nan, math.inf, True, "1", 10**400)),
        *(("temperature", value) for value in (-1e-9, math.nan, math.inf, 1e39, 10**400, True, None, "0", 1j)),
        *(("max_tokens", value) for value in (0, -1, 1.5, 8.0, True, "8", math.inf)),
        *(("min_tokens", value) for value in (-1, 9, 1.0, True, None)),
        *(("stop_token_ids", value) for value in ((-1,), (2**31,), (1.0,), (True,), ("1",), "12", 5, {1: 2.5, "a": 1})),
        *(("ignore_eos", value) for value in (1, None, "yes")),
    ],
)
def test_a_sampling_value_out_of_range_is_refused_by_name_when_it_is_given(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name) as error:
        greedy(**{name: value})
    assert len(str(error.value)) <= 200
    assert str(error.value).isprintable()


@pytest.mark.parametrize("params", [{"temperature": 0}, [greedy(), 5], "greedy", 3])
def test_parameters_of_another_kind_are_refused(engine: LLM, params: Any) -> None:
    with pytest.raises(ValueError, match="sampling"):
        engine.generate([PROMPT, PROMPT], params, show_progress=False)


@pytest.mark.parametrize("values", [{"stop_token_ids": (VOCAB_SIZE,)}, {"stop_token_ids": (5000,), "min_tokens": 2}])
def test_a_stop_id_outside_the_vocabulary_is_refused(engine: LLM, values: dict[str, Any]) -> None:
    before = engine.stats()["num_steps"]
    with pytest.raises(
        EngineError, match=r"prompt 1 cannot run: .* of stop_token_ids is outside the vocabulary of 128"
    ):
        engine.generate([PROMPT, PROMPT], [greedy(), greedy(**values)], show_progress=False)
    assert engine.stats()["num_steps"] == before


@pytest.mark.parametrize("temperature", [0, 1e-45, 1e-38, 9e-6, np.float32(1e-6)])
def test_a_temperature_too_small_to_draw_with_is_greedy(engine: LLM, continued: list[int], temperature: float) -> None:
    for top_p in (1.0, 0.5, 1e-300):
        params = SamplingParams(temperature=temperature, top_p=top_p, max_tokens=8)
        assert engine.generate([PROMPT], params, show_progress=False)[0]["token_ids"] == continued


@pytest.mark.parametrize(
    "extreme",
    [
        {"seed": 2**63 - 1},
        {"seed": -(2**63)},
        {"top_k": 2**31 - 1},
        {"top_p": 5e-324},
        {"temperature": 1e30},
        {"temperature": 1e-5},
        {"max_tokens": 10**40},
        {"max_tokens": None, "min_tokens": 10**40},
    ],
)
def test_extreme_values_inside_the_range_run(engine: LLM, extreme: dict[str, Any]) -> None:
    params = SamplingParams(**{"max_tokens": 3, **extreme})
    (output,) = engine.generate([PROMPT], params, show_progress=False)
    assert all(0 <= token_id < VOCAB_SIZE for token_id in output["token_ids"])


def test_without_a_limit_an_answer_fills_max_model_len(engine: LLM) -> None:
    (output,) = engine.generate([PROMPT], greedy(max_tokens=None), show_progress=False)
    assert len(output["token_ids"]) == 128 - len(PROMPT)
    assert output["finish_reason"] == "length"


@pytest.mark.parametrize("top_k", [-1, 0, None])
def test_no_limit_of_top_k_is_written_as_in_vllm(engine: LLM, top_k: int | None) -> None:
    def draw(**values: Any) -> list[int]:
        params = SamplingParams(seed=5, max_tokens=8, **values)
        return engine.generate([PROMPT], params, show_progress=False)[0]["token_ids"]

    assert draw(top_k=top_k) == draw() == draw(top_k=VOCAB_SIZE)


def test_a_stop_id_ends_the_answer_and_is_not_in_its_text(engine: LLM, continued: list[int]) -> None:
    end = next(index for index in range(1, 8) if continued[index] not in continued[:index])
    params = greedy(stop_token_ids=[continued[end]])
    (output,) = engine.generate([PROMPT], params, show_progress=False)
    assert output["token_ids"] == continued[: end + 1]
    assert output["text"].split() == [f"w{token_id}" for token_id in continued[:end]]
    assert output["finish_reason"] == "stop"


def test_prompts_of_another_salt_share_no_blocks(engine: LLM) -> None:
    def hits(**options: Any) -> int:
        before = engine.stats()["prefix_cache_hits"]
        engine.generate([{"prompt_token_ids": PROMPT}], greedy(), show_progress=False, **options)
        return engine.stats()["prefix_cache_hits"] - before

    hits(cache_salt="one")
    assert hits(cache_salt="one") == 16
    assert hits(cache_salt="two") == 0
    assert hits(cache_salt="two") == 16


@pytest.mark.parametrize("elsewhere", [5, [5], [], [5, 4000, -1], None])
def test_the_end_ids_are_the_tokenizers_and_those_of_the_generation_config(
    tmp_path: Path, continued: list[int], elsewhere: Any
) -> None:
    end = next(index for index in range(1, 8) if continued[index] not in continued[:index])
    folder = save_tokenizer(save_checkpoint(tmp_path), eos_token=f"w{continued[end]}")
    edit(folder / "generation_config.json", eos_token_id=elsewhere)
    engine = load(folder)
    (output,) = engine.generate([PROMPT], greedy(), show_progress=False)
    assert output["token_ids"] == continued[: end + 1]
    assert engine._eos_token_ids == tuple(sorted({continued[end], *([5] if elsewhere else [])}))
    forced = engine.generate([PROMPT], greedy(min_tokens=8), show_progress=False)[0]["token_ids"]
    assert len(forced) == 8


def test_a_pool_below_max_model_len_is_refused_with_both_numbers(folder: Path) -> None:
    with pytest.raises(EngineError, match=r"holds 32 tokens \(4 blocks of 8\), fewer than max_model_len 128"):
        load(folder, num_gpu_blocks_override=4)


def test_max_model_len_is_the_models_positions_where_they_are_fewer(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path)
    engine = LLM(folder, device="cpu", num_gpu_blocks_override=4)
    assert engine._engine.config.max_model_len == 1024


def test_more_prompts_than_may_be_queued_are_refused(folder: Path) -> None:
    engine = load(folder, max_num_queued_reqs=2)
    with pytest.raises(EngineError, match="3 prompts are more than the 2 that may be queued"):
        engine.generate([PROMPT] * 3, greedy(), show_progress=False)
    assert len(engine.generate([PROMPT] * 2, greedy(), show_progress=False)) == 2


def test_a_number_of_any_size_can_be_named_in_a_message() -> None:
    with pytest.raises(ValueError, match=r"seed must be a whole number, .* got a number of over 60 digits"):
        greedy(seed=10**6000)
