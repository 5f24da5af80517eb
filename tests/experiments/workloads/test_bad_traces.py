"""Broken trace files: one line that names the file, the line and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.helpers.workload_builders import trace
from twinserve.experiments.errors import ConfigError

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
MOONCAKE = '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\n'
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n"


@pytest.mark.parametrize(
    ("format", "text", "message"),
    [
        ("azure", "", "is empty; expected a header line"),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "has no rows; expected at least one request"),
        ("azure", "a,b\n1,2\n", "no column 'TIMESTAMP'; it has a, b: is `format` right?"),
        ("azure", AZURE + "2023-11-16 18:15:50.99", "line 3: 1 fields, expected 3; .* cut off"),
        ("azure", AZURE + "2023-11-16 18:15:50,1,2,3\n", "line 3: 4 fields, expected 3"),
        ("azure", AZURE + "yesterday,1,2\n", "line 3: TIMESTAMP is 'yesterday'; expected a time such as 2023-11-16"),
        ("azure", AZURE + "2023-13-45 18:15:50,1,2\n", "line 3: TIMESTAMP is '2023-13-45"),
        ("azure", AZURE + "2023-11-16 18:15:50,-1,2\n", "line 3: ContextTokens is '-1'; expected a whole number"),
        ("azure", AZURE + "2023-11-16 18:15:50,nan,2\n", "line 3: ContextTokens is 'nan'; expected a whole number"),
        ("azure", AZURE + "2023-11-16 18:15:50,1,2.5\n", "line 3: GeneratedTokens is '2.5'; expected a whole number"),
        ("azure", AZURE + "2023-11-16 18:15:50,1,\n", "line 3: GeneratedTokens is ''; expected a whole number"),
        ("azure", AZURE + "\n2023-11-16 18:15:50,0,2\n", "line 4: the prompt has 0 tokens; remove the row"),
        ("azure", AZURE + "2023-11-16 18:15:50,1,0\n", "line 3: the output has 0 tokens"),
        ("vidur", VIDUR + "-1.0,1,1\n", "line 3: arrived_at is '-1.0'; expected a number, 0 or more"),
        ("vidur", VIDUR + "nan,1,1\n", "line 3: arrived_at is 'nan'; expected a number"),
        ("vidur", VIDUR + "inf,1,1\n", "line 3: arrived_at is 'inf'; expected a number"),
        ("mooncake", "", "has no rows"),
        ("mooncake", MOONCAKE + MOONCAKE[:40], "line 2: not valid JSON .*is it cut off"),
        ("mooncake", MOONCAKE + "[1, 2]\n", "line 2: expected a JSON object"),
        ("mooncake", MOONCAKE + '{"timestamp": 0}\n', "line 2: input_length is missing; expected a whole number"),
        ("mooncake", MOONCAKE.replace("5,", "true,"), "line 1: output_length is True; expected a whole number"),
        ("mooncake", MOONCAKE.replace(": 0", ": NaN"), "line 1: timestamp is nan; expected a number"),
        ("mooncake", MOONCAKE.replace("600", "1600"), "line 1: hash_ids does not fit the prompt: .* block size right"),
        ("mooncake", MOONCAKE.replace("[1, 2]", "[1, 2.5]"), "line 1: hash_ids is .* expected a list"),
    ],
)
def test_bad_line_is_named(tmp_path: Path, format: str, text: str, message: str) -> None:
    path = tmp_path / "bad.trace"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        trace(format, str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_file_that_is_no_text_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(b"\xff\xfe\x00\x81" * 10)
    with pytest.raises(ConfigError, match=r"bad.csv: cannot be read"):
        trace("azure", str(path))


def test_blank_lines_and_a_byte_order_mark_are_harmless(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "\ufeff" + AZURE.replace("\n", "\r\n") + "\r\n\r\n2023-11-16 18:15:47.6805900,5,6", encoding="utf-8"
    )
    assert [spec.num_prompt_tokens for spec in trace("azure", str(path)).requests] == [374, 5]
