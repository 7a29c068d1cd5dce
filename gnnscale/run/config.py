"""Options of a training run, as dataclasses that validate their values."""

import math
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
from gnnscale.planner import MAX_THREADS, PREFETCH, DevicePlanConfig
from gnnscale.run.config_checks import check_batches, check_run
from gnnscale.run.config_checks import lists_problem as lists_problem
from gnnscale.run.config_checks import tier_problem as tier_problem
from gnnscale.run.tasks import TaskConfig, VertexPrediction
from gnnscale.sampling import SamplerConfig, SeedOrderConfig, Shuffled, without_last_hop

#: Types of matrix products; bfloat16 is lossy and never the default.
COMPUTE_DTYPES = ("float32", "bfloat16")
#: Evaluation over all neighbors, layer by layer, or over sampled neighbors.
INFERENCE = ("exact", "sampled")

#: Loggers of a run in addition to its own files.
LOGGERS = ("csv", "tensorboard", "mlflow", "wandb")
#: Addresses of the loggers that write outside of the run directory.
_LOGGER_ADDRESSES = {"mlflow": "mlflow://MLFLOW_TRACKING_URI", "wandb": "wandb://WANDB_BASE_URL"}

_MAX_PREFETCH_DEPTH = 1024


@dataclass(frozen=True, kw_only=True)
class UpdateConfig:
    """Options of the group ``runtime`` that affect the trained weights.

    Attributes:
        compute_dtype: type of matrix products, one of ``COMPUTE_DTYPES``; processors without
            bfloat16 instructions use float32.
        clip_norm: maximum global L2 norm, to which gradients are scaled down; None: no clipping.
        accumulate: mini-batches per update of the weights. The gradient is of the mean over all
            their seeds; the last update of an epoch may have fewer mini-batches.
    """

    compute_dtype: str = "float32"
    clip_norm: float | None = None
    accumulate: int = 1

    def __post_init__(self) -> None:
        check_choice("runtime.compute_dtype", self.compute_dtype, COMPUTE_DTYPES)
        check_range("runtime.accumulate", self.accumulate, 1)
        if self.clip_norm is not None and not 0 < self.clip_norm < math.inf:
            raise ConfigError(
                f"runtime.clip_norm={self.clip_norm}: expected a number above 0, or null"
            )


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig(UpdateConfig):
    """Options of the execution of a run.

    Only the options of ``UpdateConfig`` change the computation; the remaining ones change time,
    checkpoints and validation.

    Attributes:
        inference: neighbors of validation and test, one of ``INFERENCE``: all, or sampled.
        eval_every: epochs between validations; the last epoch is always validated.
        patience: stop after this number of validations without a better metric; None never stops
            early.
        checkpoint: write ``checkpoints/last.safetensors`` during training and at its end, and
            ``checkpoints/best.safetensors`` with the best weights.
        checkpoint_every_s: seconds between checkpoints, also inside epochs; 0 begins the next
            checkpoint as soon as the disk has the previous one. None writes checkpoints only after
            epochs, at least 1 s and 10 write times after the previous one. The first epoch always
            ends with a checkpoint.
        prefetch: steps that run in the background, one of ``PREFETCH``; ``auto`` takes the fastest
            by the performance model.
        prefetch_depth: maximum number of mini-batches that a worker prepares in advance.
        drm: dynamic resource management: shift work and threads between devices while training.
        stall_limit_s: maximum seconds without a heartbeat, or without progress in a training step
            while other workers wait. Then the worker is killed and the run ends. None: no limit.
            Loading, validation and test have no limit as long as heartbeats arrive.
        deterministic: make no decision by measured times, so that equal options give equal
            weights, bit for bit, on processors of one vendor with equal libraries. Device plans use
            nominal rates without calibration and profiling runs, and resource management counts
            work instead of seconds.
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
        every_s, limit_s = self.checkpoint_every_s, self.stall_limit_s
        if every_s is not None and not 0 <= every_s < math.inf:
            raise ConfigError(
                f"runtime.checkpoint_every_s={every_s}: expected 0 or more, or null for "
                "checkpoints after epochs"
            )
        if limit_s is not None and not 0 < limit_s < math.inf:
            raise ConfigError(
                f"runtime.stall_limit_s={limit_s}: expected a number above 0, or null for no limit"
            )
        check_choice("runtime.prefetch", self.prefetch, ("auto", *PREFETCH))
        check_range("runtime.prefetch_depth", self.prefetch_depth, 1, _MAX_PREFETCH_DEPTH)


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """Options that determine the mini-batches, the partition and the caches of a run.

    Attributes:
        seed: seed of the initial weights, the order of seeds, the samples and the dropout.
        epochs: passes over the training vertices.
        batch_size: seeds (vertices or edges) of a mini-batch, summed over all devices.
        drop_last: drop the last mini-batch of an epoch if it has fewer than ``batch_size`` seeds.
            The dropped seeds differ from epoch to epoch.
        num_threads: compute threads of the host, summed over all workers of a machine.
        seed_order: order in which seeds are trained.
        partitioner: division of the graph among the devices.
        cache_planner: selection of the rows that accelerators cache in their own memory.
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
        check_batches(self)


