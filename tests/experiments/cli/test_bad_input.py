"""Bad input beyond a wrong key: one line, exit 2, nothing written lost."""

from __future__ import annotations

import json

import pytest

from tests.experiments.helpers.small_experiments import small, write
from twinserve.experiments.config.calibration import read_calibration, write_calibration
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.settings.paths import packaged_configs

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
HUGE = 10**30


def trace(tmp_path, text, **options):
    (tmp_path / "trace.csv").write_text(text)
    return small(workload={"kind": "trace", "format": "azure", "path": "trace.csv", **options})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name: [\n", "line 2, column 1: not valid YAML"),
        ("name: x\n\tseed: 1\n", "line 2, column 1: not valid YAML"),
        ("engine: {block_size: 16, block_size: 32}\n", "line 1, column 26: duplicate key 'block_size'; keep one"),
        ("seed: !!bool maybe\n", "tags (!name) are not supported; write the plain value"),
        ("seed: !!timestamp noon\n", "tags (!name) are not supported; write the plain value"),
        ("seed: 2023-13-45\n", "not valid YAML: month must be in 1..12; put quotes around text"),
        ("x: " + "[" * 3000 + "]" * 3000, "nested more than 30 levels deep; an experiment has few"),
        ("seed: *nowhere\n", "aliases and anchors (*name, &name) are not supported; write the value out"),
        ("- a\n- b\n", "holds a list; expected keys such as `workload:`"),
        ("", "is empty; expected keys such as `workload:`"),
    ],
)
def test_what_is_no_experiment_is_named_with_its_place(twinserve, tmp_path, text, complaint):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    answer = twinserve("run", path, "--out", tmp_path / "out")
    assert answer.code == 2
    assert answer.line.startswith(f"twinserve: error: {path}: ")
    assert complaint in answer.line


ARRIVAL = "workload__arrival"
TOO_LARGE = [
    {"engine__max_num_seqs": HUGE},
    {"engine__block_size": HUGE},
    {"engine__num_gpu_blocks_override": HUGE},
    {"engine__long_prefill_token_threshold": HUGE},
    {"engine__cuda_graph_sizes": {"mixed": [HUGE]}},
    {"workload__output_len__value": HUGE},
    {"workload__input_len__max": HUGE},
    {"workload__input_len": {"dist": "lognormal", "mean": 1e-300, "std": 3.0}},
    {"workload__input_len": {"dist": "lognormal", "mean": 3.0, "std": 1e308}},
    {"workload__max_input_len": HUGE},
    {"workload__classes": [{"priority": HUGE}]},
    {"workload__abort": {"probability": 0.5, "after_s": 1e308}},
    {"workload__sessions": {"turns": {"dist": "fixed", "value": 2}, "think_time_s": 1e300}},
    {f"{ARRIVAL}__request_rate": 1e-300},
    {ARRIVAL: {"process": "gamma", "request_rate": 5.0, "cv": 101}},
    {
        ARRIVAL: {
            "process": "poisson",
            "ramp_up_strategy": "linear",
            "ramp_up_start_rps": 1e-320,
            "ramp_up_end_rps": 1.0,
        }
    },
    {"sim__cost_model__base_ms": 1e308},
    {"sim__cost_model__host_gap_ms": 1e30},
    {"sim__cost_model": {"kind": "linear", "knots": [[1, 1e300]]}},
    {"seed": HUGE},
]


@pytest.mark.parametrize("changes", TOO_LARGE, ids=[str(changes)[:50] for changes in TOO_LARGE])
def test_a_number_beyond_all_reason_is_refused_where_it_stands(run, tmp_path, changes):
    answer = run(small(**changes))
    section = next(iter(changes)).split("__")[0]
    assert answer.code == 2
    assert answer.line.startswith(f"twinserve: error: {tmp_path / 'experiment.yaml'}: {section}")


def test_the_smallest_variation_is_constant_arrivals(run):
    assert run(small(**{ARRIVAL: {"process": "gamma", "request_rate": 5.0, "cv": 1e-300}})).code == 0


