"""Tiered stores of a graph with types: rows of each vertex type are read ahead from its file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gnnscale.core import Array
from gnnscale.features.tiered.sizing import SampledBatches
from gnnscale.features.tiered.store import TieredReader, TieredStore
from gnnscale.features.typed import TypedSteps, TypedStore
from gnnscale.graph import GraphSchema
from gnnscale.sampling import TypedMiniBatch


def sample_by_type(
    sample: SampledBatches, schema: GraphSchema, types: Sequence[int]
) -> list[SampledBatches]:
    """Return for each of ``types``, positions in ``schema``, its rows in the batches of ``sample``.

    Bytes of mini-batches are divided among these types as their rows are. ``asked`` is the share of
    a type's rows among all vertices of a mini-batch.
    """
    batches = [schema.split(vertices) for vertices in sample.vertices]
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


class TypedReader(TypedSteps):
    """Readers of several vertex types for one worker, which expects its steps ahead."""

    def __init__(self, schema: GraphSchema, readers: Mapping[int, TieredReader]) -> None:
        """Read the rows of type ``number`` of ``schema``, counted from 0, by ``readers[number]``.

        Other types have no reader.
        """
        super().__init__(schema, {number: reader.expect for number, reader in readers.items()})
        self._readers = dict(readers)
        #: steps between the expectation of a step and its reads, of the type with most
        self.lead = max(reader.lead for reader in self._readers.values())

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
