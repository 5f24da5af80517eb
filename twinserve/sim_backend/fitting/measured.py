"""Measured steps as columns, the data that a calibration is fitted to and judged on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from twinserve.sched_core.dispatch import GraphMode
from twinserve.sim_backend.arrays import Bools, Floats, Labels, Matrix
from twinserve.sim_backend.calibration.recent_work import TIME_CONSTANTS_MS
from twinserve.sim_backend.calibration.values import Throttle


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSteps:
    """One row per step, or per shape of which a step was repeated.

    ``features`` has the counts of ``StepFeatures`` by name, ``modes`` the graph mode. ``device_ns`` and
    ``interval_ns`` are NaN where that was not measured. ``in_loop`` marks steps whose interval holds scheduling, that
    is steps of an engine's loop. ``held_out`` marks rows that no fit may see. ``spread_percent`` is the mean absolute
    deviation of a shape's repeats from their median, NaN where nothing was repeated. ``shares`` (steps, time constants)
    says how busy the device was with prompt tokens around each step, as ``recent_shares`` does.
    """

    features: Mapping[str, Floats]
    modes: Labels
    interval_ns: Floats
    device_ns: Floats
    in_loop: Bools
    held_out: Bools
    spread_percent: Floats
    shares: Matrix

    def __len__(self) -> int:
        return len(self.modes)

    def where(self, rows: Bools) -> MeasuredSteps:
        """The rows that ``rows`` marks."""
        return MeasuredSteps(
            features={name: column[rows] for name, column in self.features.items()},
            modes=self.modes[rows],
            interval_ns=self.interval_ns[rows],
            device_ns=self.device_ns[rows],
            in_loop=self.in_loop[rows],
            held_out=self.held_out[rows],
            spread_percent=self.spread_percent[rows],
            shares=self.shares[rows],
        )

    def of(self, mode: GraphMode) -> MeasuredSteps:
        """The rows of one graph mode."""
        return self.where(self.modes == str(mode))

    @property
    def timed_on_device(self) -> bool:
        """Whether every row has a device time; if not, intervals are fitted as a whole."""
        return bool(np.isfinite(self.device_ns).all())

    @property
    def judged_ns(self) -> Floats:
        """The time to compare a prediction with: the interval of steps in a loop, else the device time if known."""
        whole = self.in_loop | ~np.isfinite(self.device_ns)
        return np.where(whole, self.interval_ns, self.device_ns)

    def throttled(self, throttle: Throttle | None) -> Floats:
        """How much each step is slowed down, 0 to 1; all 0 without a throttle.

        Raises:
            ValueError: a time constant that is none of TIME_CONSTANTS_MS.
        """
        if throttle is None:
            return np.zeros(len(self))
        shares = self.shares[:, TIME_CONSTANTS_MS.index(throttle.time_constant_ms)]
        return np.array([throttle.extent(share) for share in shares.tolist()])


def join(parts: Sequence[MeasuredSteps]) -> MeasuredSteps:
    """All rows of ``parts``."""
    return MeasuredSteps(
        features={name: np.concatenate([part.features[name] for part in parts]) for name in parts[0].features},
        modes=np.concatenate([part.modes for part in parts]),
        interval_ns=np.concatenate([part.interval_ns for part in parts]),
        device_ns=np.concatenate([part.device_ns for part in parts]),
        in_loop=np.concatenate([part.in_loop for part in parts]),
        held_out=np.concatenate([part.held_out for part in parts]),
        spread_percent=np.concatenate([part.spread_percent for part in parts]),
        shares=np.concatenate([part.shares for part in parts]),
    )
