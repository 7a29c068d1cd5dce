"""Tiered store in host memory above a disk: chosen, sized and opened for one worker."""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from gnnscale.cache import CachePlan, Presampler
from gnnscale.cache.hotness.degree import out_degree
from gnnscale.core import Array, ConfigError, Int32Array, read_memory
from gnnscale.core.artifact.files import size
from gnnscale.distributed.process_group import Group
from gnnscale.features import (
    DiskFeaturesConfig,
    DiskRows,
    FeatureStoreConfig,
    HostFeaturesConfig,
    SharedFeaturesConfig,
    read_from_disk,
)
from gnnscale.features.disk import (
    DiskRates,
    cached_disk_rates,
    features_file,
    mapped_features,
    max_read_gap,
    types_in_files,
)
from gnnscale.features.tiered import policies, sizing
from gnnscale.features.tiered.buffer import RowSource
from gnnscale.features.tiered.distinct import DistinctReader
from gnnscale.features.tiered.setup import (
    BufferHandle,
    BufferPlan,
    merge_samples,
    open_buffer,
)
from gnnscale.features.tiered.store import TieredReader, TieredStore
from gnnscale.features.typed import TypedStore
from gnnscale.features.typed_tier import TypedTieredStore, sample_by_type
from gnnscale.graph import Graph
from gnnscale.planner import device_plan
from gnnscale.planner.cost_model import BatchSize, SourceEffect, Workload
from gnnscale.planner.cost_model import stage_work as work
from gnnscale.sampling import SamplerConfig, SeedOrder

log = logging.getLogger(__name__)

#: Number of steps sampled to measure the size of mini-batches.
_SAMPLED = 16
#: Fraction of memory left to the system, to weights, and to everything not counted.
RESERVE = 0.15
#: Look-ahead of deterministic runs, in steps.
_DETERMINISTIC_WINDOW = 8
#: Rows of a vertex type that a mini-batch may miss, at least.
_TYPE_OVERFLOW = 1 << 12


def chosen_tier(
    features: FeatureStoreConfig, graph: Graph, *, may_choose: bool
) -> DiskFeaturesConfig | None:
    """Return options of rows on disk, set by the user or chosen since rows exceed memory.

    None: the user has set none, and rows fit into memory or ``may_choose`` is false.
    """
    if isinstance(features, DiskFeaturesConfig):
        return features
    may_choose = may_choose and type(features) is HostFeaturesConfig
    return DiskFeaturesConfig() if may_choose and read_from_disk(graph) else None


@dataclass(frozen=True, kw_only=True)
class OpenedTier:
    """Tiered store of one worker, with its cost for the performance model."""

    #: reads rows from memory, and prefetches missing rows some steps ahead
    store: TieredStore | TypedTieredStore
    effect: SourceEffect  #: miss rate and cost of a row, for the performance model


