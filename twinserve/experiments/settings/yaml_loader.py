"""Reads YAML strictly: duplicate keys are errors, and ``1e3`` and ``inf`` are numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.settings.plain_numbers import yaml_float, yaml_int


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader (YAML 1.1) plus YAML 1.2 floats, minus silent duplicates, non-text keys, odd numbers."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = _key_text(key_node)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"duplicate key {key!r}; keep one of them", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _key_text(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode) and node.tag in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"):
        return str(node.value)
    shown = node.value if isinstance(node, yaml.ScalarNode) else "a list or mapping"
    message = f"{shown} is not a key; keys are words (put quotes around it if it is meant as text)"
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
        re.compile(r"^[-+]?(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)[eE][-+]?\d+$"),
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
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {_reason(error)}; give a readable YAML file", file=path) from error
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
    except (ValueError, KeyError, AttributeError) as error:  # a date such as 2023-13-45; tags: !!bool maybe
        problem = str(error) if isinstance(error, ValueError) else "a tag (!!...) on a value that it does not fit"
        raise ConfigError(f"not valid YAML: {problem}; put quotes around text", file=source) from error


def dump_yaml(data: dict[str, Any]) -> str:
    """YAML text that ``read_yaml`` reads back as the same data."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


def _problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    ours = "duplicate key" in problem or "not a key" in problem
    return f"{where}{problem}" if ours else f"{where}not valid YAML: {problem}"


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"
