"""Compressed sparse rows (CSR) from files: checked before use, expanded in slices."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gnnscale.core import Array, GraphError, Int64Array
from gnnscale.core.artifact.files import file_bytes
from gnnscale.core.artifact.npy import check_array, row_slices
from gnnscale.data.formats.npz import NpzReader
from gnnscale.data.validation import (
    check_ids,
    check_num_features,
    check_num_vertices,
    quoted,
)

if TYPE_CHECKING:
    import scipy.sparse

    CsrMatrix: TypeAlias = scipy.sparse.csr_matrix
else:
    CsrMatrix = Any  # scipy takes a while to import, and a run whose store exists needs none

_SLICE_EDGES = 4 << 20
#: Bytes of a dense form: up to 1 GiB, or 1,024 per byte of the file and 4,096 per stored value.
_DENSE_BYTES = 1 << 30
_DENSE_RATIO = 1024


def check_csr(indptr: Array, num_indices: int, source: object) -> None:
    """Raise GraphError unless ``indptr`` ``[n + 1]`` rises from 0 to ``num_indices``."""
    if indptr.ndim != 1 or indptr.dtype.kind not in "iu" or not len(indptr):
        raise GraphError(f"{source}: indptr is {indptr.dtype}{list(indptr.shape)}, not offsets")
    if indptr[0] != 0 or indptr[-1] != num_indices:
        raise GraphError(
            f"{source}: indptr goes from {indptr[0]} to {indptr[-1]}, expected from 0 to "
            f"{num_indices}, the number of indices"
        )
    # Compared, not subtracted: a difference of unsigned numbers is never negative.
    falls = indptr[1:] < indptr[:-1]
    if falls.any():
        index = int(falls.argmax())
        raise GraphError(
            f"{source}: indptr[{index + 1}] is {indptr[index + 1]}, below indptr[{index}] = "
            f"{indptr[index]}; expected offsets that rise from 0 to {num_indices}"
        )


def read_adjacency(npz: NpzReader, prefix: str = "") -> tuple[Int64Array, Array]:
    """Return arrays ``{prefix}indptr`` and ``{prefix}indices``, a square CSR matrix, from ``npz``.

    The offsets in ``indptr`` are checked, the column ids in ``indices`` are not.
    """
    indptr, indices = (npz.vector(f"{prefix}{part}") for part in ("indptr", "indices"))
    check_csr(indptr, len(indices), npz.path)
    if "format" in npz and not npz.text("format").endswith(b"csr"):
        raise GraphError(f"{npz.source('format')}: the matrix is not in the format csr")
    if f"{prefix}shape" in npz:
        shape = npz.vector(f"{prefix}shape").tolist()
        if shape != [len(indptr) - 1] * 2:
            raise GraphError(
                f"{npz.source(f'{prefix}shape')}: {shape[:4]}, needed is {[len(indptr) - 1] * 2}"
            )
    return indptr.astype(np.int64, copy=False), indices


def read_features(npz: NpzReader, prefix: str = "") -> CsrMatrix:
    """Return the feature matrix of ``npz`` with array names as of ``scipy.sparse.save_npz``.

    Names begin with ``prefix``; formats are csr and coo. GraphError: not such a matrix.
    """
    shape = npz.vector(f"{prefix}shape").tolist()
    form = npz.text(f"{prefix}format") if f"{prefix}format" in npz else b"csr"
    data = npz.vector(f"{prefix}data", "biuf")
    source, num_bytes = f"{npz.path}: {prefix}*", file_bytes(npz.path)
    if form.endswith(b"coo"):
        num_rows = shape[0] if len(shape) == 2 else 0
        check_num_vertices(num_rows, num_bytes, source)
        rows, columns = npz.vector(f"{prefix}row"), npz.vector(f"{prefix}col")
        if not len(rows) == len(columns) == len(data):
            raise GraphError(
                f"{source}: {len(data)} values, {len(rows)} rows, {len(columns)} columns"
            )
        check_ids(rows, num_rows, source)
        order = np.argsort(rows, kind="stable")
        data, indices = data[order], columns[order]
        indptr: Array = np.append(0, np.cumsum(np.bincount(rows, minlength=num_rows)))
    elif form.endswith(b"csr"):
        indices, indptr = npz.vector(f"{prefix}indices"), npz.vector(f"{prefix}indptr")
    else:
        raise GraphError(f"{npz.source(f'{prefix}format')}: expected csr or coo")
    if len(shape) != 2 or shape[0] != len(indptr) - 1:
        raise GraphError(f"{source}: shape is {shape[:4]}, offsets are of {len(indptr) - 1} rows")
    return sparse_matrix(
        data, indices, indptr, num_columns=shape[1], num_bytes=num_bytes, source=source
    )


def csr_edges(indptr: Array, indices: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the entries of a CSR matrix in slices of arrays ``(rows, columns)``, in order."""
    for first in range(0, len(indices), _SLICE_EDGES):
        columns = indices[first : first + _SLICE_EDGES]
        rows = np.searchsorted(indptr, np.arange(first, first + len(columns)), side="right") - 1
        yield rows, columns


