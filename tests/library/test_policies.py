"""Policies that are classes of the caller's, with and without parameters."""

import pytest

import twinserve
from tests.experiments.helpers.small_experiments import small
from twinserve.sched_core.policies.order import OrderBase

BUSY = small(workload__num_prompts=20, workload__arrival__request_rate=500.0)


class ByLength(OrderBase):
    def __init__(self, sign=1):
        self._sign = sign

    def rank(self, request, now):
        return (self._sign * request.spec.num_prompt_tokens,)


def ttft_of(**order):
    return twinserve.simulate(BUSY, **order).requests.ttft_ms.tolist()


def test_a_class_is_the_policy_of_a_run():
    assert sum(ttft_of(policies={"order": ByLength})) < sum(ttft_of())


def test_its_parameters_are_given_beside_it():
    up, down = (ttft_of(policies={"order": {"use": ByLength, "sign": sign}}) for sign in (1, -1))
    assert up == ttft_of(policies={"order": ByLength}) != down


def test_runs_of_different_parameters_are_different_runs(tmp_path):
    orders = [ByLength, {"use": ByLength, "sign": -1}, {"use": ByLength, "sign": -2}]
    ids = {twinserve.run(BUSY, policies={"order": order}, out=tmp_path).run_id for order in orders}
    assert len(ids) == 3


def test_a_loaded_configuration_keeps_its_policies():
    loaded = twinserve.load_config(BUSY, policies={"order": {"use": ByLength, "sign": -1}})
    assert twinserve.simulate(loaded).requests.ttft_ms.tolist() == ttft_of(
        policies={"order": {"use": ByLength, "sign": -1}}
    )


def test_an_unknown_parameter_or_seam_is_one_line():
    with pytest.raises(twinserve.ConfigError, match=r"sgn.*sign"):
        twinserve.simulate(BUSY, policies={"order": {"use": ByLength, "sgn": 1}})
    with pytest.raises(twinserve.ConfigError, match=r"engine.ordr.*did you mean order"):
        twinserve.simulate(BUSY, policies={"ordr": ByLength})