def test_a_simulation_that_outlasts_the_clock_ends_in_one_line(run):
    answer = run(
        small(
            sim__cost_model__per_context_token_us=1e9,
            sim__cost_model__base_ms=1e9,
            workload__num_prompts=4000,
            workload__output_len__value=8,
            engine__max_num_seqs=1,
        ),
        "--no-progress",
    )
    assert answer.code == 1
    assert "sim.cost_model: the simulated time does not fit 63 bits of nanoseconds (292 years)" in answer.line


def test_running_out_of_memory_is_one_line(twinserve, tmp_path, monkeypatch):
    def full(*_args, **_options):
        raise MemoryError

    monkeypatch.setattr("twinserve.experiments.run.run_backend", full)
    answer = twinserve("run", write(tmp_path, small()), "--out", tmp_path / "out")
    assert answer.code == 1
    assert answer.line.startswith("twinserve: error: out of memory; lower engine.max_num_seqs")


@pytest.mark.parametrize(
    ("rows", "options", "complaint"),
    [
        (
            "2023-11-16 18:15:46,99999999999999999999,1\n",
            {},
            "line 2: ContextTokens is '99999999999999999999'; expected",
        ),
        ("2023-11-16 18:15:46,9999999999999,1\n", {}, "line 2: ContextTokens is '9999999999999'; expected a number of"),
        ("0001-01-01 00:00:00,1,1\n9999-01-01 00:00:00,1,1\n", {}, "line 3: TIMESTAMP is 2533707648"),
        ("2023-11-16 18:15:46,1,0\n", {"zero_output": "drop"}, "workload: no row is left"),
        ("2023-11-16 18:15:46,1,1\n2023-11-16 19:15:46,1,1\n", {"time_scale": 1e9}, "workload.time_scale: stretches"),
        ("2023-11-16 18:15:46,1,1\n", {"jitter_s": 1e300}, "workload.jitter_s: got 1e+300"),
        ("2023-11-16 18:15:46,1,1\n", {"start_s": 1e300}, "workload.start_s: got 1e+300"),
    ],
)
def test_a_trace_that_cannot_be_played_is_one_line(run, tmp_path, rows, options, complaint):
    answer = run(trace(tmp_path, AZURE + rows, **options))
    assert answer.code == 2
    assert complaint in answer.line
    assert not list((tmp_path / "out").glob("*/result.json"))


def test_a_trace_that_is_no_text_says_so(run, tmp_path):
    data = trace(tmp_path, "")
    (tmp_path / "trace.csv").write_bytes(b"\x1f\x8b\xff\xfe")
    assert run(data).line.endswith(
        "trace.csv: cannot be read: it is not UTF-8 text; is it compressed, or no trace at all?"
    )


def test_prompts_that_never_fit_are_failures_with_a_reason_and_exit_0(run, tmp_path):
    answer = run(trace(tmp_path, AZURE + "2023-11-16 18:15:46,300,4\n2023-11-16 18:15:45,30,4\n"))
    assert answer.code == 0
    assert ["prompt_exceeds_max_model_len:", "1"] in [line.split() for line in answer.out.splitlines()]
    assert answer.out.count("rows are out of order (first: line 3); sorted by time") == 1
    (path,) = (tmp_path / "out").glob("*/result.json")
    assert json.loads(path.read_text())["failures_by_reason"] == {"prompt_exceeds_max_model_len": 1}


@pytest.mark.parametrize(
    ("cost_model", "complaint"),
    [
        (
            {"kind": "roofline", "hardware": "h20"},
            "sim.cost_model.hardware: no hardware file for 'h20'; did you mean h200?",
        ),
        ({"kind": "calibration", "file": "mine"}, "sim.cost_model.file: no calibrations file for 'mine'; known here: "),
        ({"kind": "replay", "run": "gone"}, "sim.cost_model.run: "),
    ],
)
def test_an_input_file_that_is_not_there_is_named_under_its_key(run, cost_model, complaint):
    answer = run(small(sim__cost_model=cost_model))
    assert answer.code == 2
    assert f"experiment.yaml: {complaint}" in answer.line


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("class Mine(:\n", "a policy cannot be built: SyntaxError"),
        ("1 / 0\n", "a policy cannot be built: ZeroDivisionError"),
        ("class Mine:\n    def __init__(self):\n        raise RuntimeError('no')\n", "RuntimeError: no"),
        ("", "cannot load policy 'bad_policy:Mine'"),
    ],
)
def test_a_policy_of_ones_own_that_cannot_be_built_is_one_line(run, tmp_path, monkeypatch, source, complaint):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "bad_policy", raising=False)
    (tmp_path / "bad_policy.py").write_text(source)
    answer = run(small(engine__policy="bad_policy:Mine"))
    assert answer.code == 2
    assert complaint in answer.line