def _logger_addresses(logger: Any) -> tuple[list[str], list[str]]:
    """Return the addresses of loggers outside of the run directory, and all enabled loggers."""
    enabled = [name for name, on in logger.items() if on] if isinstance(logger, dict) else []
    return [_LOGGER_ADDRESSES[name] for name in _LOGGER_ADDRESSES if name in enabled], enabled


@dataclass(frozen=True, kw_only=True)
class RunConfig(BatchConfig):
    """Options of a training run.

    Attributes:
        optimizer: optimizer of the weights.
        loss: loss to minimize.
        metrics: metrics of validation and test. The first selects the best epoch and drives
            patience and ``optimizer.schedule=plateau``. Empty: the graph's own metric.
            Your function, ``MODULE:NAME`` or ``FILE.py:NAME``, gets outputs ``[n, width]`` float32
            and labels, and returns a number, of which higher is better.
        logger: loggers in addition to the run's own files, any of ``LOGGERS``, such as
            ``{csv: true}``.
        observers: custom classes that receive the events of the run, ``MODULE:NAME`` or
            ``FILE.py:NAME``. Each is a ``gnnscale.Observer`` and is created with the run directory
            and the options.
        resume: run directory to continue; None starts a new run.
        features: feature store from which workers read rows.
        exchange: exchange of rows between devices before they propagate; None: no exchange.
        cache_plan: cache plan written by ``gnnscale plan-cache``, used without changes; None takes
            the plan of ``cache_planner``.
        task: the prediction task.
        predictions: print predicted next to measured stage times even for a single device.
    """

    optimizer: OptimizerConfig
    loss: losses.LossConfig = field(default_factory=losses.AutoLoss)
    metrics: list[str] = field(default_factory=list, metadata=names("code", known=tuple(QUALITY)))
    logger: dict[str, bool] = field(
        default_factory=dict, metadata=names("place", places=_logger_addresses)
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
        _check_names(self)
        check_run(self)

    @property
    def trained_sampler(self) -> SamplerConfig:
        """Sampler of training: without the last hop if its aggregation is precomputed."""
        shorter = without_last_hop(self.sampler) if self.features.preaggregates else None
        return self.sampler if shorter is None else shorter

    @property
    def host_threads(self) -> int:
        """Compute threads, at most the usable cores unless the run is deterministic."""
        if self.runtime.deterministic:
            return self.num_threads
        return min(self.num_threads, usable_cores())

    @property
    def needs_more_than_graph(self) -> bool:
        """Whether the run needs an artifact besides the graph: partition, caches or rows."""
        divides = self.partitioner.divides != "nothing" or self.task.divides_edges
        return divides or self.has_caches or self.features.preaggregates

    @property
    def has_caches(self) -> bool:
        """Whether the options request caches and a device supports one."""
        return self.asks_for_caches and any(
            device.holds_cache for device in self.device_plan.parsed()
        )

    @property
    def asks_for_caches(self) -> bool:
        """Whether the options request caches, regardless of the devices."""
        return self.cache_planner.caches or self.cache_plan is not None


def _check_names(config: RunConfig) -> None:
    """Refuse unknown metrics and loggers, and duplicate names."""
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
                raise ConfigError(
                    f"{option}=[{', '.join(names)}]: expected different names, got {name} twice"
                )
    labels = [short_name(name) for name in config.metrics]
    for name, label in zip(config.metrics, labels, strict=True):
        if is_name(name) and (label in QUALITY or labels.count(label) > 1):
            raise ConfigError(
                f"metrics={name}: expected a unique name, got {label}, the name of another metric; "
                "rename your function"
            )