def sparse_matrix(
    data: Array, indices: Array, indptr: Array, *, num_columns: Any, num_bytes: int, source: object
) -> CsrMatrix:
    """Return a CSR matrix of features from its parts in a file; repeated entries are added up.

    GraphError: parts or ``num_columns`` are not valid, or the dense form is too large for a file of
    ``num_bytes``. Values become uint8 if all are integers from 0 to 255, else float32 or float64.
    """
    import scipy.sparse  # takes a while, and a run whose store exists needs none

    for array, kinds in ((data, "biuf"), (indices, "iu"), (indptr, "iu")):
        check_array(array, axes=1, kinds=kinds, source=f"{source}: a part of a sparse matrix")
    check_csr(indptr, len(indices), source)
    if type(num_columns) is not int:
        raise GraphError(f"{source}: number of features is {quoted(num_columns)}")
    check_num_features(num_columns, source)
    if len(data) != len(indices):
        raise GraphError(f"{source}: {len(data)} values at {len(indices)} places")
    if len(indices) and not 0 <= indices.min() <= indices.max() < num_columns:
        worst = indices.min() if indices.min() < 0 else indices.max()
        raise GraphError(f"{source}: not a sparse matrix, column {worst} of {num_columns} is named")
    values = data.astype(np.float64)  # exact for all published files
    parts = (values, indices.astype(np.int32), indptr.astype(np.int64))
    matrix = scipy.sparse.csr_matrix(parts, shape=(len(indptr) - 1, num_columns))
    matrix.sum_duplicates()
    sums = matrix.data
    if ((sums >= 0) & (sums <= 255) & (sums == np.floor(sums))).all():
        matrix.data = sums.astype(np.uint8)
    elif data.dtype == np.float32:
        matrix.data = sums.astype(np.float32)
    _check_density(matrix, num_bytes, source)
    return matrix


def _check_density(matrix: CsrMatrix, num_bytes: int, source: object) -> None:
    """Raise GraphError if the matrix in dense form is too large for its values.

    Allowed are 1 GiB plus 1,024 bytes per byte of the values, which count 4 bytes each and in total
    at most ``num_bytes``, the size of the file.
    """
    num_rows, num_columns = matrix.shape
    dense_bytes = num_rows * num_columns * matrix.dtype.itemsize
    allowed = _DENSE_BYTES + _DENSE_RATIO * min(4 * matrix.nnz, num_bytes)
    if dense_bytes > allowed:
        raise GraphError(
            f"{source}: {matrix.nnz} values in a matrix of {num_rows} x {num_columns} would take "
            f"{dense_bytes} bytes, allowed are {allowed} for so few"
        )


def dense_rows(matrix: CsrMatrix) -> Iterator[Array]:
    """Yield all rows of a sparse matrix, in order, as slices in dense form."""
    for part in row_slices(matrix.shape[0], matrix.shape[1] * matrix.dtype.itemsize):
        yield matrix[part].toarray()
