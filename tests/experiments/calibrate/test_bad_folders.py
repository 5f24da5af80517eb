"""What ``twinserve calibrate`` refuses, each in one line that names the folder or file, and writes nothing."""

from __future__ import annotations

import resource

import pytest

from tests.experiments.helpers.measured_folders import copy_kernels, step_table, write_profile, write_run
from twinserve.experiments.cli.main import main

ONE_LAYER = "layer,tokens,time_us\nmoe,1,2\n"


def refusal(capsys, *arguments):
    """The line that the command ends with."""
    assert main(["calibrate", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    return captured.err


def spoilt(column, value):
    values = list(step_table()[column])
    values[5] = value
    return {column: values}


@pytest.mark.parametrize(
    ("manifest", "field"),
    [
        ({"device": "Other GPU"}, "gpu"),
        ({"model": "Qwen/Qwen3-4B"}, "model"),
        ({"dtype": "float16"}, "dtype"),
        ({"attention_backend": "fa3"}, "attention_backend"),
        ({"capture_sizes": {"decode": [1], "mixed": []}}, "capture_sizes"),
    ],
)
def test_folders_of_different_engines_are_named_with_what_differs(tmp_path, capsys, manifest, field):
    one, other = write_run(tmp_path / "one"), write_run(tmp_path / "other", manifest=manifest)
    line = refusal(capsys, one, other, "-o", tmp_path / "c.yaml")
    assert all(word in line for word in (str(one), str(other), field))
    assert str(other) in refusal(capsys, one, "--held-out", other, "-o", tmp_path / "c.yaml")
    assert not (tmp_path / "c.yaml").exists()


def test_different_block_sizes_and_missing_device_times_do_not_mix(tmp_path, capsys):
    one, other = write_run(tmp_path / "one"), write_run(tmp_path / "other", block_size=256)
    assert "block_size is 256, but 16" in refusal(capsys, one, other, "-o", tmp_path / "c.yaml")
    untimed = write_run(tmp_path / "untimed", changes={"device_ns": [None] * 600})
    assert "device was timed is no, but yes" in refusal(capsys, one, untimed, "-o", tmp_path / "c.yaml")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"decode_context": None}, "decode_context: there is no such column"),
        ({"device_ns": None}, "device_ns: there is no such column"),
        (spoilt("num_rows", float("nan")), "num_rows: row 5 holds nan"),
        (spoilt("num_rows", None), "num_rows: row 5 holds nan"),
        (spoilt("prefill_pairs", -1), "prefill_pairs: row 5 holds -1"),
        (spoilt("device_ns", None), "device_ns: row 5 has no time"),
        (spoilt("device_ns", 0), "device_ns: row 5 has no time"),
        (spoilt("device_ns", 1 << 50), "device_ns: row 5 holds 1.12589990684262e+15, above its step's"),
        (spoilt("end_ns", 0), "row 5 ends before it starts"),
        (spoilt("graph_mode", "warp"), "'warp' is none of eager, decode, mixed"),
        ({"num_rows": ["many"] * 600}, "num_rows: does not hold numbers"),
        ({"num_rows": [[1]] * 600}, "num_rows: does not hold numbers"),
        (spoilt("num_decodes", 1 << 60), "num_decodes: row 5 holds 1.15"),
        (spoilt("num_tokens", 0), "num_rows: row 5 holds"),
        (spoilt("start_ns", 1 << 62), "row 5 ends before it starts"),
        ({name: [] for name in step_table()}, "holds no steps"),
    ],
)
def test_bad_columns_are_named_with_file_and_row(tmp_path, capsys, changes, words):
    run = write_run(tmp_path / "run", changes=changes)
    line = refusal(capsys, run, "-o", tmp_path / "c.yaml")
    assert words in line
    assert "steps.parquet" in line


def test_too_few_steps_are_counted(tmp_path, capsys):
    assert "too few steps" in refusal(capsys, write_run(tmp_path / "run", count=4), "-o", tmp_path / "c.yaml")


def test_folder_of_no_known_kind_is_refused_and_a_run_inside_it_suggested(tmp_path, capsys):
    write_run(tmp_path / "out" / "abc")
    line = refusal(capsys, tmp_path / "out", "-o", tmp_path / "c.yaml")
    assert "is none of these" in line
    assert "out/abc?)" in line
    assert "is no folder" in refusal(capsys, tmp_path / "nothing", "-o", tmp_path / "c.yaml")


