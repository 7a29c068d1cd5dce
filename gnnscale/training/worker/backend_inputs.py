"""Inputs that a worker's backend is opened with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from gnnscale.backend import BackendInputs, CacheInputs, DeviceStepInputs
from gnnscale.backend import feature_loading as loading
from gnnscale.core import Array
from gnnscale.distributed.process_group import Group
from gnnscale.nn.optim import OptimizerConfig
from gnnscale.planner.device_plan import apportion
from gnnscale.sampling import SeedOrder, StepSeeds
from gnnscale.training.build.cache import OpenedCache
from gnnscale.training.worker.model_state import ModelState, TrainInputs

#: Steps whose slices show a device the size of mini-batches.
_PROFILED_STEPS = 16


@dataclass(frozen=True, kw_only=True)
class DeviceDriven:
    """Workers whose devices drive their own steps, and the options of their updates."""

    group: Group  #: the workers; a group of one trains without other workers
    optimizer: OptimizerConfig
    clip_norm: float | None  #: maximum norm of the gradients; None: no clipping
    split: Sequence[int] | None  #: seeds of each device; None: equal shares
    #: whether gradients pass through gloo, apart from the exchange of step results
    over_gloo: bool


def backend_inputs(
    data: TrainInputs,
    learning: ModelState,
    loader: loading.FeatureLoader,
    cache: OpenedCache | None,
    device_driven: DeviceDriven | None,
    *,
    batch_size: int,
) -> BackendInputs:
    """Return the inputs of the backend of this worker.

    ``loader`` loads features at the host; ``cache`` is of this device, if any; ``device_driven`` is
    None for host-driven steps; ``batch_size`` is summed over the devices.
    """
    task = data.task
    step_inputs = None
    if device_driven is not None:
        step_inputs = _device_step_inputs(data, learning, device_driven)
        batch_size = _max_seeds(data.order, batch_size, device_driven)
    graph = task.graph
    if step_inputs is not None and step_inputs.columns is not None:
        assert data.columns is not None
        first, end = data.columns[step_inputs.columns.rank]
        graph = replace(graph, features=graph.features[:, first:end])
    parts = BackendInputs(
        graph=graph,
        model=learning.trained,
        objective=task.objective,
        sampler=data.open_sampler(),
        sampling=data.sampling,
        seed=data.seed,
        batch_size=batch_size,
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
    data: TrainInputs, learning: ModelState, device_driven: DeviceDriven
) -> DeviceStepInputs:
    """Return the inputs that the device needs for device-driven steps."""
    group = device_driven.group
    first_steps = islice(data.order.epoch(0), _PROFILED_STEPS)
    # NCCL connects GPUs separately. With gloo, gradients are summed while outcomes are exchanged.
    summing = group.new_group() if device_driven.over_gloo else group
    is_split = learning.split is not None
    return DeviceStepInputs(
        build_optimizer=device_driven.optimizer.build,
        host_optimizer=learning.optimizer,
        clip_norm=device_driven.clip_norm,
        first_slices=tuple(_slice(step, device_driven) for step in first_steps),
        # Sums inside a step must not pass through host memory.
        sum=None if group.size == 1 else replace(summing, sums=None).sum,
        columns=summing if is_split else None,
    )


def _counts(step: StepSeeds, device_driven: DeviceDriven) -> Sequence[int]:
    """Return each device's number of seeds of a step."""
    split = step.counts or device_driven.split or [1] * device_driven.group.size
    return apportion(split, len(step.seeds))


def _slice(step: StepSeeds, device_driven: DeviceDriven) -> Array:
    """Return this device's seeds of a step."""
    counts, rank = _counts(step, device_driven), device_driven.group.rank
    first = sum(counts[:rank])
    return step.seeds[first : first + counts[rank]]


def _max_seeds(order: SeedOrder, batch_size: int, device_driven: DeviceDriven) -> int:
    """Return the largest number of seeds of this device's slices."""
    rank = device_driven.group.rank
    if order.movable:
        split = device_driven.split or [1] * device_driven.group.size
        return max(apportion(split, batch_size)[rank], 1)
    return max(1, *(_counts(step, device_driven)[rank] for step in order.epoch(0)))
