"""Load stage of models over graphs with types: rows of each vertex type, learned or stored."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from gnnscale.backend.feature_loading import FeatureLoader, typed_edge_attr
from gnnscale.core import Access, Array, Float32Array, IntArray
from gnnscale.features import FeatureStore
from gnnscale.features.typed import TypedStore
from gnnscale.graph import Graph, TypedFeatures
from gnnscale.nn import Inputs, TrainableModel
from gnnscale.nn.conv.linear import Degrees
from gnnscale.nn.learned_embeddings import LearnedFeatureStore
from gnnscale.sampling import MiniBatch, TypedMiniBatch


class TypedLoader(FeatureLoader):
    """Reader of the input rows of each vertex type.

    The rows of types without features are weights: a table has them, one type after the other.
    """

    def __init__(
        self,
        graph: Graph,
        model: TrainableModel,
        *,
        num_threads: int,
        store: TypedStore | None,
        aggregates: bool = True,
    ) -> None:
        """Prepare to load the input of ``model`` for mini-batches of ``graph``.

        ``store`` has the rows of types with features; None: those of the graph in host memory.
        ``aggregates``: whether the first layer may aggregate while reading.
        """
        features: object = graph.features
        assert isinstance(features, TypedFeatures)
        self._learned_types = features.learned
        store = TypedStore.of(graph) if store is None else store
        super().__init__(graph, model, num_threads=num_threads, store=store, aggregates=aggregates)
        self._schema = graph.schema
        self._table = None
        if model.vertex_rows is not None:
            repeats = graph.has_cutoffs
            self._table = LearnedFeatureStore(model.vertex_rows, repeats=repeats)
        sizes = [graph.schema.vertex_types[number].num_vertices for number in self._learned_types]
        #: first row in the table of each type with learned rows
        self._first_rows = np.cumsum([0, *sizes])[: len(sizes)].tolist()

    def batch_degrees(self, batch: MiniBatch) -> None:
        """Return None: no model of graphs with types needs in-degrees."""

    def degrees_of(self, vertices: IntArray, block: Any) -> None:
        """Return None: no model of graphs with types needs in-degrees."""

    def read(self, batch: MiniBatch, degrees: Degrees) -> Inputs:
        """Return the model's input for ``batch``, learned rows included."""
        return self.with_learned(batch, self.without_rows(batch))

    def without_rows(self, batch: MiniBatch) -> Inputs:
        """Return the model's input for ``batch``, without the rows of types that learn theirs.

        Its traffic has those rows, too.
        """
        inputs = self._model.load(
            self.store,
            batch,
            None,
            aggregates=self._aggregates,
            dtype=self.dtype,
            num_threads=self.num_threads,
        )
        reads = list(inputs.type_reads)
        for number in self._learned_types:
            count, row_bytes = self.rows_read(batch)[number]
            reads[number] = Access(host_bytes=count * row_bytes)
        traffic = replace(inputs.traffic, rows=sum(reads, Access()))
        return replace(
            self.with_ages(batch, inputs),
            traffic=traffic,
            type_reads=tuple(reads),
            edge_attr=tuple(self._edge_attr(batch)),
        )

    def _edge_attr(self, batch: MiniBatch) -> Iterator[Float32Array]:
        """Yield the features of the edges of each type in each block, if the model reads them."""
        assert isinstance(batch, TypedMiniBatch)
        for block in batch.blocks if self._model.uses_edge_features else ():
            yield from typed_edge_attr(self._graph, block, num_threads=self.num_threads)

    def with_learned(self, batch: MiniBatch, inputs: Inputs) -> Inputs:
        """Return ``inputs`` with the learned rows, whose gradient a backward pass collects."""
        assert isinstance(batch, TypedMiniBatch)
        if self._table is None:
            return inputs
        ids = [self._table_rows(batch, number) for number in self._learned_types]
        rows, _ = self._table.gather(
            np.concatenate(ids), dtype=self.dtype, num_threads=self.num_threads
        )
        parts = list(inputs.rows)
        for number, part in zip(
            self._learned_types, torch.split(rows, [len(part) for part in ids]), strict=True
        ):
            parts[number] = part
        return replace(inputs, rows=tuple(parts))

    def _table_rows(self, batch: TypedMiniBatch, vertex_type: int) -> Array:
        """Return the rows in the table of the input vertices of a type that learns its rows."""
        first = self._first_rows[self._learned_types.index(vertex_type)]
        vertices = batch.vertices(vertex_type)
        rows: Array = vertices - self._schema.vertices(vertex_type).start + first
        return rows

    def rows_read(self, batch: MiniBatch) -> list[tuple[int, int]]:
        """Return for each vertex type the number of distinct rows of ``batch``, and their bytes.

        Learned rows count, and types without features have none.
        """
        assert isinstance(batch, TypedMiniBatch)
        assert isinstance(self.store, TypedStore)
        row_bytes = [0 if store is None else store.row_bytes for store in self.store.stores]
        for number in self._learned_types:
            row_bytes[number] = 0 if self._table is None else self._table.row_bytes
        return [
            (count if num_bytes else 0, num_bytes)
            for count, num_bytes in zip(batch.type_sizes, row_bytes, strict=True)
        ]


def open_loader(
    graph: Graph,
    model: TrainableModel,
    *,
    num_threads: int,
    store: FeatureStore | None = None,
    aggregates: bool = True,
    compute_dtype: torch.dtype = torch.float32,
) -> FeatureLoader:
    """Return the loader for ``graph``, by whether it has types; see ``FeatureLoader``."""
    if graph.types is not None:
        assert store is None or isinstance(store, TypedStore)
        return TypedLoader(
            graph, model, num_threads=num_threads, store=store, aggregates=aggregates
        )
    return FeatureLoader(
        graph,
        model,
        num_threads=num_threads,
        store=store,
        aggregates=aggregates,
        compute_dtype=compute_dtype,
    )
