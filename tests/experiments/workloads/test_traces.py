"""Trace files of every format, on tiny made-up ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.experiments.helpers.workload_builders import POISSON, TINY, arrivals_ns, input_lens, output_lens, trace
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.workloads import TraceConfig, workload_files
from twinserve.sched_core.requests.prompt import Segment


def azure_file(folder: Path, *rows: str) -> str:
    path = folder / "azure.csv"
    stamps = [f"2023-11-16 18:15:{row}" for row in rows]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *stamps]))
    return str(path)


@pytest.mark.parametrize(
    ("format", "path", "times", "inputs", "outputs"),
    [
        ("azure", "azure.csv", [0, 4_314_579_000, 4_314_579_100], [374, 396, 879], [44, 109, 55]),
        ("azure", "azure_2024.csv", [0, 998_000_000], [100, 200], [10, 20]),
        ("mooncake", "mooncake.jsonl", [0, 0, 3_000_000_000], [1300, 1024, 600], [5, 6, 1]),
        ("vidur", "vidur.csv", [0, 4_314_579_000, 5_892_655_000], [374, 396, 91], [44, 109, 16]),
        ("llmservingsim", "llmservingsim.jsonl", [0, 42_833_001], [27369, 1390], [1626, 527]),
        ("llmservingsim", "llmservingsim.lengths.csv", [0, 301_012_143], [2358, 1034], [531, 769]),
    ],
)
def test_format_is_read(format: str, path: str, times: list[int], inputs: list[int], outputs: list[int]) -> None:
    workload = trace(format, path)
    assert arrivals_ns(workload) == times
    assert input_lens(workload) == inputs
    assert output_lens(workload) == outputs
    assert not workload.warnings


def test_burstgpt_failures_are_left_out_when_asked_and_counted() -> None:
    workload = trace("burstgpt", "burstgpt.csv", zero_output="drop")
    assert arrivals_ns(workload) == [0, 40 * 10**9, 115_500_000_000]
    assert input_lens(workload) == [472, 1087, 12]
    assert output_lens(workload) == [18, 230, 1]
    assert workload.info["num_dropped_zero_output"] == 1


def test_zero_output_is_an_error_that_names_line_and_remedy() -> None:
    with pytest.raises(ConfigError, match=r"burstgpt.csv: line 4: the output has 0 tokens; .*zero_output to drop"):
        trace("burstgpt", "burstgpt.csv")


def test_lengths_take_their_times_from_an_arrival_process() -> None:
    workload = trace("lengths", "lengths.csv", arrival={"process": "constant", "request_rate": 2.0})
    assert arrivals_ns(workload) == [500_000_000, 1_000_000_000, 1_500_000_000]
    assert input_lens(workload) == [3772, 2015, 3858]
    assert output_lens(workload) == [54, 156, 133]


def test_lengths_without_an_arrival_process_are_an_error() -> None:
    with pytest.raises(ValidationError, match=r"add workload.arrival"):
        trace("lengths", "lengths.csv")


def test_timed_trace_reads_its_own_keys_units_and_block_size() -> None:
    keys = {"timestamp": "t", "input_length": "in", "output_length": "out", "hash_ids": "blocks", "time_unit": "s"}
    workload = trace("timed_trace", "timed_trace.jsonl", timed_trace=keys)
    first, second, third = (spec.prompt.pieces for spec in workload.requests)
    assert arrivals_ns(workload) == [0, 750_000_000, 1_500_000_000]
    assert output_lens(workload) == [3, 4, 5]
    assert first == (Segment(100, 0, 16), Segment(101, 0, 16), Segment(102, 0, 8))
    assert second[:2] == first[:2]
    assert len({piece.stream for piece in (*first, second[2], third[0])}) == 5  # tails nobody hashed are private


def test_mooncake_hash_ids_become_shared_blocks_and_the_last_is_cut() -> None:
    prompts = [spec.prompt for spec in trace("mooncake", "mooncake.jsonl").requests]
    assert prompts[0].pieces == (Segment(7, 0, 512), Segment(8, 0, 512), Segment(9, 0, 276))
    assert prompts[1].pieces == (Segment(7, 0, 512), Segment(8, 0, 512))
    assert prompts[0].encode(0, 1024) == prompts[1].encode(0, 1024)


def test_scaled_prompts_still_share_their_blocks() -> None:
    first, second, third = (spec.prompt for spec in trace("mooncake", "mooncake.jsonl", prompt_scale=0.3).requests)
    assert [len(prompt) for prompt in (first, second, third)] == [390, 307, 180]
    assert first.encode(0, 307) == second.encode(0, 307)
    assert first.encode(0, 154) == third.encode(0, 154)
    assert first.encode(0, 155) != third.encode(0, 155)


def test_time_and_length_scales_multiply() -> None:
    workload = trace("vidur", "vidur.csv", time_scale=0.5, prompt_scale=2.0, output_scale=0.01)
    assert arrivals_ns(workload) == [0, 2_157_289_500, 2_946_327_500]
    assert input_lens(workload) == [748, 792, 182]
    assert output_lens(workload) == [1, 1, 1]


def test_window_takes_rows_from_its_start_up_to_but_without_its_end() -> None:
    assert arrivals_ns(trace("vidur", "vidur.csv", start_s=4.0)) == [314_579_000, 1_892_655_000]
    assert arrivals_ns(trace("mooncake", "mooncake.jsonl", duration_s=3.0)) == [0, 0]
    assert arrivals_ns(trace("mooncake", "mooncake.jsonl", start_s=3.0)) == [0]


def test_empty_window_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no row is left"):
        trace("vidur", "vidur.csv", start_s=100.0)


def test_first_prompts_of_a_trace() -> None:
    assert input_lens(trace("vidur", "vidur.csv", num_prompts=2)) == [374, 396]


def test_asking_for_more_prompts_than_there_are_is_warned_of() -> None:
    workload = trace("vidur", "vidur.csv", num_prompts=4)
    assert len(workload.requests) == 3
    assert workload.warnings == ("workload.num_prompts is 4, but the trace has only 3 such rows",)


def test_arrival_process_replaces_the_times_of_a_trace() -> None:
    workload = trace("vidur", "vidur.csv", arrival=POISSON, seed=1)
    assert arrivals_ns(workload) != arrivals_ns(trace("vidur", "vidur.csv"))
    assert input_lens(workload) == [374, 396, 91]


def test_rows_out_of_order_are_sorted_with_one_warning(tmp_path: Path) -> None:
    path = azure_file(tmp_path, "05.0,1,1", "03.0,2,1", "04.0,3,1", "01.0,4,1")
    workload = trace("azure", path)
    assert input_lens(workload) == [4, 2, 3, 1]
    assert arrivals_ns(workload) == [0, 2 * 10**9, 3 * 10**9, 4 * 10**9]
    assert [spec.request_id for spec in workload.requests] == [3, 1, 2, 0]
    assert len(workload.warnings) == 1
    assert "2 rows are out of order (first: line 3)" in workload.warnings[0]


def test_ties_keep_file_order(tmp_path: Path) -> None:
    path = azure_file(tmp_path, *(f"0{second}.0,{row},1" for row, second in enumerate([2, 1, 2, 1, 2, 1], start=1)))
    assert input_lens(trace("azure", path)) == [2, 4, 6, 1, 3, 5]


def test_jitter_spreads_ties_in_file_order_and_leaves_the_rest_alone(tmp_path: Path) -> None:
    path = azure_file(tmp_path, *(f"01.0,{row},1" for row in range(1, 41)), "09.0,99,1")
    times = arrivals_ns(trace("azure", path, jitter_s=2.0))
    assert len(set(times[:40])) == 40
    assert min(times) >= 0
    assert max(times[:40]) < 2 * 10**9
    assert times[40] == 8 * 10**9
    assert input_lens(trace("azure", path, jitter_s=2.0)) == [*range(1, 41), 99]


def test_jitter_longer_than_the_tick_keeps_times_ascending(tmp_path: Path) -> None:
    path = azure_file(tmp_path, *(f"0{1 + row // 10}.0,{row + 1},1" for row in range(40)))
    times = arrivals_ns(trace("azure", path, jitter_s=5.0))
    assert times == sorted(times)


def test_limits_come_before_the_number_of_prompts() -> None:
    workload = trace("vidur", "vidur.csv", max_input_len=380, over_length="drop", num_prompts=2)
    assert input_lens(workload) == [374, 91]


def test_missing_file_is_named_with_its_key_and_a_remedy() -> None:
    with pytest.raises(ConfigError, match=r"^workload.path: .*nothing.csv does not exist; .*--set workload.path=FILE"):
        trace("azure", "nothing.csv")
    with pytest.raises(ConfigError, match="is a folder"):
        trace("azure", str(TINY))


def test_input_files_are_those_that_are_read() -> None:
    config = TraceConfig(kind="trace", format="vidur", path="vidur.csv")
    assert workload_files(config, TINY) == (TINY / "vidur.csv",)


@pytest.mark.parametrize(
    "wrong",
    [
        {"time_scale": 0.0},
        {"prompt_scale": -1.0},
        {"start_s": -1.0},
        {"duration_s": 0.0},
        {"jitter_s": float("nan")},
        {"num_prompts": 0},
        {"timed_trace": {"time_unit": "s"}},
        {"zero_output": "skip"},
    ],
)
def test_meaningless_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        trace("vidur", "vidur.csv", **wrong)
