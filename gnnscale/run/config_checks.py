"""Checks of option combinations that a training run does not support."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnnscale.core import ConfigError
from gnnscale.features import HostFeaturesConfig
from gnnscale.nn import losses
from gnnscale.planner import Device
from gnnscale.planner.device_spec import owns_steps
from gnnscale.sampling import NeighborSampling, without_last_hop

if TYPE_CHECKING:
    from gnnscale.run.config import BatchConfig, RunConfig


def check_batches(config: BatchConfig) -> None:
    """Refuse options of mini-batches, partitions and caches that do not fit together.

    Raises:
        ConfigError: naming the first conflict.
    """
    split = config.device_plan.split
    if split is not None and sum(split) != config.batch_size:
        raise ConfigError(
            f"device_plan.split={list(split)}: expected a sum of batch_size={config.batch_size}, "
            f"got {sum(split)}"
        )
    config.sampler.check_layers(config.model.num_layers)
    _check_partitioner(config)
    if config.cache_planner.caches:
        _check_rows_are_whole(f"cache_planner={config.cache_planner.policy}", config)


def check_run(config: RunConfig) -> None:
    """Refuse options of a run that do not fit together.

    Raises:
        ConfigError: naming the first conflict.
    """
    if config.task.divides_edges:
        _check_link_metrics(config)
    if config.task.compares_rows:
        _check_edge_task(config)
    _check_sampler(config)
    _check_loss(config)
    if config.optimizer.warmup_epochs >= config.epochs:
        raise ConfigError(
            f"optimizer.warmup_epochs={config.optimizer.warmup_epochs}: expected less than "
            f"epochs={config.epochs}"
        )
    _check_caches(config)
    _check_features(config)
    if config.runtime.compute_dtype != "float32" and not config.model.takes_bfloat16:
        raise ConfigError(
            f"runtime.compute_dtype={config.runtime.compute_dtype}: expected float32, in which "
            f"{config.model.name} computes"
        )
    if config.cache_plan is not None and not config.has_caches:
        raise ConfigError(
            f"cache_plan={config.cache_plan}: expected a device with memory and a link in "
            "device_plan, got none; cache_plan=null uses no plan"
        )


def _check_link_metrics(config: RunConfig) -> None:
    """Refuse metrics and losses of labels with ``task=links``."""
    if config.metrics:
        raise ConfigError(
            f"metrics=[{', '.join(config.metrics)}]: expected [] with task=links, which is "
            "measured by ranks"
        )
    if not isinstance(config.loss, losses.AutoLoss):
        raise ConfigError(
            f"loss: expected auto with task=links, which has its own loss, got "
            f"{type(config.loss).__name__}"
        )


def _check_edge_task(config: RunConfig) -> None:
    """Refuse options that only tasks of vertices support."""
    divides = config.task.divides_edges
    option = "task=links" if divides else "task=edges"
    if config.model.row_width is None:
        raise ConfigError(
            f"{option}: expected model=sage, gcn, gat, gatv2, gin, sgc or appnp, got "
            f"{config.model.name}"
        )
    if config.partitioner.divides != "nothing":
        raise ConfigError(
            f"{option}: expected partitioner=none, got partitioner={config.partitioner.algorithm}, "
            "which divides training vertices"
        )
    if config.asks_for_caches:
        raise ConfigError(
            f"{option}: expected cache_planner=none and cache_plan=null, got caches, which are "
            "planned for training vertices"
        )
    if divides and config.features.preaggregates:
        raise ConfigError(
            "features=preaggregated: expected features=host with task=links, which leaves out the "
            "messages of the edges that a step predicts"
        )
    for device in config.device_plan.parsed():
        if not (device.takes_links if divides else device.takes_edge_labels):
            kinds = "cpu, emulated or cuda" if divides else "cpu or emulated"
            raise ConfigError(
                f"{option}: expected devices of kind {kinds}, got {device.label}, which does not "
                "train on edges"
            )


def _check_sampler(config: RunConfig) -> None:
    """Refuse a sampler that a sampling device does not implement, or topology on the disk."""
    for device in config.device_plan.parsed():
        if not isinstance(config.sampler, device.samplers):
            supported = ", ".join(sampler.__name__ for sampler in device.samplers)
            raise ConfigError(
                f"sampler: expected {supported} for {device.label}, which samples on the device, "
                f"got {type(config.sampler).__name__}; device_plan=cpu supports all samplers"
            )
    if isinstance(config.sampler, NeighborSampling) and config.sampler.memory_bytes is not None:
        problem = lists_problem(config)
        if problem is not None:
            raise ConfigError(f"sampler.memory_bytes={config.sampler.memory_bytes}: {problem}")


def _check_loss(config: RunConfig) -> None:
    """Refuse a custom loss if a device computes the loss itself."""
    if isinstance(config.loss, losses.AutoLoss):
        return
    for device in config.device_plan.parsed():
        if not device.takes_loss:
            raise ConfigError(
                f"loss: expected auto, and classes, for {device.label}, which computes the loss on "
                f"the device, got {type(config.loss).__name__}"
            )


def _check_caches(config: RunConfig) -> None:
    """Refuse two cache plans, and caches of rows that are replaced, exchanged or split."""
    if config.cache_plan is not None:
        if config.cache_planner.caches:
            raise ConfigError(
                f"cache_plan={config.cache_plan}: expected cache_planner=none with a stored plan, "
                f"got cache_planner={config.cache_planner.policy}"
            )
        _check_rows_are_whole(f"cache_plan={config.cache_plan}", config)
    if not config.has_caches:
        return
    features = config.features
    if not (type(features) is HostFeaturesConfig or features.reads_disk or features.divided):
        raise ConfigError(
            "features: expected the graph's own features with caches, got "
            f"{type(features).__name__}"
        )
    if config.exchange is not None:
        raise ConfigError("exchange: expected null with caches, whose rows are not exchanged")


def _check_features(config: RunConfig) -> None:
    """Refuse a feature store that does not fit model, partitioner, devices or exchange."""
    features = config.features
    if features.preaggregates:
        _check_preaggregates(config)
    if features.replaces and config.partitioner.divides == "columns":
        raise ConfigError(
            f"features={features.name}: expected partitioner=none, got partitioner="
            f"{config.partitioner.algorithm}, which divides the graph's own features"
        )
    if features.learns:
        _check_learned(config)
    if features.reads_disk or features.divided:
        problem = tier_problem(config)
        if problem is None and features.divided and config.exchange is not None:
            problem = "expected exchange=null, got an exchange, which reads all rows on each device"
        if problem is not None:
            raise ConfigError(f"features={features.name}: {problem}")


def _check_rows_are_whole(option: str, config: BatchConfig) -> None:
    """Refuse caches if the partitioner divides the features by columns."""
    if config.partitioner.divides == "columns":
        raise ConfigError(
            f"{option}: expected partitioner=none, got partitioner={config.partitioner.algorithm}, "
            "which divides the features by columns and aggregates them on the host"
        )


def _check_preaggregates(config: RunConfig) -> None:
    """Refuse options that need raw rows, or that aggregate sampled neighbors."""
    option = "features=preaggregated"
    if without_last_hop(config.sampler) is None:
        fanouts = getattr(config.sampler, "fanouts", None)
        sampler = type(config.sampler).__name__
        value = sampler if fanouts is None else f"sampler.fanouts={list(fanouts)}"
        raise ConfigError(
            f"{option}: expected all neighbors in the first layer, got {value}; "
            "use sampler=full, or sampler.fanouts that end in -1"
        )
    if config.model.drops_inputs:
        raise _drops_inputs(config, option, "whose rows are aggregated before")
    if not config.model.aggregates_on_load:
        raise ConfigError(
            f"{option}: expected a first layer that aggregates features with coefficients of the "
            f"graph alone, got {config.model.name}; model=gcn, sgc, gin, and sage with "
            "model.aggregator=mean have one"
        )
    if config.partitioner.divides == "columns":
        raise ConfigError(
            f"{option}: expected partitioner=none, got partitioner={config.partitioner.algorithm}, "
            "whose devices aggregate columns of the features"
        )
    if config.asks_for_caches:
        raise ConfigError(
            f"{option}: expected cache_planner=none and cache_plan=null, got caches, which hold "
            "rows before aggregation"
        )
    for device in config.device_plan.parsed():
        if not device.takes_aggregated:
            raise ConfigError(
                f"{option}: expected devices with host_aggregates=true for which the host loads, "
                f"got {device.label}, which reads rows before aggregation"
            )


def tier_problem(config: RunConfig) -> str | None:
    """Return why the run cannot keep part of the feature rows out of host memory.

    Returns:
        The end of an error, after ``features=NAME: ``; None if the run can.
    """
    for device in config.device_plan.parsed():
        if device.loads or device.holds_rows:
            return (
                "expected devices of kind cpu, or emulated devices for which the host loads, got "
                f"{device.label}, which reads rows in host memory directly"
            )
    if config.partitioner.divides == "columns":
        return (
            f"expected partitioner=none, got partitioner={config.partitioner.algorithm}, whose "
            "devices have columns of the features"
        )
    return None


def lists_problem(config: RunConfig) -> str | None:
    """Return why the run cannot read adjacency lists from the disk.

    Returns:
        The end of an error, after ``sampler.memory_bytes=VALUE: ``; None if the run can.
    """
    for device in config.device_plan.parsed():
        if device.samples:
            return (
                "expected devices for which the host samples, such as cpu, got "
                f"{device.label}, which samples adjacency lists in memory"
            )
    if config.asks_for_caches:
        return (
            "expected cache_planner=none and cache_plan=null, got caches, which are planned with "
            "adjacency lists in memory"
        )
    return None


def _check_learned(config: RunConfig) -> None:
    """Refuse options that do not support updates of vertex rows."""
    option = f"features={config.features.name}"
    accelerators = [device.label for device in config.device_plan.parsed() if device.kind != "cpu"]
    if accelerators:
        raise ConfigError(
            f"{option}: expected devices of kind cpu, which update the rows of vertices, got "
            f"{', '.join(accelerators)}; device_plan=cpu_x2 is an example"
        )
    if config.partitioner.divides != "nothing":
        raise ConfigError(
            f"{option}: expected partitioner=none, got partitioner={config.partitioner.algorithm}, "
            "which divides the graph among devices"
        )
    if config.exchange is not None:
        raise ConfigError(
            f"{option}: expected exchange=null, got an exchange, which sends rows that do not "
            "change"
        )
    runtime = config.runtime
    if runtime.accumulate != 1:
        raise ConfigError(
            f"runtime.accumulate={runtime.accumulate}: expected 1 with {option}, whose rows are "
            "updated after each mini-batch"
        )
    if runtime.clip_norm is not None:
        raise ConfigError(
            f"runtime.clip_norm={runtime.clip_norm}: expected null with {option}, whose gradients "
            "are no part of the norm"
        )


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
        raise _drops_inputs(config, option, "whose devices aggregate columns of rows before")
    if not config.model.splits_columns:
        raise ConfigError(
            f"{option}: expected model=gcn, model=sgc, or model=sage with model.aggregator=mean, "
            f"got {type(config.model).__name__}, which cannot be split by columns of the features"
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


def _drops_inputs(config: BatchConfig, option: str, why: str) -> ConfigError:
    """Return the error of input dropout with ``option``."""
    dropout = getattr(config.model, "input_dropout", None)
    return ConfigError(
        f"model.input_dropout={dropout}: expected 0 with {option}, {why} features are dropped; "
        "model.dropout drops hidden features"
    )
