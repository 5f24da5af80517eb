"""Attention over pages: the CPU backend against dense attention, the choice of a backend, and its refusals."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.real_backend.paged_batches import dense_attention, metadata, paged_batch
from twinserve.real_backend.attention import AttentionShape, make_attention_backend
from twinserve.real_backend.attention import registry as attention_registry
from twinserve.real_backend.attention.row_groups import decode_rows, prefill_rows
from twinserve.real_backend.errors import EngineError


def shape(**changes: Any) -> AttentionShape:
    values: dict[str, Any] = {
        "device": torch.device("cpu"),
        "dtype": torch.float32,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 16,
        "block_size": 16,
    }
    return AttentionShape(**values | changes)


rows_of_any_length = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 40)).map(lambda row: (row[0], row[0] + row[1])), min_size=1, max_size=6
).map(lambda rows: sorted(rows, key=lambda row: row[0] > 1))


@settings(max_examples=60, deadline=None)
@given(rows=rows_of_any_length, block_size=st.sampled_from([1, 8, 16, 256]), groups=st.sampled_from([1, 2, 5]))
def test_rows_see_their_own_keys_up_to_themselves(rows: list[tuple[int, int]], block_size: int, groups: int) -> None:
    batch = paged_batch(rows, block_size=block_size, heads=(2 * groups, 2, 16))
    backend = make_attention_backend("sdpa", shape(num_heads=2 * groups, block_size=block_size))
    out = torch.full_like(batch.q, float("nan"))
    backend.begin_step(batch.meta)
    backend.forward(batch.q, batch.k_cache, batch.v_cache, 0, out)
    torch.testing.assert_close(out.double(), dense_attention(batch), atol=2e-6, rtol=2e-6)


def test_tokens_of_no_row_leave_the_output_alone() -> None:
    batch = paged_batch([(1, 5), (3, 7)], block_size=8, heads=(4, 2, 16))
    padded = torch.cat((batch.q, batch.q[:2]))
    out = torch.full_like(padded, 7.0)
    backend = make_attention_backend("auto", shape(block_size=8))
    backend.begin_step(batch.meta)
    backend.forward(padded, batch.k_cache, batch.v_cache, 0, out)
    assert (out[-2:] == 7.0).all()
    assert (out[:-2] != 7.0).all()


def test_cpu_gets_sdpa_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert make_attention_backend("auto", shape()).name == "sdpa"
    assert "chosen automatically" in caplog.text
    assert "not fa3: it needs a CUDA device" in caplog.text


def test_unknown_backend_is_refused_with_the_known_names() -> None:
    with pytest.raises(EngineError, match=r"'flash' is not known; use auto or one of fa3, fa2, torch_varlen, triton"):
        make_attention_backend("flash", shape())


@pytest.mark.parametrize("name", ["fa2", "fa3", "torch_varlen", "triton"])
def test_gpu_backends_are_refused_on_a_cpu(name: str) -> None:
    with pytest.raises(EngineError, match=f"{name} cannot be used: it needs a CUDA device"):
        make_attention_backend(name, shape())


@pytest.mark.parametrize("name", ["fa2", "torch_varlen"])
def test_a_block_size_that_does_not_fit_the_backend_is_refused(name: str) -> None:
    cuda = shape(device=torch.device("cuda"), dtype=torch.bfloat16, block_size=16)
    with pytest.raises(EngineError, match=r"block_size must be a multiple of 256 \(is 16\)"):
        make_attention_backend(name, cuda)


def test_flash_kernels_are_refused_in_float32() -> None:
    with pytest.raises(EngineError, match="float16 and bfloat16, not float32"):
        make_attention_backend("fa2", shape(device=torch.device("cuda"), block_size=256))


def test_a_library_built_for_another_torch_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(module: str) -> Any:
        raise OSError(f"{module}: undefined symbol")

    monkeypatch.setattr(attention_registry.importlib, "import_module", broken)
    cuda = shape(device=torch.device("cuda"), dtype=torch.bfloat16, block_size=256)
    with pytest.raises(EngineError, match="flash_attn cannot be imported"):
        make_attention_backend("fa2", cuda)


def test_row_groups_count_tokens_and_keys_from_zero() -> None:
    meta = metadata([(1, 9), (1, 3), (4, 10), (2, 2)], 4, torch.Generator().manual_seed(0))
    decodes, prefills = decode_rows(meta), prefill_rows(meta)
    assert decodes is not None
    assert prefills is not None
    assert decodes.cu_seqlens_q.tolist() == [0, 1, 2]
    assert decodes.seqused_k.tolist() == [9, 3]
    assert prefills.first_token == 2
    assert prefills.cu_seqlens_q.tolist() == [0, 4, 6]
    assert prefills.cu_seqlens_k.tolist() == [0, 10, 12]
    assert prefills.block_table.tolist() == meta.block_table[2:].tolist()


def test_a_pure_batch_has_one_row_group() -> None:
    generator = torch.Generator().manual_seed(0)
    assert prefill_rows(metadata([(1, 9), (1, 3)], 4, generator)) is None
    assert decode_rows(metadata([(2, 9)], 4, generator)) is None
