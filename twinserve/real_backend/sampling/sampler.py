"""From logits to token ids: greedy, temperature, top-k and top-p, without waiting for the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from twinserve.real_backend.errors import EngineError
from twinserve.real_backend.sampling.sampling_rng import exponential_noise, row_keys


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
    """One token id per row, int64 [S], of floating-point logits [S, vocab]; overwrites those of forbidden tokens.

    A row whose logits cannot be sampled from (NaN, infinite) gives -1, so that nothing waits for the device here;
    ``check_sampled`` turns that into an error on the host.
    """
    if params.forbidden_rows is not None and params.forbidden_tokens is not None:
        logits[params.forbidden_rows, params.forbidden_tokens] = -torch.inf
    if params.any_truncated and not params.all_greedy:
        is_random = (params.temperature > 0).float()
        scale = torch.where(params.temperature > 0, params.temperature, 1.0)
        return _draw(_truncated(logits.float() / scale.unsqueeze(1), params), is_random, params)
    return _draw(logits, params.temperature, params)


def draw_with_torch(
    logits: torch.Tensor, temperature: torch.Tensor, seed: torch.Tensor, position: torch.Tensor, *, all_greedy: bool
) -> torch.Tensor:
    """A draw from softmax(logits / temperature) per row, the largest logit's first token where temperature is 0.

    By the Gumbel-max trick: argmax of logits / temperature - log(exponential noise). -1 where a logit is NaN or +inf,
    or none is finite.
    """
    largest, token_ids = logits.max(dim=-1)
    if not all_greedy:
        is_random = temperature > 0
        noise = exponential_noise(row_keys(seed, position), logits.shape[1]).log_()
        scores = logits.float() / torch.where(is_random, temperature, 1.0).unsqueeze(1) - noise
        token_ids = torch.where(is_random, scores.argmax(dim=-1), token_ids)
    return torch.where(largest.isfinite(), token_ids, -1)


def check_sampled(token_ids: NDArray[np.int64]) -> None:
    """Raises ``EngineError`` if ``sample`` could not draw for some row; ``token_ids`` are its result on the host."""
    if len(token_ids) and token_ids.min() < 0:
        rows = int((token_ids < 0).sum())
        raise EngineError(
            f"the model's logits are NaN or infinite in {rows} of {len(token_ids)} rows; "
            "check the weights, or use dtype bfloat16 or float32 if this is float16"
        )


def _draw(logits: torch.Tensor, temperature: torch.Tensor, params: SamplingTensors) -> torch.Tensor:
    if logits.is_cuda:
        from twinserve.real_backend.kernels.triton_sample import draw

        return draw(logits, temperature, params.seed, params.position)
    return draw_with_torch(logits, temperature, params.seed, params.position, all_greedy=params.all_greedy)


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
    return scaled.masked_fill(scaled < descending.gather(1, last), -torch.inf)  # NaN stays NaN
