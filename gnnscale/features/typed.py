"""Feature stores of a graph with types: one store for each vertex type that has features."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import torch

from gnnscale import ops
from gnnscale.core import Array, Traffic
from gnnscale.features.base import FeatureStore
from gnnscale.features.host import HostFeatures, read_from_disk
from gnnscale.graph import Graph, GraphSchema, TypedFeatures
from gnnscale.sampling import TypedMiniBatch


class TypedSteps:
    """Expected steps of a worker, whose rows are announced type by type."""

    def __init__(
        self, schema: GraphSchema, announce: Mapping[int, Callable[[Array | None], None]]
    ) -> None:
        """Pass each step's rows of type ``number`` of ``schema`` to ``announce[number]``.

        Rows are counted from 0 within the type; a step without such rows is passed as None. Other
        types are not announced.
        """
        self._schema = schema
        self._announce = dict(announce)
        #: input vertices of the expected steps, and their rows by type
        self._steps: deque[tuple[Array, list[Array]]] = deque()

    def expect(self, vertices: Array | None) -> None:
        """Append the next step's distinct ``vertices`` ``[n]``, those of a type together.

        Types are in the order of the schema. None: the step reads no rows.
        """
        rows = [] if vertices is None else self._schema.split(vertices)
        if vertices is not None:
            self._steps.append((vertices, rows))
        for number, announce in self._announce.items():
            announce(rows[number] if rows and len(rows[number]) else None)

    def next_rows(self, vertices: Array) -> list[Array] | None:
        """Return the rows by type of ``vertices``, and end their step.

        None: they are not the next step's array.
        """
        if not self._steps or self._steps[0][0] is not vertices:
            return None
        return self._steps.popleft()[1]


@dataclass(frozen=True, kw_only=True)
class SourceRows:
    """Rows of the sources of one vertex type: in the matrix of all vertices, or read already."""

    matrix: ops.Rows  #: ``[n, width]``, of any element type of features
    width: int  #: number of features of a row
    ids: Array | None = None  #: ``[num_src]``, the row of each source; None: source i has row i

    @classmethod
    def of(cls, rows: torch.Tensor) -> "SourceRows":
        """Return ``rows`` ``[num_src, width]`` that are read already."""
        return cls(matrix=rows, width=rows.shape[1])


class TypedStore(FeatureStore):
    """Store of a matrix for each vertex type; rows of a mini-batch are read type by type."""

    def __init__(self, schema: GraphSchema, stores: Sequence[FeatureStore | None]) -> None:
        """Read rows of ``schema.vertex_types[i]`` from ``stores[i]``; None: rows of no features.

        A store counts the vertices of its type from 0.
        """
        self.schema = schema
        self.stores = tuple(stores)

    @classmethod
    def of(cls, graph: Graph, *, learned: bool = False) -> "TypedStore":
        """Return the store of the features of ``graph`` in host memory, or in mapped files.

        Rows that a model learns are left out unless ``learned``.
        """
        features: object = graph.features
        assert isinstance(features, TypedFeatures)
        from_disk = read_from_disk(graph)
        return cls(
            graph.schema,
            [
                None
                if matrix is None or (number in features.learned and not learned)
                else HostFeatures(
                    matrix.rows,
                    matrix.dtype,
                    num_features=matrix.width,
                    from_disk=from_disk and isinstance(matrix.rows, np.memmap),
                )
                for number, matrix in enumerate(features.matrices)
            ],
        )

    @property
    def num_rows(self) -> int:
        """Number of vertices of all types."""
        return self.schema.num_vertices

    @property
    def width(self) -> int:
        """Number of features of the widest type."""
        return max((store.width for store in self.stores if store is not None), default=0)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the type with the longest rows."""
        return max((store.row_bytes for store in self.stores if store is not None), default=0)

    def gather(self, vertices: Array, *, dtype: torch.dtype, num_threads: int) -> NoReturn:
        """Raise TypeError: rows of several types have no common width; see ``gather_types``."""
        raise TypeError("rows of several vertex types are read by gather_types")

    def rows_of(
        self, vertex_type: int, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows ``[n, width of the type]`` of ``vertices`` of one type, and the traffic.

        ``vertices`` are global ids.
        """
        ids = vertices - self.schema.vertices(vertex_type).start
        return self._read(vertex_type, ids, dtype, num_threads)

    def gather_types(
        self, batch: TypedMiniBatch, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[tuple[torch.Tensor, ...], tuple[Traffic, ...]]:
        """Return for each vertex type the rows of the input vertices of ``batch``, and the traffic.

        ``dtype`` is float32 or bfloat16.
        """
        rows, traffic = [], []
        for number, ids in enumerate(self._ids(batch)):
            part, read = self._read(number, ids, dtype, num_threads)
            rows.append(part)
            traffic.append(read)
        return tuple(rows), tuple(traffic)

    def source_rows(
        self, batch: TypedMiniBatch, *, num_threads: int
    ) -> tuple[tuple[SourceRows, ...], tuple[Traffic, ...]]:
        """Return for each vertex type the input rows of ``batch``, and the traffic.

        Rows in host memory stay in their matrix: aggregation reads them there. Others are read as
        float32.
        """
        rows, traffic = [], []
        for number, ids in enumerate(self._ids(batch)):
            store = self.stores[number]
            if isinstance(store, HostFeatures) and store.reads_per_edge:
                rows.append(SourceRows(matrix=store.stored, width=store.width, ids=ids))
                traffic.append(store.traffic(ids))
                continue
            part, read = self._read(number, ids, torch.float32, num_threads)
            rows.append(SourceRows.of(part))
            traffic.append(read)
        return tuple(rows), tuple(traffic)

    def _ids(self, batch: TypedMiniBatch) -> list[Array]:
        """Return for each vertex type the rows to read: its input vertices, counted from 0."""
        firsts = self.schema.first_vertices[:-1].tolist()
        return [batch.vertices(number) - first for number, first in enumerate(firsts)]

    def _read(
        self, vertex_type: int, ids: Array, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        store = self.stores[vertex_type]
        if store is None or not len(ids):
            width = 0 if store is None else store.width
            return ops.empty((len(ids), width), dtype), Traffic()
        return store.gather(ids, dtype=dtype, num_threads=num_threads)