@dataclass(frozen=True, kw_only=True)
class TierInputs:
    """Run, mini-batches and caches for which a tiered store of one worker is sized."""

    graph: Graph  #: the training graph
    sampling: SamplerConfig  #: sampler of the mini-batches
    order: SeedOrder  #: the seeds of every step
    workload: Workload  #: predicts the memory of a mini-batch during computation
    group: Group  #: all workers
    caches: CachePlan | None  #: caches of the devices above the store; None: there are none
    split: Sequence[int] | None  #: seeds of each device; None: equal shares
    seed: int  #: seed of the samples
    num_threads: int  #: threads that sample and gather rows
    prefetch_depth: int  #: mini-batches that a worker prepares ahead
    deterministic: bool  #: whether free memory must not decide how far the store looks ahead

    def buffer_inputs(
        self,
        options: DiskFeaturesConfig | SharedFeaturesConfig,
        samples: Sequence[sizing.SampledBatches],
    ) -> tuple[sizing.SampledBatches, int, sizing.Horizon]:
        """Return the merged ``samples`` of a machine's workers, bytes for rows, and the horizon.

        The horizon is the look-ahead, with the priority of each row to stay in memory.
        """
        graph, group, memory = self.graph, self.group, options.memory_bytes
        sample = merge_samples(samples)
        if memory is None:
            cached_bytes = policies.emulated_cache_bytes(self.caches, graph, group)
            name = "disk" if isinstance(options, DiskFeaturesConfig) else "shared"
            memory = memory_left(
                graph,
                sample,
                group,
                prefetch_depth=self.prefetch_depth,
                name=name,
                cached_bytes=cached_bytes,
            )
        return sample, memory, self.horizon(options.window)

    def horizon(self, window: int | None) -> sizing.Horizon:
        """Return the store's look-ahead and its priorities of rows.

        ``window`` counts steps of look-ahead; None: 8 if deterministic, else sized by memory.
        """
        if window is None and self.deterministic:
            window = _DETERMINISTIC_WINDOW
        return sizing.Horizon(
            window=window,
            priority=host_priority(self.caches, self.graph, self.group),
            num_steps=self.order.steps_per_epoch,
            num_threads=self.num_threads,
        )

    def sample(self) -> sizing.SampledBatches:
        """Return a sample of this worker's first mini-batches.

        It is without the rows that the device's cache has.
        """
        rank = self.group.rank
        device_filter = policies.DeviceCacheFilter.of(self.caches, self.graph, rank)
        split = self.split or [1] * self.group.size
        presampler = Presampler(
            self.graph,
            self.sampling,
            self.order,
            split=partial(device_plan.apportion, split),
            seed=self.seed,
            num_threads=self.num_threads,
        )
        vertices, num_bytes, computing = [], 0, 0.0
        for draw in islice(presampler.epoch(0, devices={rank}), _SAMPLED):
            vertices.append(draw.batch.distinct_inputs)
            num_bytes = max(num_bytes, draw.batch.num_bytes)
            computing = max(computing, work.batch_bytes(self.workload, BatchSize.of(draw.batch)))
        miss_rate = 1.0
        if device_filter is not None:
            all_vertices, vertices = vertices, device_filter.lacks(vertices)
            num_bytes += device_filter.step_bytes(max(map(len, all_vertices), default=0))
            # A dynamic cache starts empty, so only the second half counts.
            half = len(all_vertices) // 2
            num_missing = sum(map(len, vertices[half:]))
            miss_rate = num_missing / max(sum(map(len, all_vertices[half:])), 1)
        return sizing.SampledBatches(
            vertices=vertices,
            num_bytes=num_bytes,
            computing_bytes=round(computing),
            asked=miss_rate,
            device_window=0 if device_filter is None else device_filter.window,
        )


def open_disk_tier(options: DiskFeaturesConfig, inputs: TierInputs) -> OpenedTier:
    """Open the tiered store of this worker, which the workers of a machine share.

    The features of each vertex type have a buffer of their own. ConfigError if the features are in
    no file, or the rows of a step exceed the memory.
    """
    graph, group, sample = inputs.graph, inputs.group, inputs.sample()
    types = types_in_files(graph)
    plans: dict[int, BufferPlan] = {}  # of the first worker

    def open_type(number: int) -> BufferHandle:
        def plan(samples: Sequence[sizing.SampledBatches]) -> BufferPlan:
            if not plans:
                plans.update(_plan_buffers(options, inputs, samples, types))
            return plans.pop(number)

        def open_source(values: Any) -> RowSource:
            return DiskRows.of(graph, max_gap_bytes=values["max_gap_bytes"], vertex_type=number)

        # The plans of all types follow from the sample that comes with the first one.
        sent = sample if number == types[0] else sizing.SampledBatches(vertices=[], num_bytes=0)
        return open_buffer(group, sent, open_source, plan)

    buffers = {number: open_type(number) for number in types}
    effect = SourceEffect.of_parts(
        [
            replace(effect, row_misses=effect.row_misses * part.asked)
            for part, effect in zip(
                _by_type(sample, graph, types),
                (SourceEffect(**buffer.values["effect"]) for buffer in buffers.values()),
                strict=True,
            )
        ]
    )
    readers: dict[int, TieredReader] = {number: part.rows for number, part in buffers.items()}
    if graph.has_cutoffs:
        readers = {number: DistinctReader(reader) for number, reader in readers.items()}
    if graph.types is None:
        return OpenedTier(store=TieredStore(readers[0]), effect=effect)
    return OpenedTier(store=TypedTieredStore(TypedStore.of(graph), readers), effect=effect)


