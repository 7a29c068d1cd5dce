"""Host memory as a tier above other machines, which divide the feature rows among them."""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.cache import CachePlan
from gnnscale.core import Access, Array, ConfigError, Traffic, shown
from gnnscale.core.artifact.files import size
from gnnscale.core.artifact.npy import row_slices
from gnnscale.distributed.process_group import Group, trade_values
from gnnscale.features import FeatureStore, SharedFeaturesConfig
from gnnscale.features.sharded.disk_shard import (
    DiskShardInfo,
    LocalDiskShard,
    describe_over_disk,
    own_file,
)
from gnnscale.features.sharded.exchange import owners_of
from gnnscale.features.sharded.store import ShardedStore
from gnnscale.features.tiered.buffer import MappedRows, slots_of_file
from gnnscale.features.tiered.planner import TierPlanner
from gnnscale.features.tiered.policies import DeviceCacheFilter, RemoteOnlyPolicy, held_bytes
from gnnscale.features.tiered.setup import BufferPlan, open_pool, together
from gnnscale.features.tiered.sizing import Horizon, SampledBatches, TierSizes, size_tier
from gnnscale.features.tiered.source import RowSource
from gnnscale.features.tiered.store import TieredStore
from gnnscale.graph import Graph
from gnnscale.graph.sharded import ShardedFeatures
from gnnscale.graph.store_format import read_meta
from gnnscale.planner.cost_model.workload import SourceEffect, Workload
from gnnscale.run.config import RunConfig
from gnnscale.sampling import SamplerConfig, SeedOrder
from gnnscale.training.build.tiered_features import (
    OpenedTier,
    horizon_of,
    memory_left,
    priority_below,
    sample_batches,
)

log = logging.getLogger(__name__)

#: Rows of about so many bytes are read at once for evaluation.
_READ_BYTES = 16 << 20


class SharedFeatures(FeatureStore):
    """All rows, each read from the machine that has it at once: for evaluation by rank 0."""

    def __init__(self, rows: ShardedStore) -> None:
        """Read ``rows``."""
        self._rows = rows

    @property
    def num_rows(self) -> int:
        """Number of rows, of all machines."""
        return self._rows.num_rows

    @property
    def width(self) -> int:
        """Features of a row."""
        return self._rows.num_features

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is stored."""
        return self._rows.row_bytes

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, ``[n, width]``."""
        out = ops.empty((len(vertices), self.width), dtype)
        for part in row_slices(len(vertices), self.row_bytes, _READ_BYTES):
            stored = self._rows.read(vertices[part]), self._rows.dtype_name
            order = np.arange(part.stop - part.start, dtype=np.int32)
            ops.gather(stored, order, out=out[part], num_threads=num_threads)
        return out, Traffic(rows=Access(host_bytes=len(vertices) * self.row_bytes))


@dataclass(frozen=True, kw_only=True)
class _MachineStore:
    """What one process says of the store of its machine."""

    machine: str  #: its name
    local_rank: int  #: number of the process there
    path: str  #: of the store
    part: int
    num_parts: int
    partition: str  #: content of the partition
    content: str  #: of what all parts have alike


def open_rows(config: RunConfig, graph: Graph, group: Group) -> ShardedStore | None:
    """Begin to share rows with the other machines; None unless ``features=shared``.

    All processes do so at the same time, and raise alike.

    Raises:
        ConfigError: there is one machine, or the stores of the machines are not the parts of one
            partition, each on one machine.
    """
    if not isinstance(config.features, SharedFeaturesConfig):
        return None
    if group.local_size == group.size:
        raise config.features.refused()
    divided = graph.features
    here: _MachineStore | None = None
    if isinstance(divided, ShardedFeatures):
        here = _MachineStore(
            machine=socket.gethostname(),
            local_rank=group.local_rank,
            path=str(divided.path),
            part=divided.part,
            num_parts=divided.num_parts,
            partition=divided.partition,
            content=read_meta(divided.path).shared_content,
        )
    mine = here and asdict(here)
    every = trade_values([socket.gethostname(), str(graph.path), mine], group)
    for rank, (machine, path, found) in enumerate(every):
        if found is None:
            raise ConfigError(
                f"features=shared: {shown(path)}, of process {rank} on {shown(machine)}, is not "
                "the store of a part's rows; gnnscale partition part_stores=rows writes these"
            )
    machines = [_MachineStore(**found) for _, _, found in every]
    check_parts(machines)
    assert isinstance(divided, ShardedFeatures)
    return ShardedStore(
        divided,
        group,
        owners_of([each.part for each in machines], group.rank),
        dtype_name=graph.feature_dtype,
        num_features=graph.num_features,
    )


