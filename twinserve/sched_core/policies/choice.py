"""One chosen policy: what names it, its parameters, and how it is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import reduce
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, TypeAlias

from twinserve.sched_core.policies.interfaces import StepTimeEstimator

Maker: TypeAlias = Callable[..., Any]
"""A class, or anything else that makes a policy when called."""

PolicyChoice: TypeAlias = str | Maker | Mapping[str, Any]
"""A built-in name, an import path, a maker, or a mapping of ``use`` (one of these) and keyword parameters."""

USE, ESTIMATOR = "use", "estimator"


class PolicyError(ValueError):
    """A policy that cannot be built; ``seam`` and, where one is to blame, ``parameter`` say which."""

    def __init__(self, message: str, *, seam: str, parameter: str | None = None) -> None:
        self.key = seam if parameter is None else f"{seam}.{parameter}"
        super().__init__(f"{self.key}: {message}")
        self.message, self.seam, self.parameter = message, seam, parameter


def split_choice(seam: str, choice: PolicyChoice) -> tuple[str | Maker, dict[str, Any]]:
    """What is used, and its parameters.

    Raises:
        PolicyError: the choice is none.
    """
    parameters = dict(choice) if isinstance(choice, Mapping) else {USE: choice}
    use = parameters.pop(USE, None)
    if use is None:
        raise PolicyError(f"names no policy; write {{{USE}: NAME, parameter: value}}", seam=seam)
    if not isinstance(use, str) and not callable(use):
        raise PolicyError(f"got {use!r}; should be a name, an import path or a class", seam=seam)
    return use, parameters


def resolve(seam: str, choice: PolicyChoice, known: Mapping[str, Maker]) -> Maker:
    """The class behind a choice; ``known`` are the built-in ones by name.

    Raises:
        PolicyError: there is none.
    """
    use, _ = split_choice(seam, choice)
    if not isinstance(use, str):
        return use
    if ":" in use:
        return _import(seam, use)
    if use not in known:
        message = f"unknown {seam} {use!r}; known: {', '.join(known)}, or an import path package.module:Name"
        raise PolicyError(message, seam=seam)
    return known[use]


def construct(
    seam: str, choice: PolicyChoice, known: Mapping[str, Maker], estimator: StepTimeEstimator | None = None
) -> Any:
    """The policy itself.

    Raises:
        PolicyError: as for ``build_policies``.
    """
    maker, (_, given) = resolve(seam, choice, known), split_choice(seam, choice)
    _check_parameters(seam, maker, given)
    injected: dict[str, Any] = {}
    if takes_estimator(maker):
        if estimator is None:
            raise PolicyError("takes a step-time estimator, and there is none", seam=seam)
        injected[ESTIMATOR] = estimator
    try:
        return maker(**given, **injected)
    except (ValueError, TypeError) as error:
        parameter = next(iter(given)) if len(given) == 1 else None
        shown = f"got {given[parameter]!r}; " if parameter is not None else ""
        raise PolicyError(f"{shown}{_plain(error)}", seam=seam, parameter=parameter) from error


def checked(seam: str, policy: Any, protocol: type[Any]) -> Any:
    """``policy``, which must have the methods of its seam's ``protocol``.

    Raises:
        PolicyError: one is missing, or cannot be called with as many arguments as it will be.
    """
    kind = type(policy).__name__
    for name, wanted in vars(protocol).items():
        if name.startswith("_") or not callable(wanted):
            continue
        method = getattr(policy, name, None)
        expected = [*signature(wanted).parameters][1:]
        if not callable(method):
            raise PolicyError(f"{kind} is no {seam}: it has no method {name}({', '.join(expected)})", seam=seam)
        if not _can_take(method, len(expected)):
            raise PolicyError(f"{kind}.{name} should take ({', '.join(expected)})", seam=seam)
    return policy


def _can_take(method: Callable[..., Any], count: int) -> bool:
    try:
        signature(method).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a method in C may say nothing
        return True
    return True


def takes_estimator(maker: Maker) -> bool:
    """Whether the constructor has a parameter called ``estimator``."""
    return ESTIMATOR in _signature(maker)


def parameters_of(maker: Maker) -> dict[str, Parameter]:
    """The keyword parameters that a choice may give, by name."""
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return {name: found for name, found in _signature(maker).items() if found.kind in kinds and name != ESTIMATOR}


def _signature(maker: Maker) -> Mapping[str, Parameter]:
    try:
        return signature(maker).parameters
    except (ValueError, TypeError):  # a maker in C may have none
        return {}


def _check_parameters(seam: str, maker: Maker, given: Mapping[str, Any]) -> None:
    known = parameters_of(maker)
    open_ended = any(found.kind is Parameter.VAR_KEYWORD for found in _signature(maker).values())
    for name in given:
        if name == ESTIMATOR:
            raise PolicyError("is given by the run itself; leave it out", seam=seam, parameter=name)
        if name not in known and not open_ended:
            raise PolicyError(f"unknown parameter; {_suggestion(name, [*known])}", seam=seam, parameter=name)
    for name, found in known.items():
        if found.default is Parameter.empty and name not in given:
            raise PolicyError("is missing; give it a value", seam=seam, parameter=name)


def _suggestion(wrong: str, known: list[str]) -> str:
    close = get_close_matches(wrong, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known here: {', '.join(known) or 'nothing'}"


def _import(seam: str, path: str) -> Maker:
    module_name, _, attributes = path.partition(":")
    try:
        found: Any = reduce(getattr, attributes.split("."), import_module(module_name))
    except (ImportError, AttributeError) as error:
        raise PolicyError(f"cannot load {seam} {path!r}: {error}", seam=seam) from None
    if not isinstance(found, type):
        raise PolicyError(f"{seam} {path!r} is not a class", seam=seam)
    return found


def _plain(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
