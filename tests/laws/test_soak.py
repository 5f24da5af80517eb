"""A long run of random worlds with seeds drawn afresh; ``TWINSERVE_SOAK_SEED`` repeats one."""

from __future__ import annotations

import os
import secrets
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.laws.fake_model import expected_tokens
from tests.laws.worlds import VOCAB_SIZE, World, crowds, play, worlds

NUM_STEPS = int(os.environ.get("TWINSERVE_SOAK_STEPS", "100000"))
WORLDS_PER_SEED = 100


def _round(number: int, totals: Counter[str]) -> None:
    """Play worlds drawn from seed ``number`` and add up what happened in them."""

    @seed(number)
    @settings(
        max_examples=WORLDS_PER_SEED,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(worlds(), worlds(), crowds()))
    def holds(world: World) -> None:
        played = play(world)
        for _, spec in world.arrivals:
            tokens = played.tokens.get(spec.request_id, [])
            assert tokens == expected_tokens(spec.prompt, len(tokens), VOCAB_SIZE)
            if spec.request_id in played.finished:
                assert list(played.finished[spec.request_id].output_token_ids) == tokens
        assert played.refused | set(played.finished) == {spec.request_id for _, spec in world.arrivals}
        totals.update(event.reason.value for event in played.finished.values())
        totals["worlds"] += 1
        totals["steps"] += len(played.plans)
        totals["cancelled"] += len(world.cancels.intersection(played.boundaries))
        totals["preempted"] += sum(len(plan.preempted) for plan in played.plans)
        totals["hit tokens"] += sum(start.num_cached_tokens for plan in played.plans for start in plan.started)
        totals["refused"] += len(played.refused)

    holds()


@pytest.mark.slow
def test_fresh_random_worlds_keep_every_law(capsys: pytest.CaptureFixture[str]) -> None:
    first = int(os.environ.get("TWINSERVE_SOAK_SEED") or secrets.randbits(32))
    totals: Counter[str] = Counter()
    number = first
    while totals["steps"] < NUM_STEPS:
        with capsys.disabled():
            print(f"\nTWINSERVE_SOAK_SEED={number} {dict(totals)}", end="", flush=True)  # noqa: T201
        _round(number, totals)
        number += 1
    with capsys.disabled():
        print(f"\nsoak: {dict(totals)}")  # noqa: T201
    assert totals["preempted"] > 0
    assert totals["hit tokens"] > 0
    assert totals["cancelled"] > 0
