"""Base of the options of prediction tasks, and inputs of a task; importable without torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gnnscale.core import ConfigError
from gnnscale.graph import Graph, InputTypes, SplitLabels

if TYPE_CHECKING:
    from gnnscale.data import GraphSource
    from gnnscale.features import FeatureStoreConfig
    from gnnscale.nn import ModelConfig, TrainableModel
    from gnnscale.nn.losses import LossConfig
    from gnnscale.planner import DevicePlanConfig
    from gnnscale.run.tasks.base import Task


@dataclass(frozen=True, kw_only=True)
class TaskConfig(ABC):
    """Base of the configuration group ``task``."""

    divides_edges: ClassVar[bool] = False  #: whether edges are split before a run
    #: Whether predictions are computed from the output rows of an edge's two ends.
    compares_rows: ClassVar[bool] = False

    @property
    def reads_edge_features(self) -> bool:
        """Whether the decoder reads features of the predicted edge, even if layers read none."""
        return False

    def make(self, graph: Graph) -> Path | None:
        """Return None; a task that splits edges writes its split unless it exists.

        The overriding method returns the split's directory. ConfigError if the graph has too few
        edges, GraphError if the split cannot be written.
        """
        return None

    @abstractmethod
    def open(self, graph: Graph, split_path: Path | None, inputs: TaskInputs) -> Task:
        """Return the task over the stored ``graph``; ``split_path`` is the result of ``make``."""

    def build(
        self,
        model: ModelConfig,
        *,
        num_features: int,
        num_classes: int,
        num_edge_features: int = 0,
        types: InputTypes | None = None,
    ) -> TrainableModel:
        """Build the model to train, with initial weights from torch's global generator.

        It has ``num_classes`` outputs per vertex, classes or regression targets. ``types`` are
        those of the graph; None: it has none. ``num_edge_features`` are those of labeled edges.
        """
        if types is not None:
            return model.build_for(types, num_classes=num_classes)
        return model.build(
            num_features=num_features, num_classes=num_classes, num_edge_features=num_edge_features
        )

    def build_for(self, graph: Graph, model: ModelConfig) -> TrainableModel:
        """Build the model to train on ``graph``."""
        built = self.build(
            model,
            num_features=graph.num_features,
            num_classes=self.labels(graph).num_classes,
            num_edge_features=graph.num_labeled_edge_features,
            types=graph.input_types,
        )
        if self.labels(graph) is graph.rows:
            model.add_time_encoders(built, graph.timed_types)
        return built

    def labels(self, graph: Graph) -> SplitLabels:
        """Return ``graph``, which has the vertex labels; a task on edge labels returns those."""
        return graph

    def labeled(self, graph: Graph) -> Graph:
        """Return ``graph`` with the labels that the task reads; here all."""
        return graph

    def with_cutoffs(self, graph: Graph, time: str | None) -> Graph:
        """Return ``graph``, with task rows if a rule ``sampler.time`` needs their cut-offs.

        ``time`` None: the rule follows from the graph. ConfigError, here for any rule: the task has
        no cut-offs.
        """
        if time not in (None, "none"):
            raise ConfigError(
                f"sampler.time={time}: expected none for a task without cut-offs, got "
                f"{type(self).__name__}; task=vertices, task=edges and task.split=time have some"
            )
        return graph

    def edge_type_in(self, graph: Graph) -> int:
        """Return the number, in the schema of ``graph``, of the edge type to be predicted.

        Here 0, for tasks that predict no edges.
        """
        return 0


@dataclass(frozen=True, kw_only=True)
class TaskInputs:
    """Options that decide the task of a run, and the data of the graph that its model reads."""

    task: TaskConfig
    dataset: GraphSource  #: source of the graph, whose raw tables the task may read
    model: ModelConfig
    features: FeatureStoreConfig
    loss: LossConfig  #: loss of tasks without a loss of their own
    metrics: Sequence[str]  #: metrics of validation; empty: that of the labels
    device_plan: DevicePlanConfig  #: devices, which must support what the model reads
    time: str | None  #: rule of ``sampler.time``. None: no rule, or the sampler has none
    #: chosen options of the sampler that a rule of time reads, as ``sampler.window=5``
    time_options: tuple[str, ...] = ()
    num_threads: int  #: threads that compute structural features
