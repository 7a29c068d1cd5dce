"""What a run is measured by: labels of vertices, or ranks of edges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnscale.core.metrics import score
from gnnscale.model import TrainableModel
from gnnscale.model.links import LinkGNN
from gnnscale.runtime.evaluation.links import LinkExaminer
from gnnscale.sampler.seed_order import labelled_vertices
from gnnscale.task.base import Task
from gnnscale.task.links.task import LinkTask

if TYPE_CHECKING:
    from gnnscale.runtime.evaluation.evaluate import Predictor


class Examiner(Protocol):
    """Measures a model, whose weights may change between calls, on parts of the split."""

    def prepare(self, splits: Sequence[str]) -> None:
        """Say what measuring ``splits`` at once takes, and refuse it if there is no room."""
        ...

    def measure(self, splits: Sequence[str]) -> list[dict[str, float | None]]:
        """Return the task's measures on each of ``splits``; None for one that is not defined."""
        ...


class VertexExaminer:
    """Measures predicted labels of vertices."""

    def __init__(self, task: Task, predictor: Predictor) -> None:
        """Measure what ``predictor`` predicts on the graph of ``task``."""
        self._predictor = predictor
        self._graph = task.graph
        self._measures = task.measures

    def prepare(self, splits: Sequence[str]) -> None:
        """Say what measuring ``splits`` at once takes.

        Raises:
            ConfigError: exact inference needs more of the disk than is free.
        """
        vertices = [labelled_vertices(self._graph, split) for split in splits]
        self._predictor.prepare(np.concatenate(vertices))

    def measure(self, splits: Sequence[str]) -> list[dict[str, float | None]]:
        """Return the run's metrics on each of ``splits``; None for one that is not defined."""
        vertices = [labelled_vertices(self._graph, split) for split in splits]
        rows = self._predictor.logits_of_each(vertices)
        return [
            self._scores(found, self._graph.labels[each])
            for found, each in zip(rows, vertices, strict=True)
        ]

    def _scores(self, rows: NDArray[np.float32], labels: NDArray[Any]) -> dict[str, float | None]:
        values = {name: score(name, rows, labels) for name in self._measures}
        return {name: value if math.isfinite(value) else None for name, value in values.items()}


def open_examiner(task: Task, model: TrainableModel, predictor: Predictor) -> Examiner:
    """Return what measures ``model`` at ``task``."""
    if isinstance(task, LinkTask):
        assert isinstance(model, LinkGNN)
        return LinkExaminer(task, model, predictor)
    return VertexExaminer(task, predictor)
