"""What parts and figures must be like, whoever made or stored them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.core.errors import GraphError, printable, shown
from gnnscale.graph import Graph
from gnnscale.partition.figures import PartFigures, PartitionFigures
from gnnscale.partition.partitioner import NO_PART, UNREACHED, Parts
from gnnscale.partition.storage.identity import Divided
from gnnscale.sampler.seed_order import labelled_vertices

__all__ = ["check_figures", "problem_of"]

_SLICE_VERTICES = 1 << 22
_MAX_TEXT = 500


def problem_of(parts: Parts, graph: Graph) -> str | None:
    """Return the first thing that is wrong with ``parts`` of ``graph``, None where nothing is.

    Which vertices a part reaches is not counted anew; only that its training vertices are where
    they must be.
    """
    if parts.owner is None:
        if parts.hops is not None:
            return "hops are given, and no owners"
        return _column_problem(parts, graph.num_features)
    if parts.columns is not None:
        return "both owners and feature columns are given"
    problem = _owner_problem(parts.owner, parts.num_parts, graph)
    if problem is None and parts.hops is not None:
        problem = _hops_problem(parts.hops, parts, graph)
    return problem


def _column_problem(parts: Parts, num_features: int) -> str | None:
    if parts.columns is None:
        return None
    rising = all(first < last for first, last in parts.columns)
    joined = all(left[1] == right[0] for left, right in pairwise(parts.columns))
    ends = parts.columns[:1] and (parts.columns[0][0], parts.columns[-1][1])
    if len(parts.columns) != parts.num_parts or not (rising and joined and ends):
        return f"columns are not {parts.num_parts} ranges, one behind the other"
    if ends != (0, num_features):
        return f"columns go from {ends[0]} to {ends[1]}, the graph has {num_features}"
    return None


def _owner_problem(owner: NDArray[Any], num_parts: int, graph: Graph) -> str | None:
    if owner.dtype != np.int16 or owner.shape != (graph.num_vertices,):
        return f"owner is {owner.dtype}{list(owner.shape)}, needed is int16[{graph.num_vertices}]"
    low, high = int(owner.min()), int(owner.max())
    if low < NO_PART or high >= num_parts:
        bad = low if low < NO_PART else high
        return f"owner {bad} is out of range, allowed are {NO_PART} to {num_parts - 1}"
    train = labelled_vertices(graph, "train")
    owners = owner[train]
    if (owners < 0).any():
        return f"training vertex {train[(owners < 0).argmax()]} belongs to no part"
    return None


def _hops_problem(hops: NDArray[Any], parts: Parts, graph: Graph) -> str | None:
    form = (parts.num_parts, graph.num_vertices)
    if hops.dtype != np.uint8 or hops.shape != form:
        return f"hops is {hops.dtype}{list(hops.shape)}, needed is uint8{list(form)}"
    if not 1 <= parts.num_hops < UNREACHED:
        return f"num_hops is {parts.num_hops}, allowed are 1 to {UNREACHED - 1}"
    for first in range(0, graph.num_vertices, _SLICE_VERTICES):
        for part, row in enumerate(hops[:, first : first + _SLICE_VERTICES]):
            wrong = (row > parts.num_hops) & (row != UNREACHED)
            if wrong.any():
                vertex = int(wrong.argmax())
                return (
                    f"part {part} has vertex {first + vertex} at {row[vertex]} hops, allowed are "
                    f"0 to {parts.num_hops} and {UNREACHED}"
                )
    train = labelled_vertices(graph, "train")
    assert parts.owner is not None
    far = hops[parts.owner[train], train]
    if far.any():
        vertex = train[(far != 0).argmax()]
        return f"training vertex {vertex} is not at 0 hops in the part that it belongs to"
    return None


def check_figures(file: Path, figures: PartitionFigures, graph: Divided) -> None:
    """Refuse figures that no partition of ``graph`` can have.

    Raises:
        GraphError: names ``file`` and the figure.
    """
    sizes = (len(figures.parts), len(figures.cut or figures.parts))
    if sizes != (figures.num_parts,) * 2 or any(
        len(row) != figures.num_parts for row in figures.cut or ()
    ):
        raise GraphError(f"{file}: parts and cut need an entry for each of {figures.num_parts}")
    for text in (figures.algorithm, *figures.notes):
        if len(text) > _MAX_TEXT or not printable(text):
            raise GraphError(f"{file}: {shown(text)!r} is no line of up to {_MAX_TEXT} characters")
    for name, value, limit in _limits(figures, graph):
        if value is not None and not 0 <= value <= limit:
            raise GraphError(
                f"{file}: {name} is {shown(value)}, allowed is a number from 0 to {limit}"
            )


def _limits(figures: PartitionFigures, graph: Divided) -> Iterable[tuple[str, float | None, float]]:
    """Each figure with its name and the most that it can be."""
    for part in figures.parts:
        yield from _part_limits(part, graph)
    for row in figures.cut or ():
        yield "cut", min(row), graph.num_edges
        yield "cut", max(row), graph.num_edges
    yield "edge_cut_fraction", figures.edge_cut_fraction, 1
    ratios = ("vertex_balance", "edge_balance", "train_balance", "replication_factor")
    for name in ratios:
        yield name, getattr(figures, name), figures.num_parts
    for name, took in (("", figures), ("predicted.", figures.predicted)):
        yield f"{name}seconds", took.seconds, 1e12
        yield f"{name}peak_rss_bytes", took.peak_rss_bytes, 1 << 62


def _part_limits(part: PartFigures, graph: Divided) -> Iterable[tuple[str, int | None, int]]:
    yield "num_vertices", part.num_vertices, graph.num_vertices
    yield "num_inner", part.num_inner, graph.num_vertices
    yield "num_train", part.num_train, graph.num_train
    yield "num_edges", part.num_edges, graph.num_edges
