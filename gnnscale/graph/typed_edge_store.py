"""Features of edges in the store of a graph with types: entries of ``meta.json``, and arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from gnnscale.core import Array, GraphError
from gnnscale.core.artifact import row_slices
from gnnscale.graph.schema import GraphSchema
from gnnscale.graph.store_format import MAX_EDGE_ROWS, MAX_FEATURES, typed_edge_features
from gnnscale.graph.typed_features import FeatureMatrix, TypedFeatures

#: Bytes in memory for each edge whose row is checked.
_CHECKED_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class EdgeFeatureEntry:
    """Entry of ``meta.json`` for the features of an edge type."""

    file: Annotated[int, Meta(ge=0)]  #: first edge type with the matrix, whose array has it
    num_features: Annotated[int, Meta(ge=1, le=MAX_FEATURES)]
    feature_dtype: Literal["float32", "float16", "uint8"]

    @classmethod
    def of(cls, features: TypedFeatures | None) -> "list[EdgeFeatureEntry | None]":
        """Return an entry for each edge type, or no entries if ``features`` is None."""
        if features is None:
            return []
        entries: list[EdgeFeatureEntry | None] = []
        for owner, matrix in zip(features.owners, features.matrices, strict=True):
            if matrix is None:
                entries.append(None)
                continue
            dtype: Any = matrix.dtype
            entries.append(cls(file=owner, num_features=matrix.width, feature_dtype=dtype))
        return entries


def edge_matrices(
    arrays: dict[str, Array], entries: Sequence[EdgeFeatureEntry | None]
) -> TypedFeatures | None:
    """Remove the features of edge types from ``arrays``; return them by type. None: none has any.

    Edge types with the same features share a matrix.
    """
    matrices: dict[int, FeatureMatrix] = {}
    for entry in entries:
        if entry is not None and entry.file not in matrices:
            matrices[entry.file] = FeatureMatrix(
                rows=arrays.pop(typed_edge_features(entry.file)),
                dtype=entry.feature_dtype,
                width=entry.num_features,
            )
    if not matrices:
        return None
    return TypedFeatures([None if of is None else matrices[of.file] for of in entries])


def check_edge_rows(
    path: Path,
    arrays: Mapping[str, Array],
    schema: GraphSchema,
    entries: Sequence[EdgeFeatureEntry | None],
) -> None:
    """Raise GraphError for numbers of rows that edges cannot have, in the store at ``path``."""
    indptr = np.asarray(arrays["indptr"])
    for number, entry in enumerate(entries):
        if entry is None:
            continue
        name, rows = typed_edge_features(entry.file), schema.rows(number)
        least = int((indptr[1:][rows] != indptr[:-1][rows]).any())
        if not least <= len(arrays[name]) <= MAX_EDGE_ROWS:
            raise GraphError(
                f"{path / name}.npy: {len(arrays[name])} rows for edges of "
                f"{schema.edge_types[number]}, allowed are {least} to {MAX_EDGE_ROWS}"
            )


def check_row_numbers(
    file: Path, features: TypedFeatures, arrays: Mapping[str, Array], schema: GraphSchema
) -> None:
    """Raise GraphError for an edge in ``file`` whose row its edge type's ``features`` lack.

    ``arrays`` have ``indptr`` and ``edge_rows``.
    """
    indptr, rows = np.asarray(arrays["indptr"]), arrays["edge_rows"]
    for part in row_slices(len(rows), _CHECKED_BYTES):
        problem = wrong_row(features, schema, indptr, part.start, rows[part])
        if problem is not None:
            raise GraphError(f"{file}: {problem}")


def wrong_row(
    features: TypedFeatures, schema: GraphSchema, indptr: Array, first: int, rows: Array
) -> str | None:
    """Return a message on the first edge whose row its edge type lacks. None: there is none.

    ``rows`` ``[n]`` are those of the edges from position ``first`` on in the lists of ``indptr``.
    """
    types = schema.edge_types_at(indptr, first, len(rows))
    position = features.wrong_row(rows, types)
    if position is None:
        return None
    edge, number = first + position, int(types[position])
    matrix = features.matrices[number]
    count = 0 if matrix is None else len(matrix.rows)
    return (
        f"row {rows[position]} of edge {edge}, of {schema.edge_types[number]}, is out of range, "
        f"there are {count} rows of its features"
    )
