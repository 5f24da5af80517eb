"""The options that every kind of workload has for its requests and clients."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from twinserve.experiments.settings.schema import MAX_COUNT, FromList, PositiveFloat, PositiveInt, Seconds, Section


class ClientClass(Section):
    """A share of the requests, in proportion to ``weight``, with a client name and a priority (smaller is first).

    Requests find only blocks of their own ``cache_salt`` in the prefix cache: give each tenant one.
    """

    client: str = ""
    priority: Annotated[int, Field(ge=-MAX_COUNT, le=MAX_COUNT)] = 0
    weight: PositiveFloat = 1.0
    cache_salt: str = ""


class Abort(Section):
    """Clients that give up ``after_s`` seconds after sending, each with ``probability``."""

    probability: Annotated[float, Field(ge=0, le=1)]
    after_s: Seconds


def _yaml_word(value: Any) -> Any:
    """``none`` and ``true`` are words here, but YAML may read them as null and a boolean."""
    return {None: "none", True: "true"}.get(value, value) if value is None or value is True else value


class RequestOptions(Section):
    """Options of all workloads.

    ``max_concurrency`` N holds requests back while N are unfinished (closed loop). ``max_tokens`` is what a client
    asks for: the ``true_length`` of its answer, a ``fixed`` number (``max_tokens_value``) or all that
    ``max_model_len`` leaves. ``predicted_output_len`` is a hint for policies: ``none``, the ``true`` length, or
    ``noisy``: the true one times log-normal noise of mean 1 and coefficient of variation ``predicted_output_cv``.
    Requests over ``max_input_len`` or ``max_output_len`` are dealt with by ``over_length``.
    """

    max_concurrency: PositiveInt | None = None
    max_tokens: Literal["true_length", "fixed", "max_model_len"] = "true_length"
    max_tokens_value: PositiveInt | None = None
    predicted_output_len: Annotated[Literal["none", "true", "noisy"], BeforeValidator(_yaml_word)] = "none"
    predicted_output_cv: Annotated[float, Field(gt=0, le=100)] | None = None
    classes: Annotated[tuple[ClientClass, ...], FromList] = ()
    abort: Abort | None = None
    max_input_len: PositiveInt | None = None
    max_output_len: PositiveInt | None = None
    over_length: Literal["clip", "drop", "error"] = "clip"

    @model_validator(mode="after")
    def _values_go_with_choices(self) -> Self:
        if (self.max_tokens == "fixed") != (self.max_tokens_value is not None):
            raise ValueError("max_tokens_value goes with max_tokens: fixed; give both or neither")
        if (self.predicted_output_len == "noisy") != (self.predicted_output_cv is not None):
            raise ValueError("predicted_output_cv goes with predicted_output_len: noisy; give both or neither")
        return self
