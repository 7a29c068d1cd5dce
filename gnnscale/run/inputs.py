"""Inputs of a run: feature rows that the model reads, edge features, and the order of seeds."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnscale.core import Array, ConfigError, Float32Array, brief, read_memory
from gnnscale.core.artifact.files import size
from gnnscale.features import FeatureStoreConfig, LearnedFeaturesConfig, StructuralFeaturesConfig
from gnnscale.graph import MAX_QUANTIZED, Graph
from gnnscale.partition import PartitionerConfig, Parts
from gnnscale.planner import Cuda, apportion
from gnnscale.run.batch_config import BatchConfig
from gnnscale.run.tasks import TaskInputs
from gnnscale.sampling import SamplerConfig, SeedOrder, TwoStageOrder, seed_order

_LOG = logging.getLogger(__name__)

#: Arrays of the table's size in memory while structural features are computed.
_NUM_TABLES = 3


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """Options of validation, test and prediction."""

    model_name: str  #: the model's name in messages
    inference: str  #: one of ``INFERENCE``
    sampler: SamplerConfig  #: sampler of sampled inference
    batch_size: int  #: vertices of a mini-batch of sampled inference
    seed: int
    num_threads: int
    compute_dtype: str  #: type of matrix products
    threshold: str | None = None  #: rule that chooses thresholds on the validation set


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Options of the report, loggers and observers of a run."""

    epochs: int
    patience: int | None  #: validations without a better metric before the end; None: no limit
    loggers: Mapping[str, bool]  #: loggers by name, each with whether it is enabled
    observers: Sequence[str]  #: classes of custom observers, ``MODULE:NAME`` or ``FILE.py:NAME``
    predictions: bool  #: whether to print predicted stage times of a single device too


def check_features(features: FeatureStoreConfig, graph: Graph) -> None:
    """Raise GraphError for a graph without features, unless the options compute or learn rows."""
    if not features.replaces:
        graph.check_features()


def with_features(
    features: FeatureStoreConfig, graph: Graph, *, num_threads: int, seed: int | None = None
) -> Graph:
    """Return ``graph`` with the feature rows that the model reads: stored, structural or learned.

    Structural features are computed from the edges of ``graph``; learned rows have the initial
    values of ``seed``, or 0 for None. ConfigError if the rows do not fit into memory.
    """
    check_features(features, graph)
    if not features.replaces:
        return graph
    rows = _rows(features, graph, num_threads=num_threads, seed=seed)
    if graph.num_features and graph.origin.has_stored_features:
        _LOG.info(
            f"features={features.name}: the {graph.num_features} features of {graph.name} are not "
            "read"
        )
    origin = replace(graph.origin, has_stored_features=False)
    return replace(graph, features=rows, feature_dtype="float32", origin=origin)


def check_feature_dtype(inputs: TaskInputs, partitioner: PartitionerConfig, dtype: str) -> None:
    """Raise ConfigError if GPUs read, or P3 divides, rows stored as int8 or int4 (``dtype``)."""
    if dtype not in MAX_QUANTIZED or inputs.features.replaces:
        return
    problem = None
    gpus = [device.label for device in inputs.device_plan.parsed() if isinstance(device, Cuda)]
    if partitioner.divides == "columns":
        problem = (
            f"partitioner={partitioner.algorithm} divides rows by columns, and such rows "
            "have one scale each"
        )
    elif gpus:
        problem = f"{gpus[0]} has no kernels for them"
    if problem is not None:
        raise ConfigError(
            f"dataset: features are stored as {dtype}, and {problem}; prepare the graph with "
            "dataset.feature_dtype=float16"
        )


def check_copies(features: LearnedFeaturesConfig, num_vertices: int, *, num_processes: int) -> None:
    """Raise ConfigError if a copy of the learned rows per process exceeds this machine's memory."""
    _check_memory(features.dim, num_vertices, tables=features.tables, num_processes=num_processes)


def _rows(
    features: FeatureStoreConfig, graph: Graph, *, num_threads: int, seed: int | None
) -> Float32Array:
    if isinstance(features, StructuralFeaturesConfig):
        _check_memory(features.width, graph.num_vertices, tables=_NUM_TABLES)
        return features.make(graph, num_threads=num_threads)
    assert isinstance(features, LearnedFeaturesConfig)
    _check_memory(features.dim, graph.num_vertices, tables=features.tables)
    if seed is None:
        return np.zeros((graph.num_vertices, features.dim), np.float32)
    return features.draw(graph.num_vertices, seed=seed)


