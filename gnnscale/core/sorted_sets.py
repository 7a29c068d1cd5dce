"""Sets of whole numbers as ascending arrays.

NumPy 2.3 and later hashes in ``np.unique`` and ``np.isin``, which takes up to 200 times as long as
sorting when the numbers are pairs of ids, ``source * num_vertices + destination``.
"""

import numpy as np

from gnnscale.core.types import BoolArray, IntArray


def distinct(numbers: IntArray) -> IntArray:
    """Return the distinct ones of ``numbers``, ascending."""
    ordered = np.sort(numbers, axis=None)
    is_first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def contained(numbers: IntArray, ascending: IntArray) -> BoolArray:
    """Return a mask of the ``numbers`` that are in the sorted ``ascending``."""
    if not len(ascending):
        return np.zeros(numbers.shape, np.bool_)
    positions = np.minimum(np.searchsorted(ascending, numbers), len(ascending) - 1)
    mask: BoolArray = ascending[positions] == numbers
    return mask
