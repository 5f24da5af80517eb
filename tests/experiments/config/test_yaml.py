"""YAML as people mean it, and its way back to text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.settings.yaml_loader import dump_yaml, parse_yaml, read_yaml

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("abe1.-+ :#'inf_y\n")
KEYS = st.text("abcdefgh_", min_size=1)
DATA = st.dictionaries(
    KEYS, st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))
)


@settings(deadline=None, derandomize=True)
@given(DATA)
def test_what_is_written_is_read_back(data):
    assert parse_yaml(dump_yaml(data), source="text") == data


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ("-2.5E-3", -0.0025),
        ("inf", float("inf")),
        ("-Infinity", float("-inf")),
        (".inf", float("inf")),
        ("'inf'", "inf"),
        ("'1e3'", "1e3"),
        ("info", "info"),
        ("1e", "1e"),
        ("12", 12),
    ],
)
def test_numbers_are_numbers_and_quoted_text_is_text(text, value):
    assert parse_yaml(text, source="text") == value


def test_a_merge_key_is_no_duplicate():
    text = "own: {<<: {a: 1, b: 2}, b: 3}"
    assert parse_yaml(text, source="text")["own"] == {"a": 1, "b": 3}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: 1\na: 2", "line 2, column 1: duplicate key 'a'"),
        ("x: {b: 1, b: 1}", "line 1, column 11: duplicate key 'b'"),
        ("a: [1", "not valid YAML"),
        ("a: b: c", "line 1, column 5: not valid YAML"),
        ("\tx: 1", "not valid YAML"),
        ("1: 2", "1 is not a key"),
        ("? [a]\n: 1", "is not a key"),
        ("a: 2023-13-45", "month must be in 1..12"),
        ("a: !!python/object:os.system 1", "tags (!name) are not supported"),
        ("a: *nothing", "aliases and anchors (*name, &name) are not supported; write the value out"),
        ("a\x00: 1", "not valid YAML"),
        ("a: 1\n---\nb: 2", "another document"),
        ("", "is empty"),
        ("# only a comment", "is empty"),
        ("- 1", "holds a list"),
        ("text", "holds a str"),
    ],
)
def test_bad_yaml_is_one_line_with_its_place(tmp_path, text, complaint):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"^[^\n]+$") as error:
        read_yaml(path)
    assert str(error.value).startswith(f"{path}: ")
    assert complaint in str(error.value)


def test_a_file_that_is_not_text_is_named(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_yaml(path)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("0400", "write 400"),
        ("-010", "write -10"),
        ("1_000", "write 1000"),
        ("1_000.5", "write 1000.5"),
        ("0x10", "write 16"),
        ("0b1", "write 1"),
        ("1:30", "one number in decimal digits"),
        ("1:30.5", "one number in decimal digits"),
    ],
)
@pytest.mark.parametrize("place", ["a: {x}", "a: [1, {x}]", "a:\n  - b: {x}"])
def test_odd_numbers_are_refused_with_what_to_write(text, remedy, place):
    with pytest.raises(ConfigError, match=rf"line \d+, column \d+: .*{text} is no plain number .*{remedy}"):
        parse_yaml(place.replace("{x}", text), source="text")
    assert parse_yaml(f"'{text}'", source="text") == text


@settings(deadline=None, derandomize=True)
@given(st.integers(-(10**18), 10**18) | st.floats(allow_nan=False))
def test_numbers_are_read_as_written(number):
    assert parse_yaml(dump_yaml({"a": number}), source="text") == {"a": number}
