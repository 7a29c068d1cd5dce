"""Exact inference on a device: each layer over all neighbors before the next layer."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from gnnscale.backend.cuda import aggregation
from gnnscale.backend.cuda.batch import CudaBatch, batch_of
from gnnscale.backend.cuda.engine import Engine
from gnnscale.backend.cuda.placement import ResidentGraph
from gnnscale.backend.cuda.row_gather import RowGather
from gnnscale.backend.cuda.sampler import CudaSampler
from gnnscale.backend.feature_loading import CHUNK_VERTICES, Vertices, cut
from gnnscale.core import Array
from gnnscale.graph import Graph
from gnnscale.nn import TrainableModel
from gnnscale.nn.conv.linear import LinearAggregationLayer
from gnnscale.sampling import NeighborSampling

#: Approximate edges of a chunk; its last vertex may exceed it.
_CHUNK_EDGES = 1 << 18
#: Maximum fraction of free device memory for a hidden layer.
_MAX_FRACTION = 0.4


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Feature rows, or output rows of a layer, and the index of each vertex's row."""

    rows: torch.Tensor  #: ``[n, width]`` that kernels read
    on_device: bool  #: whether the rows are in device memory
    row_of: torch.Tensor | None  #: ``[num_vertices]`` int64 row of each vertex. None: its id

    def ids(self, vertices: torch.Tensor) -> torch.Tensor:
        """Return the index of each vertex's row, ``[n]``."""
        return vertices if self.row_of is None else self.row_of[vertices.long()]


class CudaInference:
    """Computation of a model's layers over all neighbors, in chunks that bound memory.

    A hidden layer is in device memory if it fits there, otherwise in host memory that kernels read.
    Training must not run at the same time.
    """

    def __init__(self, graph: Graph, placed: ResidentGraph, engine: Engine) -> None:
        self._graph = graph
        self._placed = placed
        self._engine = engine
        #: hidden layers in host memory by layer and shape, reused by all evaluations of a run
        self._shared: dict[tuple[int, ...], torch.Tensor] = {}
        max_degree = int(np.diff(graph.indptr).max(initial=0))
        self._sampler = CudaSampler(
            placed.topology,
            engine.kernels,
            NeighborSampling(fanouts=[-1]),
            seed=0,
            max_seeds=CHUNK_VERTICES,
            device=engine.device,
            max_edges=min(_CHUNK_EDGES + max_degree + 1, max(graph.num_edges, 1)),
        )

    @torch.no_grad()
    def rows(self, model: TrainableModel, needed: Sequence[Vertices]) -> Iterator[torch.Tensor]:
        """Yield the last layer's output rows of ``needed[-1]`` in order, in chunks, in host memory.

        ``needed`` has the vertices whose rows each layer computes, the first layer first.
        """
        model = copy.deepcopy(model).to(self._engine.device).eval()
        placed = self._placed
        tables = [_Table(rows=placed.rows, on_device=placed.rows_on_device, row_of=None)]
        for index, vertices in enumerate(needed[:-1]):
            tables.append(self._hidden(model, index, tables, vertices))
        for _, rows in self._compute(model, len(needed) - 1, tables, needed[-1]):
            yield rows.cpu()

    def _hidden(
        self, model: TrainableModel, index: int, tables: Sequence[_Table], vertices: Vertices
    ) -> _Table:
        """Compute and return output rows of ``vertices`` in hidden layer ``index``.

        ``tables`` are the features, then earlier layers' rows. The result is in host memory if it
        does not fit on the device; the next call for this layer and shape overwrites it there.
        """
        shape = (len(vertices), model.widths[index + 1])
        on_device = 4 * shape[0] * shape[1] <= _MAX_FRACTION * self._engine.free_bytes()
        if on_device:
            out = torch.empty(shape, device=self._engine.device)
        else:
            key = (index, *shape)
            if key not in self._shared:
                self._shared[key] = self._engine.shared(shape, torch.float32)
            out = self._shared[key]
        first = 0
        for chunk, rows in self._compute(model, index, tables, vertices):
            out[first : first + len(chunk)] = rows
            first += len(chunk)
        return _Table(rows=out, on_device=on_device, row_of=self._row_of(vertices))

    def _row_of(self, vertices: Vertices) -> torch.Tensor | None:
        if isinstance(vertices, range):
            return None
        row_of = torch.zeros(self._graph.num_vertices, dtype=torch.int64)
        row_of[torch.from_numpy(np.asarray(vertices, np.int64))] = torch.arange(len(vertices))
        return row_of.to(self._engine.device)

    def _compute(
        self, model: TrainableModel, index: int, tables: Sequence[_Table], vertices: Vertices
    ) -> Iterator[tuple[Array, torch.Tensor]]:
        """Yield chunks of ``vertices`` with their output rows of layer ``index``, on the device.

        ``tables`` are the features, then earlier layers' rows; the layer aggregates the last ones,
        and skip connections read others.
        """
        layer, source = model.layer(index), tables[-1]
        encoder = model.encoder or nn.Identity()
        fused = source.on_device and isinstance(layer, LinearAggregationLayer)
        fused = fused and not (index == 0 and model.encoder is not None)
        kernels, placed = self._engine.kernels, self._placed
        reads = [tables[number] for number in model.reads(index)]
        max_ids = self._sampler.capacity.max_vertices
        gathers = [
            RowGather(table.rows, kernels, max_ids=max_ids, dtype=torch.float32)
            for table in [*reads, *([] if fused else [source])]
        ]
        for chunk in cut(self._graph, vertices, _CHUNK_EDGES, CHUNK_VERTICES):
            batch = self._batch(chunk)
            degrees = None
            if model.uses_degrees:
                degrees = placed.degrees_of(kernels, batch.vertices, batch.num_sources)
            block, ids = batch.input_block, source.ids(batch.vertices)
            if fused:
                assert isinstance(layer, LinearAggregationLayer)
                x = aggregation.load_aggregated(
                    replace(block, vertices=ids), source.rows, layer.rule, degrees
                )
            else:
                x = gathers[-1].gather(ids, batch.num_sources).out[: len(ids)]
                x = encoder(x) if index == 0 else x
                x = layer.prepare(x, block, degrees, None)  # type: ignore[arg-type]
            skip_rows = []
            for number, table, gather in zip(model.reads(index), reads, gathers, strict=False):
                ids_dst = table.ids(batch.vertices[: block.num_dst])
                rows = gather.gather(ids_dst, batch.num_sources).out[: block.num_dst]
                skip_rows.append(encoder(rows) if number == 0 else rows)
            yield chunk, model.infer(index, x, block, None, skip_rows).float()

    def _batch(self, chunk: Array) -> CudaBatch:
        """Return vertices ``chunk`` and all their neighbors, one hop, as a device mini-batch."""
        seeds = torch.from_numpy(np.asarray(chunk, np.int64)).to(self._engine.device)
        sample, kernels = self._sampler.sample(seeds, 0), self._engine.kernels
        sums = self._placed.sums_of(kernels, sample.vertices, sample.num_vertices[-1:])
        return batch_of(sample, chunk, sample.sizes(), kernels, step=0, weight_sums=sums)