def test_a_module_without_a_file_is_no_policy(run):
    assert "engine.policy: there is no module 'os' in a file" in run(small(engine__policy="os:path")).line


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"run_id": "other"}'])
def test_a_result_that_was_damaged_is_named_and_made_again(run, tmp_path, content):
    assert run(small()).code == 0
    (path,) = (tmp_path / "out").glob("*/result.json")
    whole = path.read_text()
    path.write_text(content)
    answer = run(small())
    assert (answer.code, path.read_text()) == (0, whole)
    assert str(path.parent) in answer.out + answer.err


@pytest.mark.parametrize("name", ["config.yaml", "result.json", "steps.parquet"])
def test_a_damaged_run_is_not_plotted(twinserve, run, tmp_path, name):
    run(small())
    (folder,) = (tmp_path / "out").iterdir()
    (folder / name).write_text("{")
    answer = twinserve("plot", folder)
    assert answer.code == 2
    assert answer.line.startswith(f"twinserve: error: {folder / name}: ")


def test_a_sweep_of_a_sweep_is_refused(twinserve, tmp_path):
    write(tmp_path, {"base": small()}, "inner.yaml")
    answer = twinserve("sweep", write(tmp_path, {"base": "inner.yaml"}, "outer.yaml"), "--out", tmp_path / "out")
    assert answer.code == 2
    assert answer.line.endswith("outer.yaml: base: inner.yaml is itself a sweep; name an experiment")


def test_a_full_disk_in_a_sweep_keeps_what_had_finished(twinserve, tmp_path, monkeypatch):
    sweep = {"base": small(), "matrix": {"seed": [0, 1]}, "executor": {"kind": "serial"}, "report": {"plots": False}}
    config, out = write(tmp_path, sweep, "sweep.yaml"), tmp_path / "out"
    assert twinserve("sweep", config, "--out", out).code == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}

    def full(path, columns):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("twinserve.experiments.store.run_store.write_columns", full)
    answer = twinserve("sweep", config, "--out", out, "--set", "engine.max_num_seqs=2")
    assert answer.code == 1
    assert answer.err.count("cannot be written: No space left on device") == 2
    runs = {path: content for path, content in before.items() if path.parent != out}
    assert all(path.read_bytes() == content for path, content in runs.items())


def test_a_calibration_that_cannot_be_written_leaves_the_old_one(tmp_path):
    calibration = read_calibration(packaged_configs() / "calibrations" / "note-rtx-4090-v1.yaml")
    (tmp_path / "file").write_text("old")
    with pytest.raises(ConfigError, match=r"cannot be written: .* give --out a writable folder"):
        write_calibration(calibration, tmp_path / "file" / "inside.yaml")
    assert (tmp_path / "file").read_text() == "old"


def test_a_wrong_output_folder_is_found_before_the_fit(twinserve, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("twinserve.experiments.sweep.executors.in_processes", lambda *_: pytest.fail("the fit began"))
    answer = twinserve("calibrate-note", "--out", tmp_path / "file")
    assert answer.code == 2
    assert "cannot be written" in answer.line


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "model.path: is missing; give a model folder, or model.load_format: dummy"),
        (("--set", "model.path=nowhere"), "--set model.path=nowhere: model.path: "),
        (("--set", "real.attention_backend=fa4"), "real.attention_backend: got 'fa4'; should be 'auto', 'fa3'"),
    ],
)
def test_validating_a_real_run_finds_what_needs_no_device(twinserve, tmp_path, arguments, complaint):
    answer = twinserve("validate-config", write(tmp_path, small()), "--backend", "real", *arguments)
    assert answer.code == 2
    assert complaint in answer.line
