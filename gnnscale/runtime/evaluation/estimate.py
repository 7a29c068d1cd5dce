"""How long exact inference will take, by one chunk of it and what its layers say of their work."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch

from gnnscale.backend.chunks import Chunk, Vertices
from gnnscale.backend.loading import in_degrees
from gnnscale.graph import Graph
from gnnscale.model import GNN
from gnnscale.model.cost import LayerWork
from gnnscale.runtime.evaluation.plan import InferencePlan, disk_rate

__all__ = ["LayerSize", "estimated_s", "layer_size"]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class LayerSize:
    """Vertices that a layer is computed for, and their in-edges."""

    num_vertices: int
    num_edges: int


def layer_size(graph: Graph, vertices: Vertices) -> LayerSize:
    """Return the size of a layer that is computed for ``vertices``."""
    if isinstance(vertices, range):
        return LayerSize(num_vertices=graph.num_vertices, num_edges=graph.num_edges)
    num_edges = int(in_degrees(graph, vertices).sum(dtype=np.float64))
    return LayerSize(num_vertices=len(vertices), num_edges=num_edges)


def estimated_s(
    model: GNN, sizes: list[LayerSize], plan: InferencePlan, first: Callable[[], Chunk]
) -> float:
    """Return the seconds of one pass over all layers.

    One chunk of the first layer is read and computed, which gives the bytes of rows and the
    multiply-accumulates that this machine does in a second.

    Args:
        model: its layers state what they read and multiply.
        sizes: of each layer.
        plan: where hidden layers are kept.
        first: reads a chunk of the first layer.
    """
    work = [_work(model, index, size) for index, size in enumerate(sizes)]
    (block, x), read_s = _timed(first)
    _, compute_s = _timed(lambda: model.infer(0, x, block))
    tried = _work(
        model, 0, LayerSize(num_vertices=max(block.num_dst, 1), num_edges=block.num_edges)
    )
    seconds = sum(each.read_bytes for each in work) * read_s / tried.read_bytes
    seconds += sum(each.macs for each in work) * compute_s / tried.macs
    return seconds + _disk_s(model, sizes, plan)


def _work(model: GNN, index: int, size: LayerSize) -> LayerWork:
    width_in, width_out = list(pairwise(model.widths))[index]
    return (
        model.layer(index)
        .cost(width_in, width_out)
        .forward(
            edges=size.num_edges,
            targets=size.num_vertices,
            sources=size.num_vertices,
            aggregated=False,
        )
    )


def _disk_s(model: GNN, sizes: list[LayerSize], plan: InferencePlan) -> float:
    """Seconds to write each layer in a file, and to read it as often as sums do not fit."""
    if not plan.temporary_bytes:
        return 0.0
    num_bytes = 0.0
    for index, filed in enumerate(plan.in_file):
        if filed:
            row_bytes = 4 * model.widths[index + 1]
            passes = math.ceil(sizes[index + 1].num_vertices * row_bytes / plan.stream_bytes)
            num_bytes += sizes[index].num_vertices * row_bytes * (1 + passes)
    return num_bytes / disk_rate()


@torch.no_grad()
def _timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    result = work()
    return result, max(time.perf_counter() - start, 1e-6)
