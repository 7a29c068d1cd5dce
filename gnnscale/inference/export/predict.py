"""Prediction of a finished run for vertices, edges or pairs, written to a file."""

import logging
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnscale.core import ConfigError, Float32Array, IntArray, check_choice, check_range
from gnnscale.core.config.untrusted import names
from gnnscale.data import GraphSource
from gnnscale.data.tables.categories import UNSEEN_POLICIES
from gnnscale.data.tables.selection import select_vertices
from gnnscale.data.tables.vertex_ids import read_ids
from gnnscale.graph import Graph
from gnnscale.inference import load_run, trained_model
from gnnscale.inference.export import outputs, writers
from gnnscale.inference.export.link_ends import LinkEnds, find_candidates, find_known
from gnnscale.inference.export.task_rows import PARTS as EDGES
from gnnscale.inference.export.task_rows import find_rows
from gnnscale.inference.known_edges import KNOWN
from gnnscale.inference.predictor import PairScorer, Predictor
from gnnscale.inference.timed_edges import edge_outputs, refuse_pairs
from gnnscale.nn.link_decoder import EdgeModel, LinkModel
from gnnscale.planner import MAX_THREADS
from gnnscale.run import INFERENCE, EvaluationOptions, SavedRunOptions
from gnnscale.run.checkpoint.input_schema import InputSchema
from gnnscale.run.tasks import TaskConfig
from gnnscale.run.tasks.base import Task

_LOG = logging.getLogger(__name__)

#: Maximum number of partners of a vertex.
_MAX_TOP = 1 << 16


@dataclass(frozen=True, kw_only=True)
class PredictConfig(SavedRunOptions):
    """Options of ``gnnscale predict``, which predicts with a finished or stopped run.

    Attributes:
        out: file to write, ``.parquet`` or ``.npy``. Next to a ``.npy`` file, ``.ids.npy`` has the
            ids of the rows unless the rows are all vertices in order.
        num_threads: threads of the native code and of torch.
        vertices: vertices to predict: ``all``, ``train``, ``valid`` or ``test``; a file of ids,
            ``.npy``, or a ``.csv`` or ``.parquet`` table with a column ``id``; or a list of ids. In
            a graph with types they are of the type that was trained; the name of another type
            selects all of that, ``{item: [1, 2]}`` some of it.
        edges: edges to predict, for runs that predict edge labels: ``all``, ``train``, ``valid`` or
            ``test``. The output has columns ``source`` and ``target``.
        pairs: pairs to score, for runs of link prediction: a file, ``.npy`` of ids ``[n, 2]``, or a
            ``.csv`` or ``.parquet`` table with columns ``source`` and ``target``; or a list of
            pairs. Runs that predict edge labels take pairs unless edges have features. In a graph
            with types, ids are those of the source and the destination type.
        top: number of best partners of each of ``vertices``, for runs of link prediction. In a
            graph with types, ``vertices`` are of the source type of the predicted edges.
        rows: rows to predict, for runs that were trained on task rows: a ``.csv`` or ``.parquet``
            table with columns ``id`` and ``cutoff``, a date or an integer in the graph's unit of
            time; or a pair of ids and cut-offs. None: the graph's own rows, of which ``vertices``
            may name a part. The output has both columns too.
        candidates: possible partners for ``top``, in the form of ``vertices``. None: the candidates
            that the run was trained with, if they are of one kind, else all vertices; in a graph
            with types, all of the destination type.
        known: whether ``top`` lists a vertex's neighbors by an edge of the graph, held-out edges
            too: ``include`` or ``exclude``.
        layer: layer whose rows are written, counted from the end: -1 gives logits, -2 embeddings,
            the inputs of the last layer.
        what: ``classes``, ``probabilities`` or ``logits``. None: classes and probabilities in a
            ``.parquet`` file, probabilities in a ``.npy`` file. If labels are values, the output is
            the predicted values, and ``what`` must be None.
        threshold: probability from which on a class is predicted, for two classes or multilabel;
            None: the threshold that the run has chosen on its validation set, or 0.5.
        inference: ``exact``, over all neighbors, or ``sampled``, with the run's sampler.
        unseen: one of ``UNSEEN_POLICIES`` for categories of another graph that training lacked:
            ``refuse`` raises an error, ``empty`` reads them as empty cells.
        force: overwrite ``out``.
        graph: graph to predict; None: the run's training graph.
        graph_options: options of ``graph`` that the user names; others of a table are the run's.
    """

    out: Path
    num_threads: int
    graph: GraphSource | None = None
    graph_options: tuple[str, ...] = field(default=(), metadata=names("text"))
    vertices: Any = field(
        default="all", metadata=names("place", keywords=("all", "train", "valid", "test"))
    )
    edges: str = "all"
    pairs: Any | None = field(default=None, metadata=names("place"))
    top: int | None = None
    rows: Any | None = field(default=None, metadata=names("place"))
    candidates: Any | None = field(
        default=None, metadata=names("place", keywords=("all", "train", "valid", "test"))
    )
    known: str = "include"
    layer: int = -1
    what: str | None = None
    threshold: float | None = None
    inference: str = "exact"
    unseen: str = "refuse"
    force: bool = False

    def __post_init__(self) -> None:
        check_range("num_threads", self.num_threads, 1, MAX_THREADS)
        check_choice("inference", self.inference, INFERENCE)
        check_choice("edges", self.edges, EDGES)
        check_choice("unseen", self.unseen, UNSEEN_POLICIES)
        check_choice("known", self.known, KNOWN)
        if self.what is not None:
            check_choice("what", self.what, outputs.ANSWERS)
        if self.top is not None:
            check_range("top", self.top, 1, _MAX_TOP)
            if self.pairs is not None:
                raise ConfigError("pairs, top: expected one of them, got both")
        elif self.candidates is not None:
            raise ConfigError("candidates: expected top=K with candidates, got top=null")
        elif self.known != "include":
            raise ConfigError(f"known={self.known}: expected top=K with it, got top=null")
        if self.pairs is not None and self.vertices != "all":
            raise ConfigError("vertices: expected all with pairs, which name their vertices")
        if self.edges != "all" and (self.compares or self.vertices != "all"):
            raise ConfigError("edges: expected all with vertices, pairs or top")

    @property
    def compares(self) -> bool:
        """Whether pairs of vertices are scored: those in ``pairs``, or candidates for ``top``."""
        return self.pairs is not None or self.top is not None

    def answers(self, signature: InputSchema, *, links: bool = False) -> tuple[str, ...]:
        """Return the names of the outputs per row, for a model with the labels in ``signature``.

        ``links``: a decoder compares the output rows, so that they are embeddings.
        """
        if self.layer != -1 or links:
            return (outputs.EMBEDDINGS,)
        if signature.regression:
            return (outputs.VALUES,)
        if self.what is not None:
            return (self.what,)
        both = self.out.suffix == ".parquet"
        return ("classes", "probabilities") if both else ("probabilities",)