def _check_memory(width: int, num_vertices: int, *, tables: int, num_processes: int = 1) -> None:
    """Refuse ``tables`` float32 arrays ``[num_vertices, width]`` per process that do not fit."""
    needed = num_processes * tables * 4 * num_vertices * width
    available = read_memory().available
    if needed > available:
        copies = f" in {num_processes} processes" if num_processes > 1 else ""
        raise ConfigError(
            f"features.dim={width}: expected tables of at most {size(available)}, the available "
            f"memory, got {size(needed)} for {num_vertices:,} vertices{copies}; lower features.dim,"
            " or use features=degrees"
        )


def graph_read(inputs: TaskInputs, graph: Graph) -> Graph:
    """Return ``graph`` with edge features only if layers or the decoder of the run read them.

    ConfigError if the model needs edge features and the graph has none, or a device or option does
    not support them.
    """
    model = inputs.model
    if model.edge_features and not graph.num_edge_features:
        raise ConfigError(
            f"model.edge_features=true: edges of {graph.path or graph.name} have no features"
        )
    read = model.graph_read(graph)
    if read.edge_rows is not None:
        _check_edge_features(inputs)
    elif inputs.task.reads_edge_features and model.edge_features is not False:
        # Layers read no edge features; the decoder reads those of the predicted edge.
        return replace(graph, edges=replace(graph.edges, rows=None))
    return read


def _check_edge_features(inputs: TaskInputs) -> None:
    """Refuse devices and options that do not support edge features."""
    reads = f"model: {inputs.model.name} reads features of edges"
    hint = "model.edge_features=false leaves them out"
    for device in inputs.device_plan.parsed():
        if not device.takes_edge_features:
            raise ConfigError(
                f"{reads}, which {device.label} does not support; use devices of kind cpu or "
                f"emulated, or {hint}"
            )
    if inputs.features.preaggregates:
        raise ConfigError(
            f"{reads}, so that its first layer cannot be aggregated before training; use "
            f"features=host, or {hint}"
        )


#: Models whose layers read features of edges, of graphs without types and with them.
_READ_EDGES = "gat, gatv2 and gin"
_READ_TYPED_EDGES = "rgat"


def describe_use(inputs: TaskInputs, graph: Graph) -> str | None:
    """Return a log line on the use of edge features; None: there are none, or they are left out."""
    model, count = inputs.model, graph.num_edge_features
    if not count or model.edge_features is False:
        return None
    models, features = _READ_EDGES, f"{count} features of each edge"
    if graph.types is not None and graph.edges.by_type is not None:
        models = _READ_TYPED_EDGES
        pairs = zip(graph.schema.edge_types, graph.edges.by_type.widths, strict=True)
        listed = ", ".join(f"{width} of {name}" for name, width in pairs if width)
        features = f"features of edges ({brief(listed)})"
    if model.edge_width(count):
        return f"{graph.name}: {model.name} reads {features}"
    if inputs.task.reads_edge_features and graph.num_labeled_edge_features:
        return (
            f"{graph.name}: {features} are read where its label is predicted, and not by layers "
            f"of {model.name}; those of model={models} read them too"
        )
    custom = ", and modules of your own that take them (docs/your-model.md)"
    return (
        f"{graph.name}: {model.name} does not read the {features}; layers of model={models} do"
        f"{custom if models == _READ_EDGES else ''}"
    )


def checked_order(
    config: BatchConfig, seeds: Array, parts: Parts | None, vertices: Array | None = None
) -> SeedOrder:
    """Return the order of seeds of a run after a check of its first epoch.

    ``ShuffledOrder`` is correct by construction and is not checked: that would take 0.25 ms a step
    on a large graph. ConfigError if an epoch does not have every seed exactly once, or
    ``drop_last`` leaves no mini-batch.

    Args:
        seeds: ``[n]`` seeds of an epoch: vertices, indices of edges, or numbers of task rows.
        parts: partition of the graph among devices; None if the graph is not partitioned.
        vertices: ``[n]`` vertex of each seed, whose part trains it. None: seeds are vertices.
    """
    num_devices = len(config.device_plan.parsed())
    order: SeedOrder
    if parts is not None and parts.owner is not None:
        order = TwoStageOrder(
            parts.divide(seeds, seeds if vertices is None else vertices),
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
    """Return ``order`` without incomplete mini-batches; ConfigError: no mini-batch is left."""
    full = seed_order.FullBatches(order)
    if not full.steps_per_epoch:
        raise ConfigError(
            f"drop_last=true: expected a full mini-batch in an epoch, got batch_size="
            f"{order.batch_size} for {num_seeds} training seeds; lower batch_size, or set "
            "drop_last=false"
        )

    return full
