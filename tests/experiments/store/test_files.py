"""Files of a run: whole or absent, strict, and readable by anyone."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files import strict_json
from twinserve.experiments.files.atomic import remove_leftovers, text_writer, write_files, write_text
from twinserve.experiments.files.parquet import write_columns

OPTIONAL_INTEGERS = st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20)
OPTIONAL_TEXTS = st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=5), max_size=20)


def fail(path):
    path.write_text("half")
    raise OSError(28, "No space left on device")


@pytest.fixture
def tiny_files():
    """No file of this process may grow beyond 100 bytes: a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_leaves_the_folder_as_it_was(tmp_path):
    write_text(tmp_path / "a", "old")
    with pytest.raises(ConfigError, match="cannot be written: No space left on device"):
        write_files(tmp_path, {"a": text_writer("new"), "b": fail})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old"}


def test_a_file_that_may_not_grow_is_a_full_disk(tmp_path, tiny_files):
    with pytest.raises(ConfigError, match="cannot be written: File too large"):
        write_text(tmp_path / "a", "x" * 1000)
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_writer_leaves_nothing_behind(tmp_path):
    def broken(path):
        path.write_text("half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        write_files(tmp_path, {"a": broken})
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_dead_processes_are_removed_and_others_kept(tmp_path):
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    host = socket.gethostname()
    names = {
        f".result.json.{host}-{int(dead.stdout)}.tmp": False,
        f".result.json.{host}-{os.getpid()}.tmp": True,
        ".result.json.elsewhere-1.tmp": True,
        "result.json": True,
    }
    for name in names:
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {name for name, stays in names.items() if stays}


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_leftovers_of_a_killed_process_go_before_its_parent_has_noticed(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
    (tmp_path / f".result.json.{socket.gethostname()}-{child.pid}.tmp").touch()
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []
    child.wait()


@settings(deadline=None, derandomize=True)
@given(OPTIONAL_INTEGERS, OPTIONAL_TEXTS)
def test_parquet_columns_come_back_as_they_were(tmp_path_factory, integers, texts):
    path = tmp_path_factory.mktemp("columns") / "a.parquet"
    write_columns(path, {"finish_ns": integers})
    assert pq.read_table(path).to_pydict() == {"finish_ns": integers}
    write_columns(path, {"client": texts})
    assert pq.read_table(path).to_pydict() == {"client": texts}


def test_arrays_of_a_record_need_no_copy_of_each_value(tmp_path):
    write_columns(tmp_path / "a.parquet", {"time_ns": np.arange(5)[::2]})
    assert pq.read_table(tmp_path / "a.parquet").to_pydict() == {"time_ns": [0, 2, 4]}


def test_json_has_no_infinity_and_no_nan():
    text = strict_json.dumps({"rate": float("inf"), "low": [float("-inf")], "pair": (1, None)})
    assert json.loads(text, parse_constant=pytest.fail) == {"rate": "inf", "low": ["-inf"], "pair": [1, None]}
    with pytest.raises(ValueError, match="JSON compliant"):
        strict_json.dumps({"rate": float("nan")})


def test_files_are_on_the_disk_before_they_take_their_names_and_the_names_before_the_call_returns(
    tmp_path, monkeypatch
):
    done = []
    sync, replace = os.fsync, type(tmp_path).replace
    monkeypatch.setattr(os, "fsync", lambda number: (done.append(os.readlink(f"/proc/self/fd/{number}")), sync(number)))
    monkeypatch.setattr(type(tmp_path), "replace", lambda old, new: (done.append(str(new)), replace(old, new)))
    write_files(tmp_path / "x" / "y", {"a": text_writer("1"), "b": text_writer("2")})
    folder = tmp_path / "x" / "y"
    suffix = f"{socket.gethostname()}-{os.getpid()}.tmp"
    temporary = [str(folder / f".{name}.{suffix}") for name in "ab"]
    named = [str(folder / name) for name in "ab"]
    assert done == [*temporary, *named, str(folder), str(folder.parent), str(tmp_path)]


def test_a_disk_that_fails_when_it_is_asked_to_write_leaves_the_folder_as_it_was(tmp_path, monkeypatch):
    write_text(tmp_path / "a", "old")

    def fail(_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ConfigError, match="cannot be written: Input/output error"):
        write_text(tmp_path / "a", "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old"}


def test_a_file_system_that_knows_no_fsync_is_written_all_the_same(tmp_path, monkeypatch):
    def refuse(_):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    write_text(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "new"