@dataclass(frozen=True, kw_only=True)
class _OpenedRun:
    """Run that predicts, with the graph to predict."""

    config: PredictConfig
    options: EvaluationOptions  #: options of inference
    trained: trained_model.TrainedModel
    graph: Graph
    task: Task | None  #: the run's task; None: ``graph`` is another graph
    task_options: TaskConfig  #: options of the run's task
    candidates: IntArray | None  #: the run's own candidates for ``top``; None: all vertices

    @property
    def ends(self) -> LinkEnds:
        """Vertices at both ends of predicted edges."""
        return LinkEnds(self.graph, self.task_options.edge_type_in(self.graph))

    def predictor(self, num_layers: int | None = None) -> Predictor:
        """Return the predictor of rows of the first ``num_layers``; None: of all layers."""
        return Predictor(self.trained.model, self.graph, self.options, num_layers=num_layers)

    def write(
        self, ids: outputs.RowIds, num_rows: int, width: int, chunks: Iterable[Float32Array]
    ) -> None:
        """Check the disk, and write the outputs of ``chunks`` of rows ``[n, width]``."""
        config, schema = self.config, self.trained.signature
        # A decoder compares the model's rows, which are embeddings.
        links = self.task_options.compares_rows and not isinstance(ids, outputs.EdgeIds)
        answers = config.answers(schema, links=links)
        layout = writers.Layout(
            num_rows=num_rows,
            width=width,
            answers=answers,
            thresholds=self.trained.thresholds(self.options.threshold, config.threshold, answers),
            multilabel=schema.multilabel,
            ids=ids,
            classes=schema.classes,
        )
        writers.check_room(config.out, layout)
        writers.write_outputs(config.out, layout, chunks)


