"""Feature matrices of a graph with types: each vertex type has its own width and element type."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NoReturn

from msgspec import Meta

from gnnscale.core import Array, GraphError
from gnnscale.graph.dtypes import FeatureDtype
from gnnscale.graph.schema import GraphSchema


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


@dataclass(frozen=True, kw_only=True)
class InputTypes:
    """Types of vertices and edges that a model reads, with the number of features of each type."""

    widths: dict[str, Annotated[int, Meta(ge=0, le=1 << 16)]]  #: features of each vertex type
    edges: list[tuple[str, str, str]]  #: source type, relation and destination type
    target: str | None = None  #: vertex type of the training vertices; None: there are none
    learned: tuple[str, ...] = ()  #: vertex types whose features are rows that a run learns

    def __post_init__(self) -> None:
        _ = self.schema  # checks the names

    @cached_property
    def schema(self) -> GraphSchema:
        """Types without numbers of vertices."""
        return GraphSchema.of(dict.fromkeys(self.widths, 0), self.edges)


class TypedFeatures:
    """Feature matrices of a graph, one for each vertex type of its schema, in its order.

    The object replaces the one matrix as ``Graph.features`` of a graph with types. Indexing it
    raises GraphError: ``matrices`` have the rows.
    """

    def __init__(
        self,
        matrices: Sequence[FeatureMatrix | None],
        *,
        learned: Sequence[int] = (),
        learned_rows: Array | None = None,
    ) -> None:
        """Hold ``matrices``, one for each vertex type; None: the type has no features.

        Rows of the types numbered ``learned`` are weights, the parts of ``learned_rows``
        ``[n, dim]`` float32 in this order; None: no type learns rows.
        """
        self.matrices = tuple(matrices)
        self.learned = tuple(learned)
        self.learned_rows = learned_rows
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
