"""Numbers as people write them: ASCII digits, a point, an exponent; nothing that YAML or Python reads otherwise."""

from __future__ import annotations

import re
from decimal import Decimal

import yaml

_DECIMAL = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.?inf(?:inity)?|\.?nan", re.IGNORECASE)
_COUNT = re.compile(r"\+?([0-9]{1,40})(?:\.0*)?")
MAX_DIGITS = 300
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")


def decimal_number(text: str) -> float | None:
    """The number that ``text`` is, ``inf`` included; None for any other text, such as 1_000, 0x10, 1:30 or nan."""
    text = text.strip()
    if _DECIMAL.fullmatch(text):
        return float(text)
    return float(text.lower().replace(".", "")) if _INFINITE.fullmatch(text) and "nan" not in text.lower() else None


def count_text(text: str) -> int | None:
    """The count that ``text`` is: digits, and zeros after a point (374.0, as data tools write columns with gaps)."""
    match = _COUNT.fullmatch(text.strip())
    return int(match.group(1)) if match else None


def yaml_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    """A whole number without leading zeros, bases, colons or underscores, which YAML would read as another one."""
    text = _bounded(node)
    if not _WHOLE.fullmatch(text):
        raise _refusal(node, loader.construct_yaml_int)
    return int(text)


def yaml_float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    """A decimal number, or an infinity; no colons or underscores."""
    text = _bounded(node)
    if _DECIMAL.fullmatch(text):
        return float(text)
    if _INFINITE.fullmatch(text):
        return float(text.lower().replace(".", ""))
    raise _refusal(node, loader.construct_yaml_float)


def _bounded(node: yaml.ScalarNode) -> str:
    text = str(node.value)
    if len(text) > MAX_DIGITS:
        problem = f"a number of {len(text)} characters; give at most {MAX_DIGITS}"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return text


def _refusal(node: yaml.ScalarNode, meaning: object) -> yaml.constructor.ConstructorError:
    text = str(node.value)
    shown = text if len(text) <= 40 else f"{text[:37]}..."
    try:
        value = meaning(node) if callable(meaning) else None
    except ValueError:
        value = None
    read = "" if value is None else f" (YAML reads it as {str(value)[:40]})"
    problem = f"{shown} is no plain number{read}; write {_remedy(text, value)}, or put quotes around text"
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _remedy(text: str, value: object) -> str:
    """What was most likely meant."""
    digits = text.replace("_", "")
    if _DECIMAL.fullmatch(digits):
        return str(Decimal(digits)) if len(digits) <= 40 else "it in decimal digits"
    return str(value)[:40] if value is not None and ":" not in text else "one number in decimal digits"
