"""Host memory as a tier above the disk: chosen, sized and opened for one worker."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from gnnscale.cache import CachePlan
from gnnscale.cache.hotness.degree import out_degree
from gnnscale.cache.presampling import Presampler
from gnnscale.core import ConfigError, Int32Array, find_memory
from gnnscale.core.artifact.files import size
from gnnscale.distributed.process_group import Group
from gnnscale.features import DiskFeaturesConfig, DiskRows, HostFeaturesConfig, read_from_disk
from gnnscale.features.disk import features_file
from gnnscale.features.disk_bandwidth import DiskRates, gap_of, rates_of
from gnnscale.features.tiered.planner import Policy, TierPlanner
from gnnscale.features.tiered.policies import DeviceCacheFilter, StaticPolicy, held_bytes
from gnnscale.features.tiered.setup import BufferPlan, open_pool, together
from gnnscale.features.tiered.sizing import (
    AHEAD,
    MAX_WINDOW,
    Horizon,
    Misses,
    SampledBatches,
    TierSizes,
    size_tier,
)
from gnnscale.features.tiered.source import RowSource
from gnnscale.features.tiered.store import TieredStore
from gnnscale.graph import Graph
from gnnscale.planner import device_plan
from gnnscale.planner.cost_model import stage_work as work
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.cost_model.workload import SourceEffect, Workload
from gnnscale.run.config import RunConfig, tier_problem
from gnnscale.sampling import SamplerConfig, SeedOrder

log = logging.getLogger(__name__)

#: Steps that are drawn to learn how large mini-batches are.
_SAMPLED = 16
#: The part of the memory that is left to the system, to weights and to what is not counted.
RESERVE = 0.15
#: Steps that a run looks ahead that is to repeat.
_REPEATED_WINDOW = 8


def chosen_tier(config: RunConfig, graph: Graph) -> DiskFeaturesConfig | None:
    """Return how rows are read from the disk; None if they are read in memory.

    A run that does not ask for it does so if its rows exceed the memory, and its devices can; but
    one that is to repeat does not, whatever memory there is.
    """
    if isinstance(config.features, DiskFeaturesConfig):
        return config.features
    may_choose = type(config.features) is HostFeaturesConfig and not config.runtime.deterministic
    if not may_choose or tier_problem(config) is not None or not read_from_disk(graph):
        return None
    return DiskFeaturesConfig()


@dataclass(frozen=True, kw_only=True)
class OpenedTier:
    """Host memory over a slower source, for one worker."""

    store: TieredStore  #: reads rows in memory, and the others some steps before their use
    effect: SourceEffect  #: what the performance model needs to know of it


def open_tier(
    options: DiskFeaturesConfig,
    config: RunConfig,
    graph: Graph,
    *,
    sampling: SamplerConfig,
    order: SeedOrder,
    workload: Workload,
    group: Group,
    caches: CachePlan | None = None,
) -> OpenedTier:
    """Open the tier of this worker, which the workers of a machine share.

    Args:
        workload: says what memory a mini-batch takes while it computes.
        caches: what devices above it hold; None for nothing.

    Raises:
        ConfigError: the features are in no file, or the rows of a step do not fit into memory.
        OSError: the file cannot be read.
    """
    above = DeviceCacheFilter.of(caches, graph, group.rank)
    sample = sample_batches(config, graph, sampling, order, workload, group, above)

    def plan(samples: Sequence[SampledBatches]) -> BufferPlan:
        every = together(samples)
        memory = options.memory_bytes
        if memory is None:
            held = held_bytes(caches, graph, group)
            memory = memory_left(config, graph, every, group, held_bytes=held)
        horizon = horizon_of(config, options.window, order, priority_below(caches, graph, group))
        return _plan_pool(options, graph, every, horizon, memory, group)

    def open_source(values: Any) -> RowSource:
        return DiskRows.of(graph, max_gap_bytes=values["max_gap_bytes"])

    opened = open_pool(group, sample, open_source, plan)
    effect = SourceEffect(**opened.values["effect"])
    effect = replace(effect, row_misses=effect.row_misses * sample.asked)
    return OpenedTier(store=TieredStore(opened.rows), effect=effect)


def _plan_pool(
    options: DiskFeaturesConfig,
    graph: Graph,
    sample: SampledBatches,
    horizon: Horizon,
    memory_bytes: int,
    group: Group,
) -> BufferPlan:
    """Size the pool of a machine's workers, who have drawn ``sample``, and decide what it holds.

    Raises:
        ConfigError: the rows of a step do not fit.
        OSError: the file cannot be read.
    """
    file = features_file(graph)
    source = DiskRows.of(graph, max_gap_bytes=gap_of(file))
    row_bytes = source.width * source.dtype.itemsize
    sizes = size_tier(
        sample, horizon, num_rows=source.num_rows, row_bytes=row_bytes, memory_bytes=memory_bytes
    )
    kept = None
    policy: Policy = horizon.policy(sizes, sample.num_workers)
    if options.policy == "out_degree":
        ordered = np.argsort(-horizon.priority, kind="stable")
        kept = ordered[: sizes.num_kept].astype(graph.indices.dtype)
        policy = StaticPolicy(len(ordered), kept)
    planner = TierPlanner(
        policy,
        num_kept=sizes.num_kept,
        num_staged=sizes.num_staged,
        window=sizes.window * sample.num_workers,
    )
    if group.is_rank0:
        log.info(_describe(options, graph, sizes, row_bytes))
    effect = _effect(sizes.misses, row_bytes, rates_of(file), group)
    values = {"effect": asdict(effect), "max_gap_bytes": gap_of(file)}
    return BufferPlan(source=source, planner=planner, sizes=sizes, kept=kept, values=values)


def priority_below(caches: CachePlan | None, graph: Graph, group: Group) -> Int32Array:
    """Return the order of rows that the workers of this machine read equally soon.

    Rows with most out-neighbours come first, and last those that the devices of all workers have.
    """
    priority = out_degree(graph)
    first = group.rank - group.local_rank
    above = [DeviceCacheFilter.of(caches, graph, first + each) for each in range(group.local_size)]
    if any(each is None for each in above):
        return priority
    below = [each.priority_below(priority) for each in above if each is not None]
    highest: Int32Array = np.maximum.reduce(below)
    return highest


def horizon_of(
    config: RunConfig, window: int | None, order: SeedOrder, priority: Int32Array
) -> Horizon:
    """Return how far a tier looks ahead: ``window`` steps, None for as far as memory allows.

    Resource management decides as many steps ahead: of a run that is to repeat, memory must not
    say how many these are.
    """
    if window is None and config.runtime.deterministic:
        window = _REPEATED_WINDOW
    return Horizon(
        window=window,
        priority=priority,
        num_steps=order.steps_per_epoch,
        num_threads=config.num_threads,
    )


def _effect(misses: Misses, row_bytes: int, rates: DiskRates | None, group: Group) -> SourceEffect:
    """Return what rows of the disk cost, which the workers of a machine share."""
    if rates is None:
        return SourceEffect()
    requests, num_bytes = misses.requests(row_bytes=row_bytes, max_gap_bytes=rates.max_gap_bytes)
    seconds = rates.seconds(requests, num_bytes) * group.local_size
    return SourceEffect(row_misses=misses.rate, row_s=seconds / max(len(misses.vertices), 1))


def sample_batches(
    config: RunConfig,
    graph: Graph,
    sampling: SamplerConfig,
    order: SeedOrder,
    workload: Workload,
    group: Group,
    above: DeviceCacheFilter | None = None,
) -> SampledBatches:
    """Draw the first mini-batches of this worker, without the rows that a cache above has."""
    split = config.device_plan.split or [1] * group.size
    draws = Presampler(
        graph,
        sampling,
        order,
        split=partial(device_plan.apportion, split),
        seed=config.seed,
        num_threads=config.num_threads,
    )
    vertices, num_bytes, computing = [], 0, 0.0
    for draw in islice(draws.epoch(0, devices={group.rank}), _SAMPLED):
        vertices.append(draw.batch.input_vertices)
        num_bytes = max(num_bytes, draw.batch.num_bytes)
        computing = max(computing, work.batch_bytes(workload, BatchSize.of(draw.batch)))
    asked = 1.0
    if above is not None:
        whole, vertices = vertices, above.lacks(vertices)
        num_bytes += above.step_bytes(max(map(len, whole), default=0))
        # A cache whose rows follow the batches begins without any.
        half = len(whole) // 2
        asked = sum(map(len, vertices[half:])) / max(sum(map(len, whole[half:])), 1)
    return SampledBatches(
        vertices=vertices,
        num_bytes=num_bytes,
        computing_bytes=round(computing),
        asked=asked,
        window_above=0 if above is None else above.window,
    )


def memory_left(
    config: RunConfig,
    graph: Graph,
    sample: SampledBatches,
    group: Group,
    *,
    name: str = "disk",
    held_bytes: int = 0,
) -> int:
    """Return the memory that rows may take, over all workers of this machine.

    Left out are the topology, as far as sampling reads it in memory, mini-batches on their way, a
    reserve, and ``held_bytes`` of rows that are there already.

    Raises:
        ConfigError: nothing is left.
    """
    memory = find_memory()
    on_their_way = MAX_WINDOW + AHEAD + config.runtime.prefetch_depth + sample.window_above
    computing = (1 + config.runtime.prefetch_depth) * sample.computing_bytes
    each = on_their_way * sample.num_bytes + computing
    left = memory.available - graph.mapped_bytes - held_bytes - RESERVE * memory.total
    left -= each * group.local_size
    if left <= 0:
        raise ConfigError(
            f"features={name}: no memory is left for rows: {size(memory.available)} are available, "
            f"the topology takes {size(graph.mapped_bytes)} and mini-batches "
            f"{size(round(each * group.local_size))}; a smaller batch_size or smaller "
            "sampler.fanouts leave more"
        )
    return int(left)


def _describe(options: DiskFeaturesConfig, graph: Graph, sizes: TierSizes, row_bytes: int) -> str:
    held = size((sizes.num_kept + sizes.num_staged) * row_bytes)
    part = f"{sizes.num_kept / graph.num_vertices:.0%} of {size(graph.feature_bytes)}"
    if options.policy == "out_degree":
        stay = "those with most out-neighbours stay"
    else:
        stay = f"those that the next {sizes.window} steps read soonest stay"
    return f"features=disk: {held} of memory hold {part} of rows; {stay}, the disk has the others"
