"""Predictions of a finished run in a file, for all vertices or those that are named."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnscale.core import ConfigError, IntArray, check_choice, check_range, shown
from gnnscale.core.artifact.files import check_space
from gnnscale.core.config.untrusted import names
from gnnscale.data import GraphSource
from gnnscale.data.tables.selection import find_pairs, find_vertices
from gnnscale.data.tables.vertex_ids import read_ids
from gnnscale.graph import Graph
from gnnscale.inference.export.outputs import (
    ANSWERS,
    EMBEDDINGS,
    VALUES,
    EdgeIds,
    RowIds,
    check_labels,
    check_layer,
    num_layers_of,
    width_of,
)
from gnnscale.inference.export.selection import write_partners, write_scores
from gnnscale.inference.export.writers import Layout, check_file, check_ids, open_table, row_bytes
from gnnscale.inference.load_run import (
    TrainedModel,
    check_predicts_others,
    load_run,
    load_trained,
    open_other,
    open_run_task,
)
from gnnscale.inference.pair_scoring import EdgePredictor, PairScorer
from gnnscale.inference.predictor import Predictor
from gnnscale.nn.link_decoder import EdgeGNN, LinkGNN
from gnnscale.planner import MAX_THREADS
from gnnscale.run import commands as command_options
from gnnscale.run import config as settings
from gnnscale.run.checkpoint.input_schema import InputSchema

#: Which labelled edges are predicted.
EDGES = ("all", "train", "valid", "test")
#: Partners of a vertex that are listed.
_MAX_TOP = 1 << 16


@dataclass(frozen=True, kw_only=True)
class PredictConfig(command_options.SavedRunOptions):
    """Predictions of a finished or stopped run.

    Attributes:
        out: the file to write, ``.parquet`` or ``.npy``; beside the latter ``.ids.npy`` has the
            rows' ids, if these are not those of all vertices in order.
        num_threads: threads of the native code and of torch.
        vertices: ``all``, ``train``, ``valid`` or ``test``; a file of ids, ``.npy``, or a ``.csv``
            or ``.parquet`` table with a column ``id``; or ids.
        edges: of a run that predicts labels of edges, which edges: ``all``, ``train``, ``valid`` or
            ``test``. The columns ``source`` and ``target`` name them.
        pairs: of a link run, the edges to score: a file, ``.npy`` of ids ``[n, 2]``, or a ``.csv``
            or ``.parquet`` table with columns ``source`` and ``target``; or pairs of ids. Also of a
            run that predicts labels of edges, unless edges have features.
        top: of a link run, how many partners of each of ``vertices`` to list, by their score.
        candidates: the vertices to compare them with, named as ``vertices`` are.
        layer: whose rows are taken, counted from the end: -1 gives logits, -2 embeddings, the rows
            that the last layer sees.
        what: ``classes``, ``probabilities`` or ``logits``; None writes classes and probabilities
            to a ``.parquet`` file, and probabilities to a ``.npy`` file. If labels are values to
            be met, these are written, and ``what`` is not given.
        inference: exact, over all neighbours, or sampled, over those that the run's sampler picks.
        force: overwrite ``out`` if it exists.
        graph: whose vertices are predicted; None for the graph that the run was trained on.
    """

    out: Path
    num_threads: int
    graph: GraphSource | None = None
    vertices: Any = field(
        default="all", metadata=names("place", known=("all", "train", "valid", "test"))
    )
    edges: str = "all"
    pairs: Any | None = field(default=None, metadata=names("place"))
    top: int | None = None
    candidates: Any = field(
        default="all", metadata=names("place", known=("all", "train", "valid", "test"))
    )
    layer: int = -1
    what: str | None = None
    inference: str = "exact"
    force: bool = False

    def __post_init__(self) -> None:
        check_range("num_threads", self.num_threads, 1, MAX_THREADS)
        check_choice("inference", self.inference, settings.INFERENCE)
        check_choice("edges", self.edges, EDGES)
        if self.what is not None:
            check_choice("what", self.what, ANSWERS)
        if self.top is not None:
            check_range("top", self.top, 1, _MAX_TOP)
            if self.pairs is not None:
                raise ConfigError("pairs, top: score given pairs, or list partners; leave one out")
        elif self.candidates != "all":
            raise ConfigError("candidates: are those of top=K, which is not given")
        if self.pairs is not None and self.vertices != "all":
            raise ConfigError("vertices: pairs has its own; leave one of them out")
        if self.edges != "all" and (self.compares or self.vertices != "all"):
            raise ConfigError("edges: cannot be given with vertices, pairs or top; leave one out")

    @property
    def compares(self) -> bool:
        """Whether pairs of vertices are scored."""
        return self.pairs is not None or self.top is not None

    def answers(self, signature: InputSchema, *, links: bool = False) -> tuple[str, ...]:
        """Return what is made of each row: of ``ANSWERS``, or rows as they are."""
        if self.layer != -1 or links:
            return (EMBEDDINGS,)
        if signature.regression:
            return (VALUES,)
        if self.what is not None:
            return (self.what,)
        both = self.out.suffix == ".parquet"
        return ("classes", "probabilities") if both else ("probabilities",)


def predict(config: PredictConfig) -> Path:
    """Write predictions of a run's best weights for vertices, and return the file.

    Rows are written as they are computed, so that memory grows neither with the number of vertices
    nor with that of classes. The file is there whole, or as it was before.

    Raises:
        ConfigError: the directory holds no run, or an option does not fit the model or the graph.
        GraphError: the run's graph store is not usable, or the disk has no room.
        OSError: the file cannot be written.
    """
    check_file(config.out, force=config.force)
    own_graph = config.graph is None
    run = load_run(config.run, config.given, own_graph=own_graph)
    run = replace(
        run,
        num_threads=config.num_threads,
        runtime=replace(run.runtime, inference=config.inference),
    )
    torch.set_num_threads(config.num_threads)
    graph, trained = _opened(config, run)
    model, signature = trained.model, trained.signature
    if isinstance(model, EdgeGNN) and config.layer == -1:
        if config.vertices == "all":
            _predict_edges(config, run, graph, trained)
            return config.out
        if isinstance(config.vertices, str) and config.vertices in EDGES:
            raise ConfigError(
                f"vertices={config.vertices}: the run predicts labels of edges; edges="
                f"{config.vertices} names those"
            )
    if config.edges != "all":
        raise ConfigError(f"edges={config.edges}: the run does not predict labels of edges")
    if config.compares:
        _compare(config, run, graph, trained)
        return config.out
    num_layers = check_layer(
        config.layer, num_layers_of(model), inference=config.inference, what=config.what
    )
    check_labels(config.what, signature)
    own = read_ids(graph)
    vertices = find_vertices(config.vertices, graph, own)
    layout = Layout(
        num_rows=graph.num_vertices if vertices is None else len(vertices),
        width=width_of(model, signature, num_layers),
        answers=config.answers(signature, links=run.task.compares_rows),
        multilabel=signature.multilabel,
        ids=RowIds(vertices=vertices, own=own),
        classes=signature.classes,
    )
    check_ids(config.out, layout)
    disk = layout.num_rows * row_bytes(config.out, layout)
    check_space(f"out={shown(config.out)}", config.out.parent, disk=disk)
    predictor = Predictor(model, graph, run, num_layers=num_layers)
    predictor.prepare(vertices)
    with open_table(config.out, layout) as table:
        for rows in predictor.rows(vertices):
            table.write(rows)
    return config.out


def _predict_edges(
    config: PredictConfig, run: settings.RunConfig, graph: Graph, trained: TrainedModel
) -> None:
    """Write what is predicted of edges."""
    model, signature, own = trained.model, trained.signature, read_ids(graph)
    assert isinstance(model, EdgeGNN)
    if config.top is not None:
        raise ConfigError("top: the run predicts labels of edges; partners are those of task=links")
    check_labels(config.what, signature)
    ends, rows = find_edges(config.edges, config.pairs, graph, own, signature)
    layout = Layout(
        num_rows=len(ends),
        width=signature.num_classes,
        answers=config.answers(signature),
        multilabel=False,
        ids=EdgeIds(vertices=ends, own=own),
        classes=signature.classes,
    )
    check_ids(config.out, layout)
    disk = layout.num_rows * row_bytes(config.out, layout)
    check_space(f"out={shown(config.out)}", config.out.parent, disk=disk)
    predictor = EdgePredictor(model, Predictor(model, graph, run))
    with open_table(config.out, layout) as table:
        for outputs in predictor.outputs(ends, rows, graph.edge_features):
            table.write(outputs)


def find_edges(
    part: str, pairs: Any, graph: Graph, own: Any, signature: InputSchema
) -> tuple[IntArray, IntArray]:
    """Return ends ``[n, 2]`` of the edges that are meant, and rows ``[n]`` of their features.

    Args:
        part: ``all``, or a part of the split of the edges.
        pairs: ids of ends in place of the graph's edges, as ``find_pairs`` takes them, or None.

    Raises:
        ConfigError: the graph has no such edges, or pairs are given and edges have features.
        GraphError: a file of pairs is not usable.
    """
    if pairs is not None:
        if signature.num_edge_features:
            raise ConfigError(
                "pairs: the model reads features of edges, which pairs have not; name a graph "
                "with these edges by dataset=..."
            )
        found = find_pairs(pairs, graph, own)
        return found, np.arange(len(found))
    ends = graph.edges.ends
    if ends is None:
        raise ConfigError(
            f"edges: {graph.name} keeps no list of its edges, as they have neither features nor "
            "labels; name them by pairs=FILE"
        )
    rows = np.arange(len(ends))
    if part != "all":
        labels = graph.edge_labels
        rows = rows[:0] if labels is None else getattr(labels.split, f"{part}_idx")
    if not len(rows):
        raise ConfigError(f"edges={part}: {graph.name} has no such edge")
    return np.asarray(ends[rows]), rows


def _compare(
    config: PredictConfig, run: settings.RunConfig, graph: Graph, trained: TrainedModel
) -> None:
    """Write scores of pairs, or the best partners of vertices."""
    own, model = read_ids(graph), trained.model
    if config.layer != -1 or config.what is not None:
        raise ConfigError("layer, what: edges have scores alone; leave both out")
    if not isinstance(model, LinkGNN):
        option = "pairs" if config.top is None else "top"
        raise ConfigError(f"{option}: the run predicts vertices; edges are those of task=links")
    scorer = PairScorer(model, Predictor(model, graph, run), graph)
    if config.top is None:
        pairs = find_pairs(config.pairs, graph, own)
        write_scores(config.out, pairs, scorer.scores(pairs), own)
        return
    vertices = find_vertices(config.vertices, graph, own)
    if vertices is None:
        vertices = np.arange(graph.num_vertices, dtype=graph.indices.dtype)
    candidates = find_candidates(config.candidates, graph, own, vertices, config.top)
    found = scorer.partners(vertices, candidates, config.top)
    write_partners(config.out, vertices, found, config.top, own)


def find_candidates(
    given: Any, graph: Graph, own: Any, vertices: IntArray, top: int, *, option: str = "top"
) -> IntArray | None:
    """Return the vertices that may be partners, ascending; None for all.

    Args:
        given: as in ``find_vertices``.
        own: likewise.
        vertices: ``[n]``, whose partners are asked for. One that is itself a candidate has one
            fewer.
        top: how many partners each has to have.
        option: names ``top`` in errors.

    Raises:
        ConfigError: as ``find_vertices``; or one of ``vertices`` has fewer candidates.
        GraphError: as ``find_vertices``.
    """
    found = find_vertices(given, graph, own, option="candidates")
    count = graph.num_vertices if found is None else len(found)
    among = found is None or bool(np.isin(vertices, found).any())
    if top > count - among:
        fewer = ", as a vertex that is one of them is not its own partner" if among else ""
        raise ConfigError(
            f"{option}={top}: there are {count} candidates, allowed is up to {count - among}{fewer}"
        )
    return None if found is None else np.sort(found)


def _opened(config: PredictConfig, run: settings.RunConfig) -> tuple[Graph, TrainedModel]:
    """Return the graph to predict on, and the model.

    Raises:
        ConfigError: features of another graph are not those of the run.
        GraphError: the graph is not usable.
    """
    if config.graph is None:
        graph = open_run_task(run, config.run).graph
        return graph, load_trained(config.run, run, graph)
    trained = load_trained(config.run, run)
    signature = trained.signature
    check_predicts_others(run, signature)
    parts = (config.vertices, config.candidates, config.edges)
    splits = any(isinstance(each, str) and each in EDGES[1:] for each in parts)
    columns, of_edges = signature.columns, signature.edge_columns
    other = config.graph.to_predict(columns, of_edges, splits=splits)
    return open_other(run, trained, other.open()), trained
