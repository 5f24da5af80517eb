"""Turns a pydantic error into one line: the dotted key, the problem, and what would be right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from twinserve.experiments.errors import shown

Location = tuple[int | str, ...]
Schema = Mapping[str, Any]

_TAG_ERRORS = ("union_tag_invalid", "union_tag_not_found")
_MAX_WRONG = 200
"""Longer words are compared by their beginning: the comparison is quadratic."""


def explain(error: ValidationError, model: type[BaseModel], data: Any) -> tuple[str, str]:
    """(dotted key, message) of the first problem, unknown keys before all others and missing keys last.

    ``data`` is what was validated against ``model``. A typo makes one unknown and often one missing key: the unknown
    one is the cause.
    """
    details = sorted(error.errors(include_url=False), key=_urgency)
    first = details[0]
    path = path_in_data(first["loc"], data, keep_missing=first["type"] == "missing")
    key = ".".join(map(str, path))
    if first["type"] in _TAG_ERRORS:
        tag = first["ctx"]["discriminator"].strip("'")
        key = f"{key}.{tag}" if key else tag
    others = len({detail["loc"] for detail in details}) - 1
    return key, _message(first, path, model, data) + (f" (and {others} more)" if others else "")


def suggest(wrong: str, known: Sequence[str]) -> str:
    """``did you mean ...?`` where something is close, else the list of what is known."""
    wrong = wrong[:_MAX_WRONG]
    containing = [name for name in known if wrong in name] if len(wrong) > 2 else []
    close = get_close_matches(wrong, known, n=1, cutoff=0.6) or containing
    return f"did you mean {close[0]}?" if close else f"known here: {', '.join(sorted(known)) or 'nothing'}"


def _urgency(detail: Any) -> int:
    return {"extra_forbidden": 0, "missing": 2}.get(detail["type"], 1)


def path_in_data(location: Location, data: Any, *, keep_missing: bool = False) -> Location:
    """Pydantic's location without the names of union branches, which are no keys of the YAML."""
    path: list[int | str] = []
    for position, part in enumerate(location):
        if isinstance(data, Mapping) and part in data:
            data = data[str(part)]
            path.append(part)
        elif isinstance(data, Sequence) and isinstance(part, int) and part < len(data):
            data = data[part]
            path.append(part)
        elif keep_missing and position == len(location) - 1:
            path.append(part)
    return tuple(path)


def _message(detail: Any, path: Location, model: type[BaseModel], data: Any) -> str:
    match detail["type"]:
        case "extra_forbidden":
            message = f"unknown key; {suggest(str(path[-1]), known_keys(model, path[:-1], data))}"
        case "missing":
            message = "is missing; give it a value"
        case "union_tag_not_found":
            message = f"is missing; should be one of {_tags(model, path, data)}"
        case "union_tag_invalid":
            expected = [tag.strip().strip("'") for tag in detail["ctx"]["expected_tags"].split(",")]
            message = f"got {shown(str(detail['ctx']['tag']))}; {suggest(str(detail['ctx']['tag']), expected)}"
        case "value_error":
            message = str(detail["ctx"]["error"])
        case "model_type" | "model_attributes_type" | "dict_type":
            message = f"got {shown(detail['input'])}; should be a mapping of keys"
        case _:
            message = f"got {shown(detail['input'])}; {_requirement(detail['msg'])}"
    return message


def _requirement(message: str) -> str:
    text = message.removeprefix("Input ").removeprefix("Value error, ")
    return text[0].lower() + text[1:]


def _tags(model: type[BaseModel], path: Location, data: Any) -> str:
    tags = filter(None, map(_tag, _schemas_at(model, path, data)))
    return ", ".join(sorted(value for _, value in tags))


def known_keys(model: type[BaseModel], path: Location, data: Any) -> list[str]:
    """The keys that the section at ``path`` may have, given the kind it chose in ``data``."""
    names: dict[str, None] = {}
    for schema in _schemas_at(model, path, data):
        names.update(dict.fromkeys(schema.get("properties", {})))
    return list(names)


def _schemas_at(model: type[BaseModel], path: Location, data: Any) -> list[Schema]:
    """The JSON schemas that can apply at ``path``: branches of another kind are left out."""
    root = model.model_json_schema()
    found: list[Schema] = [root]
    for part in path:
        data = data[part]
        below = [_child(schema, part) for schema in found]
        branches = [branch for schema in below if schema is not None for branch in _branches(schema, root)]
        found = [branch for branch in branches if _may_apply(branch, data)]
    return found


def _child(schema: Any, part: int | str) -> Any:
    if isinstance(part, int):
        return schema.get("items")
    return schema.get("properties", {}).get(part) or schema.get("additionalProperties")


def _branches(schema: Any, root: Any) -> Iterator[Any]:
    if not isinstance(schema, Mapping):
        return
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        yield from _branches(root["$defs"][name], root)
        return
    nested = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    if not nested:
        yield schema
    for branch in nested:
        yield from _branches(branch, root)


def _may_apply(schema: Schema, data: Any) -> bool:
    tag = _tag(schema)
    if tag is None or not isinstance(data, Mapping):
        return True
    name, value = tag
    return name not in data or bool(data[name] == value)


def _tag(schema: Schema) -> tuple[str, str] | None:
    """The key that tells this branch of a union from the others (kind, dist, process), and its value here."""
    for name, field in schema.get("properties", {}).items():
        if "const" in field:
            return name, str(field["const"])
    return None
