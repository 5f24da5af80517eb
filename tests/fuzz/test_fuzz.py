"""Made-up and damaged input of every kind: one line, exit 2, nothing imported, nothing written elsewhere, no hang.

The seed is fixed. ``make test-slow`` tries 2,000 inputs of each kind, ``make test`` a small sample.
"""

from __future__ import annotations

import json
import shutil
from random import Random

import pytest

from tests.experiments.helpers.measured_folders import copy_kernels, write_profile, write_run
from tests.experiments.helpers.small_experiments import small, write
from tests.fuzz.grammar import PIECES, VALUES, as_yaml, change, damage, keys_of
from tests.fuzz.judge import Judge
from tests.paths import CONFIGS, DATA
from twinserve.experiments.cli.main import main

SAMPLES = [40, pytest.param(2000, marks=pytest.mark.slow)]
FORMATS = {
    "azure": "azure.csv",
    "mooncake": "mooncake.jsonl",
    "burstgpt": "burstgpt.csv",
    "vidur": "vidur.csv",
    "lengths": "lengths.csv",
    "llmservingsim": "llmservingsim.jsonl",
    "timed_trace": "timed_trace.jsonl",
}
OPTIONS = {
    "burstgpt": {"zero_output": "drop"},
    "lengths": {"arrival": {"process": "all_at_once"}},
    "timed_trace": {
        "timed_trace": {"timestamp": "t", "input_length": "in", "output_length": "out", "hash_ids": "blocks"}
    },
}
CELLS = (
    "",
    "-1",
    "x",
    "1e400",
    "9" * 5000,
    "inf",
    "nan",
    "1_0",
    "1.5",
    "0",
    "7",
    "1000",
    "2.0",
    "\x1b",
    "\ud800",
    '"',
    "[" * 3000,
    "null",
    "{}",
)


@pytest.fixture
def judge(tmp_path, monkeypatch, record_property):
    judge = Judge(tmp_path, monkeypatch)
    yield judge
    record_property("answers", dict(judge.counts))
    listed = "\n".join(f"{case!r:.200}\n{offence}" for offence, case in judge.offences[:20])
    assert not listed, f"{len(judge.offences)} offences; {dict(judge.counts)}\n{listed}"


@pytest.mark.parametrize("number", SAMPLES)
def test_yaml(judge, number):
    packaged = [path.read_text() for path in sorted(CONFIGS.glob("*.yaml"))]
    for seed in range(number):
        random = Random(f"yaml {seed}")
        base = as_yaml(change(small(), random)) if random.random() < 0.6 else random.choice(packaged)
        text = damage(base, random) if random.random() < 0.5 else base
        path = judge.folder / "config.yaml"
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        judge(text, "validate-config", path)


@pytest.mark.parametrize("number", SAMPLES)
def test_overrides(judge, number):
    path = write(judge.folder, small())
    keys = [
        *keys_of(small()),
        "model.path",
        "workload.classes",
        "sim.cost_model.file",
        "sim.cost_model.hardware",
        "x.y",
    ]
    for seed in range(number):
        random = Random(f"set {seed}")
        value = random.choice([as_yaml(random.choice(VALUES)), random.choice(PIECES)])
        text = f"{random.choice(keys)}={value}"
        judge(text, "run", path, "--out", judge.folder / "out", "--no-progress", "--set", _harmless(text, random))
        shutil.rmtree(judge.folder / "out", ignore_errors=True)


def _harmless(text, random):
    """A policy that is named on the command line is the user's own, and may be imported."""
    text = text.replace("twinserve_fuzz_trap", "no_such_module")
    return damage(text, random) if random.random() < 0.3 else text


@pytest.mark.parametrize("number", SAMPLES)
def test_traces(judge, number):
    for seed in range(number):
        random = Random(f"trace {seed}")
        kind = random.choice([*FORMATS, "servegen"])
        if kind == "servegen":
            folder = judge.folder / "servegen"
            shutil.copytree(DATA / "traces" / "servegen", folder, dirs_exist_ok=True)
            victim = random.choice(sorted(path for path in folder.iterdir() if path.name.startswith("chunk")))
            keys = {"kind": "servegen", "path": str(folder), "duration_s": 600.0, "num_prompts": 5}
        else:
            victim = judge.folder / FORMATS[kind]
            shutil.copyfile(DATA / "traces" / FORMATS[kind], victim)
            keys = {"kind": "trace", "path": str(victim), "format": kind, **OPTIONS.get(kind, {})}
        victim.write_text(_damaged_cells(victim.read_text(), random), encoding="utf-8", errors="surrogatepass")
        judge((kind, seed), "validate-config", write(judge.folder, small() | {"workload": keys}))


def _damaged_cells(text, random):
    if random.random() < 0.4:
        return damage(text, random)
    lines = text.split("\n")
    at = random.randrange(len(lines))
    separator = "," if random.random() < 0.8 else ":"
    cells = lines[at].split(separator)
    cells[random.randrange(len(cells))] = random.choice(CELLS)
    lines[at] = separator.join(cells)
    return "\n".join(lines)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Kind -> a good folder of it, and the commands that read such."""
    root = tmp_path_factory.mktemp("folders")
    out = root / "out"
    assert main(["run", str(write(root, small())), "--out", str(out), "--no-progress"]) == 0
    sweep = {"base": small(), "matrix": {"engine.max_num_seqs": [2, 4]}, "executor": {"kind": "serial"}}
    path = write(root, sweep, "sweep.yaml")
    assert main(["sweep", str(path), "--out", str(root / "sweep"), "--no-progress", "--no-plots"]) == 0
    return {
        "run": (next(out.iterdir()), (("plot", "{}"), ("calibrate", "{}", "-o", "c.yaml"), ("validate", "{}"))),
        "sweep": (root / "sweep", (("plot", "{}"), ("validate", "{}"))),
        "real run": (write_run(root / "real", count=30), (("calibrate", "{}", "-o", "c.yaml"), ("validate", "{}"))),
        "profile": (write_profile(root / "profile", repeats=2), (("plot", "{}"), ("calibrate", "{}", "-o", "c.yaml"))),
        "kernels": (copy_kernels(root / "kernels"), (("calibrate", "{}", "-o", "c.yaml", "--num-blocks", "100"),)),
    }


@pytest.mark.parametrize("number", SAMPLES)
def test_folders(judge, folders, number):
    for seed in range(number):
        random = Random(f"folder {seed}")
        kind = random.choice(sorted(folders))
        good, commands = folders[kind]
        copy = judge.folder / "received"
        shutil.copytree(good, copy, dirs_exist_ok=True)
        _damage_folder(copy, random)
        command = random.choice(commands if random.random() < 0.3 else commands[-1:])  # a picture takes long
        judge((kind, seed, command), *(part.format(copy) for part in command))
        shutil.rmtree(copy)


def _damage_folder(folder, random):
    victim = random.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    match random.randrange(4):
        case 0:
            victim.unlink()
        case 1 if victim.suffix == ".json":
            victim.write_text(json.dumps(change(json.loads(victim.read_text()), random)))
        case 2:
            victim.write_text(random.choice(("", "[" * 50_000, "{}", "null", "9" * 5000)))
        case _:
            data = bytearray(victim.read_bytes())
            for _ in range(random.randint(1, 5)):
                data[random.randrange(len(data))] = random.randrange(256)
            victim.write_bytes(bytes(data))
