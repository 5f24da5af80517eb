"""Attention over pages: the CPU backend against dense attention, the choice of a backend, and its refusals."""

from __future__ import annotations

import importlib
import logging
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.real_backend.paged_batches import dense_attention, metadata, paged_batch
from twinserve.real_backend.attention import registry as attention_registry
from twinserve.real_backend.attention.base import AttentionShape
from twinserve.real_backend.attention.facts import ATTENTION_BACKENDS, AttentionBackendName
from twinserve.real_backend.attention.registry import make_attention_backend
from twinserve.real_backend.attention.row_groups import decode_rows, prefill_rows
from twinserve.real_backend.attention.two_calls import TwoCalls
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
    backend.forward(batch.q, batch.k_cache, batch.v_cache, out)
    torch.testing.assert_close(out.double(), dense_attention(batch), atol=2e-6, rtol=2e-6)


def test_tokens_of_no_row_leave_the_output_alone() -> None:
    batch = paged_batch([(1, 5), (3, 7)], block_size=8, heads=(4, 2, 16))
    padded = torch.cat((batch.q, batch.q[:2]))
    out = torch.full_like(padded, 7.0)
    backend = make_attention_backend("auto", shape(block_size=8))
    backend.begin_step(batch.meta)
    backend.forward(padded, batch.k_cache, batch.v_cache, out)
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


def test_a_head_size_that_the_kernels_do_not_have_is_refused() -> None:
    cuda = shape(device=torch.device("cuda"), dtype=torch.bfloat16, block_size=256, head_dim=100)
    with pytest.raises(
        EngineError, match=r"fa2 cannot be used: the model's head size must be one of 8, 16, \.\.\., 256"
    ):
        make_attention_backend("fa2", cuda)


def test_a_library_that_is_too_old_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_registry.importlib, "import_module", lambda module: SimpleNamespace())
    cuda = shape(device=torch.device("cuda"), dtype=torch.bfloat16, block_size=256)
    with pytest.raises(EngineError, match=r"torch\.nn\.attention\.varlen has no varlen_attn_out"):
        make_attention_backend("torch_varlen", cuda)


def test_a_configuration_may_name_every_backend() -> None:
    assert get_args(AttentionBackendName) == ("auto", *ATTENTION_BACKENDS)


@pytest.mark.parametrize("name", ATTENTION_BACKENDS)
def test_the_facts_name_an_implementation_that_knows_its_name(name: str) -> None:
    module, _, kind = ATTENTION_BACKENDS[name].implementation.partition(":")
    if module in ("fa3", "triton_backend"):
        pytest.importorskip("triton")
    imported = importlib.import_module(f"twinserve.real_backend.attention.{module}")
    assert getattr(imported, kind).name == name


class EchoingCalls(TwoCalls):
    """Writes which call served a token."""

    def _attend_decodes(self, rows: Any, q: Any, k_cache: Any, v_cache: Any, out: torch.Tensor) -> None:
        assert len(q) == len(out) == len(rows.seqused_k)
        out.fill_(1.0)

    def _attend_prefills(self, rows: Any, q: Any, k_cache: Any, v_cache: Any, out: torch.Tensor) -> None:
        assert len(q) == len(out)
        out.fill_(2.0)


@pytest.mark.parametrize(
    ("rows", "served"),
    [([(1, 9), (1, 3), (4, 10)], [1.0, 1.0, *[2.0] * 4]), ([(1, 2)], [1.0]), ([(3, 3)], [2.0] * 3)],
)
def test_each_call_gets_the_tokens_of_its_rows(rows: list[tuple[int, int]], served: list[float]) -> None:
    backend, tokens = EchoingCalls(), torch.zeros(len(served), 1, 1)
    backend.begin_step(metadata(rows, 4, torch.Generator().manual_seed(0)))
    backend.forward(tokens, tokens, tokens, tokens)
    assert tokens.flatten().tolist() == served


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
