"""What ``twinserve validate`` refuses of a run folder, each in one line that names file, key and row."""

from __future__ import annotations

import pytest
from pyarrow import parquet

from tests.experiments.helpers.real_runs import change_column, edit


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("config.yaml", "is not the folder of a run (config.yaml is missing)"),
        ("result.json", "the run is not finished (result.json is missing); run it again"),
        ("requests.parquet", "the run is not finished"),
        ("manifest.json", "manifest.json: does not exist"),
        ("steps.parquet", "steps.parquet: does not exist"),
    ],
)
def test_a_missing_file_is_named(twinserve, copied, name, complaint):
    (copied / name).unlink()
    answer = twinserve("validate", copied)
    assert answer.code == 2
    assert complaint in answer.line or "holds no run" in answer.line


@pytest.mark.parametrize(
    "name", ["config.yaml", "result.json", "manifest.json", "steps.parquet", "tokens.parquet", "decisions.parquet"]
)
def test_a_damaged_file_is_named(twinserve, copied, name):
    (copied / name).write_bytes(b"PAR1 {[")
    answer = twinserve("validate", copied)
    assert answer.code == 2
    assert str(copied / name) in answer.line


@pytest.mark.parametrize(
    ("name", "column", "complaint"),
    [
        ("steps.parquet", "end_ns", "holds no possible run"),
        ("steps.parquet", "graph_mode", "graph_mode: 'x' is none of eager, decode, mixed"),
        ("decisions.parquet", "step_id", "has other steps than steps.parquet"),
    ],
)
def test_records_that_no_run_leaves_are_named(twinserve, copied, name, column, complaint):
    change_column(copied / name, column, lambda values: ["x" if isinstance(values[0], str) else 0] * len(values))
    answer = twinserve("validate", copied)
    assert answer.code == 2
    assert complaint in answer.line


@pytest.mark.parametrize("value", ["x", None, 5.5, [1]], ids=str)
@pytest.mark.parametrize(
    ("name", "column"),
    [
        *(("steps.parquet", column) for column in ("end_ns", "num_tokens", "num_rows", "prefill_pairs", "num_waiting")),
        *(("requests.parquet", column) for column in ("request_id", "arrival_ns", "output_len")),
        *(("tokens.parquet", column) for column in ("request_id", "time_ns")),
    ],
)
def test_a_column_of_other_values_is_named_with_its_row(twinserve, copied, name, column, value):
    change_column(copied / name, column, lambda values: [value] * len(values))
    answer = twinserve("validate", copied)
    assert answer.code == 2
    assert f"{name}: {column}: row 0 holds {value!r}; expected a whole number" in answer.line


@pytest.mark.parametrize("column", ["num_decodes", "num_rows", "num_tokens"])
def test_steps_of_impossible_counts_are_named(twinserve, copied, column):
    change_column(copied / "steps.parquet", column, lambda values: [*values[:3], 1 << 62, *values[4:]])
    answer = twinserve("validate", copied)
    assert answer.code == 2
    assert f"steps.parquet: {column}: row 3 holds " in answer.line


@pytest.mark.parametrize("name", ["steps.parquet", "tokens.parquet", "decisions.parquet"])
def test_a_folder_where_a_file_should_be_is_named(twinserve, copied, name):
    (copied / name).unlink()
    (copied / name).mkdir()
    answer = twinserve("validate", copied)
    assert answer.code == 2
    assert f"{name}: is no file; run the experiment again" in answer.line


def test_a_lacking_column_is_named(twinserve, copied):
    table = parquet.read_table(copied / "requests.parquet").drop_columns(["sent_ns"])
    parquet.write_table(table, copied / "requests.parquet")
    assert "requests.parquet: has no column sent_ns" in twinserve("validate", copied).line


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"num_blocks": None}, "manifest.json: num_blocks: is missing"),
        ({"num_blocks": True}, "manifest.json: num_blocks: is True; should be a whole number of at least 1"),
        ({"capture_sizes": [1, 2]}, "manifest.json: capture_sizes: is [1, 2]; should be ascending token counts"),
        ({"capture_sizes": {"decode": [3, 2]}}, "capture_sizes: is {'decode': [3, 2]}; should be ascending"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_named(twinserve, copied, changes, complaint):
    edit(copied / "manifest.json", **changes)
    answer = twinserve("validate", copied)
    assert answer.code == 2
    assert complaint in answer.line
