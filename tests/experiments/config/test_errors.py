"""Every mistake in a configuration is one line that names the file (or the flag), the key and the remedy."""

from __future__ import annotations

import pytest

from tests.experiments.helpers.small_experiments import small, write
from twinserve.experiments.errors import ConfigError

WRONG = [
    ({"engine__max_num_seq": 4}, "engine.max_num_seq: unknown key; did you mean max_num_seqs?"),
    ({"engin": {}}, "engin: unknown key; did you mean engine?"),
    ({"workload__arrival__rate": 4}, "workload.arrival.rate: unknown key; did you mean"),
    ({"sim__cost_model__per_tokn_ms": 1.0}, "sim.cost_model.per_tokn_ms: unknown key; did you mean per_token_ms?"),
    ({"metrics__slo": {"ttft": 5}}, "metrics.slo.ttft: unknown key; did you mean ttft_ms?"),
    ({"engine__max_num_seqs": "many"}, "engine.max_num_seqs: got 'many'; should be a valid integer"),
    ({"engine__max_num_seqs": 2.5}, "engine.max_num_seqs: got 2.5; should be a valid integer"),
    ({"engine__max_num_seqs": True}, "engine.max_num_seqs: got True"),
    ({"engine__max_num_seqs": 0}, "engine.max_num_seqs: got 0; should be greater than or equal to 1"),
    ({"engine__block_size": -16}, "engine.block_size: got -16; should be greater than or equal to 1"),
    ({"engine__watermark": 1.0}, "engine.watermark: got 1.0; should be less than 1"),
    ({"engine__watermark": float("nan")}, "engine.watermark: got nan"),
    ({"engine__gpu_memory_utilization": 0}, "engine.gpu_memory_utilization: got 0"),
    ({"engine__enable_chunked_prefill": "yes"}, "engine.enable_chunked_prefill: got 'yes'; should be a valid boolean"),
    ({"engine__policy": "mixd"}, "engine.policy: got 'mixd'; did you mean mixed?"),
    ({"engine__order": "lifo"}, "engine.order: got 'lifo'; known here: fcfs, priority, sjf"),
    ({"engine__victim": "none"}, "engine.victim: got 'none'"),
    ({"engine__policy": "no_such_module_anywhere:Mine"}, "engine.policy: there is no module"),
    ({"engine__policy": "json:Mine"}, "cannot load policy 'json:Mine'"),
    ({"engine__cuda_graph_sizes": {"decode": [8, 4]}}, "engine.cuda_graph_sizes.decode: got [8, 4]; should be ascend"),
    ({"engine__num_gpu_blocks_override": None}, "engine.num_gpu_blocks_override: is missing: a linear cost model"),
    ({"engine": None}, "engine: got None; should be a mapping of keys"),
    ({"seed": -1}, "seed: got -1; should be greater than or equal to 0"),
    ({"name": 3}, "name: got 3; should be a valid string"),
    ({"backend": "gpu"}, "backend: got 'gpu'; should be 'sim' or 'real'"),
    ({"sim": None}, "backend is sim but there is no `sim:` section"),
    ({"sim__cost_model__kind": "liner"}, "sim.cost_model.kind: got 'liner'; did you mean linear?"),
    ({"sim__cost_model": {"base_ms": 3.0}}, "sim.cost_model.kind: is missing; should be one of calibration, linear,"),
    ({"sim__cost_model__base_ms": float("inf")}, "sim.cost_model.base_ms: got inf; should be a finite number"),
    ({"sim__cost_model__base_ms": -1.0}, "base_ms must be finite and not negative"),
    ({"workload__kind": "synthetik"}, "workload.kind: got 'synthetik'; did you mean synthetic?"),
    ({"workload__num_prompts": 0}, "workload.num_prompts: got 0"),
    ({"workload__arrival__request_rate": -2}, "workload.arrival.request_rate: got -2"),
    ({"workload__arrival__request_rate": float("nan")}, "workload.arrival.request_rate: got nan"),
    ({"workload": {"kind": "trace", "format": "azure"}}, "workload.path: is missing; give it a value"),
    ({"workload": {"kind": "trace", "format": "azure", "path": "no.csv"}}, "workload.path: "),
]


