"""The house rules that no linter checks: sizes, no asserts in the product, words that do not belong here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT
from twinserve.experiments.files import names as file_names

MAX_MODULES = 20
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 40
TEXT_SUFFIXES = {".py", ".md", ".yaml", ".yml", ".toml", ".txt", ".cfg", ".json", ".ipynb", ""}
SKIPPED = {".git", ".venv", "out", "build", "dist", ".data", "__pycache__"}
# Written in halves, so that this file does not hold them.
FORBIDDEN = re.compile(
    r"/wo" r"rk/|/tm" r"p/|\bTO" r"DO\b|\bFIX" r"ME\b|\bX" r"XX\b|\bChat" r"GPT\b|\bclau" r"de\b|\banth" r"ropic\b",
    re.IGNORECASE,
)


def _sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _own_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from ``def`` to the end, without the docstring."""
    first, end = function.body[0], function.end_lineno or function.lineno
    docstring = ast.get_docstring(function, clean=False)
    doc_lines = (first.end_lineno or first.lineno) - first.lineno + 1 if docstring is not None else 0
    return end - function.lineno + 1 - doc_lines


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_files_stay_small() -> None:
    lengths = {
        _name(path): len(path.read_text(encoding="utf-8").splitlines())
        for path in _sources("twinserve", "tests", "examples")
    }
    limits = {name: length for name, length in lengths.items() if length > MAX_FILE_LINES}
    assert limits == {}


def test_folders_stay_small() -> None:
    folders = {path.parent for path in _sources("twinserve")}
    modules = {folder: [path for path in folder.glob("*.py") if path.name != "__init__.py"] for folder in folders}
    assert {_name(folder): len(files) for folder, files in modules.items() if len(files) > MAX_MODULES} == {}


def test_functions_stay_small() -> None:
    long = {
        f"{_name(path)}:{function.name}": _own_lines(function)
        for path in _sources("twinserve")
        for function in _functions(path)
        if _own_lines(function) > MAX_FUNCTION_LINES
    }
    assert long == {}


def test_product_code_never_asserts() -> None:
    asserts = [
        f"{_name(path)}:{node.lineno}"
        for path in _sources("twinserve")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert)
    ]
    assert asserts == []


def test_product_code_has_no_global_statement() -> None:
    statements = [
        f"{_name(path)}:{node.lineno}"
        for path in _sources("twinserve")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Global)
    ]
    assert statements == []


def test_file_names_of_folders_are_spelled_once() -> None:
    """Messages and paths take them from one module; docstrings may mention them."""
    known = {value for name, value in vars(file_names).items() if name.isupper()}
    spelled = [
        f"{_name(path)}:{line}: {text}"
        for path in _sources("twinserve")
        if path != Path(file_names.__file__)
        for line, text in _texts(ast.parse(path.read_text(encoding="utf-8")))
        if any(re.search(rf"(?<![\w-]){re.escape(value)}", text) for value in known)
    ]
    assert spelled == []


def _texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """String literals, with their lines, that are not docstrings."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, node.value


def test_public_core_names_have_docstrings() -> None:
    """Classes and module-level functions of the core; protocol methods and small members speak for themselves."""
    bare = [
        f"{_name(path)}:{node.name}"
        for path in _sources("twinserve/sched_core", "twinserve/run_core", "twinserve/sim_backend")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
        if ast.get_docstring(node) is None
    ]
    assert bare == []


@pytest.mark.parametrize("folder", ["twinserve", "docs", "examples", "notebooks", "tests", "."])
def test_no_word_from_outside_the_project(folder: str) -> None:
    if not (ROOT / folder).exists():
        pytest.skip(f"there is no {folder} folder")
    paths = (ROOT / folder).glob("*") if folder == "." else (ROOT / folder).rglob("*")
    found = [
        f"{_name(path)}:{number}: {line.strip()[:80]}"
        for path in sorted(paths)
        if path.is_file() and path.suffix in TEXT_SUFFIXES and not SKIPPED.intersection(path.parts)
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if FORBIDDEN.search(line)
    ]
    assert found == []
