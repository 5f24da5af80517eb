"""A stored run counts when every byte of it is what was written; any other is named and made again."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.experiments.helpers.small_experiments import CommandLine, small, write
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.store.json_object import read_object
from twinserve.experiments.store.run_store import RunStore

RESULT, MANIFEST, STEPS, TOKENS = "result.json", "manifest.json", "steps.parquet", "tokens.parquet"


def text(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def figures(change):
    def spoil(folder):
        result = json.loads((folder / RESULT).read_text())
        (folder / RESULT).write_text(json.dumps(change(result)))

    return spoil


def cut(name):
    def spoil(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return spoil


def lost(name):
    return lambda folder: (folder / name).unlink()


def fewer_rows(folder):
    table = pq.read_table(folder / TOKENS)
    pq.write_table(table.slice(1), folder / TOKENS)


def another_table(folder):
    pq.write_table(pa.table({"x": [1]}), folder / STEPS)


def fifo(name):
    def spoil(folder):
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return spoil


def loop(folder):
    (folder / RESULT).unlink()
    (folder / RESULT).symlink_to(folder / RESULT)


SPOILT = {
    "empty": text(RESULT, b""),
    "no JSON": text(RESULT, b"{"),
    "a list": text(RESULT, b"[]"),
    "deep": text(RESULT, b"[" * 100_000),
    "digits": text(RESULT, b'{"run_id": ' + b"9" * 5000 + b"}"),
    "not UTF-8": text(RESULT, b"\xff\xfe"),
    "null bytes": text(RESULT, bytes(2000)),
    "only the id": figures(lambda result: {"run_id": result["run_id"]}),
    "figures as text": figures(lambda result: {key: str(value) for key, value in result.items()}),
    "another figure": figures(lambda result: {**result, "mean_ttft_ms": 1.0}),
    "another id": figures(lambda result: {**result, "run_id": "0" * 16}),
    "a loop of links": loop,
    "a pipe": fifo(RESULT),
    "record lost": lost(STEPS),
    "record cut": cut(TOKENS),
    "record empty": text("requests.parquet", b""),
    "record short": fewer_rows,
    "record of something else": another_table,
    "record is a pipe": fifo(STEPS),
    "manifest lost": lost(MANIFEST),
    "manifest deep": text(MANIFEST, b'{"a":' * 100_000),
    "manifest of nothing": text(MANIFEST, b"{}"),
    "manifest with odd files": text(MANIFEST, b'{"files": {"result.json": 1, "steps.parquet": []}}'),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folder of a finished sweep of two points; not to be changed."""
    from twinserve.experiments.sweep.points import sweep_of
    from twinserve.experiments.sweep.run import run_sweep

    folder = tmp_path_factory.mktemp("finished")
    data = {"base": small(), "seeds": [0, 1], "executor": {"kind": "serial"}}
    assert len(run_sweep(sweep_of(data, source="text", base_dir=folder), folder / "out").finished) == 2
    return folder / "out"


@pytest.fixture
def sweep(capsys, tmp_path):
    data = {"base": small(), "seeds": [0, 1], "executor": {"kind": "serial"}, "report": {"plots": False}}
    command_line, path = CommandLine(capsys), write(tmp_path, data, "sweep.yaml")
    return lambda: command_line("sweep", path, "--out", tmp_path / "out")


def whole(out: Path) -> dict[str, bytes]:
    paths = [*out.glob("*/*"), out / "summary.csv"]
    return {str(path.relative_to(out)): path.read_bytes() for path in paths if path.name != MANIFEST}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_sweep_names_a_spoilt_run_and_makes_it_again(finished, sweep, tmp_path, spoil):
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    first = sorted(out.glob("*/result.json"))[0].parent
    spoil(first)
    assert RunStore(out).look(first.name).result is None
    answer = sweep()
    assert answer.code == 0
    assert answer.line.startswith(f"note: {first}/")
    assert answer.line.endswith("it does not count, and the run is made again")
    assert "2 of 2 points finished, 1 of them were already there" in answer.out
    assert whole(out) == whole(finished)


def test_run_names_a_spoilt_result_and_makes_it_again(run, tmp_path):
    run(small())
    (path,) = (tmp_path / "out").glob("*/result.json")
    before = path.read_bytes()
    path.write_text("{}")
    answer = run(small())
    assert answer.code == 0
    assert answer.line == f"note: {path}: is not what the run wrote; it does not count, and the run is made again"
    assert "already there" not in answer.out
    assert path.read_bytes() == before


def test_a_folder_in_place_of_a_result_fails_that_point_only(finished, sweep, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    first = sorted(out.glob("*/result.json"))[0]
    first.unlink()
    first.mkdir()
    answer = sweep()
    assert answer.code == 1
    assert [line.partition(":")[0] for line in answer.err.splitlines()] == ["note", "failed"]
    assert "1 of 2 points finished" in answer.out


@pytest.mark.parametrize("kind", ["file", "dangling link", "loop"])
def test_whatever_has_the_name_of_a_run_folder_fails_that_point_only(finished, sweep, tmp_path, kind):
    out = tmp_path / "out"
    out.mkdir()
    name = sorted(path.parent.name for path in finished.glob("*/result.json"))[0]
    if kind == "file":
        (out / name).touch()
    else:
        (out / name).symlink_to(tmp_path / "nowhere" if kind == "dangling link" else out / name)
    answer = sweep()
    assert answer.code == 1
    assert answer.line.startswith("failed: ")
    assert "cannot be written" in answer.line
    assert "1 of 2 points finished" in answer.out


def test_an_output_folder_may_be_a_link(finished, sweep, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    assert sweep().code == 0
    assert whole(tmp_path / "elsewhere") == whole(finished)


def test_a_run_folder_that_is_taken_away_is_a_point_that_was_not_run(finished, sweep, tmp_path, monkeypatch):
    from twinserve.experiments.sweep import run as module

    execute = module._execute

    def take_away(*arguments):
        broken = execute(*arguments)
        shutil.rmtree(sorted((tmp_path / "out").glob("*/result.json"))[0].parent)
        return broken

    monkeypatch.setattr(module, "_execute", take_away)
    answer = sweep()
    assert answer.code == 1
    assert "was not run; run the sweep again" in answer.line
    monkeypatch.setattr(module, "_execute", execute)
    assert sweep().code == 0
    assert whole(tmp_path / "out") == whole(finished)


def test_leftovers_go_from_the_sweeps_own_folders_alone(finished, sweep, tmp_path):
    import socket

    out = tmp_path / "out"
    shutil.copytree(finished, out)
    own = sorted(out.glob("*/result.json"))[0].parent
    foreign = out / "notes"
    foreign.mkdir()
    for folder in (own, foreign, out):
        (folder / f".result.json.{socket.gethostname()}-{2**22 + 1}.tmp").touch()
    assert sweep().code == 0
    assert not [*own.glob(".*"), *out.glob(".*")]
    assert len(list(foreign.glob(".*"))) == 1


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}", b"\xff", b"[]", b""])
def test_json_that_is_no_object_is_one_line(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"^/.*a\.json: .*; get it again$") as error:
        read_object(tmp_path / "a.json", "get it again")
    assert len(str(error.value)) - len(str(tmp_path)) < 200