@pytest.mark.parametrize(("changes", "complaint"), WRONG, ids=[next(iter(changes)) for changes, _ in WRONG])
def test_a_wrong_value_is_one_line_with_file_key_and_remedy(run, tmp_path, changes, complaint):
    answer = run(small(**changes))
    assert answer.code == 2
    assert answer.line.startswith(f"twinserve: error: {tmp_path / 'experiment.yaml'}: ")
    assert complaint in answer.line
    assert not list((tmp_path / "out").glob("*/result.json"))


def test_an_unknown_key_comes_before_the_missing_one_it_causes(run):
    data = small()
    data["wrkload"] = data.pop("workload")
    assert "wrkload: unknown key; did you mean workload? (and 1 more)" in run(data).line


def test_a_missing_section_is_named(run):
    data = small()
    del data["workload"]
    assert run(data).line.endswith("workload: is missing; give it a value")


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("engine.max_num_seqs=-3", "--set engine.max_num_seqs=-3: engine.max_num_seqs: got -3"),
        ("engine.max_num_seq=3", "--set engine.max_num_seq=3: engine.max_num_seq: unknown key"),
        ("engine={max_num_seqs: 0}", "--set engine={max_num_seqs: 0}: engine.max_num_seqs: got 0"),
        ("sim.cost_model.base_ms=-1", "experiment.yaml with --set sim.cost_model.base_ms=-1: sim.cost_model: base_ms"),
        ("workload.path=no.csv", "--set workload.path=no.csv: workload.path: "),
        ("engine", "--set engine: not of the form KEY=VALUE"),
        ("=3", "--set =3: not of the form KEY=VALUE"),
        ("engine..policy=mixed", "not of the form KEY=VALUE"),
        ("engine=[1", "--set engine=[1: line 1, column 3: not valid YAML"),
        ("name.x=3", "--set name.x=3: name.x: name is 'small', which has no keys inside"),
    ],
)
def test_a_wrong_override_is_named_instead_of_the_file(run, setting, complaint):
    answer = run(small(), "--set", setting)
    assert answer.code == 2
    assert complaint in answer.line


def test_a_wrong_backend_flag_is_named(run):
    assert "--backend gpu: backend: got 'gpu'" in run(small(), "--backend", "gpu").line


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "no_such_config"], "no_such_config: does not exist; give a YAML file or a packaged one"),
        (["run", "smok"], "smok: does not exist; give a YAML file or a packaged one (did you mean smoke?)"),
        (["run", "."], ".: is a folder"),
        (["run", "sweeps/token_budget"], "is a sweep; run it with `twinserve sweep`"),
        (["sweep", "smoke"], "base: is missing"),
        (["run"], "Missing argument"),
        (["run", "smoke", "--bogus"], "--bogus"),
        (["rum"], "No such command 'rum'"),
        (["list", "nothing"], "'nothing' is not one of"),
    ],
)
def test_a_wrong_command_line_is_one_line(twinserve, arguments, complaint):
    answer = twinserve(*arguments)
    assert answer.code == 2
    assert complaint in answer.line


@pytest.mark.parametrize("out", ["/dev/null", "/proc/nothing", "{file}", "{file}/inside"])
def test_an_output_folder_that_cannot_be_made_is_one_line(twinserve, tmp_path, out):
    config = write(tmp_path, small())
    folder = out.format(file=config)
    answer = twinserve("run", config, "--out", folder)
    assert answer.code == 2
    assert answer.line.startswith(f"twinserve: error: {folder}")
    assert "cannot be written" in answer.line
    assert answer.line.endswith("give --out a writable folder with free space")


def test_errors_travel_between_processes_whole():
    import pickle

    error = ConfigError("got 3;\n should be 4", file="a.yaml", key="x.y")
    assert str(pickle.loads(pickle.dumps(error))) == "a.yaml: x.y: got 3; should be 4"


@pytest.mark.parametrize("key", ["workload.input_len.dist", "workload.arrival.process", "sim.cost_model.kind"])
def test_an_unknown_kind_is_reported_under_the_key_that_names_it(twinserve, key):
    done = twinserve("validate-config", "smoke", "--set", f"{key}=foo")
    assert done.code == 2
    assert f"{key}: got 'foo'; known here: " in done.err


def test_a_misspelt_key_is_compared_with_the_keys_of_the_chosen_distribution(twinserve):
    done = twinserve("validate-config", "smoke", "--set", "workload.input_len.maxx=3")
    assert done.code == 2
    assert "workload.input_len.maxx: unknown key; did you mean max?" in done.err
