"""The published traces: counts, totals and means that are known, and what two formats say about the same rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from tests.experiments.helpers.workload_builders import POISSON, arrivals_ns, input_lens, output_lens, trace
from tests.paths import real_trace
from twinserve.experiments.config.load import load_experiment
from twinserve.experiments.settings.overrides import parse_override
from twinserve.sched_core.requests.prompt import Prompt

BLOCK = 512
CONV, CODE = "azure2023/AzureLLMInferenceTrace_conv.csv", "azure2023/AzureLLMInferenceTrace_code.csv"
ARXIV = "vidur/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv"
BWB = "etalon/bwb_stats_llama2_tokenizer_filtered_v2.csv"
SHAREGPT = "etalon/sharegpt_8k_filtered_stats_llama2_tokenizer.csv"
RTX4090 = "llmservingsim/sharegpt-llama-3.1-8b-300-sps10.lengths.csv"


def quantiles(lengths: list[int]) -> list[int]:
    return [round(float(np.mean(lengths))), *(int(np.quantile(lengths, q)) for q in (0.5, 0.95, 0.99)), max(lengths)]


@pytest.mark.parametrize(
    ("format", "path", "rows", "inputs", "outputs"),
    [
        ("azure", CONV, 19_366, [1155, 1020, 4083, 4142, 14050], [211, 129, 451, 601, 1000]),
        ("azure", CODE, 8_819, [2048, 1469, 7303, 7436, 7437], [28, 13, 90, 251, 1899]),
        ("lengths", ARXIV, 28_257, [2588, 2730, 3813, 3933, 4054], [291, 167, 736, 3271, 4056]),
        ("lengths", BWB, 33_768, [1067, 1037, 1584, 1800, 3504], [1613, 1601, 2342, 2533, 2858]),
        ("lengths", SHAREGPT, 30_731, [2340, 1730, 6563, 7434, 8141], [439, 415, 920, 998, 1024]),
        ("llmservingsim", RTX4090, 300, [857, 732, 1749, 2765, 3998], [653, 632, 773, 784, 1021]),
    ],
)
def test_lengths_are_the_published_ones(
    format: str, path: str, rows: int, inputs: list[int], outputs: list[int]
) -> None:
    workload = trace(format, real_trace(path), **({"arrival": POISSON} if format == "lengths" else {}))
    assert len(workload.requests) == rows
    assert quantiles(input_lens(workload)) == pytest.approx(inputs, abs=1)
    assert quantiles(output_lens(workload)) == pytest.approx(outputs, abs=1)
    assert not workload.warnings


@pytest.mark.parametrize(
    ("format", "path", "rate", "cv"),
    [("azure", CONV, 5.53, 1.09), ("azure", CODE, 2.57, 13.2), ("llmservingsim", RTX4090, 10.28, 1.0)],
)
def test_rate_and_burstiness_are_the_published_ones(format: str, path: str, rate: float, cv: float) -> None:
    gaps = np.diff(arrivals_ns(trace(format, real_trace(path)))) / 1e9
    assert 1 / gaps.mean() == pytest.approx(rate, abs=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.12 if rate > 10 else 0.01)


@pytest.mark.parametrize(("azure", "vidur"), [(CONV, "vidur/splitwise_conv.csv"), (CODE, "vidur/splitwise_code.csv")])
def test_vidurs_copy_has_the_same_requests_as_azures_file(azure: str, vidur: str) -> None:
    ours, theirs = trace("azure", real_trace(azure)), trace("vidur", real_trace(vidur))
    assert input_lens(ours) == input_lens(theirs)
    assert output_lens(ours) == output_lens(theirs)
    assert arrivals_ns(ours) == arrivals_ns(theirs)


def test_jsonl_of_llmservingsim() -> None:
    workload = trace("llmservingsim", real_trace("llmservingsim/workload_me2_01_mixed.jsonl"))
    assert len(workload.requests) == 608
    assert arrivals_ns(workload)[1] == 144_370_000 - 101_537_000


def test_mooncake_conversation_comes_in_ticks_that_jitter_spreads() -> None:
    path = real_trace("mooncake/conversation_trace.jsonl")
    assert len(set(arrivals_ns(trace("mooncake", path)))) == 1_180
    jittered = arrivals_ns(trace("mooncake", path, jitter_s=3.0))
    assert len(set(jittered)) > 12_000
    assert jittered == sorted(jittered)


@pytest.mark.parametrize(
    ("name", "rows", "one_token_outputs", "hits", "full_blocks"),
    [("conversation", 12_031, 72, 105_592, 276_491), ("synthetic", 3_993, 4, 77_740, 117_888)],
)
def test_mooncake_prompts_share_exactly_the_blocks_that_are_known(
    name: str, rows: int, one_token_outputs: int, hits: int, full_blocks: int
) -> None:
    workload = trace("mooncake", real_trace(f"mooncake/{name}_trace.jsonl"))
    prompts = [spec.prompt for spec in workload.requests]
    assert len(prompts) == rows
    assert output_lens(workload).count(1) == one_token_outputs
    assert sum(len(prompt) // BLOCK for prompt in prompts) == full_blocks
    assert prefix_hits(prompts) == hits


def prefix_hits(prompts: Iterable[Prompt]) -> int:
    """Full blocks found in a cache that keeps everything; the last token of a prompt is always computed."""
    seen: set[tuple[int, int]] = set()  # (id of the chain up to here, id of the block's content)
    chain_ids: dict[tuple[int, int], int] = {}
    hits = 0
    for prompt in prompts:
        chain, matching = 0, True
        for position in range(len(prompt) // BLOCK):
            piece = prompt.pieces[position]  # one hash id is one piece
            assert piece.length == BLOCK
            key = (chain, piece.stream)
            matching = matching and key in seen and position < (len(prompt) - 1) // BLOCK
            hits += matching
            seen.add(key)
            chain = chain_ids.setdefault(key, len(chain_ids) + 1)
    return hits


@pytest.mark.parametrize(
    ("config", "path", "rows"),
    [
        ("azure_conv", CONV, 19_366),
        ("azure_code", CODE, 8_819),
        ("mooncake_conversation", "mooncake/conversation_trace.jsonl", 12_031),
        ("mooncake_synthetic", "mooncake/synthetic_trace.jsonl", 3_993),
    ],
)
def test_shipped_configuration_takes_the_whole_trace_within_its_context(config: str, path: str, rows: int) -> None:
    from twinserve.experiments.run import build_requests

    experiment = load_experiment(
        f"traces/{config}", [parse_override(f"workload.path={Path(real_trace(path)).resolve()}")]
    )
    workload = build_requests(experiment)
    assert len(workload.requests) == rows
    assert not workload.warnings
