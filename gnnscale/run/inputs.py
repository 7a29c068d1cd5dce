"""Rows in place of a graph's features, which a run learns or makes of the structure."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from gnnscale.core import Array, ConfigError, Float32Array, find_memory
from gnnscale.core.artifact.files import size
from gnnscale.features import FeatureStoreConfig, LearnedFeaturesConfig, StructuralFeaturesConfig
from gnnscale.graph import Graph
from gnnscale.graph.dtypes import MAX_QUANTIZED
from gnnscale.partition import Parts
from gnnscale.planner import Cuda
from gnnscale.planner.device_plan import apportion
from gnnscale.run.config import BatchConfig, RunConfig
from gnnscale.sampling import SeedOrder, TwoStageOrder, seed_order

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


def check_feature_dtype(config: RunConfig, dtype: str) -> None:
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
    if isinstance(features, StructuralFeaturesConfig):
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


log = logging.getLogger(__name__)


def graph_read(config: RunConfig, graph: Graph) -> Graph:
    """Return ``graph`` as the model of a run reads it: perhaps without features of edges.

    Raises:
        ConfigError: the model is to read features of edges, which are missing; or a device or an
            option does not go with them.
    """
    model = config.model
    if model.edge_features and not graph.num_edge_features:
        raise ConfigError(
            f"model.edge_features=true: edges of {graph.path or graph.name} have no features"
        )
    read = model.graph_read(graph)
    if read.edge_rows is not None:
        _check(config)
    elif config.task.reads_edge_features and model.edge_features is not False:
        # Layers sample no rows; what predicts an edge reads its own.
        return replace(graph, edges=replace(graph.edges, rows=None))
    return read


def _check(config: RunConfig) -> None:
    """Refuse what does not go with features of edges."""
    reads = f"model: {config.model.name} reads features of edges"
    otherwise = "model.edge_features=false leaves them out"
    for device in config.device_plan.parsed():
        if not device.takes_edge_features:
            raise ConfigError(
                f"{reads}, and {device.label} computes layers without; devices of kind cpu and "
                f"emulated can take part, and {otherwise}"
            )
    if config.features.preaggregates:
        raise ConfigError(
            f"{reads}, so that its first layer cannot be aggregated before training; "
            f"features=host loads rows as they are, and {otherwise}"
        )


def describe_use(config: RunConfig, graph: Graph) -> str | None:
    """Return a line on what a run does with the features of the edges of ``graph``.

    None if edges have no features, or the options say that they are left out.
    """
    model, count = config.model, graph.num_edge_features
    if not count or model.edge_features is False:
        return None
    if model.edge_width(count):
        return f"{graph.name}: {model.name} reads {count} features of each edge"
    if config.task.reads_edge_features:
        return (
            f"{graph.name}: {count} features of each edge are read where its label is predicted, "
            f"and not by layers of {model.name}; those of model=gat, gatv2 and gin read them too"
        )
    return (
        f"{graph.name}: {model.name} does not read the {count} features of each edge; layers of "
        "model=gat, gatv2 and gin do, and modules of your own that take them (docs/your-model.md)"
    )


def checked_order(config: BatchConfig, seeds: Array, parts: Parts | None) -> SeedOrder:
    """Return the order of the run; its first epoch is looked at before any device starts.

    A permutation trains every seed once by construction, and is not looked at: that takes a
    quarter of a millisecond a step of a large graph.

    Args:
        seeds: ``[n]`` what is trained once an epoch: vertices, or numbers of edges.
        parts: the devices' parts of it; None if it is whole.

    Raises:
        ConfigError: the order does not train every seed once an epoch; or ``drop_last`` leaves no
            mini-batch.
    """
    num_devices = len(config.device_plan.parsed())
    order: SeedOrder
    if parts is not None and parts.owner is not None:
        order = TwoStageOrder(
            parts.train_vertices(seeds),
            batch_sizes=config.device_plan.split or apportion([1] * num_devices, config.batch_size),
            seed=config.seed,
        )
    else:
        order = config.seed_order.order(
            seeds, batch_size=config.batch_size, num_devices=num_devices, seed=config.seed
        )
    if type(order) is not seed_order.ShuffledOrder:
        order = seed_order.CheckedOrder(order, seeds, num_devices=num_devices)
        for _ in order.epoch(0):
            pass
    return _full_batches(order, len(seeds)) if config.drop_last else order


def _full_batches(order: SeedOrder, num_seeds: int) -> SeedOrder:
    """Return ``order`` without incomplete mini-batches, refused if no mini-batch is left."""
    full = seed_order.FullBatches(order)
    if not full.steps_per_epoch:
        raise ConfigError(
            f"drop_last=true: expected a full mini-batch in an epoch, got batch_size="
            f"{order.batch_size} for {num_seeds} training seeds; a smaller batch_size, or "
            "drop_last=false"
        )
    return full
