"""Feature matrices of a graph with types: each type has its own width and element type."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NoReturn

import numpy as np
from msgspec import Meta

from gnnscale.core import Array, GraphError, IntArray
from gnnscale.graph.dtypes import FeatureDtype
from gnnscale.graph.schema import GraphSchema


@dataclass(frozen=True, kw_only=True)
class FeatureMatrix:
    """Features of the vertices, or of the edges, of one type."""

    #: ``[n, row_length(dtype, width)]``, row 0 of the type's first vertex, or row i of the edges
    #: with ``Graph.edge_rows`` of i
    rows: Array
    dtype: FeatureDtype  #: key of ``FEATURE_DTYPES``
    width: int  #: number of features of a vertex or edge

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored row."""
        return int(self.rows.shape[1]) * self.rows.itemsize


@dataclass(frozen=True, kw_only=True)
class InputTypes:
    """Types of vertices and edges that a model reads, with the number of features of each type."""

    widths: dict[str, Annotated[int, Meta(ge=0, le=1 << 16)]]  #: features of each vertex type
    edges: list[tuple[str, str, str]]  #: source type, relation and destination type
    target: str | None = None  #: vertex type of the training vertices; None: there are none
    learned: tuple[str, ...] = ()  #: vertex types whose features are rows that a run learns
    #: features of each edge type, in the order of ``edges``; empty: no edge has any
    edge_widths: tuple[Annotated[int, Meta(ge=0, le=1 << 16)], ...] = ()

    def __post_init__(self) -> None:
        _ = self.schema  # checks the names
        if len(self.edge_widths) not in (0, len(self.edges)):
            raise ValueError(f"{len(self.edge_widths)} widths of {len(self.edges)} edge types")

    @cached_property
    def schema(self) -> GraphSchema:
        """Types without numbers of vertices."""
        return GraphSchema.of(dict.fromkeys(self.widths, 0), self.edges)


class TypedFeatures:
    """Feature matrices of a graph, one for each vertex type of its schema, in its order.

    The object replaces the one matrix as ``Graph.features`` of a graph with types. Indexing it
    raises GraphError: ``matrices`` have the rows. ``EdgeData.by_type`` has one for each edge type;
    edge types may share a matrix.
    """

    def __init__(
        self,
        matrices: Sequence[FeatureMatrix | None],
        *,
        learned: Sequence[int] = (),
        learned_rows: Array | None = None,
    ) -> None:
        """Hold ``matrices``, one for each type; None: the type has no features.

        Rows of the types numbered ``learned`` are weights, the parts of ``learned_rows``
        ``[n, dim]`` float32 in this order; None: no type learns rows.
        """
        self.matrices = tuple(matrices)
        self.learned = tuple(learned)
        self.learned_rows = learned_rows
        distinct = {id(matrix): matrix.rows.nbytes for matrix in self.present}
        self.nbytes = sum(distinct.values())

    @property
    def present(self) -> list[FeatureMatrix]:
        """Matrices of the types that have features."""
        return [matrix for matrix in self.matrices if matrix is not None]

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of features of each type; 0 without features."""
        return tuple(0 if matrix is None else matrix.width for matrix in self.matrices)

    @property
    def owners(self) -> tuple[int, ...]:
        """Number of the first type with the matrix of each type; -1 without features."""
        firsts: dict[int, int] = {}
        return tuple(
            -1 if matrix is None else firsts.setdefault(id(matrix), number)
            for number, matrix in enumerate(self.matrices)
        )

    def wrong_row(self, rows: Array, types: IntArray) -> int | None:
        """Return the position of the first of ``rows`` ``[n]`` that its matrix does not have.

        ``types`` ``[n]`` are the numbers of the rows' types; rows of types without features may be
        any. None: there is no such row.
        """
        lengths = [1 << 62 if matrix is None else len(matrix.rows) for matrix in self.matrices]
        wrong = rows >= np.array(lengths)[types]
        return int(wrong.argmax()) if wrong.any() else None

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
