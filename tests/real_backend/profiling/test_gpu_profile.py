"""A profile on a GPU: the device is timed, and steps run in every kind of graph and above the largest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.real_backend.devices import on_gpu
from tests.real_backend.packaged_models import random_weights
from twinserve.real_backend.build import load_profile
from twinserve.real_backend.engine_config import EngineConfig, EngineOptions
from twinserve.real_backend.profiling.measurement import PROFILE_COLUMNS
from twinserve.real_backend.profiling.profile import Profile
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.policies.registry import build_policies

pytestmark = on_gpu

SCHEDULER = SchedulerConfig(
    num_blocks=1, block_size=256, max_num_batched_tokens=1280, max_num_seqs=32, max_model_len=1024
)


def profile(**options: Any) -> Profile:
    return load_profile(
        EngineConfig(
            model=random_weights("Qwen/Qwen3-0.6B"),
            scheduler=SCHEDULER,
            options=EngineOptions(num_gpu_blocks_override=80, **options),
        ),
        make_policies=build_policies,
        seed=0,
        num_visits=1,
        density=0.1,
    )


def columns(measured: Profile) -> dict[str, list[object]]:
    rows = [row for piece in measured.measure() for row in piece]
    return dict(zip(PROFILE_COLUMNS, map(list, zip(*rows, strict=True)), strict=True))


def test_every_step_has_a_device_time_within_its_interval() -> None:
    measured = profile()
    steps = columns(measured)
    assert all(0 < device < interval for device, interval in zip(steps["device_ns"], steps["interval_ns"], strict=True))
    assert set(steps["source"]) == {"runner", "engine"}
    assert measured.facts["driver"] is not None


@pytest.mark.parametrize(("enforce_eager", "modes"), [(False, {"decode", "mixed", "eager"}), (True, {"eager"})])
def test_steps_run_in_every_kind_of_graph_and_above_the_largest(enforce_eager: bool, modes: set[str]) -> None:
    steps = columns(profile(enforce_eager=enforce_eager, attention_backend="triton"))
    assert set(map(str, steps["graph_mode"])) == modes
