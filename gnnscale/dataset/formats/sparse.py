"""Compressed sparse rows from files: checked before use, expanded in slices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from gnnscale.dataset.formats.npy import row_slices
from gnnscale.graph import GraphError

__all__ = ["check_csr", "csr_edges", "dense_rows", "holds_bytes"]

_SLICE_EDGES = 4 << 20


def check_csr(indptr: NDArray[Any], num_indices: int, source: object) -> None:
    """Raise GraphError unless ``indptr`` are offsets into ``num_indices`` entries."""
    if indptr.ndim != 1 or indptr.dtype.kind not in "iu" or not len(indptr):
        raise GraphError(f"{source}: indptr is {indptr.dtype}{list(indptr.shape)}, not offsets")
    if indptr[0] != 0 or indptr[-1] != num_indices or (np.diff(indptr) < 0).any():
        raise GraphError(
            f"{source}: indptr must rise from 0 to {num_indices}, the number of indices; "
            f"it goes from {indptr[0]} to {indptr[-1]}"
        )


def csr_edges(
    indptr: NDArray[Any], indices: NDArray[Any]
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield ``(row, column)`` of the entries of a sparse matrix, in slices."""
    for first in range(0, len(indices), _SLICE_EDGES):
        columns = indices[first : first + _SLICE_EDGES]
        rows = np.searchsorted(indptr, np.arange(first, first + len(columns)), side="right") - 1
        yield rows, columns


def holds_bytes(values: NDArray[Any]) -> bool:
    """Whether every value is a whole number from 0 to 255, so that uint8 holds it."""
    return bool(((values >= 0) & (values <= 255) & (values == np.floor(values))).all())


def dense_rows(matrix: scipy.sparse.csr_matrix) -> Iterator[NDArray[Any]]:
    """Yield the rows of a sparse matrix as dense slices."""
    for part in row_slices(matrix.shape[0], matrix.shape[1] * matrix.dtype.itemsize):
        yield matrix[part].toarray()
