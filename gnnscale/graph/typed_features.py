"""Feature matrices of a graph with types: each vertex type has its own width and element type."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from gnnscale.core import Array, GraphError
from gnnscale.graph.dtypes import FeatureDtype


@dataclass(frozen=True, kw_only=True)
class FeatureMatrix:
    """Features of the vertices of one type."""

    rows: Array  #: ``[num_vertices, row_length(dtype, width)]``, row 0 of the type's first vertex
    dtype: FeatureDtype  #: key of ``FEATURE_DTYPES``
    width: int  #: number of features of a vertex

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored row."""
        return int(self.rows.shape[1]) * self.rows.itemsize


class TypedFeatures:
    """Feature matrices of the vertex types, in the order of the schema.

    The object replaces the one matrix as ``Graph.features`` of a graph with types. Indexing it
    raises GraphError: ``matrices`` have the rows.
    """

    def __init__(self, matrices: Sequence[FeatureMatrix | None]) -> None:
        """Hold ``matrices``, one for each vertex type; None: the type has no features."""
        self.matrices = tuple(matrices)
        self.nbytes = sum(matrix.rows.nbytes for matrix in self.present)

    @property
    def present(self) -> list[FeatureMatrix]:
        """Matrices of the types that have features."""
        return [matrix for matrix in self.matrices if matrix is not None]

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of features of each vertex type; 0 without features."""
        return tuple(0 if matrix is None else matrix.width for matrix in self.matrices)

    def refused(self) -> GraphError:
        """Return the error for a reader that needs one matrix; the caller raises it."""
        return GraphError(
            "features: the graph has types of vertices, each with its own matrix: "
            "graph.features.matrices[i].rows of type i of graph.schema.vertex_types"
        )

    def __getitem__(self, index: object) -> NoReturn:
        raise self.refused()

    def __array__(self, *args: object, **options: object) -> NoReturn:
        raise self.refused()
