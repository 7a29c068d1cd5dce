"""A worker's device: its backend with inputs, caches, stages, step, and samples drawn ahead."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import cast

import torch

from gnnscale.backend import (
    Backend,
    BackendInputs,
    CacheInputs,
    DeviceDrivenBackend,
    DeviceStepInputs,
    InferenceCapable,
)
from gnnscale.backend import feature_loading as loading
from gnnscale.cache import CachePlan, LookAheadReplay
from gnnscale.core import Array, GpuMeter
from gnnscale.distributed.process_group import SINGLE_PROCESS, Group
from gnnscale.features import FeatureStore
from gnnscale.features.multilevel import MultiLevelStore
from gnnscale.features.sharded.store import ShardedStore
from gnnscale.features.tiered.store import TieredReader
from gnnscale.features.typed_tier import TypedReader
from gnnscale.nn import TrainableModel
from gnnscale.nn.optim import OptimizerConfig
from gnnscale.planner import Device, apportion, owns_steps
from gnnscale.sampling import Sampler, SeedOrder, StepSeeds
from gnnscale.training.build.cache import OpenedCache
from gnnscale.training.build.replan import CacheReplanner
from gnnscale.training.build.tiered_features import OpenedTier
from gnnscale.training.gradient_sync import Synchronizer
from gnnscale.training.pipeline import BatchSlice, DeviceDrivenStep, Schedule, Stages
from gnnscale.training.pipeline.step import TrainStep, WorkerStep
from gnnscale.training.worker.model_state import ModelState, TrainInputs

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class WorkerDevice:
    """Device of one worker, and the objects that run training steps on it."""

    devices: tuple[Device, ...]  #: devices of all workers, by rank
    group: Group  #: the workers
    store: FeatureStore  #: features at the host, without any cache
    cache: OpenedCache | None  #: cache of this worker's device; None: no cache
    tier: OpenedTier | None  #: reads rows out of memory; None: all are in memory
    rows: ShardedStore | None  #: rows sharded over the machines. None: each machine has all rows.
    replanner: CacheReplanner | None  #: plans the caches again during the run
    backend: Backend  #: the device
    stages: Stages  #: sample, load, exchange and transfer a slice
    synchronizer: Synchronizer  #: sums gradients over all workers
    step: WorkerStep  #: propagation, synchronization and update of a slice
    #: position of the only accelerator, which may train without the CPU workers. None: CPU workers
    #: are never dropped.
    solo_position: int | None
    has_columns: bool  #: whether the device has only some columns of the features (P3)

    @property
    def prefetcher(self) -> MultiLevelStore | TieredReader | TypedReader | None:
        """Store that reads rows ahead once told of later steps. None: all rows are in memory."""
        if self.tier is None:
            return None
        return (self.cache and self.cache.multilevel) or self.tier.store.rows

    @property
    def meter(self) -> GpuMeter | None:
        """Meter of this worker's GPU. None: it has none, or a lower rank has the same GPU."""
        index = self.devices[self.group.rank].gpu
        lower_ranks = [device.gpu for device in self.devices[: self.group.rank]]
        return GpuMeter.of(None if index in lower_ranks else index)

    @property
    def inference_backend(self) -> InferenceCapable | None:
        """``backend`` if it can compute exact output rows for evaluation; None otherwise."""
        # With some columns of the features, a device cannot compute rows of the full model.
        infers = self.backend.device.infers and not self.has_columns
        return cast(InferenceCapable, self.backend) if infers else None

    def rank0_reads(self) -> AbstractContextManager[None]:
        """Let rank 0 read ``store`` within the ``with`` block; every worker enters the block.

        If rows are sharded over machines, other workers serve rank 0's reads before their block
        runs.
        """
        return nullcontext() if self.rows is None else self.rows.rank0_reads()

    def profiling_step(
        self, model: TrainableModel, optimizer: torch.optim.Optimizer, *, solo: bool = False
    ) -> WorkerStep:
        """Return a step that trains ``model`` by ``optimizer`` in a profiling run.

        With ``solo`` it is device-driven, without the other workers.
        """
        if solo or owns_steps(self.devices):
            group = SINGLE_PROCESS if solo else self.group
            return DeviceDrivenStep(
                model, cast(DeviceDrivenBackend, self.backend), optimizer, group
            )
        return TrainStep(model, self.backend, self.synchronizer, optimizer)


#: Steps whose slices show a device the size of mini-batches.
_PROFILED_STEPS = 16


@dataclass(frozen=True, kw_only=True)
class DeviceDriven:
    """Workers whose devices drive their own steps, and the options of their updates."""

    group: Group  #: the workers; a group of one trains without other workers
    optimizer: OptimizerConfig
    clip_norm: float | None  #: maximum norm of the gradients; None: no clipping
    split: Sequence[int] | None  #: seeds of each device; None: equal shares
    over_gloo: bool  #: whether gradients pass through gloo


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

    ``loader`` loads features at the host; ``cache`` is the device's (None: no cache);
    ``device_driven`` is None for host-driven steps; ``batch_size`` is summed over the devices.
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
    """Return how many of a step's seeds each device gets."""
    split = step.counts or device_driven.split or [1] * device_driven.group.size
    return apportion(split, len(step.seeds))


