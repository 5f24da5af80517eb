"""The examples of docs/recipes.md work as written."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

from sched_core.config import SchedulerConfig
from sched_core.engine import EngineCore
from sched_core.policies.registry import build_policies
from sched_core.prompt import Prompt
from sched_core.record import Recorder
from sched_core.spec import RequestSpec
from sched_core.traffic import Traffic
from sim_backend.driver import simulate
from sim_backend.linear import LinearCostModel, LinearTerms

RECIPES = (Path(__file__).parents[1] / "docs" / "recipes.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", RECIPES, re.DOTALL)


def test_the_example_policies_plug_in_by_import_path_and_serve_every_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_policies.py").write_text(blocks("python")[0], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_policies", raising=False)
    policies = build_policies(**yaml.safe_load(blocks("yaml")[0])["engine"])
    config = SchedulerConfig(
        num_blocks=12, block_size=8, max_num_batched_tokens=32, max_num_seqs=4, scheduler_reserve_full_isl=False
    )
    requests = [
        RequestSpec(request_id=index, prompt=Prompt.of_stream(index, 20 + 3 * index), max_tokens=12)
        for index in range(6)
    ]
    cost_model = LinearCostModel(LinearTerms(base_ms=1.0))
    record = simulate(EngineCore(config, policies), Traffic(requests), cost_model, Recorder(), check=True)
    assert record.requests["output_len"] == [12] * 6
    assert record.stats["num_preemptions"] > 0
    first = sorted(zip(record.requests["first_scheduled_ns"], record.requests["prompt_len"], strict=True))
    assert [length for _, length in first] == sorted(length for _, length in first)


def test_every_file_that_the_recipes_name_exists() -> None:
    root = Path(__file__).parents[1]
    named = re.findall(r"`((?:sched_core|sim_backend|real_backend|experiments|configs|tests)/[\w./-]+)`", RECIPES)
    assert named
    assert [path for path in named if not (root / path).exists()] == []