def predict(config: PredictConfig) -> Path:
    """Write predictions with a run's best weights, atomically, and return the file.

    Rows are written as they are computed: memory grows neither with vertices nor with classes.

    Raises:
        ConfigError: the directory has no run, or an option does not fit the model or the graph.
        GraphError: the run's graph store is missing or damaged, or the disk is full.
        OSError: the file cannot be written.
    """
    writers.check_file(config.out, force=config.force)
    run = _open(config)
    if isinstance(run.trained.model, EdgeModel) and config.layer == -1:
        if config.vertices == "all":
            _predict_edges(run, run.trained.model)
            return config.out
        if isinstance(config.vertices, str) and config.vertices in EDGES:
            raise ConfigError(
                f"vertices={config.vertices}: expected all for a run that predicts edge labels; "
                f"use edges={config.vertices}"
            )
    if config.edges != "all":
        raise ConfigError(
            f"edges={config.edges}: expected all for a run that predicts no edge labels"
        )
    if run.trained.signature.predicts_rows:
        _predict_rows(run)
        return config.out
    if config.rows is not None:
        raise ConfigError("rows: expected null for a run that was trained without task rows")
    (_compare if config.compares else _predict_vertices)(run)
    return config.out


def _open(config: PredictConfig) -> _OpenedRun:
    """Open the run, and the graph that ``config`` names: the run's own, or another one."""
    run = load_run.load_run(config.run, config.overrides, own_graph=config.graph is None)
    run = load_run.with_inference(run, config.inference, config.num_threads)
    torch.set_num_threads(config.num_threads)
    task = None
    if config.graph is None:
        task, trained = trained_model.open_trained(config.run, run)
        graph = task.graph
    else:
        trained = trained_model.load_trained(config.run, run)
        schema = trained.signature
        trained_model.check_predicts_others(run, schema)
        parts = (config.vertices, config.candidates, config.edges)
        splits = any(isinstance(part, str) and part in EDGES[1:] for part in parts)
        source = config.graph.with_options(run.dataset, config.graph_options)
        # Only the feature columns that the model reads are converted.
        source = source.to_predict(schema.trained_columns, splits=splits)
        graph = trained_model.open_other(run, trained, source.open(), unseen=config.unseen)
    takes_own = config.top is not None and config.candidates is None and task is not None
    candidates = load_run.run_candidates(run, config.run, graph) if takes_own else None
    return _OpenedRun(
        config=config,
        options=run.evaluation_options,
        trained=trained,
        graph=graph,
        task=task,
        task_options=run.task,
        candidates=candidates,
    )


def _predict_vertices(run: _OpenedRun) -> None:
    """Check options and disk, and write the outputs of the selected vertices."""
    config, graph, model = run.config, run.graph, run.trained.model
    num_layers = outputs.check_layer(
        config.layer, outputs.num_layers_of(model), inference=config.inference, what=config.what
    )
    selected = select_vertices(
        config.vertices, graph, read_ids(graph), run.trained.signature.target
    )
    trained = run.trained
    if num_layers is None:
        trained = trained.of_target(selected.vertex_type)
        run = replace(run, trained=trained)
    outputs.check_labels(config.what, trained.signature)
    vertices = selected.vertices_of(graph)
    predictor = run.predictor(num_layers)
    predictor.prepare(vertices)
    width = outputs.width_of(model, trained.signature, num_layers)
    run.write(
        outputs.RowIds(vertices=selected.rows, user_ids=selected.ids),
        graph.num_vertices if vertices is None else len(vertices),
        width,
        (rows[:, :width] for rows in predictor.rows(vertices)),
    )


def _predict_rows(run: _OpenedRun) -> None:
    """Check options and disk, and write the outputs of task rows."""
    config, graph, schema = run.config, run.graph, run.trained.signature
    if config.compares or config.layer != -1:
        raise ConfigError(
            "pairs, top, layer: expected none of them for a run of task rows, which gives outputs "
            "as of cut-offs"
        )
    outputs.check_labels(config.what, schema)
    rows = find_rows(config.rows, config.vertices, graph, schema.target)
    predicted = run.predictor().of_rows().outputs(rows.vertices, rows.cutoffs)
    run.write(rows.ids, len(rows.vertices), schema.num_classes, [predicted])


def _predict_edges(run: _OpenedRun, model: EdgeModel) -> None:
    """Check options and disk, and write predicted labels of edges or pairs."""
    config, graph, schema = run.config, run.graph, run.trained.signature
    if config.top is not None:
        raise ConfigError("top: expected a run of task=links, got a run that predicts edge labels")
    outputs.check_labels(config.what, schema)
    ends = run.ends
    edges, rows = find_edges(config.edges, config.pairs, ends, schema)
    chunks = edge_outputs(model, run.predictor(), graph, (edges, rows))
    ids = outputs.EdgeIds(vertices=ends.numbers(edges), user_ids=ends.user_ids)
    run.write(ids, len(edges), schema.num_classes, chunks)


