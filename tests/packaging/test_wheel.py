"""An installed twinserve works in any folder, whatever files lie there."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.experiments.helpers.small_experiments import write
from tests.paths import CONFIGS, PACKAGE, ROOT
from twinserve.version import __version__

pytestmark = pytest.mark.slow

SWEEP = {
    "name": "two",
    "base": "smoke",
    "matrix": {"engine.max_num_batched_tokens": [128, 256]},
    "executor": {"kind": "processes", "workers": 2},
}
OWN_FOLDERS = ("experiments", "configs", "tests", "sched_core", "run_core", "sim_backend", "real_backend")
OWN_MODULES = ("yaml", "types", "numpy", "pydantic", "typing_extensions", "json", "enum", "random", "secrets", "simpy")
TRAP = "raise RuntimeError('a file of the user was imported')\n"
POLICY = """
from twinserve.sched_core.policies.order import OrderBase


class Longest(OrderBase):
    def rank(self, request, now):
        return (-request.spec.num_prompt_tokens,)
"""


@dataclass(frozen=True)
class Installation:
    """A virtual environment with twinserve from its wheel; the other libraries are those of this Python."""

    bin: Path

    def __call__(self, folder: Path, *command: object, **variables: str) -> str:
        """What the command prints, run in ``folder``, where it must succeed."""
        program, *arguments = map(str, command)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | variables
        found = subprocess.run(
            [self.bin / program, *arguments], cwd=folder, env=clean, capture_output=True, text=True, check=False
        )
        assert found.returncode == 0, found.stdout + found.stderr
        return found.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """Built from the files that git would keep, so that no earlier build leaks in."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        (source / name).write_bytes((ROOT / name).read_bytes())
    for path in PACKAGE.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            copy = source / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", str(out)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", str(source), *options], check=True)
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    place = tmp_path_factory.mktemp("venv") / "venv"
    venv.create(place, symlinks=True)
    paths = {"base": str(place), "platbase": str(place), "installed_base": str(place)}
    site = Path(sysconfig.get_path("purelib", "venv", vars=paths))
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    (site / "zz_libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Installation(place / "bin")


@pytest.fixture(params=["an empty folder", "a hostile folder"])
def folder(request, tmp_path):
    if request.param == "a hostile folder":
        for name in OWN_FOLDERS:
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text(TRAP)
        for name in OWN_MODULES:
            (tmp_path / f"{name}.py").write_text(TRAP)
        (tmp_path / "twinserve.yaml").write_text("not: [a, configuration]\n")
    return tmp_path


def without_what_python_itself_imports(folder):
    """``python -m`` alone needs ``types``, before any code of the module; ``python -P -m`` finds the right one."""
    (folder / "types.py").unlink(missing_ok=True)


def test_the_wheel_holds_twinserve_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"twinserve", f"twinserve-{__version__}.dist-info"}
    packaged = {path.relative_to(ROOT).as_posix() for path in CONFIGS.rglob("*.yaml")}
    assert packaged
    assert {name for name in names if name.endswith(".yaml")} == packaged
    sources = {path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == sources


def test_commands_work(installed, folder):
    assert installed(folder, "twinserve", "--version") == f"twinserve {__version__}\n"
    assert "Successful requests:                     100" in installed(folder, "twinserve", "run", "smoke")
    assert "Results in" in installed(folder, "twinserve", "run", "note_4090/v1_rate2", "--no-progress")
    for topic in ("policies", "models", "hardware", "workloads", "calibrations", "configs"):
        assert installed(folder, "twinserve", "list", topic)
    assert "valid" in installed(folder, "twinserve", "validate-config", "sweeps/token_budget")
    assert "Usage: twinserve calibrate" in installed(folder, "twinserve", "calibrate", "--help")
    run = next(path.parent for path in sorted((folder / "out").glob("*/result.json")))
    assert "timeline.png" in installed(folder, "twinserve", "plot", run)


def test_a_sweep_in_processes_works(installed, folder):
    answer = installed(folder, "twinserve", "sweep", write(folder, SWEEP), "--no-progress")
    assert "2 of 2 points finished" in answer


def test_the_module_is_the_command(installed, folder):
    without_what_python_itself_imports(folder)
    script, module = (
        installed(folder, *start, "run", "smoke", "--force", "--no-progress")
        for start in (("twinserve",), ("python", "-m", "twinserve"))
    )
    assert module == script
    assert installed(folder, "python", "-m", "twinserve", "--help") == installed(folder, "twinserve", "--help")


def test_a_safe_path_needs_no_help(installed, folder):
    assert installed(folder, "python", "-P", "-m", "twinserve", "--version") == f"twinserve {__version__}\n"
    assert "Successful" in installed(folder, "python", "-P", "-m", "twinserve", "run", "smoke", "--no-progress")


def test_policies_are_found_in_the_current_folder(installed, folder):
    without_what_python_itself_imports(folder)
    (folder / "my_policies.py").write_text(POLICY)
    for start in (("twinserve",), ("python", "-m", "twinserve")):
        answer = installed(folder, *start, "run", "smoke", "--set", "engine.order=my_policies:Longest")
        assert "Successful requests:                     100" in answer


def test_the_library_works(installed, tmp_path):
    code = "import twinserve; print(twinserve.simulate('smoke').requests.shape[0], twinserve.__version__)"
    assert installed(tmp_path, "python", "-c", code) == f"100 {__version__}\n"


def test_completion_lists_every_subcommand_and_its_options(installed, tmp_path):
    def completed(line: str, position: int) -> list[str]:
        asked = {"COMP_WORDS": line, "COMP_CWORD": str(position), "_TWINSERVE_COMPLETE": "complete_bash"}
        return installed(tmp_path, "twinserve", **asked).split()

    assert {"run", "sweep", "validate-config", "reproduce", "calibrate-note"} <= set(completed("twinserve ", 1))
    assert {"--set", "--backend", "--check"} <= set(completed("twinserve run --", 2))
    assert {"note", "vllm-4090"} <= set(completed("twinserve reproduce ", 2))
