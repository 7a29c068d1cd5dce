"""Work on arrays of all vertices or edges a slice at a time, so that temporaries stay small."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["prefix_sums", "slices", "sum_at", "taken"]

_SLICE_ENTRIES = 1 << 20


def slices(num_entries: int) -> Iterator[slice]:
    """Yield slices that cover ``num_entries``."""
    for first in range(0, num_entries, _SLICE_ENTRIES):
        yield slice(first, min(first + _SLICE_ENTRIES, num_entries))


def taken(values: NDArray[Any], at: NDArray[Any]) -> NDArray[Any]:
    """Return ``values[at]``."""
    found = np.empty(len(at), values.dtype)
    for part in slices(len(at)):
        np.take(values, at[part], out=found[part], mode="clip")
    return found


def sum_at(values: NDArray[Any], at: NDArray[Any]) -> Any:
    """Return the sum of ``values[at]``: exact for integers, in 64 bits for others."""
    return sum(values[at[part]].sum(dtype=_wide(values.dtype)).item() for part in slices(len(at)))


def prefix_sums(
    num_values: int, values: Callable[[slice], NDArray[Any]], dtype: Any = np.int64
) -> NDArray[Any]:
    """Return ``[num_values + 1]`` sums of the first 0, 1, ... of ``values``, asked for by slice."""
    sums = np.empty(num_values + 1, _wide(np.dtype(dtype)))
    sums[0] = 0
    for part in slices(num_values):
        found = sums[part.start + 1 : part.stop + 1]
        np.cumsum(values(part), out=found)
        found += sums[part.start]
    return sums


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that sums of ``dtype`` have."""
    return np.dtype(np.int64 if np.issubdtype(dtype, np.integer) else np.float64)