def test_simulated_and_unfinished_runs_are_refused(tmp_path, capsys):
    simulated = write_run(tmp_path / "sim", manifest={"backend": "sim"})
    assert "is not a real run" in refusal(capsys, simulated, "-o", tmp_path / "c.yaml")
    unfinished = write_run(tmp_path / "cut", manifest={"device": None})
    assert "device: is missing" in refusal(capsys, unfinished, "-o", tmp_path / "c.yaml")


@pytest.mark.parametrize(
    ("field", "value", "right"),
    [
        *(("num_blocks", value, "a whole number of at least 1") for value in (0, -3, True, "many", 1.5)),
        *(("block_size", value, "a whole number of at least 1") for value in (0, "16")),
        *(
            ("capture_sizes", value, "ascending token counts under decode and mixed")
            for value in ([], {"decode": 5}, {"decode": "x"}, {"decode": [0]}, {"mixed": [3, 2]}, {"what": [1]})
        ),
        *((field, 5, "text") for field in ("device", "model", "dtype", "attention_backend")),
    ],
)
def test_manifest_with_a_wrong_value_is_named_with_key_and_what_is_right(tmp_path, capsys, field, value, right):
    profile = write_profile(tmp_path / "profile", manifest={field: value})
    line = refusal(capsys, profile, "-o", tmp_path / "c.yaml")
    assert f"manifest.json: {field}: is {value!r}; should be {right}" in line


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_damaged_manifest_is_named(tmp_path, capsys, text):
    run = write_run(tmp_path / "run")
    (run / "manifest.json").write_text(text)
    assert "manifest.json" in refusal(capsys, run, "-o", tmp_path / "c.yaml")


def test_damaged_parquet_is_named(tmp_path, capsys):
    profile = write_profile(tmp_path / "profile")
    (profile / "profile.parquet").write_bytes(b"PAR1")
    assert "profile.parquet" in refusal(capsys, profile, "-o", tmp_path / "c.yaml")


def test_output_that_is_no_yaml_or_cannot_be_written_is_found_before_the_work(tmp_path, capsys):
    assert "-o: is no YAML file" in refusal(capsys, tmp_path, "-o", tmp_path / "c.json")
    (tmp_path / "folder.yaml").mkdir()
    assert "-o: is a folder; give the name of a file" in refusal(capsys, tmp_path, "-o", tmp_path / "folder.yaml")
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refusal(capsys, tmp_path, "-o", tmp_path / "file" / "c.yaml")


@pytest.mark.parametrize("most_bytes", [100, 5000], ids=["no file fits", "the picture does not fit"])
def test_full_disk_leaves_the_older_calibration(tmp_path, capsys, most_bytes):
    run, file = write_run(tmp_path / "run"), tmp_path / "out" / "c.yaml"
    file.parent.mkdir()
    file.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, limits[1]))
    try:
        assert "cannot be written: File too large" in refusal(capsys, run, "-o", file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name: path.read_text() for path in file.parent.iterdir()} == {"c.yaml": "old"}


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        ({"dense": ONE_LAYER}, "line 2: 'moe' is no layer"),
        ({"dense": "layer,tokens\nact_fn,1\n"}, "no column 'time_us'"),
        ({"attention": "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n0,0,1,16,x\n"}, "line 2: time_us is 'x'"),
        ({"meta": "gpu: X\n"}, "engine_effective: is missing"),
        ({"meta": "model: X\nengine_effective: {max_num_seqs: 0}\n"}, "engine_effective.max_num_seqs: got 0"),
    ],
)
def test_bad_kernel_profiles_are_named_with_file_and_line(tmp_path, capsys, replaced, words):
    folder = copy_kernels(tmp_path / "kernels", **replaced)
    assert words in refusal(capsys, folder, "--num-blocks", 100, "-o", tmp_path / "c.yaml")


def test_kernel_profile_needs_the_number_of_blocks(tmp_path, capsys):
    folder = copy_kernels(tmp_path / "kernels")
    assert "--num-blocks: kernel times know of no KV pool" in refusal(capsys, folder, "-o", tmp_path / "c.yaml")


def test_folder_that_is_given_twice_is_refused(tmp_path, capsys):
    run = write_run(tmp_path / "run")
    assert "is given twice" in refusal(capsys, run, run, "-o", tmp_path / "c.yaml")
    again = tmp_path / "elsewhere" / ".." / "run"
    (tmp_path / "elsewhere").mkdir()
    assert "is given twice" in refusal(capsys, run, "--held-out", again, "-o", tmp_path / "c.yaml")