def _by_type(
    sample: sizing.SampledBatches, graph: Graph, types: Sequence[int]
) -> list[sizing.SampledBatches]:
    """Return the rows of each of ``types`` in ``sample``: all of it for a graph without types."""
    return [sample] if graph.types is None else sample_by_type(sample, graph.types, types)


def _plan_buffers(
    options: DiskFeaturesConfig,
    inputs: TierInputs,
    samples: Sequence[sizing.SampledBatches],
    types: Sequence[int],
) -> dict[int, BufferPlan]:
    """Return the plan of the buffer of each of ``types``, by ``samples`` of a machine's workers."""
    graph = inputs.graph
    sample, memory, horizon = inputs.buffer_inputs(options, samples)
    demands = [
        sizing.TypeDemand(
            sample=part,
            horizon=replace(horizon, priority=horizon.priority[graph.schema.vertices(number)]),
            row_bytes=_row_bytes(mapped_features(graph, number)),
        )
        for number, part in zip(types, _by_type(sample, graph, types), strict=True)
    ]
    parts = [memory] if graph.types is None else sizing.divide_memory(memory, demands)
    return {
        number: _plan_buffer(options, graph, number, demand, part, inputs.group)
        for number, demand, part in zip(types, demands, parts, strict=True)
    }


def _row_bytes(rows: Array) -> int:
    return int(rows.shape[1]) * rows.itemsize


def _plan_buffer(
    options: DiskFeaturesConfig,
    graph: Graph,
    vertex_type: int,
    demand: sizing.TypeDemand,
    memory_bytes: int,
    group: Group,
) -> BufferPlan:
    """Plan and log the buffer of a vertex type, for ``demand``: size, policy, row cost."""
    file, row_bytes = features_file(graph, vertex_type), demand.row_bytes
    sample, horizon = demand.sample, demand.horizon
    source = DiskRows.of(graph, max_gap_bytes=max_read_gap(file), vertex_type=vertex_type)
    sizes = sizing.size_tier(
        sample, horizon, num_rows=source.num_rows, row_bytes=row_bytes, memory_bytes=memory_bytes
    )
    static_rows = None
    policy: policies.Policy = horizon.policy(sizes, sample.num_workers)
    if options.policy == "out_degree":
        ordered = np.argsort(-horizon.priority, kind="stable")
        static_rows = ordered[: sizes.num_kept].astype(graph.indices.dtype)
        policy = policies.StaticPolicy(len(ordered), static_rows)
    # The batches of a sample say little of types that few of them read.
    num_overflow = 0 if graph.types is None else min(source.num_rows, _TYPE_OVERFLOW)
    planner = tier_planner(policy, sizes, sample, num_overflow=num_overflow)
    if group.is_rank0:
        rows = "rows" if graph.types is None else f"rows of {graph.vertex_types[vertex_type]}"
        log.info(_describe(options, rows, source.num_rows, sizes, row_bytes))
    effect = _effect(sizes.misses, row_bytes, cached_disk_rates(file), group)
    values = {"effect": asdict(effect), "max_gap_bytes": max_read_gap(file)}
    return BufferPlan(source=source, planner=planner, sizes=sizes, kept=static_rows, values=values)


