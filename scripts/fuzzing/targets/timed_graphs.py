"""Stores of graphs with times, and edges divided by them: damaged ones are opened and sampled."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from gnnscale.data import from_arrays
from gnnscale.data.task_rows import with_checked_rows
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.graph import NO_TIME, Graph, Origin, Split, TaskRows
from gnnscale.run.tasks.cutoffs import before_edges
from gnnscale.run.tasks.split_rule import PARTS
from gnnscale.run.tasks.timed_split import identify_timed_split, make_timed_split, open_timed_split
from gnnscale.sampling import NeighborSampling
from gnnscale.sampling.timed_links import TimedLinkSampling

from ..case import Input, WrongResultError
from .folders import Stored, Valid, files_of
from .graphs import check_damage


def _rows(metric: str) -> TaskRows:
    numbers = np.arange(9)
    return TaskRows(
        name="timed",
        vertices=numbers % 5,
        cutoffs=numbers * 20,
        labels=numbers % 2 if metric == "roc_auc" else numbers.astype(np.float32),
        num_classes=2 if metric == "roc_auc" else 1,
        split=Split(train_idx=numbers[:4], valid_idx=numbers[4:6], test_idx=numbers[6:]),
        metric=metric,
    )


def _plain() -> Graph:
    generator = np.random.default_rng(0)
    graph = from_arrays(
        generator.integers(0, 12, (2, 60)),
        np.ones((12, 2), np.float32),
        edge_weights=np.ones(60),
        edge_times=generator.integers(0, 100, 60).astype("datetime64[D]"),
    )
    return with_checked_rows(graph, _rows("roc_auc"))


def _typed() -> Graph:
    generator = np.random.default_rng(1)
    sizes, triples = {"user": 6, "item": 8}, [("user", "buys", "item"), ("item", "of", "user")]
    return from_typed_arrays(
        {"user": np.ones((6, 2), np.float32), "item": None},
        {
            triple: [generator.integers(0, sizes[triple[end]], 30) for end in (0, 2)]
            for triple in triples
        },
        num_vertices={"item": 8},
        vertex_times={"user": generator.integers(0, 100, 6)},
        time_unit="step",
        rows=("item", _rows("mae")),
    )


class TimedStores(Stored):
    """``Graph.open``, the order of all lists, and the rows; or ``verify_store``."""

    name = "timed_store"
    record = "meta.json"
    kinds = ("read", "verify")

    def valid(self, folder: Path) -> list[Valid]:
        stores = []
        for number, graph in enumerate((_plain(), _typed())):
            path = folder / f"store{number}"
            graph.save(path)
            stores.append(Valid(files_of(path)))
        return stores

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        if made.kind != "verify":
            graph = Graph.open(path)
            _check_order(graph)
            _check_rows(graph)
        check_damage(path, valid, made)


class TimedLinkSplits(Stored):
    """``open_timed_split``, and a mini-batch of a part's edges, as of their times."""

    name = "timed_links"
    record = "links.json"
    kinds = PARTS

    def valid(self, folder: Path) -> list[Valid]:
        splits = []
        for number, (graph, edge_type) in enumerate(((_plain(), None), (_typed(), 0))):
            name = None if edge_type is None else str(graph.schema.edge_types[edge_type])
            stored = replace(graph, origin=Origin(content=f"{number}" * 32))
            identity = identify_timed_split(
                stored, bounds=(None, None), fractions=(0.2, 0.2), edge_type=name
            )
            splits.append(Valid(files_of(make_timed_split(stored, identity)), stored))
        return splits

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        graph = valid.made_for
        split = open_timed_split(path, graph)
        edges, times = getattr(split, made.kind), split.times(made.kind)
        if not 0 <= edges.min() <= edges.max() < graph.num_vertices or len(edges) != len(times):
            raise WrongResultError(f"{made.kind} has an edge of no vertices, or of no time")
        sampling = TimedLinkSampling(
            vertices=before_edges(NeighborSampling(fanouts=[3, 2])),
            edges=edges,
            times=times,
            edge_type=0,
            num_negatives=1,
        )
        batch = sampling.sampler(graph, seed=0, num_threads=1).sample(np.arange(len(edges))[:9], 0)
        if not 0 <= batch.input_vertices.min() <= batch.input_vertices.max() < graph.num_vertices:
            raise WrongResultError("a sampled vertex that is none")


def _check_order(graph: Graph) -> None:
    if graph.times is None:
        return
    for first, end in zip(graph.indptr[:-1], graph.indptr[1:], strict=True):
        times = graph.times.edges[first:end].tolist()
        if times != sorted(times) or 0 < times.count(NO_TIME) < len(times):
            raise WrongResultError("a list that is out of order")


def _check_rows(graph: Graph) -> None:
    rows = graph.rows
    if rows is None:
        return
    if not len(rows.vertices) == len(rows.cutoffs) == len(rows.labels):
        raise WrongResultError("not a vertex, cut-off and label for each row")
    if (
        len(rows.vertices)
        and not 0 <= rows.vertices.min() <= rows.vertices.max() < graph.num_vertices
    ):
        raise WrongResultError("a row of no vertex")
    if (rows.labels[rows.split.train_idx] < 0).any() and rows.metric == "roc_auc":
        raise WrongResultError("a row that trains without a label")
