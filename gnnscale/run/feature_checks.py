"""Checks of a run's feature store against its model, partitioner, devices and exchange."""

from gnnscale.core import ConfigError
from gnnscale.features import FeatureStoreConfig
from gnnscale.run.batch_config import (
    NO_CACHES,
    BatchConfig,
    drops_inputs_error,
    partitioned_error,
    tier_problem,
)
from gnnscale.sampling import without_last_hop


def check_features(
    config: BatchConfig, features: FeatureStoreConfig, *, exchanges: bool, requests_caches: bool
) -> None:
    """Raise ConfigError if ``features`` do not fit model, partitioner, devices or exchange.

    ``exchanges`` and ``requests_caches`` say whether the run has an exchange, and asks for caches.
    """
    if features.preaggregates:
        _check_preaggregates(config, requests_caches=requests_caches)
    if features.replaces and config.partitioner.divides == "columns":
        option = f"features={features.name}"
        raise partitioned_error(config, option, "which divides the graph's own features")
    if features.learns:
        _check_learned(config, features.name, exchanges=exchanges)
    if features.reads_disk or features.divided:
        problem = tier_problem(config.device_plan.parsed(), config.partitioner)
        if problem is None and features.divided and exchanges:
            problem = "expected exchange=null, got an exchange, which reads all rows on each device"
        if problem is not None:
            raise ConfigError(f"features={features.name}: {problem}")


def _check_preaggregates(config: BatchConfig, *, requests_caches: bool) -> None:
    """Refuse options that need rows before aggregation, or a sampled first layer."""
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
        raise drops_inputs_error(config, option, "whose rows are aggregated before")
    if not config.model.aggregates_on_load:
        raise ConfigError(
            f"{option}: expected a first layer that aggregates features with coefficients of the "
            f"graph alone, got {config.model.name}; model=gcn, sgc, gin, and sage with "
            "model.aggregator=mean have one"
        )
    if config.partitioner.divides == "columns":
        raise partitioned_error(config, option, "whose devices aggregate columns of the features")
    if requests_caches:
        raise ConfigError(f"{option}: {NO_CACHES} hold rows before aggregation")
    for device in config.device_plan.parsed():
        if not device.takes_aggregated:
            raise ConfigError(
                f"{option}: expected devices with host_aggregates=true for which the host loads, "
                f"got {device.label}, which reads rows before aggregation"
            )


def _check_learned(config: BatchConfig, features: str, *, exchanges: bool) -> None:
    """Refuse options that do not support learned vertex rows, which change during training."""
    option = f"features={features}"
    accelerators = [device.label for device in config.device_plan.parsed() if device.kind != "cpu"]
    if accelerators:
        raise ConfigError(
            f"{option}: expected devices of kind cpu, which update the rows of vertices, got "
            f"{', '.join(accelerators)}; device_plan=cpu_x2 is an example"
        )
    if config.partitioner.divides != "nothing":
        raise partitioned_error(config, option, "which divides the graph among devices")
    if exchanges:
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