def check_parts(machines: Sequence[_MachineStore]) -> None:
    """Refuse parts of different partitions, a part that is missing, and one that is there twice.

    Args:
        machines: what each process says, in the order of ranks.

    Raises:
        ConfigError: names the part, or both partitions.
    """
    first = machines[0]
    for rank, each in enumerate(machines):
        for what, theirs, ours in (
            ("partition", each.partition, first.partition),
            ("number of parts", each.num_parts, first.num_parts),
            ("topology, labels and owners", each.content, first.content),
        ):
            if theirs != ours:
                raise ConfigError(
                    f"features=shared: {what} of {shown(each.path)}, of process {rank} on "
                    f"{shown(each.machine)}, is {shown(theirs)}, and {shown(ours)} of "
                    f"{shown(first.path)}, of process 0 on {shown(first.machine)}; the stores of "
                    "all machines have to be parts of one partition"
                )
    taken: dict[tuple[int, int], int] = {}
    for rank, each in enumerate(machines):
        other = taken.setdefault((each.part, each.local_rank), rank)
        if other != rank:
            raise ConfigError(
                f"features=shared: part {each.part} is that of process {other} on "
                f"{shown(machines[other].machine)} and of process {rank} on {shown(each.machine)}; "
                "each machine needs another part (dataset.store)"
            )
    missing = sorted(set(range(first.num_parts)) - {each.part for each in machines})
    if missing:
        raise ConfigError(
            f"features=shared: no machine has part {missing[0]} of {first.num_parts}; each needs "
            "one (dataset.store), and a partition as many parts as there are machines"
        )


def open_shared(
    rows: ShardedStore,
    config: RunConfig,
    graph: Graph,
    *,
    sampling: SamplerConfig,
    order: SeedOrder,
    workload: Workload,
    group: Group,
    caches: CachePlan | None = None,
) -> OpenedTier:
    """Open the tier of this worker above the other machines.

    Args:
        workload: says what memory a mini-batch takes while it computes.
        caches: what devices above it hold; None for nothing.

    Raises:
        ConfigError: the rows of a step do not fit into memory.
    """
    options = config.features
    assert isinstance(options, SharedFeaturesConfig)
    above = DeviceCacheFilter.of(caches, graph, group.rank)
    sample = sample_batches(config, graph, sampling, order, workload, group, above)

    def plan(samples: Sequence[SampledBatches]) -> BufferPlan:
        every = together(samples)
        memory = options.memory_bytes
        if memory is None:
            held = held_bytes(caches, graph, group)
            memory = memory_left(config, graph, every, group, name="shared", held_bytes=held)
        horizon = horizon_of(config, options.window, order, priority_below(caches, graph, group))
        planned = _plan_beside_own(rows, every, memory, horizon)
        if planned is None:
            planned = _plan_over_disk(rows, every, memory, horizon)
        if group.is_rank0:
            log.info(_describe(rows, planned))
        return planned

    def open_source(values: Any) -> RowSource:
        if not values["over_disk"]:
            return rows
        return LocalDiskShard(rows, own_file(rows, values["max_gap_bytes"]))

    file = _mapped(rows)
    opened = open_pool(group, sample, open_source, plan, file=file)
    if opened.values["over_disk"]:
        rows.read_own_from(own_file(rows, opened.values["max_gap_bytes"]))
    elif file is not None:
        rows.read_own_in(opened.slots[: rows.num_own])
    effect = SourceEffect()
    if not config.runtime.deterministic:
        effect = _effect(rows, opened.values, sample)
    return OpenedTier(store=TieredStore(opened.rows), effect=effect)


def _effect(rows: ShardedStore, values: Any, sample: SampledBatches) -> SourceEffect:
    """Return what rows cost that memory lacks; the network is measured by all processes at once."""
    others_s = rows.seconds_a_row() * (1 - values["own_share"])
    return SourceEffect(
        row_misses=values["row_misses"] * sample.asked, row_s=others_s + values["own_s"]
    )


