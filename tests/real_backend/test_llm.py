"""``LLM.generate`` and ``twinserve generate``: texts or ids in, texts and ids out, in order."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.real_backend.tiny_qwen3 import VOCAB_SIZE, Reference, save_checkpoint
from twinserve.experiments.cli.main import main
from twinserve.real_backend import LLM, EngineError, SamplingParams

PROMPTS = [tuple(range(3, 20)), (7, 7, 9), tuple(range(50, 90))]
GREEDY = SamplingParams(temperature=0.0, max_tokens=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose word ``wN`` is token N."""
    folder = save_checkpoint(tmp_path_factory.mktemp("model"))
    words = Tokenizer(models.WordLevel({f"w{index}": index for index in range(VOCAB_SIZE)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder)


def load(folder: Path, **options: object) -> LLM:
    defaults = {"device": "cpu", "block_size": 8, "num_gpu_blocks_override": 40, "max_model_len": 128}
    return LLM(folder, **{**defaults, **options})


def words(token_ids: list[int] | tuple[int, ...]) -> str:
    return " ".join(f"w{token_id}" for token_id in token_ids)


def test_completions_come_in_the_order_of_the_prompts(folder: Path, reference: Reference) -> None:
    outputs = load(folder, max_num_seqs=2).generate(PROMPTS, GREEDY, show_progress=False)
    assert [output["token_ids"] for output in outputs] == [reference.greedy(prompt, 6) for prompt in PROMPTS]


def test_texts_are_tokenised_and_answers_decoded(folder: Path, reference: Reference) -> None:
    (output,) = load(folder).generate([words(PROMPTS[0])], GREEDY, show_progress=False)
    assert output["token_ids"] == reference.greedy(PROMPTS[0], 6)
    assert output["text"].split() == words(output["token_ids"]).split()


def test_each_prompt_may_have_its_own_parameters(folder: Path, reference: Reference) -> None:
    stop = reference.greedy(PROMPTS[1], 3)[-1]
    params = [
        SamplingParams(temperature=0.0, max_tokens=2),
        SamplingParams(temperature=0.0, max_tokens=9, stop_token_ids=(stop,)),
        SamplingParams(temperature=1.0, seed=5, max_tokens=4),
    ]
    outputs = load(folder).generate(PROMPTS, params, show_progress=False)
    assert [len(output["token_ids"]) for output in outputs] == [2, 3, 4]


def test_a_second_call_reuses_the_engine_and_its_cached_prefixes(folder: Path) -> None:
    engine = load(folder)
    first = engine.generate(PROMPTS, GREEDY, show_progress=False)
    second = engine.generate(PROMPTS, GREEDY, show_progress=False)
    assert first == second
    assert engine.stats()["prefix_cache_hits"] >= 16 + 32


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (tuple([1] * 128), "prompt 1 cannot run: 128 prompt tokens leave no room in 128"),
        ((), "prompt 1 cannot run: the prompt has no tokens"),
        ((VOCAB_SIZE,), "prompt 1 has token ids outside the vocabulary of 128"),
    ],
)
def test_a_prompt_that_cannot_run_is_an_error_before_anything_runs(
    folder: Path, prompt: tuple[int, ...], message: str
) -> None:
    engine = load(folder)
    with pytest.raises(EngineError, match=message):
        engine.generate([PROMPTS[0], prompt], GREEDY, show_progress=False)
    assert engine.stats()["num_steps"] == 0


def test_a_failed_step_leaves_an_engine_that_works_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load(folder)

    def fail(*args: object) -> None:
        raise EngineError("the device failed")

    with monkeypatch.context() as patch:
        patch.setattr(engine._runner, "collect", fail)
        with pytest.raises(EngineError, match="the device failed"):
            engine.generate(PROMPTS, GREEDY, show_progress=False)
    assert len(engine.generate(PROMPTS, GREEDY, show_progress=False)) == 3


def test_an_unknown_option_is_named_with_the_known_ones(folder: Path) -> None:
    with pytest.raises(EngineError, match=r"unknown option max_seqs; among the \d+ known are .*max_num_seqs"):
        load(folder, max_seqs=3)


def test_a_folder_without_a_tokenizer_takes_and_gives_ids_only(tmp_path: Path) -> None:
    engine = load(save_checkpoint(tmp_path))
    with pytest.raises(EngineError, match="no tokenizer; give prompts as token ids"):
        engine.generate(["hello"], GREEDY, show_progress=False)
    assert engine.generate([[1, 2]], GREEDY, show_progress=False)[0]["text"] == ""


def test_wrong_numbers_of_parameters_are_an_error(folder: Path) -> None:
    with pytest.raises(ValueError, match="3 prompts but 1 sampling parameters"):
        load(folder).generate(PROMPTS, [GREEDY], show_progress=False)


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": -1.0}, {"top_p": 0.0}, {"top_k": -2}, {"max_tokens": 0}, {"min_tokens": 9, "max_tokens": 8}],
)
def test_sampling_parameters_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SamplingParams(**wrong)


def test_the_command_prints_prompt_and_continuation(
    folder: Path, reference: Reference, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--model", str(folder), "--device", "cpu", "--num-gpu-blocks", "4", "--max-model-len", "128"]
    assert main(["generate", *arguments, "--prompt", "w7 w7 w9", "--max-tokens", "3"]) == 0
    assert capsys.readouterr().out == f"w7 w7 w9{words(reference.greedy(PROMPTS[1], 3))}\n"


def test_the_command_names_what_is_wrong_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--model", str(tmp_path / "nowhere"), "--device", "cpu", "--prompt", "x"]) == 2
    error = capsys.readouterr().err
    assert "config.json is missing" in error
    assert error.count("\n") == 1
