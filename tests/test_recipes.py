"""The examples of docs/recipes.md work as written, and docs/metrics.md names every figure."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.paths import ROOT
from twinserve.experiments.config.load import Experiment, experiment_of
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.run import run_experiment
from twinserve.experiments.workloads import build_workload
from twinserve.experiments.workloads.assemble import assemble
from twinserve.experiments.workloads.streams import RandomStreams
from twinserve.run_core.record import RunRecord
from twinserve.run_core.session import Session
from twinserve.run_core.traffic import Traffic
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.policies.registry import build_policies
from twinserve.sched_core.requests.prompt import Prompt
from twinserve.sched_core.requests.spec import RequestSpec
from twinserve.sim_backend.cost_model import CostModel
from twinserve.sim_backend.driver import simulate
from twinserve.sim_backend.linear import LinearCostModel, LinearTerms

RECIPES, METRICS = ((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in ("recipes", "metrics"))
EXAMPLES = re.findall(r"```(?:python|yaml)\n# ([^\n]+)\n(.*?)```", RECIPES, re.DOTALL)
MODULES = ("my_policies", "my_parameters", "my_budget", "my_reader", "bursts", "quadratic", "replicas")
LATENCY_KEY = re.compile(
    r"(?:mean_|median_|std_|p[\d.]+_)?(ttft|tpot|itl|e2el|queue_time|client_queue_time)(?:_from_sending)?(_ms|_count)"
)
SMALL: Mapping[str, Any] = {
    "name": "recipe",
    "engine": {"max_num_batched_tokens": 64, "max_num_seqs": 4, "max_model_len": 256, "block_size": 16},
    "workload": {
        "kind": "synthetic",
        "num_prompts": 8,
        "input_len": {"dist": "uniform", "min": 4, "max": 100},
        "output_len": {"dist": "fixed", "value": 5},
        "arrival": {"process": "poisson", "request_rate": 50.0},
    },
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with every example as the file that its first line names, importable."""
    for name, text in EXAMPLES:
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in MODULES:
        monkeypatch.delitem(sys.modules, module, raising=False)
    return tmp_path


