"""A simulated engine has the CUDA graphs that the real one would have."""

from __future__ import annotations

import pytest

from tests.experiments.helpers.small_experiments import small
from twinserve.experiments.backends.simulated import build_simulation
from twinserve.experiments.config.load import experiment_of
from twinserve.experiments.identity import identify
from twinserve.sched_core.dispatch import NO_GRAPHS, CaptureSizes, default_capture_sizes

ROOFLINE = {"kind": "roofline", "hardware": "h200"}
CHOSEN = default_capture_sizes("mixed", 4, 64)


def experiment(tmp_path, **changes):
    return experiment_of(small(**changes), source="test", base_dir=tmp_path)


def sizes(tmp_path, **changes):
    return build_simulation(experiment(tmp_path, **changes)).capture_sizes


def test_a_roofline_prices_the_graphs_that_the_engine_would_choose(tmp_path):
    assert sizes(tmp_path, sim__cost_model=ROOFLINE) == CHOSEN
    assert CHOSEN.decode[-1] == 4
    assert CHOSEN.mixed[-1] == 64


@pytest.mark.parametrize(
    ("backend", "expected"),
    [("triton", CHOSEN), ("fa2", CaptureSizes(decode=CHOSEN.decode)), ("sdpa", NO_GRAPHS)],
)
def test_the_attention_backend_decides_which_graphs_there_are(tmp_path, backend, expected):
    assert sizes(tmp_path, sim__cost_model=ROOFLINE, real__attention_backend=backend) == expected


def test_eager_has_no_graphs_and_given_sizes_win(tmp_path):
    assert sizes(tmp_path, sim__cost_model=ROOFLINE, engine__enforce_eager=True) == NO_GRAPHS
    asked = {"decode": [2, 4]}
    assert sizes(tmp_path, sim__cost_model=ROOFLINE, engine__cuda_graph_sizes=asked) == CaptureSizes(decode=(2, 4))


def test_linear_step_times_are_taken_as_given(tmp_path):
    assert sizes(tmp_path) == NO_GRAPHS


def test_the_attention_backend_is_part_of_a_run_only_where_it_matters(tmp_path):
    def run_id(**changes):
        return identify(experiment(tmp_path, **changes), "code").run_id

    fa2 = {"real__attention_backend": "fa2"}
    assert run_id(sim__cost_model=ROOFLINE) != run_id(sim__cost_model=ROOFLINE, **fa2)
    eager = {"sim__cost_model": ROOFLINE, "engine__enforce_eager": True}
    assert run_id(**eager) == run_id(**eager, **fa2)
    assert run_id() == run_id(**fa2)
