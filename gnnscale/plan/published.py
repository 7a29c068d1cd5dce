"""Workloads of published graphs that are not on this machine, from their sizes alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gnnscale.model import ModelConfig
from gnnscale.plan.perf.equations import BatchSize
from gnnscale.plan.perf.workload import Workload


@dataclass(frozen=True, kw_only=True)
class PublishedGraph:
    """Sizes of a graph."""

    num_vertices: int  #: |V|
    num_edges: int  #: in-neighbours of all vertices together
    num_features: int  #: f^0
    num_classes: int  #: f^L
    num_train: int  #: training vertices


#: HyScale-GNN, Table III; splits as the Open Graph Benchmark publishes them. The edges of
#: ogbn-products have no direction: each is two in-neighbours.
PUBLISHED = {
    "products": PublishedGraph(
        num_vertices=2_449_029,
        num_edges=2 * 61_859_140,
        num_features=100,
        num_classes=47,
        num_train=196_615,
    ),
    "papers100m": PublishedGraph(
        num_vertices=111_059_956,
        num_edges=1_615_685_872,
        num_features=128,
        num_classes=172,
        num_train=1_207_179,
    ),
    "mag240m": PublishedGraph(
        num_vertices=121_751_666,
        num_edges=1_297_748_926,
        num_features=756,
        num_classes=153,
        num_train=1_112_392,
    ),
}


def expected_size(graph: PublishedGraph, fanouts: Sequence[int], num_seeds: int) -> BatchSize:
    """Return the mini-batch to expect of ``num_seeds`` vertices.

    Degrees are taken to be exponentially distributed, so that a vertex keeps d(1 - exp(-k/d)) of
    its neighbours on average, with d the mean degree and k the fan-out. Sampled ends and the
    vertices above them are m draws among n vertices, which find n(1 - exp(-m/n)) different ones.

    Args:
        fanouts: from the seeds outwards; -1 for all neighbours.
    """
    degree = graph.num_edges / graph.num_vertices
    vertices, edges = [float(num_seeds)], []
    for fanout in fanouts:
        kept = degree if fanout < 0 else degree * -math.expm1(-fanout / degree)
        edges.append(vertices[-1] * kept)
        drawn = vertices[-1] + edges[-1]
        vertices.append(graph.num_vertices * -math.expm1(-drawn / graph.num_vertices))
    return BatchSize(vertices=tuple(reversed(vertices)), edges=tuple(reversed(edges)))


def published_workload(
    graph: PublishedGraph,
    model: ModelConfig,
    fanouts: Sequence[int],
    *,
    batch_size: int,
) -> Workload:
    """Return the workload of training ``model`` on ``graph``; its sampling is not timed."""
    built = model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    num_seeds = sorted({max(1, batch_size // 4**step) for step in range(6)})
    return Workload(
        num_seeds=tuple(num_seeds),
        sizes=tuple(expected_size(graph, fanouts, count) for count in num_seeds),
        sample_threads=(),
        sample_s=(),
        layers=built.layer_costs,
        counted=built.counted,
        num_weights=sum(parameter.numel() for parameter in built.parameters()),
        num_vertices=graph.num_vertices,
        uses_degrees=built.uses_degrees,
    )
