"""Tiered stores of a graph with types: rows of each vertex type are read ahead from its file."""

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import le

from gnnscale.core import Array
from gnnscale.features.tiered.sizing import SampledBatches
from gnnscale.features.tiered.store import TieredReader, TieredStore
from gnnscale.features.typed import TypedStore
from gnnscale.graph import GraphSchema
from gnnscale.sampling import TypedMiniBatch


def rows_by_type(schema: GraphSchema, vertices: Array) -> list[Array]:
    """Return for each vertex type its rows, counted from 0, among the ids ``vertices`` ``[n]``.

    Those of a type are together, and types in the order of the schema.
    """
    firsts = schema.first_vertices[:-1].tolist()
    ends = [bisect_left(vertices, True, key=partial(le, first)) for first in firsts[1:]]
    bounds = [0, *ends, len(vertices)]
    return [
        vertices[start:end] - first
        for start, end, first in zip(bounds[:-1], bounds[1:], firsts, strict=True)
    ]


def sample_by_type(
    sample: SampledBatches, schema: GraphSchema, types: Sequence[int]
) -> list[SampledBatches]:
    """Return for each of ``types``, positions in ``schema``, its rows in the batches of ``sample``.

    Bytes of mini-batches are divided among these types as their rows are. ``asked`` is the share of
    a type's rows among all vertices of a mini-batch.
    """
    batches = [rows_by_type(schema, vertices) for vertices in sample.vertices]
    by_type = [[rows[number] for rows in batches] for number in types]
    counts = [sum(map(len, rows)) for rows in by_type]
    num_vertices = max(sum(map(len, sample.vertices)), 1)
    return [
        replace(
            sample,
            vertices=rows,
            num_bytes=sample.num_bytes * count // max(sum(counts), 1),
            asked=sample.asked * count / num_vertices,
        )
        for rows, count in zip(by_type, counts, strict=True)
    ]


class TypedReader:
    """Readers of several vertex types for one worker, which expects its steps ahead."""

    def __init__(self, schema: GraphSchema, readers: Mapping[int, TieredReader]) -> None:
        """Read the rows of type ``number`` of ``schema``, counted from 0, by ``readers[number]``.

        Other types have no reader.
        """
        self._schema = schema
        self._readers = dict(readers)
        #: steps between the expectation of a step and its reads, of the type with most
        self.lead = max(reader.lead for reader in self._readers.values())
        #: input vertices of the expected steps, and their rows by type
        self._steps: deque[tuple[Array, list[Array]]] = deque()

    def expect(self, vertices: Array | None) -> None:
        """Append the next step's distinct ``vertices`` ``[n]``, those of a type together.

        Types are in the order of the schema. None: the step reads no rows.
        """
        rows = [] if vertices is None else rows_by_type(self._schema, vertices)
        if vertices is not None:
            self._steps.append((vertices, rows))
        for number, reader in self._readers.items():
            reader.expect(rows[number] if rows and len(rows[number]) else None)

    def next_rows(self, vertices: Array) -> list[Array] | None:
        """Return the rows by type of ``vertices``, and end their step.

        None: they are not the next step's array.
        """
        if not self._steps or self._steps[0][0] is not vertices:
            return None
        return self._steps.popleft()[1]

    def end(self) -> None:
        """Announce that no step follows, so that the last steps need not wait for later steps."""
        for reader in self._readers.values():
            reader.end()

    def close(self) -> None:
        """Wait for pending reads, and release all resources."""
        for reader in self._readers.values():
            reader.close()


class TypedTieredStore(TypedStore):
    """Store of a matrix for each vertex type, of which host memory holds some rows.

    Steps are expected as a ``TieredStore`` expects them.
    """

    def __init__(self, inner: TypedStore, readers: Mapping[int, TieredReader]) -> None:
        """Read the types of ``readers`` by them, and other types as ``inner`` does."""
        super().__init__(
            inner.schema,
            [
                TieredStore(readers[number]) if number in readers else store
                for number, store in enumerate(inner.stores)
            ],
        )
        self.rows = TypedReader(inner.schema, readers)  #: readers of the rows

    def _ids(self, batch: TypedMiniBatch) -> list[Array]:
        """Return the arrays that the readers expect, or those of another step."""
        return self.rows.next_rows(batch.input_vertices) or super()._ids(batch)
