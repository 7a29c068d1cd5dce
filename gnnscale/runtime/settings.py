"""The options of commands: ``prepare``, ``partition``, ``train`` and ``evaluate``.

They are typed records that check themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gnnscale.config import MAX_SEED, ConfigError, check_choice, check_range
from gnnscale.dataset import Dataset
from gnnscale.feature import FeatureStoreConfig, HostFeaturesConfig
from gnnscale.model import ModelConfig
from gnnscale.optimizer import OptimizerConfig
from gnnscale.partition import UNREACHED, NoPartitioner, PartitionerConfig
from gnnscale.plan import MAX_THREADS, PREFETCH, Device, DevicePlanConfig
from gnnscale.runtime.sync.exchange import ExchangeConfig
from gnnscale.sampler import SamplerConfig, SeedOrderConfig, Shuffled

__all__ = [
    "COMPUTE_DTYPES",
    "INFERENCE",
    "EvaluateConfig",
    "PartitionConfig",
    "PrepareConfig",
    "RuntimeConfig",
    "TrainConfig",
]

#: Types in which matrix products may be computed; bfloat16 is lossy and never the default.
COMPUTE_DTYPES = ("float32", "bfloat16")
#: Evaluation over all neighbours, layer by layer, or over those the sampler picks.
INFERENCE = ("exact", "sampled")

_MAX_PREFETCH_DEPTH = 1024
#: Parts where neither options nor the devices of a run say how many.
_NUM_PARTS = 4


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """A graph store to make.

    Attributes:
        dataset: what it is made of.
        force: make it again where it exists.
    """

    dataset: Dataset
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class PartitionConfig:
    """A partition to make.

    Attributes:
        dataset: the graph that is divided.
        partitioner: how.
        num_threads: threads to use; the result does not depend on it.
        num_hops: layers of the model that will be trained, which some partitioners look at.
        force: make it again where it exists.
        part_stores: also write each part as a graph store of its own, in ``parts`` below the
            partition; for partitioners whose parts have all that sampling can touch (pagraph).
    """

    dataset: Dataset
    partitioner: PartitionerConfig
    num_threads: int
    num_hops: int = 2
    force: bool = False
    part_stores: bool = False

    def __post_init__(self) -> None:
        check_range("num_threads", self.num_threads, 1, MAX_THREADS)
        check_range("num_hops", self.num_hops, 1, UNREACHED - 1)

    @property
    def num_parts(self) -> int:
        """Parts that are asked for, 4 where no number is."""
        return self.partitioner.num_parts or _NUM_PARTS


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """How a run is carried out; nothing here but ``compute_dtype`` changes what it learns.

    Attributes:
        compute_dtype: one of ``COMPUTE_DTYPES``.
        inference: one of ``INFERENCE``, for validation and test.
        eval_every: validate after every so many epochs, and after the last.
        patience: stop after so many validations without a better metric; None never stops early.
        clip_norm: scale gradients down to this global L2 norm; None leaves them.
        checkpoint: write ``checkpoints/last.safetensors`` after epochs, the last one included;
            and with it ``best.safetensors`` where there are better weights.
        checkpoint_interval_s: seconds between two checkpoints at least, or ten times as long as
            the last one took; 0 writes one after every epoch.
        prefetch: one of ``PREFETCH``, or ``auto`` for what the performance model thinks fastest.
        prefetch_depth: maximum of mini-batches that a worker prepares ahead.
        drm: dynamic resource management: shift work and threads between devices while training.
    """

    compute_dtype: str = "float32"
    inference: str = "exact"
    eval_every: int = 1
    patience: int | None = None
    clip_norm: float | None = None
    checkpoint: bool = True
    checkpoint_interval_s: float = 1.0
    prefetch: str = "auto"
    prefetch_depth: int = 4
    drm: bool = True

    def __post_init__(self) -> None:
        check_choice("runtime.compute_dtype", self.compute_dtype, COMPUTE_DTYPES)
        check_choice("runtime.inference", self.inference, INFERENCE)
        check_range("runtime.eval_every", self.eval_every, 1)
        if self.patience is not None:
            check_range("runtime.patience", self.patience, 1)
        if self.checkpoint_interval_s < 0:
            raise ConfigError(
                f"runtime.checkpoint_interval_s={self.checkpoint_interval_s}: must be at least 0"
            )
        check_choice("runtime.prefetch", self.prefetch, ("auto", *PREFETCH))
        check_range("runtime.prefetch_depth", self.prefetch_depth, 1, _MAX_PREFETCH_DEPTH)
        if self.clip_norm is not None and not 0 < self.clip_norm < math.inf:
            raise ConfigError(f"runtime.clip_norm={self.clip_norm}: must be above 0, or null")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A training run.

    Attributes:
        seed: fixes the initial weights, the order of seeds, the samples and the dropout.
        epochs: passes over the training vertices.
        batch_size: seeds of a mini-batch, over all devices together.
        num_threads: threads that compute on the host, over all workers of a machine.
        resume: run directory to continue; None starts a new one.
        seed_order: which vertices are trained in which step.
        features: where workers read features from.
        exchange: what devices trade before they propagate; None for nothing.
        partitioner: how the graph is divided among the devices.
    """

    seed: int
    epochs: int
    batch_size: int
    num_threads: int
    dataset: Dataset
    model: ModelConfig
    sampler: SamplerConfig
    optimizer: OptimizerConfig
    runtime: RuntimeConfig
    device_plan: DevicePlanConfig
    resume: Path | None = None
    seed_order: SeedOrderConfig = field(default_factory=Shuffled)
    features: FeatureStoreConfig = field(default_factory=HostFeaturesConfig)
    exchange: ExchangeConfig | None = None
    partitioner: PartitionerConfig = field(default_factory=NoPartitioner)

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
        if self.sampler.num_layers != self.model.num_layers:
            raise ConfigError(
                f"sampler: picks neighbours for {self.sampler.num_layers} layers, but "
                f"model.num_layers={self.model.num_layers}; give one number per layer"
            )
        _check_partitioner(self)


def _check_partitioner(config: TrainConfig) -> None:
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


def _check_columns(config: TrainConfig, devices: Sequence[Device]) -> None:
    """Refuse a model, or a device, that cannot take part where columns are divided (P3)."""
    option = f"partitioner={config.partitioner.algorithm}"
    if not config.model.splits_columns:
        raise ConfigError(
            f"{option}: {type(config.model).__name__} cannot be split by columns of the features; "
            "model=gcn and model=sage can"
        )
    for device in devices:
        if not (device.trains_host_weights and device.host_aggregates):
            raise ConfigError(
                f"{option}: {device.label} trains weights of its own, or aggregates by itself; "
                "devices of kind cpu and emulated, with host_aggregates=true, can take part"
            )


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """An evaluation of a finished or stopped run.

    Attributes:
        run: its directory.
        num_threads: threads of the native code and of torch.
        inference: one of ``INFERENCE``; None evaluates as the run itself did.
    """

    run: Path
    num_threads: int
    inference: str | None = None

    def __post_init__(self) -> None:
        check_range("num_threads", self.num_threads, 1, MAX_THREADS)
        if self.inference is not None:
            check_choice("inference", self.inference, INFERENCE)
