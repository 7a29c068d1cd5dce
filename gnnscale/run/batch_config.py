"""Options of a run that decide its mini-batches, and checks of their combinations."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gnnscale.cache import CachePlannerConfig, NoCache
from gnnscale.core import MAX_SEED, ConfigError, check_range
from gnnscale.data import GraphSource
from gnnscale.nn import ModelConfig
from gnnscale.partition import NoPartitioner, PartitionerConfig
from gnnscale.planner import MAX_THREADS, Device, DevicePlanConfig, owns_steps
from gnnscale.run.runtime_config import RuntimeConfig
from gnnscale.sampling import SamplerConfig, SeedOrderConfig, Shuffled

#: Beginning of errors of options that do not support caches.
NO_CACHES = "expected cache_planner=none and cache_plan=null, got caches, which"


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
        split = self.device_plan.split
        if split is not None and sum(split) != self.batch_size:
            raise ConfigError(
                f"device_plan.split={list(split)}: expected a sum of batch_size={self.batch_size}, "
                f"got {sum(split)}"
            )
        self.sampler.check_layers(self.model.num_layers)
        _check_partitioner(self)
        if self.cache_planner.caches:
            check_rows_are_whole(f"cache_planner={self.cache_planner.policy}", self)


def check_rows_are_whole(option: str, config: BatchConfig) -> None:
    """Refuse ``option``, which requests caches, if the partitioner divides features by columns."""
    if config.partitioner.divides == "columns":
        why = "which divides the features by columns and aggregates them on the host"
        raise partitioned_error(config, option, why)


def _check_partitioner(config: BatchConfig) -> None:
    """Refuse a partitioner that does not fit devices, batch size or model."""
    partitioner, devices = config.partitioner, config.device_plan.parsed()
    if partitioner.divides == "nothing":
        return
    partitioner.check_run(num_devices=len(devices), num_hops=config.sampler.num_layers)
    if partitioner.divides == "columns":
        _check_columns(config, devices)
    elif min(config.device_plan.split or [config.batch_size // len(devices)]) < 1:
        raise ConfigError(
            f"batch_size={config.batch_size}: expected a seed or more for each of {len(devices)} "
            "devices, which train the vertices of their own parts"
        )


def _check_columns(config: BatchConfig, devices: Sequence[Device]) -> None:
    """Refuse models and devices that do not support features divided by columns (P3)."""
    option = f"partitioner={config.partitioner.algorithm}"
    if config.model.drops_inputs:
        raise drops_inputs_error(config, option, "whose devices aggregate columns of rows before")
    if not config.model.splits_columns:
        raise ConfigError(
            f"{option}: expected model=gcn, model=sgc, or model=sage with model.aggregator=mean, "
            f"got {type(config.model).__name__}, which cannot be split by columns of the features; "
            "partitioner=hash, metis and pagraph divide vertices, for any model"
        )
    if owns_steps(devices) and all(device.trades_columns for device in devices):
        return
    for device in devices:
        if not (device.trains_host_weights and device.host_aggregates):
            raise ConfigError(
                f"{option}: expected devices of kind cpu and emulated, with host_aggregates=true, "
                "or GPUs only, each another card and with features=device or auto, got "
                f"{device.label}, which trains its own weights or aggregates on the device"
            )


def partitioned_error(config: BatchConfig, option: str, why: str) -> ConfigError:
    """Return the error that ``option`` needs ``partitioner=none``, for the reason ``why``."""
    algorithm = config.partitioner.algorithm
    return ConfigError(f"{option}: expected partitioner=none, got partitioner={algorithm}, {why}")


def drops_inputs_error(config: BatchConfig, option: str, why: str) -> ConfigError:
    """Return the error that ``option`` needs no input dropout, for the reason ``why``."""
    dropout = getattr(config.model, "input_dropout", None)
    return ConfigError(
        f"model.input_dropout={dropout}: expected 0 with {option}, {why} features are dropped; "
        "model.dropout drops hidden features"
    )


def tier_problem(devices: Sequence[Device], partitioner: PartitionerConfig) -> str | None:
    """Return the end of an error if devices or partitioner need all rows in memory, or None."""
    for device in devices:
        if device.loads or device.holds_rows:
            return (
                "expected devices of kind cpu, or emulated devices for which the host loads, got "
                f"{device.label}, which reads rows in host memory directly"
            )
    if partitioner.divides == "columns":
        return (
            f"expected partitioner=none, got partitioner={partitioner.algorithm}, whose "
            "devices have columns of the features"
        )
    return None


def lists_problem(devices: Sequence[Device], *, requests_caches: bool) -> str | None:
    """Return the end of an error if devices or caches need adjacency lists in memory, or None."""
    for device in devices:
        if device.samples:
            return (
                "expected devices for which the host samples, such as cpu, got "
                f"{device.label}, which samples adjacency lists in memory"
            )
    if requests_caches:
        return f"{NO_CACHES} are planned with adjacency lists in memory"
    return None
