"""Length distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from tests.experiments.helpers.workload_builders import TINY
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.workloads.lengths import LengthConfig, draw_lengths

_READ: TypeAdapter[Any] = TypeAdapter(LengthConfig)


def draw(size: int = 20_000, seed: int = 0, **keys: object) -> np.ndarray:
    return draw_lengths(_READ.validate_python(keys), size, np.random.default_rng(seed), TINY, "workload.input_len")


@given(
    dist=st.sampled_from([{"dist": "uniform"}, {"dist": "zipf"}, {"dist": "normal", "mean": 9.0, "std": 50.0}]),
    bounds=st.tuples(st.integers(1, 500), st.integers(1, 500)).map(sorted),
    seed=st.integers(0, 9),
)
@settings(max_examples=50, deadline=None)
def test_every_length_is_within_its_bounds(dist: dict[str, object], bounds: list[int], seed: int) -> None:
    if "mean" in dist:
        dist = {**dist, "mean": float(sum(bounds)) / 2}  # a mean outside the bounds is refused
    lengths = draw(50, seed, **dist, min=bounds[0], max=bounds[1])
    assert lengths.dtype == np.int64
    assert bounds[0] <= lengths.min()
    assert lengths.max() <= bounds[1]


def test_uniform_reaches_both_ends_equally_often() -> None:
    lengths, counts = np.unique(draw(dist="uniform", min=3, max=6), return_counts=True)
    assert lengths.tolist() == [3, 4, 5, 6]
    np.testing.assert_allclose(counts / 20_000, 0.25, atol=0.02)


def test_fixed_is_always_the_same_and_may_be_one() -> None:
    assert set(draw(dist="fixed", value=1).tolist()) == {1}


def test_length_of_one_token_is_the_least_a_wide_normal_gives() -> None:
    assert draw(dist="normal", mean=2.0, std=10.0).min() == 1


def test_normal_and_lognormal_have_the_mean_and_spread_of_the_lengths_themselves() -> None:
    for dist in ("normal", "lognormal"):
        lengths = draw(100_000, dist=dist, mean=500.0, std=100.0)
        assert lengths.mean() == pytest.approx(500, rel=0.01)
        assert lengths.std() == pytest.approx(100, rel=0.02)


def test_lognormal_is_skewed_to_long_lengths() -> None:
    lengths = draw(dist="lognormal", mean=500.0, std=500.0)
    assert np.median(lengths) == pytest.approx(500 / 2**0.5, rel=0.03)


def test_zipf_weights_fall_with_the_rank() -> None:
    lengths = draw(200_000, dist="zipf", min=10, max=13, theta=1.0)
    _, counts = np.unique(lengths, return_counts=True)
    np.testing.assert_allclose(counts / counts.sum(), np.array([12, 6, 4, 3]) / 25, atol=0.005)


def test_zipf_with_theta_zero_is_uniform() -> None:
    _, counts = np.unique(draw(dist="zipf", min=1, max=4, theta=0.0), return_counts=True)
    np.testing.assert_allclose(counts / 20_000, 0.25, atol=0.02)


def test_empirical_draws_the_values_of_the_column_and_no_others() -> None:
    lengths = draw(300, dist="empirical", path="lengths.csv", column="num_decode_tokens")
    assert set(lengths.tolist()) == {54, 156, 133}


def test_empirical_names_a_missing_column_and_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"lengths.csv: no column 'tokens'; it has num_prefill_tokens, "):
        draw(dist="empirical", path="lengths.csv", column="tokens")
    with pytest.raises(ConfigError, match=r"workload.input_len.path: .*none.csv does not exist"):
        draw(dist="empirical", path="none.csv", column="tokens")


@pytest.mark.parametrize(
    "wrong",
    [
        {"dist": "fixed", "value": 0},
        {"dist": "fixed", "value": 1.5},
        {"dist": "uniform", "min": 0, "max": 4},
        {"dist": "uniform", "min": 5, "max": 4},
        {"dist": "normal", "mean": -1.0, "std": 1.0},
        {"dist": "normal", "mean": 1.0, "std": float("nan")},
        {"dist": "lognormal", "mean": float("inf"), "std": 1.0},
        {"dist": "zipf", "min": 1, "max": 4, "theta": -1.0},
        {"dist": "pareto", "mean": 4},
    ],
)
def test_meaningless_distributions_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        draw(5, **wrong)
