"""Sampling parameters of ``LLM.generate``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from numbers import Real
from operator import index
from typing import Any

from twinserve.real_backend.errors import shown
from twinserve.sched_core.requests import spec

SMALLEST_TEMPERATURE = 1e-5
"""Below it sampling is greedy, as in vLLM: the logits divided by less are no numbers to draw from."""

_LARGEST_TEMPERATURE = 1e30
_INT32, _INT64 = 2**31 - 1, 2**63 - 1
_TAKE_ONE = -1
"""The seed that stands for none, as in vLLM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one prompt is continued; names and meaning as in vLLM.

    ``temperature`` below 1e-5 is greedy; ``top_k`` None, 0 or -1 and ``top_p`` 1.0 do not truncate; ``seed`` (64 bits,
    signed) None or -1 takes one from the engine's seed. At most ``max_tokens`` tokens (>= 1; None: as many as
    max_model_len has room for) are made; end-of-sequence stops earlier unless ``ignore_eos``, any of
    ``stop_token_ids`` always does, neither before ``min_tokens``.

    Raises:
        ValueError: a value of a wrong type or outside its range.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int | None = None
    max_tokens: int | None = 64
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: Iterable[int] | None = ()

    def __post_init__(self) -> None:
        self._keep("temperature", _real("temperature", self.temperature, 0.0, _LARGEST_TEMPERATURE))
        self._keep("top_p", _real("top_p", self.top_p, 0.0, 1.0))
        if self.top_p == 0.0:
            raise ValueError("top_p must be above 0 and at most 1, got 0.0")
        for name, least, most in (("top_k", -1, _INT32), ("seed", -_INT64 - 1, _INT64), ("max_tokens", 1, inf)):
            value = getattr(self, name)
            self._keep(name, None if value is None else whole(name, value, least, most))
        most = inf if self.max_tokens is None else self.max_tokens
        self._keep("min_tokens", whole("min_tokens", self.min_tokens, 0, most, "max_tokens"))
        if not isinstance(self.ignore_eos, bool):
            raise ValueError(f"ignore_eos must be True or False, got {shown(self.ignore_eos)}")
        self._keep("stop_token_ids", _token_ids(self.stop_token_ids))

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """``stop_token_ids``, checked."""
        return tuple(self.stop_token_ids or ())

    def resolved(self, max_tokens: int, eos_token_ids: tuple[int, ...]) -> spec.SamplingParams:
        """As the scheduler wants them, for a request of at most ``max_tokens`` whose model ends with these ids."""
        return spec.SamplingParams(
            temperature=0.0 if self.temperature < SMALLEST_TEMPERATURE else self.temperature,
            top_p=self.top_p,
            top_k=self.top_k if self.top_k is not None and self.top_k > 0 else None,
            seed=None if self.seed == _TAKE_ONE else self.seed,
            ignore_eos=self.ignore_eos,
            stop_token_ids=self.stop_ids,
            eos_token_ids=eos_token_ids,
            min_tokens=min(self.min_tokens, max_tokens),
        )

    def _keep(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def whole(name: str, value: Any, least: float, most: float, most_is: str = "") -> int:
    """``value`` as an int from ``least`` to ``most``. Raises ValueError for another value, a float or a bool."""
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not least <= number <= most:
        upto = f"at least {least}" if most == inf else f"from {least} to {most_is and most_is + ' = '}{shown(most)}"
        raise ValueError(f"{name} must be a whole number, {upto}, got {shown(value)}")
    return number


def _real(name: str, value: Any, least: float, most: float) -> float:
    # A comparison with NaN is False; one with an int of any size is exact.
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:
        raise ValueError(f"{name} must be a number from {least:g} to {most:g}, got {shown(value)}")
    return float(value)


def _token_ids(ids: Any) -> tuple[int, ...]:
    if ids is None:
        return ()
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise ValueError(f"stop_token_ids must be a list of token ids, got {shown(ids)}")
    return tuple(whole("a token id of stop_token_ids", token_id, 0, _INT32) for token_id in ids)
