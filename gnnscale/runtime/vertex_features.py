"""Rows in place of a graph's features, which a run learns or makes of the structure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnscale.artifact.files import size
from gnnscale.core import ConfigError, find_memory
from gnnscale.feature import FeatureStoreConfig
from gnnscale.feature.options import LearnedFeaturesConfig
from gnnscale.graph import Graph


def with_features(features: FeatureStoreConfig, graph: Graph, *, seed: int | None = None) -> Graph:
    """Return ``graph`` with the rows that models read.

    Rows that are learned are those that training begins with.

    Args:
        features: where a run reads features from.
        graph: as its store has it.
        seed: of the run, which the first learned rows are drawn by; None leaves them 0.

    Raises:
        GraphError: the graph has no features, and the options make none.
        ConfigError: learned rows and their state do not fit into memory.
    """
    if not features.replaces:
        graph.check_features()
        return graph
    assert isinstance(features, LearnedFeaturesConfig)
    _check_memory(features, graph)
    if seed is None:
        rows = np.zeros((graph.num_vertices, features.dim), np.float32)
    else:
        rows = features.draw(graph.num_vertices, seed=seed)
    origin = replace(graph.origin, own_features=False)
    return replace(graph, features=rows, feature_dtype="float32", origin=origin)


def _check_memory(features: LearnedFeaturesConfig, graph: Graph) -> None:
    """Refuse tables that memory does not hold: rows, and both moments of each element."""
    needed = 3 * 4 * graph.num_vertices * features.dim
    available = find_memory().available
    if needed > available:
        raise ConfigError(
            f"features.dim={features.dim}: rows of {graph.num_vertices:,} vertices and their "
            f"moments take {size(needed)} of memory, and {size(available)} are available; a lower "
            "dim takes less, and features=degrees next to nothing"
        )
