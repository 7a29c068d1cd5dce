"""What exact inference of some vertices has to do, and what it may hold in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnscale.backend.chunks import Vertices
from gnnscale.backend.loading import in_degrees
from gnnscale.graph import Graph
from gnnscale.model import TrainableModel
from gnnscale.model.layer import GraphLayer
from gnnscale.model.projection import ProjectedLayer
from gnnscale.runtime.evaluation.needed import needed_vertices
from gnnscale.runtime.evaluation.plan import InferencePlan, plan_layers

__all__ = ["LayerSize", "Limits", "Work", "find_work"]

#: Rows are projected where at most so many are made for each that is wanted. The neighbours of a
#: few vertices are many, and their products would take longer than narrower rows save.
_MOST_PROJECTED = 2


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What inference may hold in memory.

    Attributes:
        hidden_bytes: hidden rows of a layer beyond this size go to a temporary file; None for what
            fits into the memory that is available, up to 512 MiB.
        chunk_edges, chunk_vertices: of one chunk, which bound what it needs besides its output; a
            few are computed at once.
        file_chunk_edges: of a chunk that reads single rows from a file, and holds them in memory.
        stream_bytes: sums over the edges of a layer in a file, and as much again of its rows; None
            for a part of the memory that is available.
        kept_bytes: inputs of the first layer up to this size are kept for the next call.
        whole_vertices: of a graph of up to so many, hidden layers are computed for all vertices,
            and what is kept serves any; of a larger one for those that are needed.
    """

    hidden_bytes: int | None = None
    chunk_edges: int = 1 << 18
    chunk_vertices: int = 1 << 12
    file_chunk_edges: int = 1 << 16
    stream_bytes: int | None = None
    kept_bytes: int = 64 << 20
    whole_vertices: int = 1 << 20


@dataclass(frozen=True, kw_only=True)
class LayerSize:
    """Vertices that a layer is computed for, and their in-edges."""

    num_vertices: int
    num_edges: int

    @classmethod
    def of(cls, graph: Graph, vertices: Vertices) -> LayerSize:
        """Return the size of a layer that is computed for ``vertices``."""
        if isinstance(vertices, range):
            return cls(num_vertices=graph.num_vertices, num_edges=graph.num_edges)
        num_edges = int(in_degrees(graph, vertices).sum(dtype=np.float64))
        return cls(num_vertices=len(vertices), num_edges=num_edges)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What the rows of some vertices take, their logits where all layers are computed.

    Attributes:
        needed: the vertices that each layer is computed for; of the last one those that are wanted.
        layers: those of the model that are computed, some of them projected.
        widths: what is stored of each hidden layer: columns of a row that is aggregated, and 2
            where vertices have own rows beside.
        sizes: of each layer.
        plan: where hidden layers are kept.
    """

    needed: list[Vertices]
    layers: list[GraphLayer]
    widths: list[tuple[int, int]]
    sizes: list[LayerSize]
    plan: InferencePlan

    @property
    def wanted(self) -> Vertices:
        """The vertices whose rows are wanted."""
        return self.needed[-1]


def find_work(
    model: TrainableModel,
    graph: Graph,
    wanted: Vertices,
    limits: Limits,
    *,
    num_threads: int,
    num_layers: int | None = None,
) -> Work:
    """Return what rows of ``wanted`` take, after ``num_layers`` layers, all where None."""
    num_hidden = (num_layers or len(model.layers)) - 1
    everything = range(graph.num_vertices)
    needed: list[Vertices] = [everything] * num_hidden
    if graph.num_vertices > limits.whole_vertices:
        needed = needed_vertices(
            graph,
            wanted,
            num_hidden,
            chunk_edges=limits.chunk_edges,
            chunk_vertices=limits.chunk_vertices,
            num_threads=num_threads,
        )
    needed = [*needed, wanted]
    layers = [model.layer(0)]
    widths = []
    for index in range(1, num_hidden + 1):
        layer, width = model.layer(index), model.widths[index]
        projected = None
        if len(needed[index - 1]) <= _MOST_PROJECTED * len(needed[index]):
            projected = ProjectedLayer.of(layer, width)
        layers.append(projected or layer)
        widths.append((projected.width, projected.num_parts) if projected else (width, 1))
    plan = plan_layers(
        [
            (len(vertices), width * num_parts)
            for vertices, (width, num_parts) in zip(needed, widths, strict=False)
        ],
        hidden_bytes=limits.hidden_bytes,
        stream_bytes=limits.stream_bytes,
    )
    sizes = [LayerSize.of(graph, each) for each in needed]
    return Work(needed=needed, layers=layers, widths=widths, sizes=sizes, plan=plan)
