"""From logits to token ids: greedy, temperature, top-k and top-p, without waiting for the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from real_backend.errors import EngineError
from real_backend.sampling_rng import exponential_noise, row_keys


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SamplingTensors:
    """Parameters of S rows on the logits' device.

    ``temperature`` float32 (0 = greedy), ``top_p`` float32 (1 = off), ``top_k`` integer (0 = off), ``seed`` int64, and
    ``position`` int64: the place of the token to be drawn in its sequence. ``forbidden_rows`` and
    ``forbidden_tokens`` (int64, equally long) are pairs that may not be drawn (``min_tokens``). What the host knows of
    all rows picks the shortest path: ``all_greedy``, and ``any_truncated`` (some row has top-k or top-p).
    """

    temperature: torch.Tensor
    top_p: torch.Tensor
    top_k: torch.Tensor
    seed: torch.Tensor
    position: torch.Tensor
    all_greedy: bool
    any_truncated: bool
    forbidden_rows: torch.Tensor | None = None
    forbidden_tokens: torch.Tensor | None = None


def sample(logits: torch.Tensor, params: SamplingTensors) -> torch.Tensor:
    """One token id per row, int64 [S], of logits [S, vocab]; writes into the logits where tokens are forbidden.

    A row whose logits cannot be sampled from (NaN, infinite) gives -1, so that nothing waits for the device here;
    ``check_sampled`` turns that into an error on the host.
    """
    if params.forbidden_rows is not None and params.forbidden_tokens is not None:
        logits[params.forbidden_rows, params.forbidden_tokens] = -torch.inf
    best_logits, greedy = logits.max(dim=-1)
    token_ids = greedy if params.all_greedy else _drawn(logits, greedy, params)
    return torch.where(best_logits.isfinite(), token_ids, -1)


def check_sampled(token_ids: NDArray[np.int64]) -> None:
    """Raises ``EngineError`` if ``sample`` could not draw for some row; ``token_ids`` are its result on the host."""
    if (token_ids < 0).any():
        rows = int((token_ids < 0).sum())
        raise EngineError(
            f"the model's logits are NaN or infinite in {rows} of {len(token_ids)} rows; "
            "check the weights, or use dtype bfloat16 or float32 if this is float16"
        )


def _drawn(logits: torch.Tensor, greedy: torch.Tensor, params: SamplingTensors) -> torch.Tensor:
    """Gumbel-max: argmax of logits / temperature - log(exponential noise) is a draw from the softmax."""
    is_greedy = params.temperature == 0
    scaled = logits.float() / torch.where(is_greedy, 1.0, params.temperature).unsqueeze(1)
    if params.any_truncated:
        scaled = _truncated(scaled, params)
    noise = exponential_noise(row_keys(params.seed, params.position), logits.shape[1])
    drawn = scaled.sub_(noise.log_()).argmax(dim=-1)
    return torch.where(is_greedy, greedy, drawn)


def _truncated(scaled: torch.Tensor, params: SamplingTensors) -> torch.Tensor:
    """Logits outside each row's top k, then outside the smallest set of probability >= top p, become -inf.

    Tokens as likely as the last one kept are kept as well.
    """
    descending = scaled.sort(dim=-1, descending=True).values
    vocab_size = scaled.shape[1]
    top_k = torch.where(params.top_k > 0, params.top_k, vocab_size).clamp(max=vocab_size).long().unsqueeze(1)
    ranks = torch.arange(vocab_size, device=scaled.device)
    inside = ranks < top_k
    probabilities = torch.where(inside, descending, -torch.inf).softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    top_p = params.top_p.unsqueeze(1)
    inside &= (before < top_p) | (top_p >= 1.0)
    last = (inside.sum(dim=-1, keepdim=True) - 1).clamp(min=0)
    return torch.where(scaled >= descending.gather(1, last), scaled, -torch.inf)
