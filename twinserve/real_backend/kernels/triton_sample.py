"""Drawing tokens in one pass over the logits: the noise of ``sampling_rng`` is made in registers, never in memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_BLOCK = 4096


@triton.jit
def _mix32(x: tl.tensor) -> tl.tensor:
    """``sampling_rng``'s mixing function, on uint32."""
    x ^= x >> 16
    x *= 0x85EBCA6B
    x ^= x >> 13
    x *= 0xC2B2AE35
    return x ^ (x >> 16)


@triton.jit
def _log_exponential(seed: tl.tensor, position: tl.tensor, token_ids: tl.tensor) -> tl.tensor:
    """Logarithms of ``sampling_rng.exponential_noise`` for one row (int64 seed and position)."""
    first = _mix32(_mix32(seed.to(tl.uint32)) ^ position.to(tl.uint32))
    second = _mix32(_mix32((seed >> 32).to(tl.uint32) + 0x9E3779B1) ^ first)
    bits = _mix32(_mix32((token_ids.to(tl.uint32) * 0x9E3779B1) ^ first) ^ second)
    uniform = (bits.to(tl.float32) + 0.5) * 2.0**-32
    # log(1 - u) loses the small variates, the ones that win a draw; there its series is exact to float32.
    series = uniform * (1.0 + uniform * (0.5 + uniform * (1.0 / 3.0)))
    return tl.log(tl.where(uniform < 1e-2, series, -tl.log(1.0 - uniform)))


@triton.jit
def _best_of_part_kernel(
    logits_ptr: tl.tensor, temperature_ptr: tl.tensor, seed_ptr: tl.tensor, position_ptr: tl.tensor,
    best_ptr: tl.tensor, best_id_ptr: tl.tensor, row_stride: tl.tensor,
    VOCAB: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Program (part, row): best score and its token among BLOCK tokens; +inf where a logit is NaN or +inf."""
    part, row = tl.program_id(0), tl.program_id(1)
    token_ids = part * BLOCK + tl.arange(0, BLOCK)
    inside = token_ids < VOCAB
    logits = tl.load(logits_ptr + row.to(tl.int64) * row_stride + token_ids, mask=inside, other=float("-inf"))
    scores = logits.to(tl.float32)
    is_nan = scores != scores  # noqa: PLR0124 (what NaN is known by)
    bad = tl.max((is_nan | (scores == float("inf"))).to(tl.int32), axis=0)
    temperature = tl.load(temperature_ptr + row)
    if temperature > 0:
        noise = _log_exponential(tl.load(seed_ptr + row), tl.load(position_ptr + row), token_ids)
        scores = scores / temperature - noise
    best, index = tl.max(scores, axis=0, return_indices=True)
    place = row * tl.num_programs(0) + part
    tl.store(best_ptr + place, tl.where(bad > 0, float("inf"), best))
    tl.store(best_id_ptr + place, part * BLOCK + index)


@triton.jit
def _best_part_kernel(
    best_ptr: tl.tensor, best_id_ptr: tl.tensor, out_ptr: tl.tensor, NUM_PARTS: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    """Program (row): the best part's token, or -1 where no logit is finite or one is NaN or +inf."""
    row = tl.program_id(0)
    parts = tl.arange(0, BLOCK)
    scores = tl.load(best_ptr + row * NUM_PARTS + parts, mask=parts < NUM_PARTS, other=float("-inf"))
    best, index = tl.max(scores, axis=0, return_indices=True)
    token_id = tl.load(best_id_ptr + row * NUM_PARTS + index).to(tl.int64)
    tl.store(out_ptr + row, tl.where(tl.abs(best) == float("inf"), -1, token_id))


def draw(logits: torch.Tensor, temperature: torch.Tensor, seed: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """The same contract as ``sampler.draw_with_torch``, in two launches."""
    num_rows, vocab_size = logits.shape
    num_parts = triton.cdiv(vocab_size, _BLOCK)
    out = torch.empty(num_rows, device=logits.device, dtype=torch.int64)
    if num_rows == 0:
        return out
    best = torch.empty((num_rows, num_parts), device=logits.device, dtype=torch.float32)
    best_id = torch.empty((num_rows, num_parts), device=logits.device, dtype=torch.int32)
    _best_of_part_kernel[(num_parts, num_rows)](
        logits, temperature, seed, position, best, best_id, logits.stride(0),
        VOCAB=vocab_size, BLOCK=_BLOCK, num_warps=8,
    )  # fmt: skip
    block = triton.next_power_of_2(num_parts)
    _best_part_kernel[(num_rows,)](best, best_id, out, NUM_PARTS=num_parts, BLOCK=block, num_warps=1)
    return out