def _slice(step: StepSeeds, device_driven: DeviceDriven) -> Array:
    """Return this device's seeds of a step."""
    counts, rank = _counts(step, device_driven), device_driven.group.rank
    first = sum(counts[:rank])
    return step.seeds[first : first + counts[rank]]


def _max_seeds(order: SeedOrder, batch_size: int, device_driven: DeviceDriven) -> int:
    """Return the largest number of seeds that this device gets in a step."""
    rank = device_driven.group.rank
    if order.movable:
        split = device_driven.split or [1] * device_driven.group.size
        return max(apportion(split, batch_size)[rank], 1)
    return max(1, *(_counts(step, device_driven)[rank] for step in order.epoch(0)))


#: Steps sampled concurrently if adjacency lists are on disk; lists that several steps need are read
#: once.
CONCURRENT_STEPS = 8


def sample_concurrently(
    slices: Iterator[BatchSlice], stages: Stages, *, count: int
) -> Iterator[BatchSlice]:
    """Yield ``slices`` in order after sampling, by ``count`` threads that work ahead."""
    waiting: deque[tuple[BatchSlice, Future[None]]] = deque()
    with ThreadPoolExecutor(count, "gnnscale-sample") as threads:
        for batch in slices:
            waiting.append((batch, threads.submit(stages.sample, batch)))
            if len(waiting) == count:
                yield _wait_for_sample(*waiting.popleft())
        while waiting:
            yield _wait_for_sample(*waiting.popleft())


def _wait_for_sample(batch: BatchSlice, sampling: Future[None]) -> BatchSlice:
    sampling.result()
    return batch


def look_ahead(
    slices: Iterator[BatchSlice],
    stages: Stages,
    *,
    window: int,
    expect: Callable[[Array | None], None],
    end: Callable[[], None] | None = None,
) -> Iterator[BatchSlice]:
    """Sample ``slices`` in order; yield each when ``window`` later slices are sampled as well.

    ``expect`` receives the input vertices of each slice, in the order of steps, or None for a slice
    without seeds; ``end`` is called after the last slice is sampled.
    """

    def sample(batch: BatchSlice) -> None:
        stages.sample(batch)
        expect(stages.input_vertices(batch))

    return _delayed(slices, sample, window, end)


def draw_ahead(
    slices: Iterator[BatchSlice], sampler: Sampler, replay: LookAheadReplay
) -> Iterator[BatchSlice]:
    """Yield ``slices`` for a device that samples, after ``replay`` knows their input vertices.

    The host draws these samples ahead, for the replay of the device's dynamic cache.
    """

    def sample(batch: BatchSlice) -> None:
        has_seeds = len(batch.seeds) > 0
        replay.expect(sampler.sample(batch.seeds, batch.step).input_vertices if has_seeds else None)

    return _delayed(slices, sample, replay.window)


def _delayed(
    slices: Iterator[BatchSlice],
    sample: Callable[[BatchSlice], None],
    window: int,
    end: Callable[[], None] | None = None,
) -> Iterator[BatchSlice]:
    """Yield slices in order, each after calls of ``sample`` for it and ``window`` later slices.

    After the last call of ``sample``, ``end`` is called and the remaining slices follow.
    """
    waiting: deque[BatchSlice] = deque()
    for batch in slices:
        sample(batch)
        waiting.append(batch)
        if len(waiting) > window:
            yield waiting.popleft()
    if end is not None:
        end()
    yield from waiting


def sampled_slices(
    slices: Schedule, device: WorkerDevice, data: TrainInputs
) -> Iterator[BatchSlice]:
    """Return the worker's slices, sampled ahead where something needs it.

    That is for adjacency lists on disk, prefetched rows, and dynamic caches.
    """
    slices_ahead = slices.slices()
    if data.graph.lists is not None:
        slices_ahead = sample_concurrently(slices_ahead, device.stages, count=CONCURRENT_STEPS)
    cache, prefetcher = device.cache, device.prefetcher
    if cache is not None and cache.replay is not None:
        return draw_ahead(slices_ahead, data.open_sampler(), cache.replay)
    if prefetcher is not None:
        return look_ahead(
            slices_ahead,
            device.stages,
            window=prefetcher.lead,
            expect=prefetcher.expect,
            end=prefetcher.end,
        )
    dynamic = None if cache is None else cache.look_ahead
    if dynamic is None:
        return slices_ahead
    return look_ahead(slices_ahead, device.stages, window=dynamic.window, expect=dynamic.expect)


def max_window(plan: CachePlan | None) -> int:
    """Return the largest look-ahead of all dynamic caches, in steps; 0: there are none."""
    policies = () if plan is None else (cache.look_ahead for cache in plan.devices)
    return max((policy.window for policy in policies if policy is not None), default=0)
