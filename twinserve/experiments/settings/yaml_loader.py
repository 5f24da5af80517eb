"""Reads YAML strictly: duplicate keys are errors, and ``1e3`` and ``inf`` are numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from twinserve.experiments.errors import MAX_VALUE, ConfigError, shown
from twinserve.experiments.settings.plain_numbers import yaml_float, yaml_int

MAX_DEPTH = 30
"""Levels of a YAML file; an experiment has about eight."""
MAX_BYTES = 2 << 20


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the numbers of YAML 1.2, minus all that an experiment has no use for.

    Refused: duplicate keys, keys that are no text, aliases and anchors, tags, and deep nesting.
    """

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        _refuse_extras(event)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(
                None, None, f"nested more than {MAX_DEPTH} levels deep; an experiment has few", event.start_mark
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = _key_text(key_node)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"duplicate key {shown(key)}; keep one of them", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _refuse_extras(event: Any) -> None:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        problem = "aliases and anchors (*name, &name) are not supported; write the value out"
        raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
    if getattr(event, "tag", None) is not None:
        problem = "tags (!name) are not supported; write the plain value"
        raise yaml.composer.ComposerError(None, None, problem, event.start_mark)


def _key_text(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode) and node.tag in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"):
        return str(node.value)
    text = str(node.value) if isinstance(node, yaml.ScalarNode) else "a list or mapping"
    message = f"{text[:MAX_VALUE]} is not a key; keys are words (put quotes around it if it is meant as text)"
    raise yaml.constructor.ConstructorError(None, None, message, node.start_mark)


class _Dumper(yaml.SafeDumper):
    """Never writes anchors: a value that occurs twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


_Loader.add_constructor("tag:yaml.org,2002:int", yaml_int)
_Loader.add_constructor("tag:yaml.org,2002:float", yaml_float)
for _kind in (_Loader, _Dumper):  # the writer quotes text that the reader would take for a number
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$"),
        list("-+.0123456789"),
    )
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?inf(?:inity)?$", re.IGNORECASE), list("-+iI")
    )


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises:
        ConfigError: the file cannot be read, is not YAML, repeats a key, or holds no mapping.
    """
    try:
        size = path.stat().st_size
        text = path.read_text(encoding="utf-8") if size <= MAX_BYTES else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {_reason(error)}; give a readable YAML file", file=path) from error
    if size > MAX_BYTES:
        raise ConfigError(f"has {size:,} bytes; a YAML file here has at most {MAX_BYTES:,}", file=path)
    data = parse_yaml(text, source=path)
    if data is None:
        raise ConfigError("is empty; expected keys such as `workload:`", file=path)
    if not isinstance(data, dict):
        raise ConfigError(f"holds a {type(data).__name__}; expected keys such as `workload:`", file=path)
    return data


def parse_yaml(text: str, *, source: str | Path) -> Any:
    """The value of a YAML text; ``source`` names it in errors."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(_problem(error), file=source) from error
    except RecursionError as error:
        raise ConfigError("not valid YAML: nested too deeply; an experiment has few levels", file=source) from error
    except (ValueError, TypeError, ArithmeticError, LookupError) as error:  # a date such as 2023-13-45
        raise ConfigError(f"not valid YAML: {error}; put quotes around text", file=source) from error


def dump_yaml(data: dict[str, Any]) -> str:
    """YAML text that ``read_yaml`` reads back as the same data."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


def _problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    ours = any(part in problem for part in ("duplicate key", "not a key", "not supported", "nested more", "digits"))
    return f"{where}{problem}" if ours else f"{where}not valid YAML: {problem}"


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"
