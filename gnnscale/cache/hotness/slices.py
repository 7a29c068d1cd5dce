"""Work on arrays of all vertices or edges a slice at a time, so that temporaries stay small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["slices", "sum_at"]

_SLICE_ENTRIES = 1 << 20


def slices(num_entries: int) -> Iterator[slice]:
    """Yield slices that cover ``num_entries``."""
    for first in range(0, num_entries, _SLICE_ENTRIES):
        yield slice(first, min(first + _SLICE_ENTRIES, num_entries))


def sum_at(values: NDArray[Any], at: NDArray[Any]) -> Any:
    """Return the sum of ``values[at]``: exact for integers, in 64 bits for others."""
    wide = np.int64 if np.issubdtype(values.dtype, np.integer) else np.float64
    return sum(values[at[part]].sum(dtype=wide).item() for part in slices(len(at)))