def find_edges(
    part: str, pairs: Any, link_ends: LinkEnds, signature: InputSchema
) -> tuple[IntArray, IntArray]:
    """Return ends ``[n, 2]`` of edges to predict, and rows ``[n]`` of their features.

    ``part``, ``all`` or a part of the edge split, selects edges of the graph. With ``pairs``, in a
    form of ``find_pairs``, pairs are predicted instead, with rows 0 to n - 1. ConfigError: the part
    has no edge, the graph lists no edges, or the model reads features that pairs lack. GraphError:
    a file of pairs is damaged.
    """
    graph = link_ends.graph
    if pairs is not None:
        refuse_pairs(graph, "pairs")
        if signature.num_edge_features:
            raise ConfigError(
                "pairs: the model reads features of edges, which pairs have not; name a graph "
                "with these edges by dataset=..."
            )
        pair_ends = link_ends.pairs(pairs)
        return pair_ends, np.arange(len(pair_ends))
    ends = graph.edges.ends
    if ends is None:
        raise ConfigError(
            f"edges: expected edges with features or labels, {graph.name} stores no list of its "
            "edges; use pairs=FILE"
        )
    rows = np.arange(len(ends))
    if part != "all":
        labels = graph.edge_labels
        rows = rows[:0] if labels is None else getattr(labels.split, f"{part}_idx")
    if not len(rows):
        raise ConfigError(f"edges={part}: expected an edge in this part of {graph.name}, got none")
    return np.asarray(ends[rows]), rows


def _compare(run: _OpenedRun) -> None:
    """Write scores of pairs, or with ``top`` the best partners of vertices."""
    config, graph, model = run.config, run.graph, run.trained.model
    if config.layer != -1 or config.what is not None:
        raise ConfigError("layer, what: expected neither with pairs or top, which give scores")
    if config.threshold is not None:
        raise ConfigError(f"threshold={config.threshold}: expected null with pairs or top")
    if not isinstance(model, LinkModel):
        option = "pairs" if config.top is None else "top"
        raise ConfigError(
            f"{option}: expected a run of task=links, got a run that predicts vertices"
        )
    scorer, ends = PairScorer(model, run.predictor(), graph), run.ends
    if config.top is None:
        pairs = ends.pairs(config.pairs)
        chunks = scorer.scores(pairs)
        writers.write_scores(config.out, ends.numbers(pairs), chunks, ends.user_ids)
        return
    vertices = ends.sources(config.vertices)
    candidates = find_candidates(
        config.candidates, ends, vertices, config.top, default=run.candidates
    )
    left_out = find_known(config.known, ends, vertices, run.task)
    partners = scorer.partners(vertices, candidates, config.top, left_out)
    best = check_partners(partners, "top", refuse=config.out.suffix == ".npy")
    chunks_of_ids = ((ends.numbers(ids, 1), scores) for ids, scores in best)
    sources = ends.numbers(vertices, 0)
    writers.write_partners(config.out, sources, chunks_of_ids, config.top, ends.user_ids)


def check_partners(
    chunks: Generator[tuple[IntArray, Float32Array]], option: str, *, refuse: bool
) -> Iterator[tuple[IntArray, Float32Array]]:
    """Yield chunks of partners and scores ``[s, k]``, and count vertices with fewer partners.

    With ``refuse`` such a vertex is a ConfigError that names ``option``, otherwise their number is
    a warning.
    """
    num_few = num_vertices = k = 0
    with closing(chunks):  # its rows may be in a temporary file
        for partners, scores in chunks:
            k = scores.shape[1]
            counts = np.count_nonzero(scores > -np.inf, axis=1)
            few = counts < k
            num_few, num_vertices = num_few + np.count_nonzero(few), num_vertices + len(few)
            if refuse and few.any():
                raise ConfigError(
                    f"{option}={k}: expected {k} candidates or more without a known edge, a vertex "
                    f"has {counts.min()}; a smaller {option}, or gnnscale predict with "
                    "out=FILE.parquet, which lists fewer"
                )
            yield partners, scores
    if num_few:
        _LOG.warning(
            f"{option}={k}: {num_few:,} of {num_vertices:,} vertices have fewer candidates without "
            "a known edge, and so fewer rows"
        )
