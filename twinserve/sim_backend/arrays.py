"""Names of numpy array types."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

Floats: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]
Bools: TypeAlias = np.ndarray[tuple[int], np.dtype[np.bool_]]
Labels: TypeAlias = np.ndarray[tuple[int], np.dtype[np.str_]]
Matrix: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float64]]
