"""Replay: a simulation keeps a recording's clock."""

from __future__ import annotations

import pytest

from twinserve.sched_core.dispatch import GraphMode
from twinserve.sched_core.features import StepFeatures
from twinserve.sim_backend.replay import ReplayCostModel, ReplayError

STEP = StepFeatures(3, 3, 3, 30, 0, 0, 0, 3, 0, GraphMode.EAGER, 3)


def test_steps_end_when_they_did_in_the_recording():
    model = ReplayCostModel([(0, 10), (10, 25)])
    first = model.step_ns(STEP, 0)
    assert first == 10
    assert model.step_ns(STEP, first) == 15


def test_idle_engine_wakes_at_the_recorded_start_of_its_next_step():
    model = ReplayCostModel([(5, 10), (103, 120)])
    assert model.wake_ns(2) == 5
    assert model.step_ns(STEP, 5) == 5
    assert model.wake_ns(100) == 103
    assert model.step_ns(STEP, 103) == 17


def test_idle_engine_also_wakes_when_the_recorded_one_was_awake_without_a_step():
    model = ReplayCostModel([(50, 60)], wakes=[30, 10])
    assert model.wake_ns(8) == 10
    assert model.wake_ns(10) == 10
    assert model.wake_ns(11) == 30
    assert model.wake_ns(31) == 50
    model.step_ns(STEP, 50)
    assert model.wake_ns(70) == 70


def test_waking_never_goes_back_in_time_nor_past_the_end():
    model = ReplayCostModel([(5, 10)])
    assert model.wake_ns(7) == 7
    model.step_ns(STEP, 7)
    assert model.wake_ns(50) == 50


def test_exhausted_recording_names_the_step():
    model = ReplayCostModel([(0, 10)])
    model.step_ns(STEP, 0)
    with pytest.raises(ReplayError, match="step 1: the recording has only 1 steps"):
        model.step_ns(STEP, 10)


def test_step_that_starts_after_its_recorded_end_is_an_error():
    with pytest.raises(ReplayError, match="step 0: it starts at 12 ns"):
        ReplayCostModel([(0, 10)]).step_ns(STEP, 12)


@pytest.mark.parametrize("intervals", [[(0, 0)], [(0, 10), (9, 12)], [(-1, 5)]])
def test_recording_that_goes_back_in_time_is_refused(intervals):
    with pytest.raises(ValueError, match="recorded step"):
        ReplayCostModel(intervals)
