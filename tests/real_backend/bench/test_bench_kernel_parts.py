"""Which part of a step a kernel belongs to: by its name, and for the head by its place."""

from __future__ import annotations

import pytest

from twinserve.real_backend.bench.kernel_parts import part_of, parts_of
from twinserve.real_backend.bench.results import PARTS
from twinserve.real_backend.bench.step_trace import summarise

FA3 = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90"
    "<2, cute::tuple<cute::C<1>, cute::C<1>, cute::C<1>>, cute::tuple<cute::C<128>>, cutlass::bfloat16_t>>>>"
)
GEMM, NORM, ATTENTION = "nvjet_tst_64x8_64x16_4x1_v_bz_TNT", "_rms_norm_kernel", "decode_kernel"
PICK, DRAW, DRAW_LAST = "void at::native::index_elementwise_kernel<128, 4>", "_best_of_part_kernel", "_best_part_kernel"


@pytest.mark.parametrize(
    ("name", "part"),
    [
        (GEMM, "gemm"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64", "gemm"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>", "gemm"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16>", "gemm"),
        ("void gemv2T_kernel_val<int, int, __nv_bfloat16>", "gemm"),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn", "gemm"),
        (FA3, "attention"),
        ("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>", "attention"),
        ("void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>", "attention"),
        ("flash::prepare_varlen_num_blocks_kernel(int, int, int, int const*)", "attention"),
        ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128>>", "attention"),
        ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80", "attention"),
        (ATTENTION, "attention"),
        ("prefill_kernel", "attention"),
        ("combine_kernel", "attention"),
        (NORM, "pointwise"),
        ("_silu_mul_kernel", "pointwise"),
        ("_norm_rope_store_kernel", "pointwise"),
        (DRAW, "sampling"),
        (DRAW_LAST, "sampling"),
        (PICK, "other"),
        ("Memcpy HtoD (Pinned -> Device)", "other"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>", "other"),
    ],
)
def test_a_kernels_name_tells_its_part(name: str, part: str) -> None:
    assert part_of(name) == part


def test_the_projects_own_triton_kernels_are_all_known() -> None:
    """A kernel that is renamed must not silently become "other"."""
    import ast
    from pathlib import Path

    import twinserve.real_backend.kernels

    files = Path(twinserve.real_backend.kernels.__file__).parent.glob("triton_*.py")
    functions = (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    launched = [node.name for node in functions if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel")]
    assert len(launched) >= 8
    assert [name for name in launched if part_of(name) == "other"] == []


def test_the_head_is_the_product_before_sampling() -> None:
    names = [GEMM, ATTENTION, GEMM, NORM, GEMM, NORM, PICK, GEMM, "splitKreduce_kernel", DRAW, DRAW_LAST]
    assert parts_of(names * 2) == 2 * [
        "gemm", "attention", "gemm", "pointwise", "gemm", "pointwise", "other", "head", "head", "sampling", "sampling",
    ]  # fmt: skip


def test_a_step_that_samples_nothing_has_no_head() -> None:
    assert "head" not in parts_of([GEMM, ATTENTION, GEMM, NORM, PICK])


def test_a_trace_is_summed_by_part_and_averaged_over_its_steps() -> None:
    one_step = [(GEMM, 30.0), (ATTENTION, 20.0), (NORM, 4.0), (GEMM, 10.0), (DRAW, 2.0), ("unheard_of", 1.0)]
    spans = [(float(place), name, us) for place, (name, us) in enumerate(one_step * 4)]
    trace = summarise(spans, repeats=4)
    expected = {
        "gemm": 0.030, "attention": 0.020, "pointwise": 0.004, "head": 0.010, "sampling": 0.002, "other": 0.001,
    }  # fmt: skip
    assert trace.part_ms == pytest.approx(expected)
    assert set(trace.part_ms) == set(PARTS)
    assert trace.kernels[0].name == GEMM
    assert sum(kernel.ms for kernel in trace.kernels) == pytest.approx(sum(expected.values()))
    assert {kernel.name for kernel in trace.kernels if kernel.part == "other"} == {"unheard_of"}
    assert all(kernel.launches == 1 for kernel in trace.kernels)
