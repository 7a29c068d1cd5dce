"""Which assumption moves which cell of HyScale-GNN's Table VI, and of HitGNN's."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from statistics import fmean

from benchmarks.paper_tables import hitgnn, hyscale
from benchmarks.paper_tables.simulations import of_model, one
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.graphs import PUBLISHED, PublishedGraph


@dataclass(frozen=True, kw_only=True)
class Change:
    """One assumption that is another."""

    what: str
    options: tuple[str, ...] = ()
    graph: Callable[[PublishedGraph], PublishedGraph] | None = None
    fanouts: Callable[[tuple[int, ...]], tuple[int, ...]] | None = None
    model: str | None = None  # in place of both


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Errors of all cells of a table under a change."""

    what: str
    hyscale: tuple[float, ...]  # of the ten cells of HyScale-GNN's Table VI
    hitgnn: float  # mean absolute error of the 24 epoch times of HitGNN's Table VI

    @property
    def mean(self) -> float:
        return fmean(abs(each) for each in self.hyscale)


class _MeanDegree(PublishedGraph):
    """A graph of which nothing is known but its mean degree: exponential degrees."""

    def size(self, fanouts, num_seeds) -> BatchSize:
        return _exponential(self, fanouts, num_seeds)


def _exponential(graph: PublishedGraph, fanouts, num_seeds) -> BatchSize:
    degree = graph.num_edges / graph.num_vertices
    vertices, edges = [float(num_seeds)], []
    for fanout in fanouts:
        edges.append(vertices[-1] * degree * -math.expm1(-fanout / degree))
        drawn = vertices[-1] + edges[-1]
        vertices.append(graph.num_vertices * -math.expm1(-drawn / graph.num_vertices))
    return BatchSize(vertices=tuple(reversed(vertices)), edges=tuple(reversed(edges)))


def _only_mean(graph: PublishedGraph) -> PublishedGraph:
    known = {each.name: getattr(graph, each.name) for each in fields(graph)}
    return _MeanDegree(**known | {"num_reached": None})


def _reversed_edges(graph: PublishedGraph) -> PublishedGraph:
    """A directed graph with edges both ways; its skew gives DGL's measured mini-batches of it."""
    if not graph.directed:
        return graph
    return replace(
        graph, num_edges=2 * graph.num_edges, directed=False, num_reached=None, skew=1.87
    )


def _all_reached(graph: PublishedGraph) -> PublishedGraph:
    return replace(graph, num_reached=None)


CHANGES = (
    Change(what="as predicted"),
    Change(what="V⁰ by the mean degree alone", graph=_only_mean),
    Change(what="all vertices can be met, not those an epoch meets", graph=_all_reached),
    Change(what="ogbn-papers100M with reverse edges", graph=_reversed_edges),
    Change(what="fan-outs in the other order", fanouts=lambda given: given[::-1]),
    Change(what="GraphSAGE's rows not doubled: all as GCN", model="gcn"),
    Change(what="links at their peak, 16 GB/s", options=("platform.efficiency.link=1",)),
    Change(what="cards at their peak", options=("platform.efficiency.accelerator=1",)),
    Change(
        what="cards at 86.2 %, as 16 % more cycles give",
        options=("platform.efficiency.accelerator=0.862",),
    ),
    Change(what="cards at half their peak", options=("platform.efficiency.accelerator=0.5",)),
    Change(what="host memory at 410 GB/s", options=("platform.efficiency.memory=1",)),
    Change(what="host memory at 77 GB/s", options=("platform.efficiency.memory=0.1875",)),
    Change(what="FPGAs alone", options=("hybrid=false",)),
    Change(
        what="processors at 25 % of their peak", options=("platform.efficiency.processor=0.25",)
    ),
    Change(what="an epoch of all vertices", options=("epoch=all",)),
)


def effect(change: Change) -> Effect:
    errors = []
    for cell in hyscale.TABLE_VI:
        fanouts = cell.fanouts if change.fanouts is None else change.fanouts(cell.fanouts)
        found = one(
            f"graph={cell.graph}",
            *of_model(change.model or cell.model, cell.hidden, fanouts),
            "accelerators=[4]",
            *change.options,
            graph=None if change.graph is None else change.graph(PUBLISHED[cell.graph]),
        )
        errors.append(found.epoch_s / cell.epoch_s - 1)
    return Effect(what=change.what, hyscale=tuple(errors), hitgnn=_hitgnn(change))


def _hitgnn(change: Change) -> float:
    errors = []
    for system in hitgnn.ALGORITHMS:
        published = hitgnn.TABLE_VI[system][0]
        for (name, model), epoch_s in zip(hitgnn.pairs(), published, strict=True):
            fanouts = (25, 10) if change.fanouts is None else change.fanouts((25, 10))
            options = [each for each in change.options if not each.startswith("epoch")]
            if "epoch=all" in change.options:
                options.append("epoch=training")
            found = one(
                f"system={system}",
                f"graph={name}",
                *of_model(change.model or model, hitgnn.HIDDEN, fanouts),
                f"accelerators=[{hitgnn.CARDS}]",
                *options,
                graph=None if change.graph is None else change.graph(PUBLISHED[name]),
            )
            errors.append(found.epoch_s / epoch_s - 1)
    return fmean(abs(each) for each in errors)


def effects() -> tuple[Effect, ...]:
    return tuple(effect(change) for change in CHANGES)
