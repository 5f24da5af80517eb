"""What traces say about shared content and sessions is used or named; odd files are read or refused plainly."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.experiments.helpers.workload_builders import arrivals_ns, input_lens, output_lens, trace
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.workloads import Workload

AT_ONCE = {"process": "all_at_once"}


def lines(folder: Path, *rows: dict[str, object], name: str = "trace.jsonl") -> str:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder / name)


def row(**keys: object) -> dict[str, object]:
    return {"timestamp": 0, "input_length": 1024, "output_length": 2, **keys}


def shared(workload: Workload) -> int:
    """Leading tokens that the first two prompts have in common."""
    first, second = (spec.prompt for spec in workload.requests[:2])
    length = min(len(first), len(second))
    return max((n for n in range(0, length + 1, 16) if first.encode(0, n) == second.encode(0, n)), default=0)


@pytest.mark.parametrize(
    ("one", "other"),
    [((1 << 64) - 1, 1 << 63), (-1, -2), ("a3f9", "b771"), (4294967303, 7)],
)
def test_hash_ids_of_64_bits_and_texts_name_blocks(tmp_path, one, other):
    same = [row(hash_ids=[one, other]), row(hash_ids=[one, 5 if isinstance(one, int) else "5"])]
    assert shared(trace("mooncake", lines(tmp_path, *same))) == 512
    apart = [row(hash_ids=[one, other]), row(hash_ids=[other, one])]
    assert shared(trace("mooncake", lines(tmp_path, *apart))) == 0


@pytest.mark.parametrize("key", ["input_tok_ids", "prompt_token_ids"])
def test_token_ids_are_the_prompt(tmp_path, key):
    ids = list(range(64))
    rows = [row(input_length=64, **{key: ids}), row(input_length=80, **{key: [*ids[:32], *range(100, 148)]})]
    workload = trace("timed_trace", lines(tmp_path, *rows))
    assert shared(workload) == 32
    assert not workload.warnings


def test_token_ids_that_do_not_fit_the_length_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"line 1: the token ids are not as many as the prompt is long"):
        trace("timed_trace", lines(tmp_path, row(input_tok_ids=[1, 2])))


@pytest.mark.parametrize("key", ["block_hashes", "session_id", "chat_id", "delay", "sub_requests"])
def test_what_is_not_used_is_named(tmp_path, key):
    (warning,) = trace("mooncake", lines(tmp_path, row(**{key: 1}), row(**{key: 1}))).warnings
    assert f"not used: {key};" in warning


def test_keys_without_such_a_meaning_are_not_named(tmp_path):
    assert not trace("mooncake", lines(tmp_path, row(type="text", extra={"a": 1}))).warnings


def test_rows_without_times_are_read_where_arrival_replaces_them(tmp_path):
    rows = [row(), row(input_length=7), row(input_length=9)]
    del rows[1]["timestamp"]
    path = lines(tmp_path, *rows)
    workload = trace("mooncake", path, arrival=AT_ONCE)
    assert (arrivals_ns(workload), input_lens(workload)) == ([0, 0, 0], [1024, 7, 9])
    with pytest.raises(ConfigError, match="line 2: timestamp is missing"):
        trace("mooncake", path)
    with pytest.raises(ConfigError, match="line 2: timestamp is missing"):
        trace("mooncake", path, arrival=AT_ONCE, start_s=1.0)


def test_outputs_may_be_drawn_where_a_trace_has_none(tmp_path):
    path = lines(tmp_path, {"input_length": 40, "hash_ids": [0, 1, 2]}, {"input_length": 48, "hash_ids": [0, 1, 3]})
    workload = trace("timed_trace", path, arrival=AT_ONCE, output_len={"dist": "fixed", "value": 5})
    assert output_lens(workload) == [5, 5]
    assert shared(workload) == 32


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('[\n {"conversations": []}\n]', "is one JSON list; write one JSON object a line"),
        ('{"turns": [{"text": "Hi"}]}', r"has text \(turns\) and no lengths; text is not supported"),
        ('{"timestamp": 0, "output_length": 3, "text_input": "Hi"}', r"text \(text_input\) is not supported"),
        ('{"timestamp": 0, "sub_requests": [{}]}', "sub_requests is not supported"),
        ('{"delay": 5, "input_length": 3, "output_length": 3}', "delay is not supported"),
    ],
)
def test_text_and_sessions_are_refused_plainly(tmp_path, content, complaint):
    (tmp_path / "trace.jsonl").write_text(content)
    with pytest.raises(ConfigError, match=complaint):
        trace("mooncake", str(tmp_path / "trace.jsonl"))


CSV = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,{},4\n"


@pytest.mark.parametrize("name", ["trace.csv.gz", "trace.csv"])
def test_gzip_is_unpacked_whatever_it_is_called(tmp_path, name):
    (tmp_path / name).write_bytes(gzip.compress(CSV.format(374).encode()))
    assert input_lens(trace("azure", str(tmp_path / name))) == [374]


def test_a_cut_gzip_file_is_refused(tmp_path):
    (tmp_path / "trace.csv.gz").write_bytes(gzip.compress(CSV.format(374).encode())[:-12])
    with pytest.raises(ConfigError, match="cannot be read"):
        trace("azure", str(tmp_path / "trace.csv.gz"))


@pytest.mark.parametrize("text", ["374", "374.0", "374."])
def test_counts_with_a_zero_fraction_are_counts(tmp_path, text):
    (tmp_path / "trace.csv").write_text(CSV.format(text))
    assert input_lens(trace("azure", str(tmp_path / "trace.csv"))) == [374]


@pytest.mark.parametrize("text", ["3_74", "\uff13\uff17\uff14", "0x10", "374.5", "-3", "1e3", "inf", ""])
def test_counts_in_other_writing_are_refused(tmp_path, text):
    (tmp_path / "trace.csv").write_text(CSV.format(text))
    with pytest.raises(ConfigError, match=r"line 2: ContextTokens is .* expected a whole number"):
        trace("azure", str(tmp_path / "trace.csv"))
