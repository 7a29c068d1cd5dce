"""Options of the prediction task, configuration group ``task``; importable without torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gnnscale.core import MAX_SEED, ConfigError, brief, check_choice, check_range
from gnnscale.core.config.untrusted import names
from gnnscale.graph import Graph, SplitLabels
from gnnscale.nn.losses import LossConfig

if TYPE_CHECKING:
    from gnnscale.nn import ModelConfig, TrainableModel
    from gnnscale.run.tasks.base import Task


#: Decoders from the rows of two vertices to the score of an edge: dot product, or MLP.
DECODERS = ("dot", "mlp")
_MAX_NEGATIVES = 1 << 10
_MAX_CANDIDATES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class TaskConfig(ABC):
    """Base of the configuration group ``task``."""

    divides_edges: ClassVar[bool] = False  #: whether edges are split before a run
    #: Whether predictions are computed from the output rows of an edge's two ends.
    compares_rows: ClassVar[bool] = False
    #: Whether the decoder reads features of the predicted edge, even if layers read none.
    reads_edge_features: ClassVar[bool] = False

    def make(self, graph: Graph) -> Path | None:
        """Return None; a task that splits edges writes its split unless it exists.

        The overriding method returns the split's directory. ConfigError if the graph has too few
        edges, GraphError if the split cannot be written.
        """
        return None

    @abstractmethod
    def open(
        self, graph: Graph, split_path: Path | None, *, loss: LossConfig, metrics: Sequence[str]
    ) -> Task:
        """Return the task over the stored ``graph``.

        Args:
            split_path: directory that ``make`` returned.
            loss: the run's loss, for tasks without a loss of their own.
            metrics: names of the run's metrics; empty selects the metric of the labels.
        """

    @abstractmethod
    def build(
        self, model: ModelConfig, *, num_features: int, num_classes: int, num_edge_features: int = 0
    ) -> TrainableModel:
        """Build the model to train, with initial weights from torch's global generator."""

    def labels(self, graph: Graph) -> SplitLabels:
        """Return ``graph``, which has the vertex labels; a task on edge labels returns those."""
        return graph


@dataclass(frozen=True, kw_only=True)
class VertexPrediction(TaskConfig):
    """Prediction of vertex labels, by the graph's own split."""

    def open(
        self, graph: Graph, split_path: Path | None, *, loss: LossConfig, metrics: Sequence[str]
    ) -> Task:
        """Return the task by the graph's own split, after a trial of user-defined metrics.

        ``split_path`` is not read. ConfigError: a metric fails.
        """
        from gnnscale.run.tasks.base import VertexTask

        task = VertexTask(graph=graph, loss=loss, metrics=metrics)
        task.try_metrics()
        return task

    def build(
        self, model: ModelConfig, *, num_features: int, num_classes: int, num_edge_features: int = 0
    ) -> TrainableModel:
        """Build a model with ``num_classes`` outputs per vertex: classes or regression targets."""
        return model.build(
            num_features=num_features, num_classes=num_classes, num_edge_features=num_edge_features
        )


@dataclass(frozen=True, kw_only=True)
class EdgePrediction(TaskConfig):
    """Prediction of edge labels (classes or values), by the graph's own split of labeled edges.

    A mini-batch has ``batch_size`` edges. An MLP with one hidden layer computes the output from the
    rows of both ends, ``model.hidden`` features each, and the features of the edge.
    """

    compares_rows: ClassVar[bool] = True
    reads_edge_features: ClassVar[bool] = True

    def labels(self, graph: Graph) -> SplitLabels:
        """Return the labels of the edges, or raise ConfigError."""
        if graph.edge_labels is None:
            raise ConfigError(
                f"task=edges: edges of {graph.path or graph.name} have no labels; set "
                "dataset.edge_label to their column"
            )
        return graph.edge_labels

    def open(
        self, graph: Graph, split_path: Path | None, *, loss: LossConfig, metrics: Sequence[str]
    ) -> Task:
        """Return the task by the graph's own split, after a trial of user-defined metrics.

        ``split_path`` is not read. ConfigError: edges have no labels, or a metric fails.
        """
        from gnnscale.run.tasks.base import EdgeTask

        self.labels(graph)
        task = EdgeTask(graph=graph, loss=loss, metrics=metrics)
        task.try_metrics()
        return task

    def build(
        self, model: ModelConfig, *, num_features: int, num_classes: int, num_edge_features: int = 0
    ) -> TrainableModel:
        """Build a model with an MLP over the output rows of both ends, and the edge's features."""
        from gnnscale.run.tasks.base import build_model

        return build_model(
            model,
            num_features=num_features,
            num_edge_features=num_edge_features,
            num_outputs=num_classes,
        )


@dataclass(frozen=True, kw_only=True)
class LinkPrediction(TaskConfig):
    """Prediction of edges (link prediction) with held-out validation and test edges.

    Messages are sent along training edges, except the edges of the current mini-batch and their
    copies. A mini-batch has ``batch_size`` edges. A vertex's output row has ``model.hidden``
    features.

    Attributes:
        num_negatives: negative destinations per training edge, sampled in each step.
        decoder: decoder from two rows to a score, one of ``DECODERS``.
        valid_fraction: share of validation edges.
        test_fraction: share of test edges.
        split_seed: seed of the split.
        directed: split an edge and its reverse independently. The reverse of a held-out edge may
            then send messages, which reveals the edge. ``false`` keeps an edge, its reverse and its
            copies in one part.
        num_candidates: vertices against which an edge's destination is ranked in validation and
            test; they are fixed by the seed.
        candidates: file of the vertices that are negatives and candidates, ``.npy`` of ids or a
            table with a column ``id``; None: all vertices.
        candidate_column: column of that table with kinds of vertices; candidates of an edge then
            have its destination's kind. None: all candidates are of one kind.
        hits: k of Hits@k, the share of edges whose destination ranks among the first k.
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
                f"task.candidate_column={brief(self.candidate_column)}: expected task.candidates "
                "with it, the table that has this column"
            )
        held_out = self.valid_fraction, self.test_fraction
        if not (min(held_out) > 0 and sum(held_out) < 1):  # true for NaN
            raise ConfigError(
                f"task.valid_fraction={self.valid_fraction}, task.test_fraction="
                f"{self.test_fraction}: expected numbers above 0 with a sum below 1"
            )

    def make(self, graph: Graph) -> Path | None:
        """Write the edge split unless it exists; return its directory."""
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
        self, graph: Graph, split_path: Path | None, *, loss: LossConfig, metrics: Sequence[str]
    ) -> Task:
        """Return the task over the edge split in ``split_path``, with candidates from their file.

        ``loss`` and ``metrics`` are not used.
        """
        from gnnscale.run.tasks.edge_split import open_split
        from gnnscale.run.tasks.links import LinkTask, read_candidates, with_candidate_destinations

        assert split_path is not None
        split, candidates = open_split(split_path, graph), None
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
        self, model: ModelConfig, *, num_features: int, num_classes: int, num_edge_features: int = 0
    ) -> TrainableModel:
        """Build a GNN with output rows of ``model.hidden`` features, and a decoder of row pairs."""
        from gnnscale.run.tasks.links import build_model

        return build_model(
            model, self.decoder, num_features=num_features, num_edge_features=num_edge_features
        )
