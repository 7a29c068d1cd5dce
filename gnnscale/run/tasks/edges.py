"""Classification and regression of edges by the graph's edge labels and split."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gnnscale.core import BoolArray, IntArray
from gnnscale.graph import EdgeLabels
from gnnscale.nn import GNN, ModelConfig
from gnnscale.nn import base as trainable
from gnnscale.nn import link_decoder as links
from gnnscale.run.tasks.base import LabelTask
from gnnscale.sampling import SamplerConfig, SeedOrder
from gnnscale.sampling.edge_batches import EdgeSampling

_LOG = logging.getLogger(__name__)
#: Training edges whose pairs are compared at a time.
_GROUP_EDGES = 1 << 24


def build_model(
    model: ModelConfig, *, num_features: int, num_edge_features: int, num_outputs: int
) -> links.EdgeGNN:
    """Build a model with an MLP over the output rows of both ends and the features of an edge.

    Output rows have ``model.hidden`` features; ``num_outputs`` are classes or regression targets.
    """
    assert model.row_width is not None  # other models are refused before
    gnn = model.build(
        num_features=num_features, num_classes=model.row_width, num_edge_features=num_edge_features
    )
    assert isinstance(gnn, GNN)
    network = links.EdgeNetwork(gnn.widths[-1], num_edge_features, num_outputs)
    return links.EdgeGNN(gnn, network)


def count_shared_pairs(ends: IntArray, train: IntArray, parts: Sequence[IntArray]) -> list[int]:
    """Return how many edges of each of ``parts`` join the ends of a training edge.

    Memory is bounded: pairs are compared in groups of about 16 million training edges. ``ends`` are
    ``[num_edges, 2]`` sources and destinations; ``train`` and each part are indices of edges.
    """
    num_groups = -(-len(train) // _GROUP_EDGES)
    counts = [0] * len(parts)
    for group in range(num_groups):
        train_pairs = _pairs_of_group(ends, train, group, num_groups)
        for number, rows in enumerate(parts):
            pairs = _pairs_of_group(ends, rows, group, num_groups)
            unique, inverse = np.unique(
                np.concatenate([train_pairs, pairs]), axis=0, return_inverse=True
            )
            inverse = inverse.reshape(-1)
            trained = np.zeros(len(unique), np.bool_)
            trained[inverse[: len(train_pairs)]] = True
            counts[number] += int(np.count_nonzero(trained[inverse[len(train_pairs) :]]))
    return counts


def _pairs_of_group(ends: IntArray, rows: IntArray, group: int, num_groups: int) -> IntArray:
    """Return the unordered pairs ``[k, 2]`` of a group, among the ends of edges ``rows``."""
    pairs: IntArray = np.sort(np.asarray(ends[rows]), axis=1)
    in_group: BoolArray = pairs.sum(axis=1, dtype=np.int64) % num_groups == group
    return pairs[in_group]


@dataclass(frozen=True, kw_only=True)
class EdgeTask(LabelTask):
    """Prediction of edge labels."""

    labelled: ClassVar[str] = "edges"

    @property
    def labels(self) -> EdgeLabels:
        """Labels of the edges and their split."""
        assert self.graph.edge_labels is not None  # ``EdgePrediction.labels`` refuses others
        return self.graph.edge_labels

    def log_split(self) -> None:
        """Warn of validation and test edges between the ends of a training edge."""
        ends, split = self.graph.edges.ends, self.labels.split
        assert ends is not None
        parts = {"validation": split.valid_idx, "test": split.test_idx}
        counts = count_shared_pairs(ends, split.train_idx, [*parts.values()])
        shared = [
            f"{count:,} of {len(rows):,} {part} edges"
            for (part, rows), count in zip(parts.items(), counts, strict=True)
            if count
        ]
        if shared:
            _LOG.warning(
                f"task=edges: {' and '.join(shared)} of {self.graph.name} join two vertices that a "
                "training edge joins too, and may have its label; dataset.split=random keeps all "
                "edges of a pair in one part (a store of an earlier release: force=true), and so "
                "does gnnscale.data.random_edge_split"
            )

    @property
    def objective(self) -> trainable.Objective:
        """Function from outputs and their mini-batch to the mean loss of the edges' labels."""
        return trainable.edge_objective(self.labels, self.loss)

    def sampling(self, vertices: SamplerConfig, order: SeedOrder) -> SamplerConfig:
        """Return the sampler of labeled edges, around which ``vertices`` samples."""
        ends = self.graph.edges.ends
        assert ends is not None  # edges with labels have ends
        return EdgeSampling(vertices=vertices, ends=ends, features=self.graph.edge_features)

    def build(self, model: ModelConfig) -> GNN:
        """Build a model with an MLP over the rows of both ends."""
        return build_model(
            model,
            num_features=self.graph.num_features,
            num_edge_features=self.graph.num_edge_features,
            num_outputs=self.labels.num_classes,
        )