def load(module: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    loaded = importlib.import_module(module)
    monkeypatch.setitem(sys.modules, module, loaded)  # undone with the folder
    return loaded


def parts_of(name: str) -> dict[str, Any]:
    """The YAML fragments of one file, together."""
    merged: dict[str, Any] = {}
    for title, text in EXAMPLES:
        if title == f"part of {name}":
            merged |= yaml.safe_load(text)
    assert merged
    return merged


def serve(cost_model: CostModel, *, num_blocks: int = 12, **policies: Any) -> RunRecord:
    config = SchedulerConfig(
        num_blocks=num_blocks, block_size=8, max_num_batched_tokens=32, max_num_seqs=4, scheduler_reserve_full_isl=False
    )
    requests = [
        RequestSpec(request_id=index, prompt=Prompt.of_stream(index, 20 + 3 * index), max_tokens=12)
        for index in range(6)
    ]
    engine = EngineCore(config, build_policies(**policies))
    return simulate(Session(engine, Traffic(requests), check=True), cost_model).complete()


@pytest.mark.usefixtures("folder")
def test_the_example_policies_plug_in_by_import_path_and_serve_every_request() -> None:
    record = serve(LinearCostModel(LinearTerms(base_ms=1.0)), **parts_of("my_experiment.yaml")["engine"])
    assert record.requests["output_len"] == [12] * 6
    assert record.stats["num_preemptions"] > 0
    first = sorted(zip(record.requests["first_scheduled_ns"], record.requests["prompt_len"], strict=True))
    assert [length for _, length in first] == sorted(length for _, length in first)


@pytest.mark.usefixtures("folder")
def test_the_example_budget_shortens_steps_by_asking_the_estimator() -> None:
    class Estimator:
        def seconds(self, features: Any) -> float:
            return float(features.num_tokens) * 0.5e-3

    cost_model = LinearCostModel(LinearTerms(per_token_ms=0.5))
    free = serve(cost_model, num_blocks=100)
    kept = serve(cost_model, num_blocks=100, budget="my_budget:ShortSteps", estimator=Estimator())
    assert max(free.steps["num_tokens"]) == 32
    assert max(kept.steps["num_tokens"]) == 16


@pytest.mark.usefixtures("folder")
def test_the_example_composition_caps_prompts_beside_decodes() -> None:
    steps = serve(LinearCostModel(LinearTerms(base_ms=1.0)), num_blocks=100, **parts_of("my_parameters.yaml")["engine"])
    assert 1 < max(steps.steps["prefill_tokens"]) <= 16
    assert steps.requests["output_len"] == [12] * 6


def experiment(folder: Path) -> Experiment:
    """The experiment of the page: its policies, its model on its GPU."""
    parts = parts_of("my_experiment.yaml")
    data = {**SMALL, **parts, "engine": {**SMALL["engine"], **parts["engine"]}}
    return experiment_of(data, source="my_experiment.yaml", base_dir=folder)


def test_the_example_model_runs_on_the_example_gpu_with_the_example_policies(folder: Path) -> None:
    result = run_experiment(experiment(folder), folder / "out", code="x", check=True).result
    assert (result["completed"], result["policy"]) == (8, "my_policies:DecodesThenNew")
    assert result["num_blocks_source"] == "derived from memory"


def test_the_metrics_page_names_every_key_of_a_result(folder: Path) -> None:
    result = run_experiment(experiment(folder), folder / "out", code="x").result
    latencies = {found[1] for key in result if (found := LATENCY_KEY.fullmatch(key))}
    others = {key for key in result if not LATENCY_KEY.fullmatch(key)}
    assert len(latencies) == 6
    assert {key for key in latencies | others if f"`{key}`" not in METRICS} == set()


def test_the_example_trace_needs_no_code(folder: Path) -> None:
    (folder / "my_trace.jsonl").write_text(
        '{"at": 3.0, "prompt": 9, "answer": 2}\n{"at": 4.5, "prompt": 7, "answer": 1}\n', encoding="utf-8"
    )
    data = {**SMALL, **parts_of("my_trace.yaml"), "sim": {"cost_model": {"kind": "linear", "base_ms": 1.0}}}
    config = experiment_of(data, source="my_trace.yaml", base_dir=folder).config
    requests = build_workload(config.workload, seed=0, repeat=0, max_model_len=64, base_dir=folder).requests
    assert [(r.arrival_ns, r.num_prompt_tokens, r.max_tokens) for r in requests] == [(0, 9, 2), (1_500_000_000, 7, 1)]


def test_the_example_reader_reads_and_names_the_bad_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = load("my_reader", monkeypatch)
    log = folder / "gateway.csv"
    log.write_text("sent,prompt,answer\n7.5,10,3\n7.0,20,4\n", encoding="utf-8")
    table = reader.read_gateway_log(log)
    assert table.time_ns.tolist() == [500_000_000, 0]
    assert (table.input_len.tolist(), table.output_len.tolist()) == ([10, 20], [3, 4])
    log.write_text("sent,prompt,answer\n7.5,10,3\n7.0,many,4\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 3: prompt is 'many'"):
        reader.read_gateway_log(log)


@pytest.mark.usefixtures("folder")
def test_the_example_workload_arrives_in_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    bursts = load("bursts", monkeypatch)
    config = bursts.BurstsConfig.model_validate(parts_of("bursts.yaml")["workload"])
    streams = RandomStreams(0, 0)
    workload = assemble(bursts.bursts_rows(config, streams), config, streams, 256)
    assert [request.arrival_ns for request in workload.requests] == [0] * 4 + [2 * 10**9] * 4 + [4 * 10**9] * 4
    lengths = [request.num_prompt_tokens for request in workload.requests]
    assert 1 <= min(lengths) < max(lengths) <= 100


@pytest.mark.usefixtures("folder")
def test_the_example_cost_model_prices_prefill_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load("quadratic", monkeypatch).QuadraticCostModel(base_ms=1.0, per_pair_ns=10.0)
    steps = serve(model, num_blocks=100).steps
    columns = zip(steps["start_ns"], steps["end_ns"], steps["prefill_pairs"], strict=True)
    assert all(end - start == 1_000_000 + 10 * pairs for start, end, pairs in columns)
    assert max(steps["prefill_pairs"]) > 0


@pytest.mark.usefixtures("folder")
def test_the_example_replicas_share_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [RequestSpec(request_id=i, prompt=Prompt.of_stream(i, 20), max_tokens=8) for i in range(9)]
    records = load("replicas", monkeypatch).serve(requests, 3, LinearCostModel(LinearTerms(base_ms=1.0)))
    assert [len(record.requests["request_id"]) for record in records] == [3, 3, 3]


def test_every_example_is_run() -> None:
    fenced = len(re.findall(r"^```(?:python|yaml)$", RECIPES, re.MULTILINE))
    modules = {title.removesuffix(".py") for title, _ in EXAMPLES if title.endswith(".py")}
    assert (len(EXAMPLES), modules) == (fenced, set(MODULES))
