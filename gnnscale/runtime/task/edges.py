"""Classification and regression of edges, whose labels and split are the graph's."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gnnscale.core import Array
from gnnscale.graph import EdgeLabels, Graph
from gnnscale.model import GNN, ModelConfig, links, losses, options, trainable
from gnnscale.runtime.task.base import chosen_metrics
from gnnscale.sampler import SamplerConfig, SeedOrder, seed_order
from gnnscale.sampler.edges import EdgeSampling


def build_model(
    model: ModelConfig, *, num_features: int, num_edge_features: int, num_outputs: int
) -> links.EdgeGNN:
    """Build a model of rows of ``model.hidden`` features, and the network of edges."""
    assert isinstance(model, options.LayeredModel)
    gnn = model.build(
        num_features=num_features, num_classes=model.hidden, num_edge_features=num_edge_features
    )
    network = links.EdgeNetwork(gnn.widths[-1], num_edge_features, num_outputs)
    return links.EdgeGNN(gnn, network)


@dataclass(frozen=True, kw_only=True)
class EdgeTask:
    """Labels of edges are predicted."""

    graph: Graph  #: whose edges have labels
    loss: losses.LossConfig = field(default_factory=losses.AutoLoss)  #: what is minimised
    metrics: Sequence[str] = ()  #: what is measured; none for that of the labels

    @property
    def labels(self) -> EdgeLabels:
        """The labels and the split."""
        assert self.graph.edge_labels is not None  # ``EdgePrediction.labels`` refuses others
        return self.graph.edge_labels

    @property
    def seeds(self) -> Array:
        """The rows of the edges that are trained and have a label."""
        return seed_order.labelled_vertices(self.labels, "train", what="edges")

    @property
    def measures(self) -> tuple[str, ...]:
        """The metrics that were asked for, or that of the labels."""
        return chosen_metrics(self.metrics, self.labels)

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
