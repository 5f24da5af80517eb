"""The Triton draw against the torch draw: the same noise, the same token, on a GPU or in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.real_backend.devices import interpreted, on_gpu
from twinserve.real_backend.sampling.sampler import draw_with_torch

# Triton's interpreter multiplies numpy integers, whose wrapping around is meant, and turns arrays into scalars.
pytestmark = [
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]

on_gpu_or_interpreted = pytest.mark.parametrize(
    ("device", "dtype"),
    [
        pytest.param("cpu", torch.float32, marks=interpreted),
        pytest.param("cpu", torch.float16, marks=interpreted),
        pytest.param("cuda", torch.float32, marks=on_gpu),
        pytest.param("cuda", torch.bfloat16, marks=on_gpu),
    ],
)


def both_draws(logits: torch.Tensor, temperature: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(Triton's, torch's on the CPU) tokens, for widely spread seeds and positions."""
    pytest.importorskip("triton")
    from twinserve.real_backend.kernels.triton_sample import draw

    generator = torch.Generator().manual_seed(7)
    seed = torch.randint(0, 2**62, (len(logits),), generator=generator)
    position = torch.randint(0, 40_000, (len(logits),), generator=generator)
    device: Any = logits.device
    found = draw(logits, temperature.to(device), seed.to(device), position.to(device))
    expected = draw_with_torch(logits.cpu(), temperature, seed, position, all_greedy=False)
    return found.cpu(), expected


def random_logits(num_rows: int, vocab_size: int, device: str, dtype: torch.dtype) -> torch.Tensor:
    logits = torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(0)) * 2
    return logits.to(device, dtype)


@on_gpu_or_interpreted
@pytest.mark.parametrize("vocab_size", [5, 4096, 9001])
def test_both_draw_the_same_tokens(device: str, dtype: torch.dtype, vocab_size: int) -> None:
    logits = random_logits(24, vocab_size, device, dtype)
    temperature = torch.tensor([0.0, 0.3, 1.0, 2.5]).repeat(6)
    found, expected = both_draws(logits, temperature)
    assert torch.equal(found, expected)
    assert len(found.unique()) > 3


@on_gpu_or_interpreted
def test_equal_logits_go_to_the_first_token(device: str, dtype: torch.dtype) -> None:
    logits = torch.zeros(2, 10_000, device=device, dtype=dtype)
    logits[0, [37, 4100, 9000]] = 1.0
    assert both_draws(logits, torch.zeros(2))[0].tolist() == [37, 0]


@on_gpu_or_interpreted
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rows_that_cannot_be_sampled_give_minus_one(device: str, dtype: torch.dtype, bad: float) -> None:
    logits = random_logits(6, 5000, device, dtype)
    logits[1, 4500] = bad
    logits[2, 3] = bad
    logits[4] = -float("inf")
    found, expected = both_draws(logits, torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0, 1.0]))
    assert torch.equal(found, expected)
    assert (found < 0).tolist() == [False, True, True, False, True, False]


@on_gpu_or_interpreted
def test_a_part_of_forbidden_tokens_is_no_error(device: str, dtype: torch.dtype) -> None:
    logits = torch.full((2, 9000), -float("inf"), device=device, dtype=dtype)
    logits[:, 8000] = -3.0
    assert both_draws(logits, torch.tensor([0.0, 1.0]))[0].tolist() == [8000, 8000]
