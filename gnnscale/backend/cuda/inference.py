"""Exact inference on a device: every layer over all neighbours before the next one."""

from __future__ import annotations

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

#: Edges of a chunk; one more vertex may bring more.
_CHUNK_EDGES = 1 << 18
#: Part of the memory that is left of which a hidden layer may take all.
_PART = 0.4


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Rows of some vertices."""

    rows: torch.Tensor  #: ``[n, width]`` that kernels read
    on_device: bool  #: whether they lie in device memory
    places: torch.Tensor | None  #: ``[num_vertices]`` int64 row of each vertex; None for its id

    def ids(self, vertices: torch.Tensor) -> torch.Tensor:
        """Return the row of each of ``vertices``."""
        return vertices if self.places is None else self.places[vertices.long()]


class CudaInference:
    """Computes rows of a model's layers in chunks of vertices, whose size bounds what it takes.

    A hidden layer lies in device memory if it fits there, and in memory of the host that kernels
    read otherwise. Nothing may train meanwhile.
    """

    def __init__(self, graph: Graph, placed: ResidentGraph, engine: Engine) -> None:
        """Make room for a chunk."""
        self._graph = graph
        self._placed = placed
        self._engine = engine
        #: tables of the host by layer and shape, for all evaluations of a run
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
        """Yield the last layer's rows, some after the other, in host memory.

        Args:
            model: the host's, whose weights are copied.
            needed: vertices whose rows each layer computes, inputs first.
        """
        model = copy.deepcopy(model).to(self._engine.device).eval()
        placed = self._placed
        tables = [_Table(rows=placed.rows, on_device=placed.rows_on_device, places=None)]
        for index, vertices in enumerate(needed[:-1]):
            tables.append(self._hidden(model, index, tables, vertices))
        for _, rows in self._compute(model, len(needed) - 1, tables, needed[-1]):
            yield rows.cpu()

    def _hidden(
        self, model: TrainableModel, index: int, tables: Sequence[_Table], vertices: Vertices
    ) -> _Table:
        """Compute a hidden layer."""
        shape = (len(vertices), model.widths[index + 1])
        on_device = 4 * shape[0] * shape[1] <= _PART * self._engine.free_bytes()
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
        return _Table(rows=out, on_device=on_device, places=self._places(vertices))

    def _places(self, vertices: Vertices) -> torch.Tensor | None:
        if isinstance(vertices, range):
            return None
        places = torch.zeros(self._graph.num_vertices, dtype=torch.int64)
        places[torch.from_numpy(np.asarray(vertices, np.int64))] = torch.arange(len(vertices))
        return places.to(self._engine.device)

    def _compute(
        self, model: TrainableModel, index: int, tables: Sequence[_Table], vertices: Vertices
    ) -> Iterator[tuple[Array, torch.Tensor]]:
        """Yield chunks of vertices with their rows of layer ``index``."""
        layer, below = model.layer(index), tables[-1]
        encoder = model.encoder or nn.Identity()
        fused = below.on_device and isinstance(layer, LinearAggregationLayer)
        fused = fused and not (index == 0 and model.encoder is not None)
        kernels = self._engine.kernels
        reads = [tables[number] for number in model.reads(index)]
        room = self._sampler.room.max_vertices
        gathers = [
            RowGather(each.rows, kernels, max_ids=room, dtype=torch.float32)
            for each in [*reads, *([] if fused else [below])]
        ]
        for chunk in cut(self._graph, vertices, _CHUNK_EDGES, CHUNK_VERTICES):
            batch = self._batch(chunk)
            degrees = None
            if model.uses_degrees:
                degrees = aggregation.degrees_of(
                    kernels,
                    self._placed.topology,
                    batch.vertices,
                    batch.num_sources,
                    known=self._placed.degrees,
                )
            block, ids = batch.input_block, below.ids(batch.vertices)
            if fused:
                assert isinstance(layer, LinearAggregationLayer)
                x = aggregation.load_aggregated(
                    replace(block, vertices=ids), below.rows, layer.rule, degrees
                )
            else:
                x = gathers[-1].gather(ids, batch.num_sources).out[: len(ids)]
                x = encoder(x) if index == 0 else x
                x = layer.prepare(x, block, degrees, None)  # type: ignore[arg-type]
            own = []
            for number, table, gather in zip(model.reads(index), reads, gathers, strict=False):
                places = table.ids(batch.vertices[: block.num_dst])
                rows = gather.gather(places, batch.num_sources).out[: block.num_dst]
                own.append(encoder(rows) if number == 0 else rows)
            yield chunk, model.infer(index, x, block, None, own).float()

    def _batch(self, chunk: Array) -> CudaBatch:
        """Return all neighbours of some vertices."""
        seeds = torch.from_numpy(np.asarray(chunk, np.int64)).to(self._engine.device)
        sample = self._sampler.sample(seeds, 0)
        sums = self._placed.weight_sums
        if sums is not None:
            count = sample.num_vertices[-1:]
            sums = aggregation.vertex_floats(self._engine.kernels, sums, sample.vertices, count)
        return batch_of(
            sample, chunk, sample.sizes(), self._engine.kernels, step=0, weight_sums=sums
        )
