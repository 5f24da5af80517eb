"""Minimises a rugged function of a few positive numbers, with the same result from any sensible start.

Percentiles of a simulated run jump when one request just misses a step, so their error as a function of step times is
a smooth valley under noise, and a simplex search ends wherever it meets a dent. Here the search moves over a lattice
that does not depend on the start (fixed ratios between neighbours) and follows means over neighbourhoods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import exp, log
from typing import TypeAlias

Node: TypeAlias = tuple[int, ...]
Loss: TypeAlias = Callable[[tuple[float, ...]], float]

SPACING = 0.01  # neighbours differ by one percent
STRIDES = (8, 4, 2, 1)
WINDOW = 2  # nodes to each side that the last mean covers


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimum:
    """Where the search ended: the parameters, the loss there, its mean over the window around, and what it took."""

    values: tuple[float, ...]
    loss: float
    mean_loss: float
    num_evaluations: int


def find_minimum(loss: Loss, start: Sequence[float]) -> Minimum:
    """Descend from ``start`` (positive) over ever finer lattices.

    On each one the search moves to the best neighbour by mean loss until there is none. The result is the best node
    of the window around the last one.
    """
    lattice = _Lattice(loss)
    node: Node = tuple(round(log(value) / SPACING) for value in start)
    for stride in STRIDES:
        reach = WINDOW if stride == 1 else 1
        node = lattice.descend(tuple(stride * round(index / stride) for index in node), stride, reach)
    best = min(_around(node, 1, WINDOW), key=lambda near: (lattice.loss(near), _distance(near, node), near))
    return Minimum(
        values=_values(best),
        loss=lattice.loss(best),
        mean_loss=lattice.mean(node, 1, WINDOW),
        num_evaluations=len(lattice.known),
    )


@dataclass(slots=True)
class _Lattice:
    evaluate: Loss
    known: dict[Node, float] = field(default_factory=dict)

    def loss(self, node: Node) -> float:
        if node not in self.known:
            self.known[node] = self.evaluate(_values(node))
        return self.known[node]

    def mean(self, node: Node, stride: int, reach: int) -> float:
        near = _around(node, stride, reach)
        return sum(map(self.loss, near)) / len(near)

    def descend(self, node: Node, stride: int, reach: int) -> Node:
        while True:
            # Ties go to the nearest: where the loss is flat in a parameter the search must not drift along it.
            best = min(
                _around(node, stride, 1),
                key=lambda near: (self.mean(near, stride, reach), _distance(near, node), near),
            )
            if best == node:
                return node
            node = best


def _around(node: Node, stride: int, reach: int) -> list[Node]:
    offsets = range(-reach * stride, reach * stride + 1, stride)
    return [tuple(map(sum, zip(node, shift, strict=True))) for shift in product(offsets, repeat=len(node))]


def _distance(node: Node, other: Node) -> int:
    return sum(abs(here - there) for here, there in zip(node, other, strict=True))


def _values(node: Node) -> tuple[float, ...]:
    """The parameters of a node, with the four digits that a file keeps."""
    return tuple(float(f"{exp(index * SPACING):.4g}") for index in node)
