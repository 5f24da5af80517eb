"""The ``sim.cost_model`` section, and the files that it reads."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow
import pyarrow.parquet
import pytest
from pydantic import TypeAdapter, ValidationError

from tests.sim_backend.measured_steps import made_up
from twinserve.experiments.config.calibration import read_calibration, write_calibration
from twinserve.experiments.config.catalog import load_hardware, load_model
from twinserve.experiments.config.cost_model import (
    CostModelConfig,
    build_cost_model,
    cost_model_files,
    known_capture_sizes,
    known_num_blocks,
)
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.settings.yaml_loader import dump_yaml, read_yaml
from twinserve.sched_core.dispatch import NO_GRAPHS, CaptureSizes, GraphMode
from twinserve.sched_core.features import StepFeatures
from twinserve.sim_backend.calibration.values import HeldOutError, HostGap, StepTerms

MODEL = SimpleNamespace(name="Qwen/Qwen3-8B", dtype="bfloat16")
ENGINE = SimpleNamespace(block_size=16, gpu_memory_utilization=0.9, max_num_batched_tokens=512, max_num_seqs=64)
STEP = StepFeatures(100, 2, 1, 50, 99, 4950, 99, 2, 1, GraphMode.EAGER, 100)
CALIBRATION = made_up(
    {GraphMode.EAGER: StepTerms(dense_knots_ms=((1.0, 10.0), (512.0, 50.5)), floor_ms=12.5)},
    block_size=256,
    origin="made up: for a test",
    capture_sizes=CaptureSizes(decode=(1, 2, 4)),
    host_gap=HostGap(base_ms=0.25),
    covered={"num_tokens": (1, 512)},
    held_out=HeldOutError(num_steps=40, mape_percent=1.5, p95_percent=4.0, bias_percent=-0.2),
)


def section(**values):
    return TypeAdapter(CostModelConfig).validate_python(values)


def test_linear_section_prices_steps(tmp_path):
    config = section(kind="linear", floor_ms=15, base_ms=5, per_token_ms=0.08, decode_only={"base_ms": 20})
    model = build_cost_model(config, model=MODEL, base_dir=tmp_path)
    assert model.step_ns(STEP, 0) == 15_000_000
    assert model.step_ns(STEP._replace(prefill_tokens=0), 0) == 20_000_000
    assert known_num_blocks(config, model=MODEL, engine=ENGINE, base_dir=tmp_path) is None
    assert known_capture_sizes(config, base_dir=tmp_path) == NO_GRAPHS
    assert cost_model_files(config, model=MODEL, base_dir=tmp_path) == {}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"kind": "linear"}, "no time"),
        ({"kind": "linear", "base_ms": -1}, "base_ms"),
        ({"kind": "linear", "base_ms": 1, "per_tokens_ms": 1}, "per_tokens_ms"),
        ({"kind": "linear", "knots": [[5, 1], [4, 1]]}, "ascend"),
        ({"kind": "linear", "base_ms": 1, "decode_only": {"decode_only": {}}}, "decode_only"),
        ({"kind": "rooflin", "hardware": "h200"}, "kind"),
    ],
)
def test_wrong_section_is_refused_by_key(values, named):
    with pytest.raises(ValidationError, match=named):
        section(**values)


def test_roofline_section_takes_shapes_and_blocks_from_files(tmp_path):
    config = section(kind="roofline", hardware="RTX 4090")
    assert build_cost_model(config, model=MODEL, base_dir=tmp_path).step_ns(STEP, 0) > 1_000_000
    blocks = known_num_blocks(config, model=MODEL, engine=ENGINE, base_dir=tmp_path)
    assert blocks * 16 == pytest.approx(155 * 256, rel=0.05)
    names = {role: path.name for role, path in cost_model_files(config, model=MODEL, base_dir=tmp_path).items()}
    assert names == {"hardware": "rtx-4090.yaml", "model": "qwen3-8b.yaml"}


def test_unknown_hardware_is_refused_with_what_is_near(tmp_path):
    with pytest.raises(ConfigError, match="did you mean rtx-4090"):
        build_cost_model(section(kind="roofline", hardware="rtx-4900"), model=MODEL, base_dir=tmp_path)


def test_model_too_large_for_the_gpu_is_refused(tmp_path):
    large = SimpleNamespace(name="Qwen/Qwen3-32B", dtype="bfloat16")
    with pytest.raises(ConfigError, match="does not fit"):
        known_num_blocks(section(kind="roofline", hardware="l40s"), model=large, engine=ENGINE, base_dir=tmp_path)


def test_own_hardware_file_is_read_by_path(tmp_path):
    (tmp_path / "mine.yaml").write_text("name: mine\ntflops: 100\nmemory_bandwidth_gbps: 500\nmemory_gib: 16\n")
    assert load_hardware("mine.yaml", tmp_path).flops_per_ns == 1e5


@pytest.mark.parametrize(
    ("line", "named"),
    [("tflop: 1", "did you mean tflops"), ("tflops: 0", "tflops must be"), ("tflops: many", "tflops")],
)
def test_wrong_hardware_file_names_file_and_key(tmp_path, line, named):
    (tmp_path / "bad.yaml").write_text(f"name: x\nmemory_bandwidth_gbps: 500\nmemory_gib: 16\n{line}\n")
    with pytest.raises(ConfigError, match=rf"bad\.yaml: .*{named}"):
        load_hardware("bad.yaml", tmp_path)


def test_dtype_of_unknown_size_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"model\.dtype"):
        load_model("Qwen/Qwen3-8B", "fp8", tmp_path)


def test_calibration_file_reads_back_as_it_was_written(tmp_path):
    write_calibration(CALIBRATION, tmp_path / "c.yaml")
    assert read_calibration(tmp_path / "c.yaml") == CALIBRATION
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


def test_calibration_section_takes_times_blocks_and_graphs_from_the_file(tmp_path):
    write_calibration(CALIBRATION, tmp_path / "c.yaml")
    config = section(kind="calibration", file="c.yaml", out_of_range="fail")
    expected = (10.0 + 99 * 40.5 / 511 + 0.25) * 1e6
    assert build_cost_model(config, model=MODEL, base_dir=tmp_path).step_ns(STEP, 0) == pytest.approx(expected, abs=1)
    assert known_num_blocks(config, model=MODEL, engine=ENGINE, base_dir=tmp_path) == 1600
    assert known_capture_sizes(config, base_dir=tmp_path) == CaptureSizes(decode=(1, 2, 4))
    assert cost_model_files(config, model=MODEL, base_dir=tmp_path) == {"calibration": tmp_path / "c.yaml"}


def test_calibration_file_of_another_version_is_refused(tmp_path):
    write_calibration(CALIBRATION, tmp_path / "c.yaml")
    text = (tmp_path / "c.yaml").read_text().replace("version: 1", "version: 2")
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"c\.yaml: version"):
        read_calibration(tmp_path / "c.yaml")


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        (
            "throttles",
            {"mixed": {"time_constant_ms": 0, "from_share": 0.5}},
            "throttles.mixed: time_constant_ms must be finite",
        ),
        (
            "throttles",
            {"decode": {"time_constant_ms": 20, "from_share": 1}},
            "throttles.decode: from_share must be at least 0 and less",
        ),
        (
            "throttles",
            {"mixed": {"time_constant_ms": float("nan"), "from_share": 0.5}},
            "throttles.mixed.time_constant_ms: got nan",
        ),
        ("throttles", {"mixed": {"time_constant_ms": 20}}, "throttles.mixed.from_share: is missing"),
        (
            "throttles",
            {"mixed": {"time_constant_ms": 20, "from_shares": 0}},
            "throttles.mixed.from_shares: unknown key; did you mean",
        ),
        ("throttles", 5, "throttles: got 5; should be a mapping"),
        ("throttles", {"prefill": {"time_constant_ms": 20, "from_share": 0.5}}, "throttles.prefill: "),
        ("throttle", {}, "throttle: unknown key; did you mean throttles?"),
        ("host_gap", {"base_ms": -1}, "host_gap: base_ms must be finite and not negative"),
        ("host_gap", {"base_ms": 1e300}, "host_gap.base_ms: got 1e+300"),
        ("modes", {"eager": {"dense_knots_ms": [[1, 2]], "throttled_ms": -1}}, "modes.eager: throttled_ms must be"),
        ("modes", {"eager": {"dense_knots_ms": [[2, 2], [1, 2]]}}, "modes.eager: knots: tokens must ascend"),
        ("capture_sizes", {"decode": [4, 2]}, "capture_sizes.decode: got [4, 2]; should be ascending"),
        ("covered", {"num_rows": [3, 1]}, "covered: num_rows has its least value 3 above its greatest 1"),
    ],
)
def test_hand_edited_calibration_names_the_wrong_key(tmp_path, key, value, complaint):
    write_calibration(CALIBRATION, tmp_path / "c.yaml")
    data = read_yaml(tmp_path / "c.yaml")
    (tmp_path / "c.yaml").write_text(dump_yaml({**data, key: value}))
    with pytest.raises(ConfigError) as caught:
        read_calibration(tmp_path / "c.yaml")
    assert str(caught.value).startswith(f"{tmp_path / 'c.yaml'}: {complaint}")


def test_replay_section_follows_recorded_steps(tmp_path):
    table = pyarrow.table({"step_id": [0, 1], "start_ns": [5, 20], "end_ns": [20, 31]})
    pyarrow.parquet.write_table(table, tmp_path / "steps.parquet")
    model = build_cost_model(section(kind="replay", run="."), model=MODEL, base_dir=tmp_path)
    assert model.wake_ns(0) == 5
    assert [model.step_ns(STEP, 5), model.step_ns(STEP, 20)] == [15, 11]


def test_replay_of_a_missing_run_is_refused_by_key(tmp_path):
    with pytest.raises(ConfigError, match=r"sim\.cost_model\.run: cannot be read"):
        build_cost_model(section(kind="replay", run="gone"), model=MODEL, base_dir=tmp_path)
