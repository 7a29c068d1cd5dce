"""Inputs that a worker's backend is opened with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from gnnscale.backend import BackendInputs, CacheInputs, DeviceStepInputs
from gnnscale.backend import feature_loading as loading
from gnnscale.core import Array
from gnnscale.distributed.process_group import SINGLE_PROCESS, Group
from gnnscale.planner.device_plan import apportion
from gnnscale.planner.device_spec import owns_steps, shared_collective
from gnnscale.run.config import RunConfig
from gnnscale.sampling import SeedOrder, StepSeeds
from gnnscale.training.build.cache import OpenedCache
from gnnscale.training.worker.model_state import ModelState, TrainInputs

#: Steps whose slices show a device the size of mini-batches.
_PROFILED_STEPS = 16


def owning_group(config: RunConfig, group: Group, solo_position: int | None) -> Group | None:
    """Return the group of workers with device-driven steps, to which this worker belongs.

    None: the host starts every operation of this worker's steps.

    Args:
        solo_position: position of the single device that may train without other workers, or None.
    """
    if owns_steps(config.device_plan.parsed()):
        return group
    return SINGLE_PROCESS if solo_position == group.rank else None


def backend_inputs(
    config: RunConfig,
    data: TrainInputs,
    learning: ModelState,
    loader: loading.FeatureLoader,
    cache: OpenedCache | None,
    owner: Group | None,
) -> BackendInputs:
    """Return the inputs of the backend of this worker.

    Args:
        loader: loads features at the host.
        cache: cache of this device; None: it has none.
        owner: the workers with device-driven steps; None: steps are host-driven.
    """
    task = data.task
    step_inputs = None if owner is None else _device_step_inputs(config, data, learning, owner)
    sampling = task.sampling(config.training_sampler, data.order)
    sampler = sampling.sampler(task.graph, seed=config.seed, num_threads=config.num_threads)
    graph = task.graph
    if step_inputs is not None and step_inputs.columns is not None:
        assert data.columns is not None
        first, end = data.columns[step_inputs.columns.rank]
        graph = replace(graph, features=graph.features[:, first:end])
    parts = BackendInputs(
        graph=graph,
        model=learning.trained,
        objective=task.objective,
        sampler=sampler,
        sampling=sampling,
        seed=config.seed,
        batch_size=config.batch_size if owner is None else _max_seeds(config, data.order, owner),
        loader=loader,
        step_inputs=step_inputs,
    )
    if cache is None:
        return parts
    cache_inputs = CacheInputs(
        num_bytes=cache.num_bytes,
        lists=cache.lists,
        counters=cache.counters,
        kept=cache.clique,
        replay=cache.replay,
    )
    return replace(parts, cache=cache_inputs)


def _device_step_inputs(
    config: RunConfig, data: TrainInputs, learning: ModelState, group: Group
) -> DeviceStepInputs:
    """Return the inputs that the device needs for device-driven steps."""
    first_steps = islice(data.order.epoch(0), _PROFILED_STEPS)
    # NCCL connects GPUs separately. With gloo, gradients are summed while outcomes are exchanged.
    over_gloo = shared_collective(config.device_plan.parsed()) == "cpu:gloo"
    summing = group.new_group() if over_gloo else group
    is_split = learning.split is not None
    return DeviceStepInputs(
        build_optimizer=config.optimizer.build,
        host_optimizer=learning.optimizer,
        clip_norm=config.runtime.clip_norm,
        first_slices=tuple(_slice(config, step, group) for step in first_steps),
        # Sums inside a step must not pass through host memory.
        sum=None if group.size == 1 else replace(summing, sums=None).sum,
        columns=summing if is_split else None,
    )


def _counts(config: RunConfig, step: StepSeeds, group: Group) -> Sequence[int]:
    """Return each device's number of seeds of a step, with device-driven steps."""
    split = step.counts or config.device_plan.split or [1] * group.size
    return apportion(split, len(step.seeds))


def _slice(config: RunConfig, step: StepSeeds, group: Group) -> Array:
    """Return this device's seeds of a step."""
    counts = _counts(config, step, group)
    first = sum(counts[: group.rank])
    return step.seeds[first : first + counts[group.rank]]


def _max_seeds(config: RunConfig, order: SeedOrder, group: Group) -> int:
    """Return the largest number of seeds of this device's slices, with device-driven steps."""
    if order.movable:
        split = config.device_plan.split or [1] * group.size
        return max(apportion(split, config.batch_size)[group.rank], 1)
    steps = order.epoch(0)
    return max(1, *(_counts(config, step, group)[group.rank] for step in steps))