def tier_planner(
    policy: policies.Policy,
    sizes: sizing.TierSizes,
    sample: sizing.SampledBatches,
    *,
    num_fixed: int = 0,
    num_overflow: int = 0,
) -> policies.TierPlanner:
    """Return the planner that chooses by ``policy`` the rows in a buffer of ``sizes`` slots.

    ``num_fixed`` of the slots always hold the same rows; at least ``num_overflow`` more are for
    large batches.
    """
    return policies.TierPlanner(
        policy,
        num_kept=sizes.num_kept,
        num_staged=sizes.num_staged,
        window=sizes.window * sample.num_workers,
        num_fixed=num_fixed,
        num_overflow=num_overflow,
    )


def host_priority(caches: CachePlan | None, graph: Graph, group: Group) -> Int32Array:
    """Return each row's priority to stay in host memory when workers read rows equally soon.

    A row has its number of out-neighbors, or -1 if the devices of all of this machine's workers
    cache it.
    """
    priority = out_degree(graph)
    first = group.rank - group.local_rank
    ranks = range(first, first + group.local_size)
    filters = [policies.DeviceCacheFilter.of(caches, graph, rank) for rank in ranks]
    if any(device_filter is None for device_filter in filters):
        return priority
    priorities = [f.host_priority(priority) for f in filters if f is not None]
    highest: Int32Array = np.maximum.reduce(priorities)
    return highest


def _effect(
    misses: sizing.Misses, row_bytes: int, rates: DiskRates | None, group: Group
) -> SourceEffect:
    """Return the miss rate of mini-batches, and the seconds to read a missed row from the disk.

    The workers of this machine, by ``group``, share the disk's ``rates``. None: the disk's speed is
    unknown, and both results are 0.
    """
    if rates is None:
        return SourceEffect()
    requests, num_bytes = misses.requests(row_bytes=row_bytes, max_gap_bytes=rates.max_gap_bytes)
    seconds = rates.seconds(requests, num_bytes) * group.local_size
    return SourceEffect(row_misses=misses.rate, row_s=seconds / max(len(misses.vertices), 1))


def memory_left(
    graph: Graph,
    sample: sizing.SampledBatches,
    group: Group,
    *,
    prefetch_depth: int,
    name: str = "disk",
    cached_bytes: int = 0,
) -> int:
    """Return the bytes that rows may take, over all workers of this machine, or raise ConfigError.

    It is the available memory minus the topology that sampling reads in memory, mini-batches in
    flight, a reserve, and ``cached_bytes`` of rows in emulated device caches. Errors mention the
    option ``features=name``.
    """
    memory = read_memory()
    num_in_flight = sizing.MAX_WINDOW + sizing.MAX_IN_FLIGHT + prefetch_depth + sample.device_window
    computing = (1 + prefetch_depth) * sample.computing_bytes
    batch_bytes = num_in_flight * sample.num_bytes + computing
    free = memory.available - graph.mapped_bytes - cached_bytes - RESERVE * memory.total
    free -= batch_bytes * group.local_size
    if free <= 0:
        raise ConfigError(
            f"features={name}: no memory is left for rows: {size(memory.available)} are available, "
            f"the topology takes {size(graph.mapped_bytes)} and mini-batches "
            f"{size(round(batch_bytes * group.local_size))}; a smaller batch_size or smaller "
            "sampler.fanouts leave more"
        )
    return int(free)


def _describe(
    options: DiskFeaturesConfig, rows: str, num_rows: int, sizes: sizing.TierSizes, row_bytes: int
) -> str:
    buffered = size((sizes.num_kept + sizes.num_staged) * row_bytes)
    part = f"{sizes.num_kept / num_rows:.0%} of {size(num_rows * row_bytes)}"
    if options.policy == "out_degree":
        policy = "rows with most out-neighbors stay in memory"
    else:
        policy = f"rows that the next {sizes.window} steps read soonest stay in memory"
    return f"features=disk: {buffered} of memory hold {part} of {rows}; {policy}"
