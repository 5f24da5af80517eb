"""Points whose policies are classes: what a class does must be known, or its points are run every time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.experiments.helpers.small_experiments import small
from twinserve.experiments.sweep.points import sweep_of
from twinserve.experiments.sweep.run import run_sweep
from twinserve.sched_core.policies.composition import Mixed, Static


class Known(Mixed):
    """Its source says all."""


def of(parent):
    class Unknown(parent):
        helper = parent()

    return Unknown


def sweep(tmp_path, *makers, kind="serial"):
    data = {"base": small(), "seeds": list(range(len(makers))), "executor": {"kind": kind, "workers": 2}}
    made = sweep_of(data, source="text", base_dir=tmp_path)
    points = [
        replace(point, experiment=point.experiment.with_policies({"policy": maker}))
        for point, maker in zip(made.points, makers, strict=True)
    ]
    return replace(made, points=tuple(points))


@pytest.mark.parametrize("kind", ["serial", "processes"])
def test_a_class_that_its_source_describes_is_run_once(tmp_path, kind):
    first = run_sweep(sweep(tmp_path, Known, Known, kind=kind), tmp_path / "out")
    again = run_sweep(sweep(tmp_path, Known, Known, kind=kind), tmp_path / "out")
    assert (len(first.finished), first.num_found) == (2, 0)
    assert (len(again.finished), again.num_found) == (2, 2)


@pytest.mark.parametrize("kind", ["serial", "processes"])
def test_a_class_that_may_do_anything_is_run_every_time(tmp_path, kind):
    mixed = run_sweep(sweep(tmp_path, of(Mixed), kind=kind), tmp_path / "out")
    static = run_sweep(sweep(tmp_path, of(Static), kind=kind), tmp_path / "out")
    assert (static.num_found, static.replaced, static.failed) == (0, [], [])
    right = run_sweep(sweep(tmp_path, of(Static)), tmp_path / "right")
    assert static.finished[0][1] == right.finished[0][1]
    assert mixed.finished[0][1]["mean_ttft_ms"] != static.finished[0][1]["mean_ttft_ms"]


def test_the_stored_run_of_another_class_is_no_result_of_one_that_fails(tmp_path):
    def failing(fails):
        class Unknown(Mixed):
            helper = fails

            def compose(self, step):
                if fails():
                    raise ZeroDivisionError("no")
                return super().compose(step)

        return Unknown

    assert run_sweep(sweep(tmp_path, failing(lambda: False)), tmp_path / "out").finished
    outcome = run_sweep(sweep(tmp_path, failing(lambda: True)), tmp_path / "out")
    assert not outcome.finished
    assert "ZeroDivisionError: no" in outcome.failed[0][1]


def test_two_such_classes_that_look_the_same_are_not_taken_for_one(tmp_path):
    made = sweep(tmp_path, of(Mixed), of(Static))
    same = replace(
        made,
        points=tuple(
            replace(point, settings={"policy": number}, experiment=replace(point.experiment, config=_seedless(point)))
            for number, point in enumerate(made.points)
        ),
    )
    outcome = run_sweep(same, tmp_path / "out")
    assert len(outcome.finished) == 1
    assert [error for _, error in outcome.failed] == [
        "engine: cannot be told from another point's; give its classes different names"
    ]


def _seedless(point):
    return point.experiment.config.model_copy(update={"seed": 0})
