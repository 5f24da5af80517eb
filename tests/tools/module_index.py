"""Writes docs/modules.md, one line per module from its docstring: ``python -m tests.tools.module_index``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.paths import PACKAGE, ROOT

PAGE = ROOT / "docs" / "modules.md"
HEADER = """\
# Index of modules

Each line is the first line of a module's docstring. `make docs` writes this page; a test compares the two.
[structure.md](structure.md) says where to start.
"""


def headline(path: Path) -> str:
    """The first line of a module's docstring, in Markdown; empty for a module without one."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].replace("``", "`")


def folders() -> list[Path]:
    """The folders of the package that hold modules."""
    return sorted({path.parent for path in PACKAGE.rglob("*.py")})


def modules(folder: Path) -> list[Path]:
    """The modules of one folder but its ``__init__``."""
    return sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")


def page() -> str:
    """The whole page."""
    return "\n".join([HEADER, *(line for folder in folders() for line in _section(folder))])


def _section(folder: Path) -> Iterator[str]:
    yield f"## `{folder.relative_to(ROOT).as_posix()}/`\n"
    about = headline(folder / "__init__.py")
    if about:
        yield f"{about}\n"
    for path in modules(folder):
        yield f"- `{path.name}`: {headline(path)}"
    if modules(folder):
        yield ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
