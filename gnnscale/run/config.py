"""The options of a training run: typed records that check themselves."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnscale.backend.exchange import ExchangeConfig
from gnnscale.cache import CachePlannerConfig, NoCache
from gnnscale.core import MAX_SEED, QUALITY, ConfigError, check_choice, check_range, usable_cores
from gnnscale.core.config.untrusted import names
from gnnscale.core.config.user_code import check_name, is_name, short_name
from gnnscale.data import GraphSource
from gnnscale.features import FeatureStoreConfig, HostFeaturesConfig
from gnnscale.nn import ModelConfig, losses
from gnnscale.nn.optim import OptimizerConfig
from gnnscale.partition import NoPartitioner, PartitionerConfig
from gnnscale.planner import MAX_THREADS, PREFETCH, Device, DevicePlanConfig
from gnnscale.planner.device_spec import owns_steps
from gnnscale.run.tasks import TaskConfig, VertexPrediction
from gnnscale.sampling import (
    NeighborSampling,
    SamplerConfig,
    SeedOrderConfig,
    Shuffled,
    without_last_hop,
)

#: Types in which matrix products may be computed; bfloat16 is lossy and never the default.
COMPUTE_DTYPES = ("float32", "bfloat16")
#: Evaluation over all neighbours, layer by layer, or over those the sampler picks.
INFERENCE = ("exact", "sampled")

#: What a run may be logged to, beside its own files.
LOGGERS = ("csv", "tensorboard", "mlflow", "wandb")
#: Those that write beside the run directory, or to an address in a variable.
_OUTSIDE = {"mlflow": "mlflow://MLFLOW_TRACKING_URI", "wandb": "wandb://WANDB_BASE_URL"}

_MAX_PREFETCH_DEPTH = 1024


@dataclass(frozen=True, kw_only=True)
class UpdateConfig:
    """Those options of the group ``runtime`` that change what a run learns.

    Attributes:
        compute_dtype: one of ``COMPUTE_DTYPES``; bfloat16 becomes float32 on processors without
            instructions that multiply it.
        clip_norm: scale gradients down to this global L2 norm; None leaves them.
        accumulate: mini-batches whose gradients make one update of the weights: the gradient is of
            the mean over all their seeds. The last update of an epoch may have fewer.
    """

    compute_dtype: str = "float32"
    clip_norm: float | None = None
    accumulate: int = 1

    def __post_init__(self) -> None:
        check_choice("runtime.compute_dtype", self.compute_dtype, COMPUTE_DTYPES)
        check_range("runtime.accumulate", self.accumulate, 1)
        if self.clip_norm is not None and not 0 < self.clip_norm < math.inf:
            raise ConfigError(f"runtime.clip_norm={self.clip_norm}: must be above 0, or null")


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig(UpdateConfig):
    """How a run is carried out.

    Nothing here but what ``UpdateConfig`` has changes what it learns.

    Attributes:
        inference: one of ``INFERENCE``, for validation and test.
        eval_every: validate after every so many epochs, and after the last.
        patience: stop after so many validations without a better metric; None never stops early.
        checkpoint: write ``checkpoints/last.safetensors`` while the run trains and at its end, and
            with it ``best.safetensors`` if there are better weights.
        checkpoint_every_s: seconds between two checkpoints, inside epochs as well; 0 begins the
            next one as soon as the disk has the last. None writes them after epochs, a second
            after the last one or more, and ten times as long as that took. The first epoch is
            followed by one in any case.
        prefetch: one of ``PREFETCH``, or ``auto`` for what the performance model thinks fastest.
        prefetch_depth: maximum of mini-batches that a worker prepares ahead.
        drm: dynamic resource management: shift work and threads between devices while training.
        stall_limit_s: seconds without a sign of life, or without progress in a training step that
            others wait for, after which a worker is killed and the run ends; None waits without
            end. Opening, validating and testing have no limit while the process answers.
        deterministic: let nothing that is measured decide: the same options give the same weights,
            bit for bit, on processors of one maker with the same libraries. Plans follow from
            nominal rates and the devices' own, without calibration and rehearsal, and resource
            management counts work in place of seconds.
    """

    inference: str = "exact"
    eval_every: int = 1
    patience: int | None = None
    checkpoint: bool = True
    checkpoint_every_s: float | None = None
    prefetch: str = "auto"
    prefetch_depth: int = 4
    drm: bool = True
    stall_limit_s: float | None = 600.0
    deterministic: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("runtime.inference", self.inference, INFERENCE)
        check_range("runtime.eval_every", self.eval_every, 1)
        if self.patience is not None:
            check_range("runtime.patience", self.patience, 1)
        every_s = self.checkpoint_every_s
        if every_s is not None and not 0 <= every_s < math.inf:
            raise ConfigError(
                f"runtime.checkpoint_every_s={every_s}: must be at least 0, or null for after "
                "epochs"
            )
        limit_s = self.stall_limit_s
        if limit_s is not None and not 0 < limit_s < math.inf:
            raise ConfigError(
                f"runtime.stall_limit_s={limit_s}: must be above 0, or null for no limit"
            )
        check_choice("runtime.prefetch", self.prefetch, ("auto", *PREFETCH))
        check_range("runtime.prefetch_depth", self.prefetch_depth, 1, _MAX_PREFETCH_DEPTH)


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """What decides the mini-batches of every device of a run, and what these keep of the graph.

    Attributes:
        seed: fixes the initial weights, the order of seeds, the samples and the dropout.
        epochs: passes over the training vertices.
        batch_size: seeds of a mini-batch, over all devices together: vertices, or edges.
        drop_last: leave out the last mini-batch of an epoch if it has fewer than ``batch_size``
            seeds. Its seeds differ from epoch to epoch.
        num_threads: threads that compute on the host, over all workers of a machine.
        seed_order: which vertices are trained in which step.
        partitioner: how the graph is divided among the devices.
        cache_planner: what accelerators keep in their own memory.
    """

    seed: int
    epochs: int
    batch_size: int
    num_threads: int
    dataset: GraphSource
    model: ModelConfig
    sampler: SamplerConfig
    runtime: RuntimeConfig
    device_plan: DevicePlanConfig
    drop_last: bool = False
    seed_order: SeedOrderConfig = field(default_factory=Shuffled)
    partitioner: PartitionerConfig = field(default_factory=NoPartitioner)
    cache_planner: CachePlannerConfig = field(default_factory=NoCache)

    def __post_init__(self) -> None:
        check_range("seed", self.seed, 0, MAX_SEED)
        check_range("epochs", self.epochs, 1)
        check_range("batch_size", self.batch_size, 1)
        check_range("num_threads", self.num_threads, 1, MAX_THREADS)
        split = self.device_plan.split
        if split is not None and sum(split) != self.batch_size:
            raise ConfigError(
                f"device_plan.split={list(split)}: sums to {sum(split)}, not to "
                f"batch_size={self.batch_size}"
            )
        self.sampler.check_layers(self.model.num_layers)
        _check_partitioner(self)
        if self.cache_planner.caches:
            _check_caches(f"cache_planner={self.cache_planner.policy}", self)


def _places_of_loggers(logger: Any) -> tuple[list[str], list[str]]:
    """Return where loggers write outside of the run directory, and those that are chosen."""
    chosen = [name for name, wanted in logger.items() if wanted] if isinstance(logger, dict) else []
    return [place for name, place in _OUTSIDE.items() if name in chosen], chosen


@dataclass(frozen=True, kw_only=True)
class RunConfig(BatchConfig):
    """A training run.

    Attributes:
        optimizer: how weights are updated.
        loss: what is minimised.
        metrics: what validation and test measure; the first decides which epoch is the best, and
            with it patience and ``optimizer.schedule=plateau``. Empty: the graph's own.
            Your function, ``MODULE:NAME`` or ``FILE.py:NAME``, gets outputs ``[n, width]`` float32
            and labels, and returns a number, of which higher is better.
        logger: what the run is logged to, beside its own files: any of ``LOGGERS``, those that are
            true.
        observers: classes of one's own that follow the run, ``MODULE:NAME`` or ``FILE.py:NAME``;
            each is made with the run directory and the options, and is a
            ``gnnscale.Observer``.
        resume: run directory to continue; None starts a new one.
        features: where workers read features from.
        exchange: what devices trade before they propagate; None for nothing.
        cache_plan: a plan that ``gnnscale plan-cache`` made, which is used as it is; None for what
            ``cache_planner`` plans.
        task: what is predicted.
        predictions: print predicted beside measured stage times, also if a single device trains.
    """

    optimizer: OptimizerConfig
    loss: losses.LossConfig = field(default_factory=losses.AutoLoss)
    metrics: list[str] = field(default_factory=list, metadata=names("code", known=tuple(QUALITY)))
    logger: dict[str, bool] = field(
        default_factory=dict, metadata=names("place", places=_places_of_loggers)
    )
    observers: list[str] = field(default_factory=list, metadata=names("code"))
    resume: Path | None = None
    features: FeatureStoreConfig = field(default_factory=HostFeaturesConfig)
    exchange: ExchangeConfig | None = None
    cache_plan: Path | None = None
    task: TaskConfig = field(default_factory=VertexPrediction)
    predictions: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task.divides_edges and self.metrics:
            raise ConfigError("task=links: is measured by ranks, metrics=[] alone goes with it")
        if self.task.divides_edges and not isinstance(self.loss, losses.AutoLoss):
            raise ConfigError("task=links: has a loss of its own, loss=auto alone goes with it")
        if self.task.compares_rows:
            _check_edges("task=links" if self.task.divides_edges else "task=edges", self)
        _check_sampler(self)
        _check_loss(self)
        _check_names(self)
        if self.optimizer.warmup_epochs >= self.epochs:
            raise ConfigError(
                f"optimizer.warmup_epochs={self.optimizer.warmup_epochs}: must be below "
                f"epochs={self.epochs}"
            )
        if self.cache_plan is not None:
            if self.cache_planner.caches:
                raise ConfigError(
                    f"cache_plan={self.cache_plan}: cannot be given with "
                    f"cache_planner={self.cache_planner.policy}, which would plan another"
                )
            _check_caches(f"cache_plan={self.cache_plan}", self)
        own = type(self.features) is HostFeaturesConfig
        own = own or self.features.reads_disk or self.features.divided
        if self.has_caches and not own:
            raise ConfigError(
                f"features: {type(self.features).__name__} cannot be given with caches, which keep "
                "rows of the graph's own features"
            )
        if self.has_caches and self.exchange is not None:
            raise ConfigError("exchange: cannot be given with caches, whose rows are not traded")
        if self.features.preaggregates:
            _check_preaggregates(self)
        if self.features.replaces and self.partitioner.divides == "columns":
            raise ConfigError(
                f"features={self.features.name}: does not go with partitioner="
                f"{self.partitioner.algorithm}, which divides the graph's own features"
            )
        if self.features.learns:
            _check_learned(self)
        if self.features.reads_disk or self.features.divided:
            problem = tier_problem(self)
            if problem is None and self.features.divided and self.exchange is not None:
                problem = "does not go with an exchange, for which a device has all rows"
            if problem is not None:
                raise ConfigError(f"features={self.features.name}: {problem}")
        if self.runtime.compute_dtype != "float32" and not self.model.takes_bfloat16:
            raise ConfigError(
                f"runtime.compute_dtype={self.runtime.compute_dtype}: {self.model.name} computes "
                "with rows and weights of float32"
            )
        if self.cache_plan is not None and not self.has_caches:
            raise ConfigError(
                f"cache_plan={self.cache_plan}: no device of device_plan has memory and a link, "
                "for which the plan is; cache_plan=null uses none"
            )

    @property
    def trained_sampler(self) -> SamplerConfig:
        """What samples in training: without the last hop, if its aggregation is ready."""
        shorter = without_last_hop(self.sampler) if self.features.preaggregates else None
        return self.sampler if shorter is None else shorter

    @property
    def host_threads(self) -> int:
        """Threads that compute: no more than there are cores, unless that may not decide."""
        if self.runtime.deterministic:
            return self.num_threads
        return min(self.num_threads, usable_cores())

    @property
    def needs_more_than_graph(self) -> bool:
        """Whether something is to be made of the graph before a run: parts, caches, or rows."""
        divides = self.partitioner.divides != "nothing" or self.task.divides_edges
        return divides or self.has_caches or self.features.preaggregates

    @property
    def has_caches(self) -> bool:
        """Whether accelerators keep a part of the graph, those that hold a cache."""
        holding = any(device.holds_cache for device in self.device_plan.parsed())
        return self.asks_for_caches and holding

    @property
    def asks_for_caches(self) -> bool:
        """Whether caches are asked for, whatever the devices."""
        return self.cache_planner.caches or self.cache_plan is not None


def _check_names(config: RunConfig) -> None:
    """Refuse metrics and loggers that nobody knows, and names that are given twice."""
    for name in config.logger:
        check_choice("logger", name, LOGGERS)
    for option, allowed in (("metrics", QUALITY), ("observers", None)):
        names = getattr(config, option)
        for number, name in enumerate(names):
            if allowed is None or is_name(name):
                check_name(name, option=option)
            else:
                check_choice(option, name, allowed)
            if name in names[:number]:
                raise ConfigError(f"{option}=[{', '.join(names)}]: {name} is given twice")
    labels = [short_name(name) for name in config.metrics]
    for name, label in zip(config.metrics, labels, strict=True):
        if is_name(name) and (label in QUALITY or labels.count(label) > 1):
            raise ConfigError(f"metrics={name}: another metric is called {label}, rename yours")


def _check_sampler(config: RunConfig) -> None:
    """Refuse a sampler that a device, which samples by itself, does not know."""
    for device in config.device_plan.parsed():
        if not isinstance(config.sampler, device.samplers):
            known = ", ".join(each.__name__ for each in device.samplers)
            raise ConfigError(
                f"sampler: {device.label} samples by itself, and not as "
                f"{type(config.sampler).__name__} does; it knows {known}, and device_plan=cpu "
                "samples in any way"
            )

    if isinstance(config.sampler, NeighborSampling) and config.sampler.memory_bytes is not None:
        problem = lists_problem(config)
        if problem is not None:
            raise ConfigError(f"sampler.memory_bytes={config.sampler.memory_bytes}: {problem}")


def _check_loss(config: RunConfig) -> None:
    """Refuse a loss if a device computes one of its own."""
    if isinstance(config.loss, losses.AutoLoss):
        return
    for device in config.device_plan.parsed():
        if not device.takes_loss:
            raise ConfigError(
                f"loss: {device.label} computes the loss by itself, and knows those of loss=auto "
                "for classes alone"
            )


def _check_caches(option: str, config: BatchConfig) -> None:
    """Refuse caches if the features are divided by columns."""
    if config.partitioner.divides == "columns":
        raise ConfigError(
            f"{option}: does not go with partitioner={config.partitioner.algorithm}, whose devices "
            "have all rows of their columns aggregated by the host"
        )


def _check_edges(option: str, config: RunConfig) -> None:
    """Refuse what trains labels of vertices alone."""
    if config.model.row_width is None:
        raise ConfigError(
            f"{option}: compares rows of model=sage, gcn, gat, gatv2, gin, sgc and appnp, not of "
            f"{config.model.name}"
        )
    if config.partitioner.divides != "nothing":
        raise ConfigError(
            f"{option}: does not go with partitioner={config.partitioner.algorithm}, which divides "
            "training vertices; partitioner=none does"
        )
    if config.asks_for_caches:
        raise ConfigError(
            f"{option}: does not go with caches, which are planned for training vertices; "
            "cache_planner=none and cache_plan=null do"
        )
    if config.task.divides_edges and config.features.preaggregates:
        raise ConfigError(
            "features=preaggregated: task=links leaves out the messages of the edges that a step "
            "predicts, and rows aggregated before training have them; features=host goes with it"
        )
    for device in config.device_plan.parsed():
        takes = device.takes_links if config.task.divides_edges else device.takes_edge_labels
        if not takes:
            allowed = "cpu, emulated and cuda" if config.task.divides_edges else "cpu and emulated"
            raise ConfigError(
                f"{option}: {device.label} does not train on edges; "
                f"devices of kind {allowed} can take part"
            )


def _check_preaggregates(config: RunConfig) -> None:
    """Refuse what reads rows that are not aggregated, or not over all neighbours."""
    option = "features=preaggregated"
    if without_last_hop(config.sampler) is None:
        fanouts = getattr(config.sampler, "fanouts", None)
        given = "this sampler" if fanouts is None else f"sampler.fanouts={list(fanouts)}"
        raise ConfigError(
            f"{option}: the first layer must take all neighbours, and {given} takes some of them; "
            "sampler=full takes all, and so do sampler.fanouts that end in -1"
        )
    if config.model.drops_inputs:
        raise ConfigError(_drops_inputs(config, option, "whose rows are aggregated before"))
    if not config.model.aggregates_on_load:
        raise ConfigError(
            f"{option}: the first layer of {config.model.name} does not aggregate features with "
            "coefficients of the graph alone; those of model=gcn, sgc, gin, and sage with "
            "model.aggregator=mean do"
        )
    if config.partitioner.divides == "columns":
        raise ConfigError(
            f"{option}: does not go with partitioner={config.partitioner.algorithm}, whose devices "
            "aggregate columns of the features"
        )
    if config.asks_for_caches:
        raise ConfigError(
            f"{option}: does not go with caches, which hold rows as they are; cache_planner=none "
            "and cache_plan=null do"
        )
    for device in config.device_plan.parsed():
        if not device.takes_aggregated:
            raise ConfigError(
                f"{option}: {device.label} takes rows as they are; devices with "
                "host_aggregates=true that the host loads for can take part"
            )


def tier_problem(config: RunConfig) -> str | None:
    """Return why host memory cannot hold a part of the rows for this run; None if it can."""
    for device in config.device_plan.parsed():
        if device.loads or device.holds_rows:
            return (
                f"{device.label} reads rows in host memory by itself, which has some of them; "
                "devices of kind cpu, and emulated ones for which the host loads, go with it"
            )
    if config.partitioner.divides == "columns":
        return (
            f"does not go with partitioner={config.partitioner.algorithm}, whose devices have "
            "columns of the features"
        )
    return None


def lists_problem(config: RunConfig) -> str | None:
    """Return why neighbour lists cannot stay on the disk for this run; None if they can."""
    for device in config.device_plan.parsed():
        if device.samples:
            return (
                f"{device.label} samples by itself, in lists that are in memory; devices of kind "
                "cpu, and others for which the host samples, go with lists on the disk"
            )
    if config.asks_for_caches:
        return "does not go with caches of accelerators, which are planned with lists in memory"
    return None


def _check_learned(config: RunConfig) -> None:
    """Refuse what does not update rows of vertices, or needs rows that stay."""
    option = f"features={config.features.name}"
    devices = config.device_plan.parsed()
    other = [each.label for each in devices if each.kind != "cpu"]
    if other:
        raise ConfigError(
            f"{option}: processors update the rows of vertices, and device_plan has "
            f"{', '.join(other)}; devices of kind cpu alone go with it, as in device_plan=cpu_x2"
        )
    if config.partitioner.divides != "nothing":
        raise ConfigError(
            f"{option}: does not go with partitioner={config.partitioner.algorithm}, which divides "
            "the graph among devices; partitioner=none does"
        )
    if config.exchange is not None:
        raise ConfigError(f"{option}: does not go with an exchange, which trades rows that stay")
    runtime = config.runtime
    if runtime.accumulate != 1:
        raise ConfigError(
            f"{option}: rows are updated after each mini-batch, and runtime.accumulate is "
            f"{runtime.accumulate}; 1 goes with it"
        )
    if runtime.clip_norm is not None:
        raise ConfigError(
            f"{option}: gradients of rows are no part of a norm, and runtime.clip_norm is "
            f"{runtime.clip_norm}; null goes with it"
        )


def _check_partitioner(config: BatchConfig) -> None:
    """Refuse a partitioner that does not go with devices, batch and model."""
    partitioner, devices = config.partitioner, config.device_plan.parsed()
    if partitioner.divides == "nothing":
        return
    partitioner.check_run(num_devices=len(devices), num_hops=config.sampler.num_layers)
    if partitioner.divides == "columns":
        _check_columns(config, devices)
    elif min(config.device_plan.split or [config.batch_size // len(devices)]) < 1:
        raise ConfigError(
            f"batch_size={config.batch_size}: each of {len(devices)} devices trains the vertices "
            "of its own part, and needs one seed a step at least"
        )


def _drops_inputs(config: BatchConfig, option: str, why: str) -> str:
    """Return the line of input dropout that does not go with ``option``."""
    dropout = getattr(config.model, "input_dropout", None)
    return (
        f"model.input_dropout={dropout}: expected 0 with {option}, {why} features are dropped, "
        f"got {dropout}; model.dropout drops hidden features"
    )


def _check_columns(config: BatchConfig, devices: Sequence[Device]) -> None:
    """Refuse a model, or a device, that cannot take part if columns are divided (P3)."""
    option = f"partitioner={config.partitioner.algorithm}"
    if config.model.drops_inputs:
        why = "whose devices aggregate columns of rows before"
        raise ConfigError(_drops_inputs(config, option, why))
    if not config.model.splits_columns:
        raise ConfigError(
            f"{option}: {type(config.model).__name__} cannot be split by columns of the features; "
            "model=gcn, model=sgc, and model=sage with model.aggregator=mean can"
        )
    if owns_steps(devices) and all(device.trades_columns for device in devices):
        return
    for device in devices:
        if not (device.trains_host_weights and device.host_aggregates):
            raise ConfigError(
                f"{option}: {device.label} trains weights of its own, or aggregates by itself; "
                "devices of kind cpu and emulated, with host_aggregates=true, can take part, and "
                "GPUs among themselves, each another card and with features=device or auto"
            )
