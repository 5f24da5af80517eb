"""README.md and docs/ name what there is: files, links, commands, options, names of the code."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.paths import PACKAGE, ROOT
from tests.tools.module_index import PAGE, headline, page
from twinserve.experiments.cli.main import COMMANDS

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMED_PATH = re.compile(r"`((?:twinserve|tests|docs|notebooks)/[\w./-]+)`")
BELOW_PACKAGE = re.compile(r"`((?:sched_core|run_core|sim_backend|real_backend|experiments)/[\w./-]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")
COMMAND = re.compile(r"(?<![\w/.])twinserve ((?:[a-z]+-)*[a-z]+)\b([^`#\n]*)")
OPTION = re.compile(r"(?<!\S)(--?[a-z][a-z-]*)")
FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
BARE_MODULE = re.compile(r"`(\w+\.py)`")
MAX_HEADLINE = 120
STEP_OF_A_PAGE = re.compile(r"^\| (\d+) \| `([\w/]+\.py)` \|", re.MULTILINE)

pages = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())


def _commands(text: str) -> list[tuple[str, str]]:
    """(subcommand, the rest of its line) of every command line that a page shows, in a block or in backticks."""
    blocks = [line for language, block in FENCED.findall(text) if not language for line in block.splitlines()]
    shown = blocks + re.findall(r"`(twinserve [^`]+)`", FENCED.sub("", text))
    return [found.groups() for line in shown for found in COMMAND.finditer(" ".join(line.split()))]


@cache
def _options(name: str) -> frozenset[str]:
    module, _, attribute = COMMANDS[name].partition(":")
    target = getattr(import_module(module), attribute)
    app = target if isinstance(target, typer.Typer) else typer.Typer(add_completion=False)
    if app is not target:
        app.command()(target)
    with_children: list[Any] = [typer.main.get_command(app)]
    found: set[str] = set()
    while with_children:
        one = with_children.pop()
        with_children += getattr(one, "commands", {}).values()
        found.update(option for parameter in one.params for option in (*parameter.opts, *parameter.secondary_opts))
    return frozenset(found) | {"--help"}


@cache
def _module_names() -> frozenset[str]:
    return frozenset(path.name for folder in (PACKAGE, ROOT / "tests") for path in folder.rglob("*.py"))


@pages
def test_every_file_that_a_page_names_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    missing = [name for name in NAMED_PATH.findall(text) if not (ROOT / name).exists()]
    missing += [name for name in BELOW_PACKAGE.findall(text) if not (PACKAGE / name).exists()]
    missing += [name for name in BARE_MODULE.findall(text) if name not in _module_names()]
    assert missing == []


@pages
def test_every_relative_link_of_a_page_resolves(path: Path) -> None:
    targets = ["".join(found) for found in LINK.findall(path.read_text(encoding="utf-8"))]
    relative = [target.partition("#") for target in targets if "://" not in target]
    anchors = [(anchor, path.parent / file if file else path) for file, _, anchor in relative if anchor]
    assert [file for file, _, _ in relative if not (path.parent / file).exists()] == []
    assert [anchor for anchor, page_of_it in anchors if anchor not in _anchors(page_of_it)] == []


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE) if path.is_file() else []
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pages
def test_every_command_and_option_that_a_page_shows_exists(path: Path) -> None:
    commands = _commands(path.read_text(encoding="utf-8"))
    assert [name for name, _ in commands if name not in COMMANDS] == []
    wrong = [
        f"{name} {option}" for name, rest in commands for option in OPTION.findall(rest) if option not in _options(name)
    ]
    assert wrong == []


@pages
def test_every_option_that_a_page_names_by_itself_exists(path: Path) -> None:
    named = re.findall(r"`(--[a-z][a-z-]*)", path.read_text(encoding="utf-8"))
    assert [option for option in named if not any(option in _options(name) for name in COMMANDS)] == []


def test_the_readme_shows_every_command() -> None:
    shown = {name for name, _ in _commands((ROOT / "README.md").read_text(encoding="utf-8"))}
    assert set(COMMANDS) - shown == set()


def test_the_index_of_modules_is_what_the_docstrings_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_module_says_in_one_sentence_what_it_is() -> None:
    modules = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    lines = {path.relative_to(ROOT).as_posix(): headline(path) for path, text in modules.items() if text}
    bad = {
        name: line
        for name, line in lines.items()
        if not line.endswith(".") or len(line) > MAX_HEADLINE or re.search(r"\. [A-Z]", line)
    }
    assert bad == {}


def test_a_step_is_one_page_and_few_files() -> None:
    text = (ROOT / "docs" / "structure.md").read_text(encoding="utf-8")
    steps = STEP_OF_A_PAGE.findall(text)
    files = [file for _, file in steps]
    end = files.index("sched_core/finishing.py") + 1
    simulated, real = files[:end], files[end:]
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    assert len(simulated) <= 12
    assert 0 < len(real) <= 20
    assert sum(len((PACKAGE / file).read_text(encoding="utf-8").splitlines()) for file in simulated) <= 1500
    assert len(text.splitlines()) <= 60


def test_the_map_of_names_gives_names_of_the_code() -> None:
    text = (ROOT / "docs" / "names.md").read_text(encoding="utf-8")
    ours = [row.rsplit("|", 2)[1] for row in re.findall(r"^\|.*\|$", text, re.MULTILINE)]
    names = {part for cell in ours for name in re.findall(r"`([\w.]+)`", cell) for part in name.split(".")}
    code = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    assert len(names) > 40
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", code)] == []


def test_the_counted_trips_are_those_that_are_written_down() -> None:
    text = (ROOT / "docs" / "decisions" / "0008-rooms.md").read_text(encoding="utf-8")
    counted = [
        tuple(map(int, row)) for row in re.findall(r"^\| \(\w\).*\| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    ]
    routes = [block.replace(">", " ").split() for _, block in FENCED.findall(text)]
    assert counted == [(len(way) - 1, len(set(way)), len(way) - len(set(way))) for way in routes]
