"""Group ``task``: what is predicted. Read without torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gnnscale.core import MAX_SEED, ConfigError, check_choice, check_range, shown
from gnnscale.core.config.untrusted import names
from gnnscale.graph import Graph, SplitLabels
from gnnscale.nn.losses import LossConfig

if TYPE_CHECKING:
    from gnnscale.nn import ModelConfig, TrainableModel
    from gnnscale.run.tasks.base import Task


#: From the rows of two vertices to the score of an edge: their dot product, or a small network.
DECODERS = ("dot", "mlp")
_MAX_NEGATIVES = 1 << 10
_MAX_CANDIDATES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class TaskConfig(ABC):
    """Base of the configuration group ``task``."""

    #: Whether edges are divided before a run.
    divides_edges: ClassVar[bool] = False
    #: Whether edges are predicted, by the rows of their ends.
    compares_rows: ClassVar[bool] = False
    #: Whether features of an edge are read to predict it, whatever layers read.
    reads_edge_features: ClassVar[bool] = False

    def make(self, graph: Graph) -> Path | None:
        """Make what the task needs of ``graph``, unless it is there; None if it needs nothing.

        Raises:
            ConfigError: the graph has nothing of what is to be predicted.
            GraphError: it cannot be written.
        """
        return None

    @abstractmethod
    def open(
        self, graph: Graph, made: Path | None, *, loss: LossConfig, metrics: Sequence[str]
    ) -> Task:
        """Open the task over ``graph``.

        Args:
            loss: what a run minimises, if the task has no loss of its own.
            metrics: what a run measures, if the task does not say; none for the graph's own.

        Raises:
            GraphError: that is damaged.
        """

    @abstractmethod
    def build(
        self,
        model: ModelConfig,
        *,
        num_features: int,
        num_classes: int,
        num_edge_features: int = 0,
    ) -> TrainableModel:
        """Build the model that the task trains; weights come from torch's global generator."""

    def labels(self, graph: Graph) -> SplitLabels:
        """Return the labels that are predicted, those of the vertices unless the task has others.

        Raises:
            ConfigError: the graph has no such labels.
        """
        return graph


@dataclass(frozen=True, kw_only=True)
class VertexPrediction(TaskConfig):
    """Labels of vertices are predicted, by the graph's own split."""

    def open(
        self, graph: Graph, made: Path | None, *, loss: LossConfig, metrics: Sequence[str]
    ) -> Task:
        """Return the task.

        Raises:
            ConfigError: a metric is not of the graph's labels, or the user's function fails on
                random outputs.
        """
        from gnnscale.run.tasks.base import VertexTask

        task = VertexTask(graph=graph, loss=loss, metrics=metrics)
        task.try_metrics()
        return task

    def build(
        self,
        model: ModelConfig,
        *,
        num_features: int,
        num_classes: int,
        num_edge_features: int = 0,
    ) -> TrainableModel:
        """Build a model with an output for each class."""
        return model.build(
            num_features=num_features, num_classes=num_classes, num_edge_features=num_edge_features
        )


@dataclass(frozen=True, kw_only=True)
class EdgePrediction(TaskConfig):
    """Labels of edges are predicted, classes or values, by the split that the graph has of edges.

    A mini-batch has ``batch_size`` edges. Outputs are those of a network with one hidden layer over
    the rows of both ends, ``model.hidden`` features each, and the features of the edge.
    """

    compares_rows: ClassVar[bool] = True
    reads_edge_features: ClassVar[bool] = True

    def labels(self, graph: Graph) -> SplitLabels:
        """Return the labels of the edges of ``graph``.

        Raises:
            ConfigError: edges have no labels.
        """
        if graph.edge_labels is None:
            raise ConfigError(
                f"task=edges: edges of {graph.path or graph.name} have no labels; "
                "dataset.edge_label names their column"
            )
        return graph.edge_labels

    def open(
        self, graph: Graph, made: Path | None, *, loss: LossConfig, metrics: Sequence[str]
    ) -> Task:
        """Return the task."""
        from gnnscale.run.tasks.edges import EdgeTask

        self.labels(graph)
        task = EdgeTask(graph=graph, loss=loss, metrics=metrics)
        task.try_metrics()
        return task

    def build(
        self,
        model: ModelConfig,
        *,
        num_features: int,
        num_classes: int,
        num_edge_features: int = 0,
    ) -> TrainableModel:
        """Build a model of rows of ``model.hidden`` features, and the network of edges."""
        from gnnscale.run.tasks.edges import build_model

        return build_model(
            model,
            num_features=num_features,
            num_edge_features=num_edge_features,
            num_outputs=num_classes,
        )


