"""Random numbers that are a function of (seed, position, token id): no state, no order, no batch.

A draw for a request is then the same whatever else is in the batch, however its prompt was chunked, and after a
preemption. Two 32-bit keys are mixed from (seed, position); every token id is hashed with both. The mixing function
is the finaliser of MurmurHash3 (Appleby, public domain): every bit of its input reaches every bit of its output.
"""

from __future__ import annotations

import torch

_LOW_32 = 0xFFFFFFFF
_GOLDEN_32 = 0x9E3779B1  # 2^32 / golden ratio, odd: neighbouring ids land far apart


def row_keys(seed: torch.Tensor, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two keys below 2^32 (int64 [S]) for int64 ``seed`` and ``position`` [S]."""
    low, high = seed & _LOW_32, (seed >> 32) & _LOW_32
    first = _mix32(_mix32(low) ^ (position & _LOW_32))
    second = _mix32(_mix32(high + _GOLDEN_32 & _LOW_32) ^ first)
    return first, second


def exponential_noise(keys: tuple[torch.Tensor, torch.Tensor], vocab_size: int) -> torch.Tensor:
    """Independent Exp(1) variates, float32 [S, vocab_size], one for every row and token id."""
    first, second = keys
    token_ids = torch.arange(vocab_size, device=first.device, dtype=torch.int64)
    bits = _mix32((token_ids * _GOLDEN_32 & _LOW_32) ^ first.unsqueeze(1))
    bits = _mix32(bits ^ second.unsqueeze(1))
    # log1p keeps the smallest variates, the ones that win a draw, accurate to 2^-32.
    uniform = (bits.to(torch.float32) + 0.5) * 2.0**-32
    return torch.log1p(-uniform).neg_()


def _mix32(x: torch.Tensor) -> torch.Tensor:
    """A bijection on 32-bit numbers held in int64: the low half of a wrapping product is exact."""
    x = x ^ (x >> 16)
    x = x * 0x85EBCA6B & _LOW_32
    x = x ^ (x >> 13)
    x = x * 0xC2B2AE35 & _LOW_32
    return x ^ (x >> 16)
