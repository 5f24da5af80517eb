"""What a received file may not do, and what a user's own may."""

from __future__ import annotations

import sys

import pytest

from tests.experiments.helpers.small_experiments import small, write
from twinserve.experiments.errors import MAX_LINE, ConfigError, one_line, shown
from twinserve.experiments.files.atomic import remove_leftovers
from twinserve.experiments.files.probe import below, expanded, is_file
from twinserve.sched_core.policies.choice import PolicyError
from twinserve.sched_core.policies.registry import BUILT_IN, DEFAULTS, build_policies

MODULE = "received_policy"


@pytest.fixture
def received(tmp_path, monkeypatch):
    (tmp_path / f"{MODULE}.py").write_text("from twinserve.sched_core.policies.order import Priority as P\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield write(tmp_path, small(engine__order=f"{MODULE}:P"))
    sys.modules.pop(MODULE, None)


def test_a_configuration_that_is_only_checked_imports_nothing(twinserve, received):
    answer = twinserve("validate-config", received)
    assert answer.code == 2
    assert f"engine.order: '{MODULE}:P' is code to be imported; give --allow-imports" in answer.line
    assert MODULE not in sys.modules
    assert twinserve("validate-config", received, "--allow-imports").code == 0


def test_a_policy_of_the_users_own_override_is_trusted(twinserve, tmp_path, received):
    path = write(tmp_path, small(), "plain.yaml")
    assert twinserve("validate-config", path, "--set", f"engine.order={MODULE}:P").code == 0


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc", "a/b", "a\\b", "a\x00", "\x1b"])
def test_nothing_is_written_outside_the_folder(tmp_path, name):
    with pytest.raises(ConfigError, match="outside --out"):
        below(tmp_path, name)


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "plots").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="link that leads out"):
        below(tmp_path / "out", "plots")
    assert below(tmp_path / "out", "run", "plots") == tmp_path / "out" / "run" / "plots"


def test_leftovers_of_other_programs_stay(tmp_path, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "host")
    monkeypatch.setattr("twinserve.experiments.files.atomic._is_alive", lambda _: False)
    for folder, beside in (("ours", "config.yaml"), ("theirs", "thesis.tex")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / beside).touch()
        (tmp_path / folder / ".x.host-1.tmp").touch()
        remove_leftovers(tmp_path / folder)
    assert not (tmp_path / "ours" / ".x.host-1.tmp").exists()
    assert (tmp_path / "theirs" / ".x.host-1.tmp").exists()


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        (lambda folder: is_file(folder / ("x" * 300)), "File name too long"),
        (lambda folder: is_file(folder / "a\x00b"), "is no file name"),
        (lambda _: expanded("~nobody-at-all/x"), "home folder of no user"),
        (lambda _: expanded("a\x00b"), "NUL"),
    ],
)
def test_a_question_that_the_file_system_refuses_is_one_line(tmp_path, question, complaint):
    with pytest.raises(ConfigError, match=complaint):
        question(tmp_path)
    assert is_file(tmp_path / "absent" / "file") is False


@pytest.mark.parametrize(
    "value",
    ["x" * 10**7, 1 << 20_000, [[list(range(99))] * 99] * 99, {"a" * 999: "\x1b"}],
    ids=["text", "number", "lists", "mapping"],
)
def test_a_value_of_any_size_is_shown_short(value):
    assert len(shown(value)) <= 60


@pytest.mark.parametrize(
    "text", ["x" * 10**6, "\x1b[31m" * 99, "\ud800" * 99, "a b " * 10**5, "/" + "d/" * 400], ids=range(5)
)
def test_an_error_is_a_short_printable_line(text):
    line = str(ConfigError(text, file=text, key=text))
    assert len(line) <= MAX_LINE
    assert one_line(line).isprintable()
    assert line.isprintable()


@pytest.mark.parametrize("seam", DEFAULTS)
def test_a_class_of_another_seam_is_refused_by_name(seam):
    for other, known in BUILT_IN.items():
        if other != seam:
            kind = next(iter(known.values()))
            with pytest.raises(PolicyError, match=f"{kind.__name__} is no {seam}"):
                build_policies(**{seam: kind})


def test_a_method_with_other_arguments_is_refused():
    class Short:
        def choose(self):
            return 0

    with pytest.raises(PolicyError, match=r"Short.choose should take \(candidates\)"):
        build_policies(victim=Short)


def test_tenants_have_caches_of_their_own_and_a_strong_hash(twinserve, tmp_path):
    classes = [{"client": name, "cache_salt": name} for name in ("a", "b")]
    shared = {"num_groups": 1, "prefix_len": 64}
    hits = {}
    for name, workload in (("one", {}), ("two", {"workload__classes": classes})):
        path = write(tmp_path, small(workload__shared_prefix=shared, **workload), f"{name}.yaml")
        assert twinserve("run", path, "--out", tmp_path / name, "--no-progress").code == 0
        (folder,) = (tmp_path / name).iterdir()
        hits[name] = "sha256" in (folder / "config.yaml").read_text()
    assert hits == {"one": False, "two": True}
