"""The Triton pointwise kernels against their torch references, on a GPU or in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.real_backend.devices import interpreted, on_gpu
from twinserve.real_backend.kernels.base import QkvStore
from twinserve.real_backend.kernels.reference import TorchKernels
from twinserve.real_backend.kernels.registry import pointwise_kernels
from twinserve.real_backend.model.rope import rope_table
from twinserve.run_core.model_config import ModelConfig

on_gpu_or_interpreted = pytest.mark.parametrize(
    ("device", "dtype"),
    [
        pytest.param("cpu", torch.float32, marks=interpreted),
        pytest.param("cpu", torch.float16, marks=interpreted),
        pytest.param("cuda", torch.float32, marks=on_gpu),
        pytest.param("cuda", torch.float16, marks=on_gpu),
        pytest.param("cuda", torch.bfloat16, marks=on_gpu),
    ],
)
EPS = 1e-6
RELATIVE = {torch.float32: 4e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def triton_kernels() -> Any:
    pytest.importorskip("triton")
    from twinserve.real_backend.kernels.triton_pointwise import TritonKernels

    return TritonKernels()


def random(*shape: int, device: str, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal up to one rounding of the tensors' type: both sides compute in float32."""
    relative = RELATIVE[found.dtype]
    torch.testing.assert_close(found.float(), expected.float(), rtol=relative, atol=relative * 0.1)


@on_gpu_or_interpreted
@pytest.mark.parametrize(("num_tokens", "width"), [(0, 64), (1, 4096), (5, 1024), (3, 5120), (7, 48)])
def test_rms_norm_equals_the_reference(device: str, dtype: torch.dtype, num_tokens: int, width: int) -> None:
    x = random(num_tokens, width, device=device, dtype=dtype)
    weight = random(width, device=device, dtype=dtype, seed=1)
    assert_close(triton_kernels().rms_norm(x, weight, EPS), TorchKernels().rms_norm(x, weight, EPS))


@on_gpu_or_interpreted
@pytest.mark.parametrize(("num_tokens", "width"), [(0, 64), (1, 4096), (5, 1024), (7, 48), (2500, 64)])
def test_linear_add_norm_updates_the_residual_and_returns_its_norm(
    device: str, dtype: torch.dtype, num_tokens: int, width: int
) -> None:
    if device == "cpu" and dtype is torch.float16:
        pytest.skip("on the CPU torch.addmm cannot give a wider type than its inputs'")
    x = random(num_tokens, 32, device=device, dtype=dtype)
    weight = random(width, 32, device=device, dtype=dtype, seed=1) / 6
    residual = random(num_tokens, width, device=device, dtype=torch.float32, seed=2)
    norm = random(width, device=device, dtype=dtype, seed=3)
    expected = residual + x.float() @ weight.float().T
    hidden = triton_kernels().linear_add_norm(x, weight, residual, norm, EPS)
    assert hidden.dtype == dtype
    torch.testing.assert_close(residual, expected, rtol=1e-2, atol=1e-2)
    expected_hidden = TorchKernels().rms_norm(residual, norm, EPS)
    torch.testing.assert_close(hidden.float(), expected_hidden, rtol=1e-2, atol=1e-2)


@on_gpu_or_interpreted
@pytest.mark.parametrize(("num_tokens", "width"), [(0, 64), (1, 12288), (4, 3072), (3, 17), (2, 1025)])
def test_silu_mul_equals_the_reference(device: str, dtype: torch.dtype, num_tokens: int, width: int) -> None:
    gate_up = random(num_tokens, 2 * width, device=device, dtype=dtype)
    assert_close(triton_kernels().silu_mul(gate_up), TorchKernels().silu_mul(gate_up))


def qkv_store(heads: tuple[int, int, int], device: str, dtype: torch.dtype, *, normalise: bool) -> QkvStore:
    _, num_kv_heads, head_dim = heads
    config = ModelConfig(
        name="any",
        num_hidden_layers=1,
        hidden_size=8,
        num_attention_heads=heads[0],
        num_key_value_heads=num_kv_heads,
        head_dim=head_dim,
        intermediate_size=8,
        vocab_size=8,
        rope_theta=1e6,
    )
    cache = torch.full((2, 6, 4, num_kv_heads, head_dim), 5.0, device=device, dtype=dtype)
    return QkvStore(
        cos_sin=rope_table(config, 300, torch.device(device)),
        q_norm=random(head_dim, device=device, dtype=dtype, seed=3) if normalise else None,
        k_norm=random(head_dim, device=device, dtype=dtype, seed=4) if normalise else None,
        eps=EPS,
        k_cache=cache[0],
        v_cache=cache[1],
    )


@on_gpu_or_interpreted
@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("heads", [(32, 8, 128), (10, 2, 64), (3, 3, 24), (4, 1, 16)])
def test_norm_rope_store_equals_the_reference(
    device: str, dtype: torch.dtype, normalise: bool, heads: tuple[int, int, int]
) -> None:
    num_heads, num_kv_heads, head_dim = heads
    qkv = random(7, (num_heads + 2 * num_kv_heads) * head_dim, device=device, dtype=dtype)
    positions = torch.tensor([0, 1, 299, 17, 100, 3, 55], device=device)
    slots = torch.tensor([23, 0, -1, 7, 8, -1, 12], device=device)
    expected_qkv, expected = qkv.clone(), qkv_store(heads, device, dtype, normalise=normalise)
    TorchKernels().norm_rope_store(expected_qkv, positions, slots, expected)
    store = qkv_store(heads, device, dtype, normalise=normalise)
    triton_kernels().norm_rope_store(qkv, positions, slots, store)
    q_size = num_heads * head_dim
    assert_close(qkv[:, :q_size], expected_qkv[:, :q_size])
    assert_close(store.k_cache, expected.k_cache)
    assert torch.equal(store.v_cache, expected.v_cache)
    untouched = [slot for slot in range(24) if slot not in slots.tolist()]
    assert (store.k_cache.view(24, -1)[untouched] == 5.0).all()


def test_reference_rotation_keeps_lengths_and_relative_angles() -> None:
    """The law of rotary embedding: q.k depends on the distance of the two positions only."""
    heads = (1, 1, 16)
    qkv = random(1, 48, device="cpu", dtype=torch.float32).repeat(4, 1)
    store = qkv_store(heads, "cpu", torch.float32, normalise=False)
    TorchKernels().norm_rope_store(qkv, torch.tensor([3, 8, 103, 108]), torch.tensor([0, 1, 2, 3]), store)
    q, k = qkv[:, :16], store.k_cache.view(-1, 16)[:4]
    original = random(1, 48, device="cpu", dtype=torch.float32)
    torch.testing.assert_close(q.norm(dim=-1), original[:, :16].norm(dim=-1).repeat(4))
    torch.testing.assert_close(q[1] @ k[0], q[3] @ k[2], atol=1e-4, rtol=0)
    assert (q[1] @ k[0] - q[1] @ k[1]).abs() > 1e-3


def test_reference_norm_gives_unit_rms_times_weight() -> None:
    x = random(3, 64, device="cpu", dtype=torch.float32) * 100
    normed = TorchKernels().rms_norm(x, torch.full((64,), 2.0), EPS)
    torch.testing.assert_close(normed.square().mean(dim=-1).sqrt(), torch.full((3,), 2.0))


def test_cpu_gets_the_torch_kernels() -> None:
    assert isinstance(pointwise_kernels(torch.device("cpu")), TorchKernels)
