"""Settings that cannot work together are warned of by name, before and after a run."""

from __future__ import annotations

import json

import pytest

from tests.experiments.helpers.small_experiments import small, write
from twinserve.experiments.workloads.lengths import LognormalLength, NormalLength

CASES = [
    ({"engine__max_num_batched_tokens": 3, "engine__policy": "static"}, ("max_num_batched_tokens=3", "max_num_seqs=4")),
    ({"engine__num_gpu_blocks_override": 8}, ("num_gpu_blocks_override", "max_model_len=256")),
    ({"engine__enable_chunked_prefill": False}, ("max_num_batched_tokens=64", "enable_chunked_prefill=false")),
]


@pytest.mark.parametrize(("changes", "names"), CASES)
def test_both_keys_are_named_by_validate_config_and_in_the_result(twinserve, tmp_path, changes, names):
    path = write(tmp_path, small(**changes))
    checked = twinserve("validate-config", path)
    assert checked.code == 0
    assert all(name in checked.err for name in names)
    assert twinserve("run", path, "--out", tmp_path / "out").code == 0
    (result,) = (tmp_path / "out").glob("*/result.json")
    assert any(all(name in warning for name in names) for warning in json.loads(result.read_text())["warnings"])


def test_settings_that_go_together_say_nothing(twinserve, tmp_path):
    assert twinserve("validate-config", write(tmp_path, small())).err == ""


def test_a_run_without_a_served_request_ends_with_1_and_keeps_its_result(run, tmp_path):
    answer = run(small(workload__input_len={"dist": "fixed", "value": 999}))
    assert answer.code == 1
    assert "no request was served, all 6 failed: prompt_exceeds_max_model_len (6)" in answer.line
    assert list((tmp_path / "out").glob("*/result.json"))


@pytest.mark.parametrize("kind", [LognormalLength, NormalLength])
@pytest.mark.parametrize("bounds", [{"max": 3000}, {"min": 10_000}])
def test_a_mean_outside_its_bounds_is_refused(kind, bounds):
    dist = kind.__name__.removesuffix("Length").lower()
    with pytest.raises(ValueError, match=r"mean 9000 is (above max 3000|below min 10000)"):
        kind(dist=dist, mean=9000.0, std=10.0, **bounds)


def test_warmup_by_position_that_leaves_nothing_is_refused_before_the_run(run, tmp_path):
    answer = run(small(metrics={"warmup_requests": 6}))
    assert answer.code == 2
    assert "metrics: warm-up and cool-down exclude all 6 requests (warmup_requests=6)" in answer.line
    assert not (tmp_path / "out").exists()


def test_warmup_by_time_that_leaves_nothing_is_refused_and_the_record_kept(run, tmp_path):
    answer = run(small(metrics={"warmup_time_s": 1000.0}))
    assert answer.code == 2
    assert "exclude all 6 requests that were sent (warmup_time_s=1000)" in answer.line
    assert list((tmp_path / "out").glob("*/requests.parquet"))
