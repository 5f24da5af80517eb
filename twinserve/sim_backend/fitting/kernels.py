"""Builds steps from kernel times: layers by tokens, head by rows, attention by chunk, decodes and contexts.

What a step takes on the device is ``layers * (dense(tokens) + attention) + head(sampled rows)``. The kernels are
interpolated linearly, never logarithmically (LLMServingSim found that to matter), and steps are put together on a grid
of shapes that fit the engine; a calibration is then fitted to them as to any other measured steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import product

import numpy as np

from twinserve.sched_core.dispatch import CaptureSizes, dispatch
from twinserve.sched_core.features import StepFeatures
from twinserve.sim_backend.arrays import Floats, Matrix
from twinserve.sim_backend.calibration.recent_work import unknown_shares
from twinserve.sim_backend.fitting.held_out import held_out_shapes
from twinserve.sim_backend.fitting.measured import MeasuredSteps
from twinserve.sim_backend.units import NS_PER_US

DECODES = (0, 1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 80, 96, 128, 192, 256)
DECODE_KEYS = (32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 4096, 8192)
CHUNKS = (0, 16, 32, 64, 128, 192, 256, 384, 480, *range(576, 2049, 128), 3072, 4096, 8192)
BEYOND_POOL = 1.25  # so that what a full pool holds is within the covered range
CHUNK_CONTEXTS = (0, 512, 1024, 2048, 4096)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfile:
    """Kernel times of one model on one GPU, in microseconds.

    ``dense`` is (tokens, us) of all layers of a step without attention and head, ``head`` (rows, us) of what runs
    once per step over sampled rows. ``attention`` has one row per measurement: prefill chunk, keys before the chunk,
    decode rows, keys per decode row, us of one layer. There are ``num_layers`` of them.
    """

    num_layers: int
    dense: tuple[Floats, Floats]
    head: tuple[Floats, Floats]
    attention: Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """The limits of an engine's steps."""

    max_num_batched_tokens: int
    max_num_seqs: int
    num_kv_tokens: int
    capture_sizes: CaptureSizes


@dataclass(frozen=True, slots=True)
class _Shape:
    chunk: int
    chunk_context: int
    num_decodes: int
    decode_keys: int

    @property
    def num_tokens(self) -> int:
        return self.chunk + self.num_decodes

    @property
    def num_rows(self) -> int:
        return self.num_decodes + (self.chunk > 0)

    def fits(self, limits: EngineLimits) -> bool:
        keys = self.chunk + self.chunk_context + self.num_decodes * self.decode_keys
        return (
            0 < self.num_tokens <= limits.max_num_batched_tokens
            and self.num_rows <= limits.max_num_seqs
            and keys <= BEYOND_POOL * limits.num_kv_tokens
        )

    def features(self, sizes: CaptureSizes) -> StepFeatures:
        mode, padded = dispatch(self.num_tokens, self.num_rows, sizes)
        chunk, context = self.chunk, self.chunk_context
        return StepFeatures(
            num_tokens=self.num_tokens,
            num_rows=self.num_rows,
            num_decodes=self.num_decodes,
            decode_context=self.num_decodes * self.decode_keys,
            prefill_tokens=chunk,
            prefill_pairs=chunk * context + chunk * (chunk + 1) // 2,
            prefill_context=chunk + context if chunk else 0,
            num_samples=self.num_rows,
            num_started=0,
            graph_mode=mode,
            num_padded_tokens=padded,
        )


def kernel_steps(profile: KernelProfile, limits: EngineLimits) -> MeasuredSteps:
    """Steps of the engine with the device time that its kernels add up to; about a fifth of the shapes is held out.

    Shapes beyond the measured kernels are left out.
    """
    shapes = [shape for shape in _shapes() if shape.fits(limits)]
    features = [shape.features(limits.capture_sizes) for shape in shapes]
    columns = {
        name: np.array([getattr(each, name) for each in features], dtype=np.float64)
        for name in StepFeatures._fields
        if name != "graph_mode"
    }
    device_us = _between(columns["num_padded_tokens"], profile.dense)
    device_us += _between(columns["num_samples"], profile.head)
    device_us += profile.num_layers * _attention_us(profile.attention, shapes)
    unknown = np.full(len(shapes), np.nan)
    steps = MeasuredSteps(
        features=columns,
        modes=np.array([str(each.graph_mode) for each in features]),
        interval_ns=unknown,
        device_ns=device_us * NS_PER_US,
        in_loop=np.zeros(len(shapes), dtype=bool),
        held_out=held_out_shapes([astuple(shape) for shape in shapes]),
        spread_percent=unknown,
        shares=unknown_shares(len(shapes)),
    )
    return steps.where(np.isfinite(device_us))


def _shapes() -> Iterator[_Shape]:
    """Every combination that is a step: no decodes have no context, and neither has a chunk that is not there."""
    for chunk, context, decodes, keys in product(CHUNKS, CHUNK_CONTEXTS, DECODES, DECODE_KEYS):
        if (chunk or context == CHUNK_CONTEXTS[0]) and (decodes or keys == DECODE_KEYS[0]):
            yield _Shape(chunk, context, decodes, keys)


def _attention_us(rows: Matrix, shapes: Sequence[_Shape]) -> Floats:
    """Microseconds of one layer's attention; decodes, chunks and both together were measured on grids of their own."""
    points = np.array([astuple(shape) for shape in shapes], dtype=np.float64)
    attention = np.full(len(shapes), np.nan)
    for has_chunk, has_decodes, axes in ((False, True, [2, 3]), (True, False, [0, 1]), (True, True, [0, 1, 2, 3])):
        measured = rows[((rows[:, 0] > 0) == has_chunk) & ((rows[:, 2] > 0) == has_decodes)]
        wanted = ((points[:, 0] > 0) == has_chunk) & ((points[:, 2] > 0) == has_decodes)
        if len(measured) and wanted.any():
            attention[wanted] = _on_grid(measured[:, axes], measured[:, 4], points[wanted][:, axes])
    return attention


def _on_grid(coordinates: Matrix, values: Floats, points: Matrix) -> Floats:
    """Linear interpolation of ``values``, measured at the crossings of a grid; NaN beyond it and beside its gaps."""
    from scipy.interpolate import RegularGridInterpolator

    axes = [np.unique(column) for column in coordinates.T]
    table = np.full([len(axis) for axis in axes], np.nan)
    cells = tuple(np.searchsorted(axis, column) for axis, column in zip(axes, coordinates.T, strict=True))
    table[cells] = values
    found: Floats = RegularGridInterpolator(axes, table, bounds_error=False)(points)
    return found


def _between(x: Floats, curve: tuple[Floats, Floats]) -> Floats:
    """Linear interpolation within a measured curve, NaN beyond it."""
    return np.interp(x, *curve, left=np.nan, right=np.nan)
