"""The load stage: from a mini-batch to the first layer's input."""

import numpy as np
import torch

from gnnscale.core import Float32Array, Int64Array, IntArray, UInt32Array, multiplies_bfloat16
from gnnscale.feature import FeatureStore, HostFeatures, check_store
from gnnscale.graph import Graph
from gnnscale.model import Inputs, TrainableModel
from gnnscale.sampler import Block, MiniBatch


def in_degrees(graph: Graph, vertices: IntArray) -> Float32Array:
    """Return the in-degrees of ``vertices`` ``[n]``, ``[n]`` float32.

    They are read from the graph's arrays, which workers share; a table of all of them would be one
    in each worker.

    Of one part of a graph: that in the whole graph; 0 if the part does not have the vertex.
    """
    if graph.degrees is not None:
        known: UInt32Array = np.asarray(graph.degrees)[vertices]
        return known.astype(np.float32)
    indptr = np.asarray(graph.indptr)
    degrees: Int64Array = indptr[1:][vertices] - indptr[vertices]
    return degrees.astype(np.float32)


class FeatureLoader:
    """Reads what a model's first layer needs of a feature store."""

    def __init__(
        self,
        graph: Graph,
        model: TrainableModel,
        *,
        num_threads: int,
        store: FeatureStore | None = None,
        aggregates: bool = True,
        compute_dtype: torch.dtype = torch.float32,
    ) -> None:
        """Prepare to load.

        Args:
            store: where rows are read; None for the graph's own features.
            aggregates: aggregate while reading, if the first layer allows it. The values are
                the same.

        Raises:
            GraphError: the store's rows are not those of the graph.
        """
        self.store = HostFeatures.of(graph) if store is None else store
        check_store(self.store, graph)
        self.num_threads = num_threads
        self.compute_dtype = compute_dtype  #: what was asked for
        #: the type of the rows it makes, in which the model then multiplies. It is float32 if the
        #: processor has no instructions for products of bfloat16: to keep such rows, and to convert
        #: them before each product, takes longer than float32.
        self.dtype = torch.float32
        if compute_dtype == torch.bfloat16 and multiplies_bfloat16():
            self.dtype = torch.bfloat16
        self._graph = graph
        self._model = model
        self._aggregates = aggregates

    def load(self, batch: MiniBatch) -> Inputs:
        """Return the model's input for ``batch``."""
        return self._model.load(
            self.store,
            batch,
            self.degrees_of(batch.input_vertices, batch.blocks[0]),
            aggregates=self._aggregates,
            dtype=self.dtype,
            num_threads=self.num_threads,
        )

    def bytes_read(self, batch: MiniBatch) -> int:
        """Bytes of the distinct feature rows that ``batch`` needs: |V^0| f^0 S of eq. 7."""
        return len(batch.input_vertices) * self.store.row_bytes

    def degrees_of(self, vertices: IntArray, block: Block) -> Float32Array | None:
        """Return the in-degrees in the whole graph that the model needs, None if it needs none.

        Args:
            vertices: ``[num_src]`` sources of ``block``.
        """
        if not self._model.uses_degrees and block.importance is None:
            return None
        return in_degrees(self._graph, vertices)
