"""Wrong values, and wrong texts made of right ones; all drawn from a ``random.Random``."""

from __future__ import annotations

import copy
import json

from tests.fuzz.judge import TRAP

VALUES = (
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**62, 2**63, 2**64, -(2**63), 0.5, 1e-300, 1e300, 1.5, float("inf")),
    *(
        "",
        " ",
        "x",
        "x" * 300,
        "x" * 5000,
        "~nobody-at-all/x",
        "../../outside",
        "/",
        ".",
        "..",
        "\x1b[31mred",
        "a\x00b",
    ),
    *("\ud800", "é漢", "1e3", "0400", "1:30", "1_000", "inf", "nan", f"{TRAP}:P", f"{TRAP}:", ":P", "os:system"),
    *([], [1, 2], [None], {}, {"a": 1}, {"use": f"{TRAP}:P"}, {"use": None}, [[[[]]]], {"a": {"b": {"c": []}}}),
    *("mixed", "sjf", "none", "2024-01-01", "null", 10**40, -(10**40), "roofline", "qwen3-8b"),
)
PIECES = (
    *(
        "&a ",
        "*a",
        "!!map ",
        "!!set ",
        "!!python/object/apply:os.system ",
        "!!binary ",
        "!!int ",
        "!!float ",
        "!!bool ",
    ),
    *("[" * 200, "{" * 200, "- " * 200, "1:59:59:59", ":59" * 200, "0x" + "F" * 4000, "9" * 5000, "1e400", "1e999999"),
    *("<<: ", "? ", "|\n", ">\n", "%YAML 9.9\n", "---\n", "...\n", "\t", "\x00", "\x1b", "\u2028", "﻿", '"\\ud800"'),
    *('"\\e[31m"', "'", '"', "#", ",", ": ", "]", "}", "2001-99-99", "0400", "1_000", "=", "@", "`", "~nobody/x"),
)


def change(data, random):
    """A copy of ``data`` with one to three values replaced, removed, moved or renamed."""
    data = copy.deepcopy(data)
    for _ in range(random.randint(1, 3)):
        section, key = random.choice(list(_places(data)) or [(data, "x")])
        match random.randrange(6):
            case 0:
                del section[key]
            case 1 if isinstance(section, dict):
                section[random.choice(("x" * 400, "\x1bkey", "path", "name", "use", "kind", "nam"))] = section.pop(key)
            case _:
                section[key] = copy.deepcopy(random.choice(VALUES))
    return data


def damage(text, random):
    """``text`` with pieces put in, cut out, doubled or cut off."""
    for _ in range(random.randint(1, 3)):
        at, other = sorted(random.randint(0, len(text)) for _ in range(2))
        match random.randrange(5):
            case 0:
                text = text[:at] + text[min(other, at + 20) :]
            case 1:
                text = text[:at]
            case 2:
                text = text[:at] + text[at : at + 30] + text[at:]
            case _:
                text = text[:at] + random.choice(PIECES) + text[at:]
    return text


def as_yaml(data):
    """JSON is YAML; what it cannot say is said as YAML does."""
    return json.dumps(data).replace("Infinity", ".inf")


def keys_of(data, before=""):
    for key, value in data.items():
        yield f"{before}{key}"
        if isinstance(value, dict):
            yield from keys_of(value, f"{before}{key}.")


def _places(data):
    for key, value in list(data.items() if isinstance(data, dict) else enumerate(data)):
        yield data, key
        if isinstance(value, dict | list):
            yield from _places(value)