@dataclass(frozen=True, kw_only=True)
class LinkPrediction(TaskConfig):
    """Edges are predicted: which two vertices belong together.

    A part of the edges is held out for validation and test; messages are sent along the others. A
    mini-batch has ``batch_size`` edges, and along these no messages are sent in their step. A
    vertex's output row has ``model.hidden`` features.

    Attributes:
        num_negatives: vertices that an edge's destination is told apart from in training, drawn
            anew each step.
        decoder: one of ``DECODERS``.
        valid_fraction: share of the edges that are validated.
        test_fraction: share of the edges that are tested.
        split_seed: fixes which edges these are.
        directed: whether an edge and its reverse are two facts, divided independently. The reverse
            of a held-out edge may then send messages, which gives a mutual edge away. false keeps
            an edge, its reverse and its copies in one part.
        num_candidates: vertices among which an edge's destination is ranked in validation and
            test, the same each time.
        candidates: file of the vertices that are negatives and candidates, ``.npy`` of ids or a
            table with a column ``id``; None for all vertices.
        candidate_column: column of that table whose values are kinds of vertices, so that the
            candidates of an edge are of its destination's kind; None if all are of one kind.
        hits: k of Hits@k, the share of edges whose destination is among the first k.
    """

    divides_edges: ClassVar[bool] = True
    compares_rows: ClassVar[bool] = True

    num_negatives: int = 1
    decoder: str = "dot"
    valid_fraction: float = 0.05
    test_fraction: float = 0.1
    split_seed: int = 0
    directed: bool = False
    num_candidates: int = 100
    candidates: str | None = field(default=None, metadata=names("place"))
    candidate_column: str | None = field(default=None, metadata=names("text"))
    hits: int = 10

    def __post_init__(self) -> None:
        check_range("task.num_negatives", self.num_negatives, 1, _MAX_NEGATIVES)
        check_choice("task.decoder", self.decoder, DECODERS)
        check_range("task.split_seed", self.split_seed, 0, MAX_SEED)
        check_range("task.num_candidates", self.num_candidates, 1, _MAX_CANDIDATES)
        check_range("task.hits", self.hits, 1, _MAX_CANDIDATES)
        if self.candidate_column is not None and self.candidates is None:
            raise ConfigError(
                f"task.candidate_column={shown(self.candidate_column)}: expected task.candidates "
                "with it, the table that has this column"
            )
        held_out = self.valid_fraction, self.test_fraction
        # Written so that NaN is refused too.
        if not (min(held_out) > 0 and sum(held_out) < 1):
            raise ConfigError(
                f"task.valid_fraction={self.valid_fraction}, task.test_fraction="
                f"{self.test_fraction}: both must be above 0, their sum below 1"
            )

    def make(self, graph: Graph) -> Path | None:
        """Divide the edges of ``graph``, unless that is done already."""
        from gnnscale.run.tasks.edge_split import identify_split, make_split

        identity = identify_split(
            graph,
            valid_fraction=self.valid_fraction,
            test_fraction=self.test_fraction,
            seed=self.split_seed,
            directed=self.directed,
        )
        return make_split(graph, identity)

    def open(
        self, graph: Graph, made: Path | None, *, loss: LossConfig, metrics: Sequence[str]
    ) -> Task:
        """Open the divided edges."""
        from gnnscale.run.tasks.candidates import read_candidates, with_candidate_destinations
        from gnnscale.run.tasks.edge_split import open_split
        from gnnscale.run.tasks.links import LinkTask

        assert made is not None
        split, candidates = open_split(made, graph), None
        if self.candidates is not None:
            candidates = read_candidates(self.candidates, self.candidate_column, graph)
            split = with_candidate_destinations(split, candidates, self.candidates)
        return LinkTask(
            split=split,
            candidates=candidates,
            num_negatives=self.num_negatives,
            decoder=self.decoder,
            hits=self.hits,
            num_candidates=self.num_candidates,
            seed=self.split_seed,
        )

    def build(
        self,
        model: ModelConfig,
        *,
        num_features: int,
        num_classes: int,
        num_edge_features: int = 0,
    ) -> TrainableModel:
        """Build a model whose output rows have ``model.hidden`` features, and the decoder."""
        from gnnscale.run.tasks.links import build_model

        return build_model(
            model, self.decoder, num_features=num_features, num_edge_features=num_edge_features
        )
