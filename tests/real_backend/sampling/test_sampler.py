"""Drawing tokens: the right distribution, the right support, and nothing but (seed, position) decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from twinserve.real_backend.errors import EngineError
from twinserve.real_backend.sampling.sampler import SamplingTensors, check_sampled, sample
from twinserve.real_backend.sampling.sampling_rng import exponential_noise, row_keys


def params(num_rows: int, **changes: Any) -> SamplingTensors:
    """Plain temperature 1, row ``i`` at position ``i`` of seed 0, unless changed."""
    values: dict[str, Any] = {
        "temperature": torch.ones(num_rows),
        "top_p": torch.ones(num_rows),
        "top_k": torch.zeros(num_rows, dtype=torch.int32),
        "seed": torch.zeros(num_rows, dtype=torch.int64),
        "position": torch.arange(num_rows),
        "all_greedy": False,
        "any_truncated": False,
    } | changes
    return SamplingTensors(**values)


def frequencies(logits: torch.Tensor, num_draws: int, **changes: Any) -> torch.Tensor:
    token_ids = sample(logits.repeat(num_draws, 1), params(num_draws, **changes))
    return torch.bincount(token_ids, minlength=len(logits)) / num_draws


def random_logits(num_rows: int, vocab_size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(seed)) * 3


def test_greedy_takes_the_largest_logit() -> None:
    logits = random_logits(5, 1000)
    chosen = sample(logits.clone(), params(5, temperature=torch.zeros(5), all_greedy=True))
    assert torch.equal(chosen, logits.argmax(dim=-1))


def test_greedy_rows_of_a_mixed_batch_are_greedy() -> None:
    logits = random_logits(6, 1000)
    temperature = torch.tensor([0.0, 1.0] * 3)
    chosen = sample(logits.clone(), params(6, temperature=temperature))
    assert torch.equal(chosen[::2], logits.argmax(dim=-1)[::2])


def test_draws_follow_the_softmax_over_positions() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -3.0])
    found = frequencies(logits, 40_000)
    torch.testing.assert_close(found, logits.softmax(-1), atol=0.01, rtol=0)


def test_draws_follow_the_softmax_over_seeds() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0])
    num_draws = 40_000
    same_place = torch.full((num_draws,), 11, dtype=torch.int64)
    found = frequencies(logits, num_draws, seed=torch.arange(num_draws), position=same_place)
    torch.testing.assert_close(found, logits.softmax(-1), atol=0.01, rtol=0)


def test_temperature_flattens_the_distribution() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0])
    found = frequencies(logits, 40_000, temperature=torch.full((40_000,), 2.0))
    torch.testing.assert_close(found, (logits / 2).softmax(-1), atol=0.01, rtol=0)


def test_a_token_of_probability_1e_6_can_still_win() -> None:
    """Coarse uniforms would cut off the tail: the noise must resolve far below 1 / vocabulary."""
    noise = exponential_noise(row_keys(torch.arange(64), torch.zeros(64, dtype=torch.int64)), 50_000)
    smallest = noise.flatten().sort().values[:32]
    assert smallest[0] < 2e-6
    assert len(smallest.unique()) == 32


def test_noise_is_exponential() -> None:
    noise = exponential_noise(row_keys(torch.arange(20), torch.arange(20)), 20_000)
    assert noise.isfinite().all()
    assert noise.mean().item() == pytest.approx(1.0, abs=0.01)
    assert noise.std().item() == pytest.approx(1.0, abs=0.01)
    assert (noise > 3).float().mean().item() == pytest.approx(np.exp(-3), rel=0.03)


@pytest.mark.parametrize("shifted", ["seed", "position", "token"])
def test_neighbouring_draws_are_uncorrelated(shifted: str) -> None:
    zeros, steps = torch.zeros(200, dtype=torch.int64), torch.arange(200)
    seed, position = (steps, zeros) if shifted == "seed" else (zeros, steps)
    noise = exponential_noise(row_keys(seed, position), 1000)
    first, second = (noise[:, :-1], noise[:, 1:]) if shifted == "token" else (noise[:-1], noise[1:])
    correlation = torch.corrcoef(torch.stack((first.flatten(), second.flatten())))[0, 1]
    assert abs(correlation.item()) < 0.01


@settings(max_examples=25, deadline=None)
@given(
    order=st.permutations(range(6)),
    keep=st.integers(1, 6),
    truncated=st.booleans(),
    seeds=st.lists(st.integers(0, 2**63 - 1), min_size=6, max_size=6),
)
def test_a_draw_depends_on_nothing_else_in_the_batch(
    order: list[int], keep: int, truncated: bool, seeds: list[int]
) -> None:
    logits = random_logits(6, 300)
    columns = {
        "temperature": torch.tensor([0.0, 0.5, 1.0, 2.0, 1.0, 0.7]),
        "top_p": torch.tensor([1.0, 0.9, 0.5, 1.0, 1.0, 1.0]),
        "top_k": torch.tensor([0, 0, 5, 3, 0, 0], dtype=torch.int32),
        "seed": torch.tensor(seeds),
        "position": torch.tensor([3, 1, 4, 1, 5, 9]),
    }
    whole = sample(logits.clone(), params(6, **columns, any_truncated=truncated))
    rows = torch.tensor(order[:keep])
    part = {name: column[rows] for name, column in columns.items()}
    assert torch.equal(sample(logits[rows].clone(), params(keep, **part, any_truncated=truncated)), whole[rows])


def test_top_k_keeps_the_k_likeliest() -> None:
    logits = random_logits(1, 50)[0]
    found = frequencies(logits, 5000, top_k=torch.full((5000,), 3), any_truncated=True)
    assert set(found.nonzero().flatten().tolist()) == set(logits.topk(3).indices.tolist())


def test_top_p_keeps_the_smallest_set_that_reaches_p() -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    for top_p, kept in [(0.0, 1), (0.5, 1), (0.51, 2), (0.8, 2), (0.81, 3), (0.96, 4), (1.0, 4)]:
        found = frequencies(logits, 3000, top_p=torch.full((3000,), top_p), any_truncated=True)
        assert (found > 0).sum() == kept, top_p


def test_top_p_counts_within_the_top_k_and_after_temperature() -> None:
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    some = {"top_k": torch.full((3000,), 3), "any_truncated": True}
    # Of the top three, 0.4 / 0.9 is 0.44: two are needed for 0.5, three for 0.8.
    assert (frequencies(logits, 3000, top_p=torch.full((3000,), 0.5), **some) > 0).sum() == 2
    assert (frequencies(logits, 3000, top_p=torch.full((3000,), 0.8), **some) > 0).sum() == 3
    cold = torch.full((3000,), 0.1)
    assert (frequencies(logits, 3000, top_p=torch.full((3000,), 0.8), temperature=cold, **some) > 0).sum() == 1


def test_kept_tokens_keep_their_proportions() -> None:
    logits = torch.tensor([0.5, 0.25, 0.15, 0.1]).log()
    found = frequencies(logits, 30_000, top_k=torch.full((30_000,), 2), any_truncated=True)
    torch.testing.assert_close(found, torch.tensor([2 / 3, 1 / 3, 0, 0]), atol=0.01, rtol=0)


@pytest.mark.parametrize("greedy", [True, False])
def test_forbidden_tokens_are_never_drawn(greedy: bool) -> None:
    logits = torch.zeros(2000, 4)
    logits[:, 1] = 9.0
    rows = torch.arange(0, 2000, 2)
    chosen = sample(
        logits,
        params(
            2000,
            temperature=torch.full((2000,), 0.0 if greedy else 1.0),
            all_greedy=greedy,
            forbidden_rows=rows,
            forbidden_tokens=torch.ones_like(rows),
        ),
    )
    assert (chosen[::2] != 1).all()
    assert (chosen[1::2] == 1).float().mean() > 0.9


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("greedy", [True, False])
def test_logits_that_are_not_finite_are_an_error_of_their_row(bad: float, greedy: bool) -> None:
    logits = random_logits(3, 40)
    logits[1, 17] = bad
    chosen = sample(logits, params(3, all_greedy=greedy, any_truncated=not greedy))
    assert (chosen < 0).tolist() == [False, True, False]
    with pytest.raises(EngineError, match="NaN or infinite in 1 of 3 rows"):
        check_sampled(chosen.numpy())


def test_good_ids_pass_the_check() -> None:
    check_sampled(np.array([0, 5, 151_935]))
    check_sampled(np.array([], dtype=np.int64))


def test_no_rows_give_no_ids() -> None:
    assert sample(torch.zeros(0, 10), params(0, all_greedy=True)).shape == (0,)
    assert sample(torch.zeros(0, 10), params(0, any_truncated=True)).shape == (0,)
