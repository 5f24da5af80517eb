"""The roofline: published sizes and floors, and what bounds which step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from twinserve.experiments.config.catalog import load_hardware, load_model
from twinserve.experiments.settings.paths import packaged_names
from twinserve.run_core.model_config import ModelConfig
from twinserve.sched_core.dispatch import GraphMode
from twinserve.sched_core.features import StepFeatures
from twinserve.sim_backend.hardware import Hardware
from twinserve.sim_backend.memory import ModelDoesNotFitError, num_kv_blocks
from twinserve.sim_backend.roofline import RooflineCostModel

HERE = Path()


def decodes(rows, context_each=1024, mode=GraphMode.DECODE):
    return StepFeatures(rows, rows, rows, rows * context_each, 0, 0, 0, rows, 0, mode, rows)


def prefill(tokens, mode=GraphMode.MIXED):
    return StepFeatures(tokens, 1, 0, 0, tokens, tokens * (tokens + 1) // 2, tokens, 1, 1, mode, tokens)


def model(name="Qwen/Qwen3-8B", dtype="bfloat16"):
    return load_model(name, dtype, HERE)


def gpu(name):
    return load_hardware(name, HERE)


def floor_ms(hardware, features):
    """Only bytes and arithmetic: the host costs nothing."""
    bare = replace(
        hardware.ideal(),
        flops_efficiency=hardware.flops_efficiency,
        bandwidth_efficiency=hardware.bandwidth_efficiency,
    )
    return RooflineCostModel(model(), bare).step_ns(features, 0) / 1e6


@pytest.mark.parametrize(
    ("size", "kv_bytes", "weights_gb"),
    [
        ("0.6B", 114_688, 1.19),
        ("1.7B", 114_688, 3.44),
        ("4B", 147_456, 8.04),
        ("8B", 147_456, 16.38),
        ("14B", 163_840, 29.54),
        ("32B", 262_144, 65.52),
    ],
)
def test_qwen3_sizes_follow_from_the_shapes(size, kv_bytes, weights_gb):
    shape = model(f"Qwen/Qwen3-{size}")
    assert shape.kv_bytes_per_token == kv_bytes
    assert shape.weight_bytes / 1e9 == pytest.approx(weights_gb, abs=0.006)


def test_llama_has_its_published_parameter_count():
    assert model("meta-llama/Llama-3.1-8B").num_parameters == 8_030_261_248


def test_dtype_scales_weights_and_cache():
    half, full = model(), model(dtype="float32")
    assert full.weight_bytes == 2 * half.weight_bytes
    assert full.kv_bytes_per_token == 2 * half.kv_bytes_per_token


# Floors of Qwen3-8B; the tolerance covers activations and the head of a prefill, which the table leaves out. At 256
# rows matrix products are bound by arithmetic and attention by memory: part by part that is 13.9 ms, not 12.5.
@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (decodes(1), 3.56),
        (decodes(32), 4.64),
        (decodes(128), 8.01),
        (decodes(256), 13.9),
        (prefill(512), 9.13),
        (prefill(2048), 37.7),
    ],
)
def test_h200_floors_at_measured_rates(features, expected):
    assert floor_ms(gpu("h200"), features) == pytest.approx(expected, rel=0.035)


@pytest.mark.parametrize(
    ("features", "expected"),
    [(decodes(1), 15.2), (decodes(32), 19.8), (prefill(512), 43.5), (prefill(2048), 180)],
)
def test_rtx_4090_floors_by_the_sheet(features, expected):
    assert floor_ms(gpu("rtx-4090").ideal(), features) == pytest.approx(expected, rel=0.035)


def test_eager_step_cannot_end_before_its_kernels_are_launched():
    hardware = replace(gpu("h200").ideal(), eager_layer_us=900, graph_launch_us=100)
    cost = RooflineCostModel(model(), hardware)
    assert cost.step_ns(decodes(1, mode=GraphMode.EAGER), 0) == 36 * 900_000
    long_prefill = prefill(8192, GraphMode.EAGER)
    assert cost.step_ns(long_prefill, 0) == RooflineCostModel(model(), hardware.ideal()).step_ns(long_prefill, 0)
    by_graph = cost.step_ns(decodes(1), 0) - RooflineCostModel(model(), hardware.ideal()).step_ns(decodes(1), 0)
    assert by_graph == 100_000


def test_host_gap_is_added_to_every_step():
    hardware = gpu("h200").ideal()
    slower = replace(hardware, host_gap_us=300, host_per_row_us=2, host_per_started_us=20)
    step = prefill(2048)
    assert RooflineCostModel(model(), slower).step_ns(step, 0) - RooflineCostModel(model(), hardware).step_ns(
        step, 0
    ) == pytest.approx(322_000, abs=1)


def test_head_is_paid_only_when_rows_sample():
    cost = RooflineCostModel(model(), gpu("h200").ideal())
    unfinished = prefill(512)._replace(num_samples=0)
    assert cost.step_ns(prefill(512), 0) > cost.step_ns(unfinished, 0)
    assert cost.head_ns(0) == 0


def test_padding_is_paid_for():
    cost = RooflineCostModel(model(), gpu("rtx-4090"))
    assert cost.step_ns(prefill(600)._replace(num_padded_tokens=1024), 0) > cost.step_ns(prefill(600), 0)


def test_kv_pool_of_the_note_is_found_within_five_percent():
    blocks = num_kv_blocks(model(), gpu("rtx-4090"), block_size=256, max_num_batched_tokens=512, max_num_seqs=64)
    assert blocks == pytest.approx(155, rel=0.05)


def test_kv_pool_grows_with_memory_and_shrinks_with_the_step():
    small = num_kv_blocks(model(), gpu("rtx-4090"), block_size=16)
    assert num_kv_blocks(model(), gpu("a100-80g"), block_size=16) > small
    assert num_kv_blocks(model(), gpu("rtx-4090"), block_size=16, max_num_batched_tokens=8192) < small


def test_model_that_does_not_fit_is_refused_with_sizes_and_remedy():
    with pytest.raises(ModelDoesNotFitError, match=r"Qwen3-32B does not fit .*4090: 61\.0 GiB of weights.*override"):
        num_kv_blocks(model("Qwen/Qwen3-32B"), gpu("rtx-4090"), block_size=16)


@pytest.mark.parametrize("name", packaged_names("hardware"))
def test_every_shipped_gpu_decodes_slower_than_its_sheet(name):
    real, ideal = (RooflineCostModel(model(), each) for each in (gpu(name), gpu(name).ideal()))
    assert real.step_ns(decodes(32), 0) > ideal.step_ns(decodes(32), 0)


def test_impossible_hardware_is_refused_by_name():
    with pytest.raises(ValueError, match="tflops"):
        Hardware(name="x", tflops=0, memory_bandwidth_gbps=1, memory_gib=1)
    with pytest.raises(ValueError, match="fractions"):
        Hardware(name="x", tflops=1, memory_bandwidth_gbps=1, memory_gib=1, flops_efficiency=1.2)


def test_impossible_shape_is_refused_by_name():
    values = dict.fromkeys(("num_hidden_layers", "hidden_size", "head_dim", "intermediate_size", "vocab_size"), 8)
    with pytest.raises(ValueError, match="multiple"):
        ModelConfig(name="x", num_attention_heads=3, num_key_value_heads=2, **values)
    with pytest.raises(ValueError, match="num_attention_heads"):
        ModelConfig(name="x", num_attention_heads=0, num_key_value_heads=2, **values)
