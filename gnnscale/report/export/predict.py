"""Predictions of a finished run, for all vertices or some, in a file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from gnnscale.core.errors import check_choice, check_range, shown
from gnnscale.dataset.storage.space import check_space
from gnnscale.dataset.tables.ids import read_classes, read_ids
from gnnscale.graph import Graph
from gnnscale.options.found import names
from gnnscale.plan import MAX_THREADS
from gnnscale.report.export.answers import (
    ANSWERS,
    EMBEDDINGS,
    VALUES,
    RowIds,
    check_labels,
    check_layer,
    num_layers_of,
    width_of,
)
from gnnscale.report.export.tables import Layout, check_file, check_ids, open_table, row_bytes
from gnnscale.report.export.vertices import find_vertices
from gnnscale.runtime.command_options import FoundRun
from gnnscale.runtime.evaluation.evaluate import load_best, load_run
from gnnscale.runtime.evaluation.predictor import Predictor
from gnnscale.runtime.settings import INFERENCE


@dataclass(frozen=True, kw_only=True)
class PredictConfig(FoundRun):
    """Predictions of a finished or stopped run.

    Attributes:
        out: the file to write, ``.parquet`` or ``.npy``; beside the latter ``.ids.npy`` has the
            rows' ids, if these are not those of all vertices in order.
        num_threads: threads of the native code and of torch.
        vertices: ``all``, ``train``, ``valid`` or ``test``; a file ``.npy`` of ids; or ids.
        layer: whose rows are taken, counted from the end: -1 gives logits, -2 embeddings, the rows
            that the last layer sees.
        what: ``classes``, ``probabilities`` or ``logits``; None writes classes and probabilities
            to a ``.parquet`` file, and probabilities to a ``.npy`` file. If labels are values to
            be met, these are written, and ``what`` is not given.
        inference: exact, over all neighbours, or sampled, over those that the run's sampler picks.
        force: overwrite ``out`` if it exists.
    """

    out: Path
    num_threads: int
    vertices: Any = field(
        default="all", metadata=names("place", known=("all", "train", "valid", "test"))
    )
    layer: int = -1
    what: str | None = None
    inference: str = "exact"
    force: bool = False

    def __post_init__(self) -> None:
        check_range("num_threads", self.num_threads, 1, MAX_THREADS)
        check_choice("inference", self.inference, INFERENCE)
        if self.what is not None:
            check_choice("what", self.what, ANSWERS)

    def answers(self, graph: Graph, *, links: bool) -> tuple[str, ...]:
        """Return what is made of each row: of ``ANSWERS``, or rows as they are."""
        if self.layer != -1 or links:
            return (EMBEDDINGS,)
        if graph.regression:
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
    run = load_run(config.run, config.given, command="predict")
    run = replace(
        run,
        num_threads=config.num_threads,
        runtime=replace(run.runtime, inference=config.inference),
    )
    torch.set_num_threads(config.num_threads)
    graph, model, _ = load_best(config.run, run)
    num_layers = check_layer(
        config.layer, num_layers_of(model), inference=config.inference, what=config.what
    )
    check_labels(config.what, graph)
    own = read_ids(graph)
    vertices = find_vertices(config.vertices, graph, own)
    layout = Layout(
        num_rows=graph.num_vertices if vertices is None else len(vertices),
        width=width_of(model, graph, num_layers),
        answers=config.answers(graph, links=run.task.divides_edges),
        multilabel=graph.multilabel,
        ids=RowIds(vertices=vertices, own=own),
        classes=read_classes(graph),
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
