"""Rows in place of a graph's features, which a run learns or makes of the structure."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from gnnscale.artifact.feature_types import MAX_QUANTIZED
from gnnscale.artifact.files import size
from gnnscale.core import ConfigError, Float32Array, find_memory
from gnnscale.feature import FeatureStoreConfig, LearnedFeaturesConfig, MadeFeaturesConfig
from gnnscale.graph import Graph
from gnnscale.plan import Cuda
from gnnscale.runtime.settings import TrainConfig

_LOG = logging.getLogger(__name__)
#: Tables in memory while rows are made.
_TABLES = 3


def check_features(features: FeatureStoreConfig, graph: Graph) -> None:
    """Refuse a graph without features unless the options make or learn rows.

    Raises:
        GraphError: models have no rows to read.
    """
    if not features.replaces:
        graph.check_features()


def with_features(
    features: FeatureStoreConfig, graph: Graph, *, num_threads: int, seed: int | None = None
) -> Graph:
    """Return ``graph`` with the rows that models read.

    Rows that are learned are those that training begins with.

    Args:
        features: what models read in place of features, if anything.
        graph: that models read: rows that follow from the structure are made of its edges.
        num_threads: threads that make rows, which do not depend on it.
        seed: of the run, which the first learned rows are drawn by; None leaves them 0.

    Raises:
        GraphError: the graph has no features, and the options make none; or it is damaged.
        ConfigError: the rows do not fit into memory.
    """
    check_features(features, graph)
    if not features.replaces:
        return graph
    rows = _rows(features, graph, num_threads=num_threads, seed=seed)
    if graph.num_features and graph.origin.own_features:
        own = f"{graph.num_features} features of {graph.name}"
        _LOG.info(f"features={features.name}: the {own} are not read")
    origin = replace(graph.origin, own_features=False)
    return replace(graph, features=rows, feature_dtype="float32", origin=origin)


def check_feature_dtype(config: TrainConfig, dtype: str) -> None:
    """Refuse a run that reads rows of the type ``dtype`` in a way that this type does not have.

    Raises:
        ConfigError: rows of int8 or int4 would be divided by columns, or read by a GPU.
    """
    if dtype not in MAX_QUANTIZED or config.features.replaces:
        return
    problem = None
    gpus = [each.label for each in config.device_plan.parsed() if isinstance(each, Cuda)]
    if config.partitioner.divides == "columns":
        problem = (
            f"partitioner={config.partitioner.algorithm} divides rows by columns, and theirs have "
            "one scale"
        )
    elif gpus:
        problem = f"{gpus[0]} has no kernels for them"
    if problem is not None:
        raise ConfigError(
            f"dataset: features are stored as {dtype}, and {problem}; "
            "dataset.feature_dtype=float16 goes with it"
        )


def check_copies(features: LearnedFeaturesConfig, num_vertices: int, *, num_processes: int) -> None:
    """Refuse learned rows if memory does not hold those of all processes of this machine.

    Raises:
        ConfigError: it does not.
    """
    _check_memory(features.dim, num_vertices, tables=features.tables, num_processes=num_processes)


def _rows(
    features: FeatureStoreConfig, graph: Graph, *, num_threads: int, seed: int | None
) -> Float32Array:
    if isinstance(features, MadeFeaturesConfig):
        _check_memory(features.width, graph.num_vertices, tables=_TABLES)
        return features.make(graph, num_threads=num_threads)
    assert isinstance(features, LearnedFeaturesConfig)
    _check_memory(features.dim, graph.num_vertices, tables=features.tables)
    if seed is None:
        return np.zeros((graph.num_vertices, features.dim), np.float32)
    return features.draw(graph.num_vertices, seed=seed)


def _check_memory(width: int, num_vertices: int, *, tables: int, num_processes: int = 1) -> None:
    """Refuse tables that memory does not hold."""
    needed = num_processes * tables * 4 * num_vertices * width
    available = find_memory().available
    if needed > available:
        copies = f" in {num_processes} processes" if num_processes > 1 else ""
        raise ConfigError(
            f"features.dim={width}: rows of {num_vertices:,} vertices{copies}, with what is kept "
            f"or made beside them, take {size(needed)} of memory, and {size(available)} are "
            "available; a lower dim takes less, and features=degrees next to nothing"
        )
