"""What a worker's device is opened with, and the slices of devices that do steps by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from gnnscale.backend import BackendInputs, CacheInputs, DeviceStepInputs
from gnnscale.backend import feature_loading as loading
from gnnscale.core import Array
from gnnscale.distributed.process_group import ALONE, Group
from gnnscale.planner.device_plan import apportion
from gnnscale.planner.device_spec import owns_steps, shared_collective
from gnnscale.run.config import RunConfig
from gnnscale.sampling import SeedOrder, StepSeeds
from gnnscale.training.build.cache import OpenedCache
from gnnscale.training.worker.model_state import ModelState, TrainInputs

#: Steps that show a device how large mini-batches are.
_REHEARSED = 16


def owning_group(config: RunConfig, group: Group, alone: int | None) -> Group | None:
    """Return the workers that do steps by themselves, this one among them; None if it does not."""
    if owns_steps(config.device_plan.parsed()):
        return group
    return ALONE if alone == group.rank else None


def host_parts(
    config: RunConfig,
    data: TrainInputs,
    learning: ModelState,
    loader: loading.FeatureLoader,
    cache: OpenedCache | None,
    owner: Group | None,
) -> BackendInputs:
    """Return what the device is opened with.

    Args:
        owner: the workers that do steps by themselves; None if the host starts each of them.
    """
    task = data.task
    own = None if owner is None else _own_steps(config, data, learning, owner)
    sampling = task.sampling(config.trained_sampler, data.order)
    sampler = sampling.sampler(task.graph, seed=config.seed, num_threads=config.num_threads)
    graph = task.graph
    if own is not None and own.columns is not None:
        assert data.columns is not None
        first, end = data.columns[own.columns.rank]
        graph = replace(graph, features=graph.features[:, first:end])
    parts = BackendInputs(
        graph=graph,
        model=learning.trained,
        objective=task.objective,
        sampler=sampler,
        sampling=sampling,
        seed=config.seed,
        batch_size=config.batch_size if owner is None else _most_seeds(config, data.order, owner),
        loader=loader,
        own_steps=own,
    )
    if cache is None:
        return parts
    found = CacheInputs(
        num_bytes=cache.num_bytes,
        lists=cache.lists,
        counters=cache.counters,
        kept=cache.kept,
        replay=cache.replay,
    )
    return replace(parts, cache=found)


def _own_steps(
    config: RunConfig, data: TrainInputs, learning: ModelState, group: Group
) -> DeviceStepInputs:
    """Return what the device needs to do steps by itself."""
    first = islice(data.order.epoch(0), _REHEARSED)
    # NCCL has connections of GPUs alone. Over gloo, steps are summed while others are reported.
    over_gloo = shared_collective(config.device_plan.parsed()) == "cpu:gloo"
    summing = group.with_own_connections() if over_gloo else group
    divided = learning.split is not None
    return DeviceStepInputs(
        build_optimizer=config.optimizer.build,
        host_optimizer=learning.optimizer,
        clip_norm=config.runtime.clip_norm,
        first_slices=tuple(_slice(config, each, group) for each in first),
        # What a device sums in the midst of its step does not pass through the host's memory.
        sum=None if group.size == 1 else replace(summing, sums=None).sum,
        columns=summing if divided else None,
    )


def _counts(config: RunConfig, step: StepSeeds, group: Group) -> Sequence[int]:
    """Return each device's seeds of a step, of devices that own theirs."""
    split = step.counts or config.device_plan.split or [1] * group.size
    return apportion(split, len(step.seeds))


def _slice(config: RunConfig, step: StepSeeds, group: Group) -> Array:
    """Return this device's seeds of a step."""
    counts = _counts(config, step, group)
    first = sum(counts[: group.rank])
    return step.seeds[first : first + counts[group.rank]]


def _most_seeds(config: RunConfig, order: SeedOrder, group: Group) -> int:
    """Return how many seeds a slice of this device has at most, if it owns its steps."""
    if order.movable:
        split = config.device_plan.split or [1] * group.size
        return max(apportion(split, config.batch_size)[group.rank], 1)
    steps = order.epoch(0)
    return max(1, *(_counts(config, each, group)[group.rank] for each in steps))
