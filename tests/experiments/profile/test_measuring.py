"""Profiles on the CPU with a tiny model: what is measured and stored, and how an interrupted one goes on."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

import pytest

from tests.experiments.helpers.small_profiles import (
    QUICK,
    interrupt_after,
    keys_of,
    manifest_of,
    only_folder,
    runner_keys,
    steps_of,
)
from twinserve.experiments.backends.real import profiled_engine
from twinserve.experiments.errors import ConfigError, RunError
from twinserve.experiments.files.parquet import read_columns
from twinserve.experiments.profile.run import ProfileSettings, load_profiled, run_profile
from twinserve.sched_core.features import StepFeatures

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

torch.set_num_threads(1)  # tiny tensors: threads would only wait for each other

COLUMNS = {"source", "shape_id", "repeat", "family", "interval_ns", "device_ns", *StepFeatures._fields}


@pytest.fixture
def profile(config, tmp_path):
    """``run_profile`` into ``tmp_path/profiles``."""

    def profile(settings=QUICK, **options):
        return run_profile(load_profiled(str(config())), tmp_path / "profiles", settings, **options)

    return profile


def test_a_profile_has_every_shape_as_often_as_promised_and_engine_steps(profile):
    finished = profile()
    manifest = manifest_of(finished.folder)
    steps = steps_of(finished.folder)
    assert set(steps) == COLUMNS
    assert set(steps["source"]) == {"runner", "engine"}
    assert set(steps["family"]) == {"decode", "prefill", "mixed", "engine"}
    counts = Counter(shape_id for shape_id, _ in runner_keys(finished.folder))
    assert counts == dict.fromkeys(range(manifest["num_shapes"]), manifest["repeats"])
    assert keys_of(finished.folder) == sorted(set(keys_of(finished.folder)))
    assert all(interval > 0 for interval in steps["interval_ns"])
    assert set(steps["device_ns"]) == {None}
    assert len(steps["source"]) == manifest["num_steps"]


def test_the_manifest_describes_the_engine_that_was_measured(profile, config):
    finished = profile()
    manifest, engine = manifest_of(finished.folder), load_profiled(str(config())).config.engine
    assert finished.manifest["num_steps"] == manifest["num_steps"]
    assert (manifest["kind"], manifest["complete"]) == ("profile", True)
    assert (manifest["device"], manifest["attention_backend"], manifest["dtype"]) == ("cpu", "sdpa", "float32")
    assert (manifest["driver"], manifest["cuda"], manifest["torch"]) == (None, None, torch.__version__)
    assert manifest["capture_sizes"] == {"decode": [], "mixed": []}
    assert manifest["num_blocks"] == engine.num_gpu_blocks_override
    for name in ("block_size", "max_num_batched_tokens", "max_num_seqs", "max_model_len", "enforce_eager"):
        assert manifest[name] == getattr(engine, name)
    assert manifest["num_shapes_measured"] == manifest["num_shapes"] > 0
    assert {"model", "code", "versions", "started", "wall_time_s"} <= set(manifest)
    assert sorted(path.name for path in finished.folder.iterdir()) == [
        "config.yaml",
        "manifest.json",
        "profile.parquet",
    ]


@pytest.mark.parametrize("first", [1, 12])
def test_an_interrupted_profile_goes_on_and_measures_nothing_twice(profile, tmp_path, first):
    with pytest.raises(KeyboardInterrupt):
        profile(on_progress=interrupt_after(first))
    folder = only_folder(tmp_path / "profiles")
    begun = manifest_of(folder)
    assert begun["complete"] is False
    assert not (folder / "profile.parquet").exists()
    assert list((folder / "parts").glob("*.parquet"))
    with pytest.raises(KeyboardInterrupt):
        profile(on_progress=interrupt_after(first + 20))
    seen = []
    finished = profile(on_progress=lambda done, total: seen.append((done, total)))
    assert seen[0][0] == first + 21
    assert seen[-1][0] == seen[-1][1]
    manifest = manifest_of(folder)
    counts = Counter(runner_keys(folder))
    assert set(counts.values()) == {1}
    assert len(counts) == manifest["num_shapes"] * manifest["repeats"]
    assert manifest["wall_time_s"] > begun["wall_time_s"]
    assert (manifest["started"], manifest["kv_pool"]) == (begun["started"], begun["kv_pool"])
    assert finished.folder == folder
    assert not (folder / "parts").exists()


def test_what_was_measured_before_an_interruption_is_in_the_profile_unchanged(profile, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        profile(on_progress=interrupt_after(10))
    folder = only_folder(tmp_path / "profiles")
    (part,) = (folder / "parts").glob("*.parquet")
    before = read_columns(part)
    profile()
    after = steps_of(folder)
    rows = dict(zip(keys_of(folder), after["interval_ns"], strict=True))
    kept = zip(before["shape_id"], before["repeat"], before["interval_ns"], strict=True)
    assert all(rows[shape_id, repeat] == interval for shape_id, repeat, interval in kept)


def test_a_finished_profile_is_found_and_force_measures_it_anew(profile):
    first = profile()
    times = steps_of(first.folder)["interval_ns"]
    found = profile()
    assert (first.was_there, found.was_there) == (False, True)
    assert found.manifest == manifest_of(first.folder)
    forced = profile(force=True)
    assert (forced.was_there, forced.folder) == (False, first.folder)
    assert steps_of(first.folder)["interval_ns"] != times


def test_force_begins_an_interrupted_profile_anew(profile, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        profile(on_progress=interrupt_after(5))
    seen = []
    profile(force=True, on_progress=lambda done, total: seen.append(done))
    assert seen[0] == 1
    assert set(Counter(runner_keys(only_folder(tmp_path / "profiles"))).values()) == {1}


def test_an_interrupted_repeat_leaves_the_finished_profile_as_it_was(profile):
    first = profile()
    times, manifest = steps_of(first.folder), manifest_of(first.folder)
    with pytest.raises(KeyboardInterrupt):
        profile(force=True, on_progress=interrupt_after(3))
    assert steps_of(first.folder) == times
    assert manifest_of(first.folder) == manifest


def test_the_time_limit_ends_a_profile_with_what_it_has(profile):
    finished = profile(ProfileSettings(max_seconds=0.0, num_visits=2, density=0.0))
    manifest = manifest_of(finished.folder)
    assert manifest["complete"] is True
    assert manifest["num_shapes_measured"] == 1 < manifest["num_shapes"]
    assert len(keys_of(finished.folder)) == manifest["repeats"] / 2


def test_only_what_the_engine_depends_on_is_in_the_id(profile, config, tmp_path):
    out = tmp_path / "profiles"
    first = profile()
    same = run_profile(load_profiled(str(config(workload__num_prompts=9, repeat=3, name="other"))), out, QUICK)
    assert (same.was_there, same.folder) == (True, first.folder)
    others = [load_profiled(str(config(**changes))) for changes in ({"seed": 1}, {"engine__policy": "static"})]
    for other in others:
        with pytest.raises(KeyboardInterrupt):
            run_profile(other, out, QUICK, on_progress=interrupt_after(1))
    assert len(list(out.iterdir())) == 3


def test_a_profile_begun_on_another_engine_is_not_continued(profile, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        profile(on_progress=interrupt_after(2))
    folder = only_folder(tmp_path / "profiles")
    manifest = manifest_of(folder)
    (folder / "manifest.json").write_text(json.dumps({**manifest, "device": "NVIDIA H200"}))
    with pytest.raises(ConfigError, match="was begun with device NVIDIA H200, which is cpu now; choose another --out"):
        profile()
    assert not profile(force=True).was_there


def test_a_damaged_part_is_named_and_deleting_it_measures_its_steps_again(profile, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        profile(on_progress=interrupt_after(2))
    (part,) = tmp_path.glob("profiles/*/parts/*.parquet")
    part.write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match=r"cannot be read \(.*\); delete it to measure its steps again") as error:
        profile()
    assert error.value.file == str(part)
    part.unlink()
    finished = profile()
    assert len(runner_keys(finished.folder)) == manifest_of(finished.folder)["num_shapes"] * 6


def test_an_engine_that_fails_is_one_line_and_what_was_measured_stays(profile, tmp_path, monkeypatch):
    from twinserve.real_backend.launch.runner import ModelRunner

    calls, launch = [], ModelRunner.launch

    def launch_until_full(self, plan):
        calls.append(plan)
        if len(calls) > 60:
            raise_out_of_memory()
        launch(self, plan)

    with monkeypatch.context() as patch:
        patch.setattr(ModelRunner, "launch", launch_until_full)
        with pytest.raises(RunError, match=r"out of memory while running; lower .*; what was measured stays$"):
            profile()
    folder = only_folder(tmp_path / "profiles")
    assert list((folder / "parts").glob("*.parquet"))
    assert manifest_of(profile().folder)["complete"] is True


def raise_out_of_memory() -> None:
    from twinserve.real_backend.device_errors import clear_errors

    with clear_errors("running"):
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_the_announcement_says_what_how_much_and_how_long(profile, config):
    lines: list[str] = []
    profile(announce=lines.append)
    (line,) = lines
    with profiled_engine(load_profiled(str(config())), num_blocks=None, num_visits=2, density=0.0) as measured:
        assert line.startswith(f"tiny, cpu, sdpa: {len(measured.grid.shapes)} step shapes; about ")
    assert line.endswith("180 s at most")


def test_settings_are_in_the_manifest(profile):
    assert manifest_of(profile().folder)["settings"] == asdict(QUICK)
