"""Short names for the numpy array types of step times and of what is computed from them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = np.ndarray[tuple[int], np.dtype[np.bool_]]
Labels: TypeAlias = np.ndarray[tuple[int], np.dtype[np.str_]]
Matrix: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float64]]
