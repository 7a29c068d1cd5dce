"""Predictions of a finished run, for all vertices or some, in a file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale.config import check_choice, check_range
from gnnscale.dataset.storage.space import check_space
from gnnscale.errors import shown
from gnnscale.export.answers import ANSWERS, EMBEDDINGS, check_layer
from gnnscale.export.tables import Layout, check_file, open_table, row_bytes
from gnnscale.export.vertices import find_vertices
from gnnscale.plan import MAX_THREADS
from gnnscale.runtime.evaluation.evaluate import Predictor, load_best, load_run
from gnnscale.runtime.settings import INFERENCE

__all__ = ["PredictConfig", "predict"]


@dataclass(frozen=True, kw_only=True)
class PredictConfig:
    """Predictions of a finished or stopped run.

    Attributes:
        run: its directory.
        out: the file to write, ``.parquet`` or ``.npy``; beside the latter ``.ids.npy`` has the
            rows' ids, where these are not those of all vertices in order.
        num_threads: threads of the native code and of torch.
        vertices: ``all``, ``train``, ``valid`` or ``test``; a file ``.npy`` of ids; or ids.
        layer: whose rows are taken, counted from the end: -1 gives logits, -2 embeddings, the rows
            that the last layer sees.
        what: ``classes``, ``probabilities`` or ``logits``; None writes classes and probabilities
            to a ``.parquet`` file, and probabilities to a ``.npy`` file.
        inference: exact, over all neighbours, or sampled, over those that the run's sampler picks.
        force: overwrite ``out`` where it exists.
    """

    run: Path
    out: Path
    num_threads: int
    vertices: Any = "all"
    layer: int = -1
    what: str | None = None
    inference: str = "exact"
    force: bool = False

    def __post_init__(self) -> None:
        check_range("num_threads", self.num_threads, 1, MAX_THREADS)
        check_choice("inference", self.inference, INFERENCE)
        if self.what is not None:
            check_choice("what", self.what, ANSWERS)

    @property
    def answers(self) -> tuple[str, ...]:
        """What is made of each row: of ``ANSWERS``, or ``EMBEDDINGS``."""
        if self.layer != -1:
            return (EMBEDDINGS,)
        if self.what is not None:
            return (self.what,)
        both = self.out.suffix == ".parquet"
        return ("classes", "probabilities") if both else ("probabilities",)


@dataclass(frozen=True, kw_only=True)
class _Numbers:
    """Vertices by their numbers in the graph, from 0 on."""

    vertices: NDArray[np.integer[Any]] | None

    def slice(self, first: int, count: int) -> NDArray[np.int64]:
        """Return the ids of ``count`` rows from row ``first`` on."""
        if self.vertices is None:
            return np.arange(first, first + count)
        return self.vertices[first : first + count].astype(np.int64)


def predict(config: PredictConfig) -> Path:
    """Write what the best weights of a run say of vertices, and return the file.

    Rows are written as they are computed, so that memory grows neither with the number of vertices
    nor with that of classes. The file is there whole, or as it was before.

    Raises:
        ConfigError: the directory holds no run, or an option does not fit the model or the graph.
        GraphError: the run's graph store is not usable, or the disk has no room.
        OSError: the file cannot be written.
    """
    check_file(config.out, force=config.force)
    run = load_run(config.run)
    run = replace(
        run,
        num_threads=config.num_threads,
        runtime=replace(run.runtime, inference=config.inference),
    )
    torch.set_num_threads(config.num_threads)
    graph, model, _ = load_best(config.run, run)
    num_layers = check_layer(
        config.layer, len(model.layers), inference=config.inference, what=config.what
    )
    vertices = find_vertices(config.vertices, graph)
    layout = Layout(
        num_rows=graph.num_vertices if vertices is None else len(vertices),
        width=model.widths[len(model.layers) if num_layers is None else num_layers],
        answers=config.answers,
        multilabel=graph.multilabel,
        ids=_Numbers(vertices=vertices),
    )
    folder = config.out.parent
    check_space(f"out={shown(config.out)}", folder, disk=layout.num_rows * row_bytes(layout))
    predictor = Predictor(model, graph, run, num_layers=num_layers)
    predictor.prepare(vertices)
    with open_table(config.out, layout, with_ids=vertices is not None) as table:
        for rows in predictor.rows(vertices):
            table.write(rows)
    return config.out
