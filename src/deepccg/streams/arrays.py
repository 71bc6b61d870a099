"""Types of the arrays that examples and rows are kept in."""

from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
