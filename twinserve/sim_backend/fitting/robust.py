"""Non-negative linear fits of relative errors, robust to outliers."""

from __future__ import annotations

import numpy as np

from twinserve.sim_backend.arrays import Floats, Matrix

ROUNDS = 25
TRUSTED = 2.0  # in median absolute errors, of which normal noise has 95 % within three
WIDEST = 6.0  # in median absolute errors: beyond is a garbage collection or a cold start, not noise
SMALLEST = 1e-6  # an error that counts as none, relative


def fit_non_negative(columns: Matrix, target: Floats) -> Floats:
    """Coefficients >= 0 with ``columns @ coefficients`` near ``target`` (positive) in relative terms.

    Least squares of ``error / prediction``: weighting by the prediction, not by the measurement, leaves the sum
    unbiased. Rows off by more than TRUSTED median errors pull no harder than one that is off by just that (Huber's
    loss), rows off by more than WIDEST not at all; all are looked at again in the next round.
    """
    scale = np.max(columns, axis=0, initial=0.0)
    used = scale > 0
    coefficients = np.zeros(columns.shape[1])
    if used.any():
        coefficients[used] = _reweighted(columns[:, used] / scale[used], target) / scale[used]
    return coefficients


def _reweighted(columns: Matrix, target: Floats) -> Floats:
    from scipy.optimize import nnls

    expected, trust = target, np.ones(len(target))
    coefficients = np.zeros(columns.shape[1])
    for _ in range(ROUNDS):
        weights = np.sqrt(trust) / expected
        found = nnls(columns * weights[:, None], target * weights, maxiter=100 * columns.shape[1])[0]
        settled = np.allclose(found, coefficients, rtol=1e-9, atol=0.0)
        coefficients = found
        if settled:
            break
        predicted = columns @ coefficients
        expected = np.maximum(predicted, 0.1 * target)
        trust = _trust(np.abs(target - predicted) / expected)
    return coefficients


def _trust(errors: Floats) -> Floats:
    """How much each row counts, 0 to 1."""
    typical = max(float(np.median(errors)), SMALLEST)
    trust: Floats = np.minimum(TRUSTED * typical / np.maximum(errors, SMALLEST), 1.0)
    return np.where(errors <= WIDEST * typical, trust, 0.0)
