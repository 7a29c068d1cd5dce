"""Classification and regression of edges, whose labels and split are the graph's."""

from dataclasses import dataclass
from typing import ClassVar

from gnnscale.graph import EdgeLabels
from gnnscale.model import GNN, ModelConfig, links, trainable
from gnnscale.runtime.task.base import LabelTask
from gnnscale.sampler import SamplerConfig, SeedOrder
from gnnscale.sampler.edges import EdgeSampling


def build_model(
    model: ModelConfig, *, num_features: int, num_edge_features: int, num_outputs: int
) -> links.EdgeGNN:
    """Build a model of rows of ``model.hidden`` features, and the network of edges."""
    assert model.row_width is not None  # the settings refuse others
    gnn = model.build(
        num_features=num_features, num_classes=model.row_width, num_edge_features=num_edge_features
    )
    assert isinstance(gnn, GNN)
    network = links.EdgeNetwork(gnn.widths[-1], num_edge_features, num_outputs)
    return links.EdgeGNN(gnn, network)


@dataclass(frozen=True, kw_only=True)
class EdgeTask(LabelTask):
    """Labels of edges are predicted."""

    labelled: ClassVar[str] = "edges"

    @property
    def labels(self) -> EdgeLabels:
        """The labels of the edges, and their split."""
        assert self.graph.edge_labels is not None  # ``EdgePrediction.labels`` refuses others
        return self.graph.edge_labels

    @property
    def objective(self) -> trainable.Objective:
        """The loss of the edges' labels."""
        return trainable.edge_objective(self.labels, self.loss)

    def sampling(self, vertices: SamplerConfig, order: SeedOrder) -> SamplerConfig:
        """Return how mini-batches of edges are sampled."""
        ends = self.graph.edges.ends
        assert ends is not None  # as labels are there
        return EdgeSampling(vertices=vertices, ends=ends, features=self.graph.edge_features)

    def build(self, model: ModelConfig) -> GNN:
        """Build a model of rows of ``model.hidden`` features, and the network of edges."""
        return build_model(
            model,
            num_features=self.graph.num_features,
            num_edge_features=self.graph.num_edge_features,
            num_outputs=self.labels.num_classes,
        )