def _plan_beside_own(
    rows: ShardedStore, sample: SampledBatches, memory_bytes: int, horizon: Horizon
) -> BufferPlan | None:
    """Plan what own rows leave of memory for those of others; None if a step's do not fit.

    Raises:
        ConfigError: there are no own rows, and the others' of a step do not fit.
    """
    left = memory_bytes - rows.num_own * rows.row_bytes
    try:
        sizes = _sizes(rows, sample, left, horizon)
    except ConfigError:
        if not rows.num_own:
            raise
        return None
    file = _mapped(rows)
    policy = horizon.policy(sizes, sample.num_workers)
    planner = TierPlanner(
        RemoteOnlyPolicy(policy, rows.own_places, num_kept=sizes.num_kept),
        num_kept=sizes.num_kept,
        num_staged=sizes.num_staged,
        window=sizes.window * sample.num_workers,
        num_fixed=0 if file is None else slots_of_file(file),
    )
    values = {"over_disk": False, "own_share": 0.0, "own_s": 0.0}
    return BufferPlan(
        source=rows,
        file=file,
        delegates=True,
        planner=planner,
        sizes=sizes,
        values=values | {"row_misses": _miss_rate(sizes, sample)},
    )


def _plan_over_disk(
    rows: ShardedStore, sample: SampledBatches, memory_bytes: int, horizon: Horizon
) -> BufferPlan:
    """Plan a pool for rows of all machines; own ones are read from the disk.

    Raises:
        ConfigError: the rows of a step do not fit.
    """
    sizes = _doubled(sample, rows.num_rows, rows.row_bytes, memory_bytes, horizon)
    disk = DiskShardInfo.of(rows)
    planner = TierPlanner(
        horizon.policy(sizes, sample.num_workers),
        num_kept=sizes.num_kept,
        num_staged=sizes.num_staged,
        window=sizes.window * sample.num_workers,
    )
    own_share, own_s = disk.own_part(rows, sizes.misses, sample.num_workers)
    values = {"over_disk": True, "own_share": own_share, "own_s": own_s}
    return BufferPlan(
        source=LocalDiskShard(rows, own_file(rows, disk.max_gap_bytes)),
        delegates=True,
        planner=planner,
        sizes=sizes,
        values=values
        | {"row_misses": _miss_rate(sizes, sample), "max_gap_bytes": disk.max_gap_bytes},
    )


def _miss_rate(sizes: TierSizes, sample: SampledBatches) -> float:
    """Return the part of a mini-batch's rows that memory lacks, over an epoch."""
    needed = np.mean([len(each) for each in sample.vertices]) if sample.vertices else 1
    return min(sizes.misses.mean / max(float(needed), 1), 1)


def _sizes(
    rows: ShardedStore, sample: SampledBatches, memory_bytes: int, horizon: Horizon
) -> TierSizes:
    """Divide memory among other machines' rows and buffers for these."""
    others = [each[rows.own_places(each) < 0] for each in sample.vertices]
    remote = replace(sample, vertices=others)
    # Own rows are never missed: they are not to count among those that others of a degree are.
    own = rows.own_places(np.arange(rows.num_rows)) >= 0
    asked = replace(horizon, priority=np.where(own, np.int32(-1), horizon.priority))
    return _doubled(remote, rows.num_rows - rows.num_own, rows.row_bytes, memory_bytes, asked)


def _doubled(
    sample: SampledBatches, num_rows: int, row_bytes: int, memory_bytes: int, horizon: Horizon
) -> TierSizes:
    """Divide memory among rows and buffers of the exchange, in which some arrive."""

    def sizes(memory_bytes: int) -> TierSizes:
        return size_tier(
            sample,
            horizon,
            num_rows=num_rows,
            row_bytes=row_bytes,
            memory_bytes=max(memory_bytes, 0),
        )

    # Places for what two steps miss become places for four, and there are buffers for two.
    found = sizes(memory_bytes)
    found = sizes(memory_bytes - 2 * found.num_staged * row_bytes)
    return replace(found, num_staged=2 * found.num_staged)


def _mapped(rows: ShardedStore) -> MappedRows | None:
    """Return the file that has this machine's rows; None if there are no such rows."""
    if not rows.num_own:
        return None
    assert isinstance(rows.own, np.memmap)  # that of its store
    return rows.own


def _describe(rows: ShardedStore, planned: BufferPlan) -> str:
    sizes = planned.sizes
    if planned.values["over_disk"]:
        return describe_over_disk(rows, sizes)
    others = rows.num_rows - rows.num_own
    part = sizes.num_kept / max(others, 1)
    return (
        f"features=shared: {size(sizes.num_kept * rows.row_bytes)} of memory hold {part:.0%} of "
        f"other machines' {size(others * rows.row_bytes)} of rows; those that the next "
        f"{sizes.window} steps read soonest stay"
    )
