"""Which assumption moves which cell of HyScale-GNN's Table VI, and of HitGNN's."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from statistics import fmean

from benchmarks.paper_tables import hitgnn, hyscale
from benchmarks.paper_tables.simulations import of_model, one
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.graphs import PUBLISHED, PublishedGraph


@dataclass(frozen=True)
class Change:
    """One assumption that is another."""

    what: str
    options: tuple[str, ...] = ()
    graph: Callable[[PublishedGraph], PublishedGraph] | None = None
    fanouts: Callable[[tuple[int, ...]], tuple[int, ...]] = tuple
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
        degree = self.num_edges / self.num_vertices
        vertices, edges = [float(num_seeds)], []
        for fanout in fanouts:
            edges.append(vertices[-1] * degree * -math.expm1(-fanout / degree))
            drawn = vertices[-1] + edges[-1]
            vertices.append(self.num_vertices * -math.expm1(-drawn / self.num_vertices))
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
    Change("as predicted"),
    Change("V⁰ by the mean degree alone", graph=_only_mean),
    Change("all vertices can be met, not those an epoch meets", graph=_all_reached),
    Change("ogbn-papers100M with reverse edges", graph=_reversed_edges),
    Change("fan-outs in the other order", fanouts=lambda given: given[::-1]),
    Change("GraphSAGE's rows not doubled: all as GCN", model="gcn"),
    Change("links at their peak, 16 GB/s", ("platform.efficiency.link=1",)),
    Change("cards at their peak", ("platform.efficiency.accelerator=1",)),
    Change("cards at 86.2 %, as 16 % more cycles give", ("platform.efficiency.accelerator=0.862",)),
    Change("cards at half their peak", ("platform.efficiency.accelerator=0.5",)),
    Change("host memory at 410 GB/s", ("platform.efficiency.memory=1",)),
    Change("host memory at 77 GB/s", ("platform.efficiency.memory=0.1875",)),
    Change("FPGAs alone", ("hybrid=false",)),
    Change("processors at 25 % of their peak", ("platform.efficiency.processor=0.25",)),
    Change("an epoch of all vertices", ("epoch=all",)),
)


def _error(
    change: Change,
    graph: str,
    model: str,
    fanouts: tuple[int, ...],
    hidden: int,
    epoch_s: float,
    *options: str,
) -> float:
    """Return the error of an epoch under a change."""
    found = one(
        f"graph={graph}",
        *of_model(change.model or model, hidden, change.fanouts(fanouts)),
        *options,
        graph=change.graph(PUBLISHED[graph]) if change.graph else None,
    )
    return found.epoch_s / epoch_s - 1


def effect(change: Change) -> Effect:
    hyscale_errors = tuple(
        _error(change, *each[1:], "accelerators=[4]", *change.options) for each in hyscale.TABLE_VI
    )
    # An epoch of HitGNN has all vertices.
    options = ["epoch=training" if each == "epoch=all" else each for each in change.options]
    errors = []
    for system in hitgnn.ALGORITHMS:
        own = (f"system={system}", f"accelerators=[{hitgnn.CARDS}]", *options)
        for pair, epoch_s in zip(hitgnn.pairs(), hitgnn.TABLE_VI[system][0], strict=True):
            errors.append(_error(change, *pair, (25, 10), hitgnn.HIDDEN, epoch_s, *own))
    mean = fmean(abs(each) for each in errors)
    return Effect(what=change.what, hyscale=hyscale_errors, hitgnn=mean)


def effects() -> tuple[Effect, ...]:
    return tuple(effect(change) for change in CHANGES)
