"""What a run is measured by: labels of vertices, or ranks of edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from gnnscale.graph import Graph
from gnnscale.model import GNN
from gnnscale.model.links import LinkGNN
from gnnscale.runtime.evaluation.links import LinkExaminer
from gnnscale.sampler.seed_order import labelled_vertices
from gnnscale.task.base import Task
from gnnscale.task.links.task import LinkTask

if TYPE_CHECKING:
    from gnnscale.runtime.evaluation.evaluate import Predictor

__all__ = ["Examiner", "VertexExaminer", "open_examiner"]


class Examiner(Protocol):
    """Measures a model, whose weights may change between calls, on parts of the split."""

    def prepare(self, split: str) -> None:
        """Say what measuring ``split`` takes, and refuse it where there is no room."""
        ...

    def measure(self, splits: Sequence[str]) -> list[float | None]:
        """Return the metric on each of ``splits``; None where it is not defined."""
        ...


class VertexExaminer:
    """Measures predicted labels of vertices."""

    def __init__(self, graph: Graph, predictor: Predictor) -> None:
        """Measure what ``predictor`` says of ``graph``."""
        self._predictor = predictor
        self._graph = graph

    def prepare(self, split: str) -> None:
        """Say what measuring ``split`` takes.

        Raises:
            ConfigError: exact inference needs more of the disk than is free.
        """
        self._predictor.prepare(labelled_vertices(self._graph, split))

    def measure(self, splits: Sequence[str]) -> list[float | None]:
        """Return the graph's metric on each of ``splits``."""
        return self._predictor.measure([labelled_vertices(self._graph, each) for each in splits])


def open_examiner(task: Task, model: GNN, predictor: Predictor) -> Examiner:
    """Return what measures ``model`` at ``task``."""
    if isinstance(task, LinkTask):
        assert isinstance(model, LinkGNN)
        return LinkExaminer(task, model, predictor)
    return VertexExaminer(task.graph, predictor)
