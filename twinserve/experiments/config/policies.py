"""Policies as an experiment names them: what the ``engine`` section may hold, and what it stands for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import AfterValidator, create_model

from twinserve.experiments.errors import ConfigError, shown
from twinserve.experiments.settings.explain import suggest
from twinserve.experiments.settings.schema import Section
from twinserve.sched_core.policies import registry
from twinserve.sched_core.policies.choice import USE, Maker, PolicyChoice, PolicyError, split_choice

Makers: TypeAlias = Mapping[str, Maker]
"""Seam -> the class (or other callable) that makes its policy in place of what the name would be imported as."""

NO_MAKERS: Makers = MappingProxyType({})
_PLAIN = (str, int, float, bool, type(None))


def _checked(seam: str, choice: Any) -> str | dict[str, Any]:
    """A choice in its shortest form: a name, or a mapping of ``use`` and parameters of plain values.

    Raises:
        ValueError: it is none, or not a built-in name and no import path. Whether a path can be imported and takes
            the parameters is seen when the policy is built.
    """
    if not isinstance(choice, str | Mapping):
        raise ValueError(f"got {shown(choice)}; should be a name, or a mapping {{{USE}: NAME, parameter: value}}")
    use, parameters = _split(seam, choice)
    known = registry.names()[seam]
    module, colon, attribute = use.partition(":")
    if use not in known and not (colon and module and attribute):
        raise ValueError(f"got {shown(use)}; {suggest(use, known)} (or an import path, my_package.policies:Mine)")
    for name, value in parameters.items():
        if not isinstance(value, _PLAIN) and not (
            isinstance(value, list) and all(isinstance(v, _PLAIN) for v in value)
        ):
            raise ValueError(
                f"{name} is {shown(value)}; should be a number, a text, true, false, null or a list of these"
            )
    return {USE: use, **parameters} if parameters else use


def _split(seam: str, choice: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    try:
        use, parameters = split_choice(seam, choice)
    except PolicyError as error:
        raise ValueError(error.message) from error
    if not isinstance(use, str):
        raise ValueError(f"got {shown(use)}; should be a name or an import path")
    return use, parameters


def _validator(seam: str) -> AfterValidator:
    return AfterValidator(lambda choice: _checked(seam, choice))


if TYPE_CHECKING:
    PolicySection = Section
else:
    PolicySection = create_model(
        "PolicySection",
        __base__=Section,
        **{seam: (Annotated[Any, _validator(seam)], default) for seam, default in registry.DEFAULTS.items()},
    )
    PolicySection.__doc__ = "A section with one key per seam of ``twinserve.sched_core.policies.registry``."


def chosen(section: PolicySection) -> dict[str, PolicyChoice]:
    """Seam -> what the section chose for it."""
    return {seam: getattr(section, seam) for seam in registry.DEFAULTS}


def names_of(section: PolicySection) -> dict[str, str]:
    """Seam -> name or import path, without parameters."""
    return {seam: _split(seam, getattr(section, seam))[0] for seam in registry.DEFAULTS}


def with_makers(choices: Mapping[str, PolicyChoice], makers: Makers) -> dict[str, PolicyChoice]:
    """The choices, with ``makers`` in place of the names that they have there."""
    return {
        seam: {**split_choice(seam, choice)[1], USE: makers[seam]} if seam in makers else choice
        for seam, choice in choices.items()
    }


def named(policies: Mapping[str, PolicyChoice]) -> tuple[dict[str, Any], dict[str, Maker]]:
    """Choices made in Python as values of the ``engine`` section, and the makers among them.

    Raises:
        ConfigError: an unknown seam, or a choice that is none.
    """
    values: dict[str, Any] = {}
    makers: dict[str, Maker] = {}
    for seam, choice in policies.items():
        key = f"engine.{seam}"
        if seam not in registry.DEFAULTS:
            raise ConfigError(f"there is no such seam; {suggest(seam, [*registry.DEFAULTS])}", key=key)
        try:
            use, parameters = split_choice(seam, choice)
            if not isinstance(use, str):
                makers[seam], use = use, qualified_name(use)
            values[seam] = _checked(seam, {USE: use, **parameters})
        except ValueError as error:
            message = error.message if isinstance(error, PolicyError) else str(error)
            raise ConfigError(message, key=key) from error
    return values, makers


def qualified_name(maker: Maker) -> str:
    """``module:Name``, as an import path would have it."""
    kind = maker if hasattr(maker, "__qualname__") else type(maker)
    return f"{kind.__module__}:{kind.__qualname__}"


@contextmanager
def policy_errors() -> Iterator[None]:
    """Gives errors about policies the key of the configuration.

    Raises:
        ConfigError: in place of a ``PolicyError``, or of anything that a module or class of the user's raises.
    """
    try:
        yield
    except ConfigError:
        raise
    except PolicyError as error:
        raise ConfigError(error.message, key=f"engine.{error.key}") from error
    except Exception as error:  # a module or class of the user's may raise anything
        raise ConfigError(f"a policy cannot be built: {type(error).__name__}: {error}", key="engine") from error
