"""Tiered store in host memory above other machines, over which feature rows are sharded."""

import logging
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.core import Access, Array, ConfigError, Traffic, brief
from gnnscale.core.artifact import row_slices, size
from gnnscale.distributed.process_group import Group, all_gather_object
from gnnscale.features import FeatureStore, FeatureStoreConfig, SharedFeaturesConfig
from gnnscale.features.sharded.exchange import owners_of
from gnnscale.features.sharded.store import (
    DiskShardInfo,
    LocalDiskShard,
    ShardedStore,
    describe_over_disk,
    open_local_file,
)
from gnnscale.features.tiered.buffer import MappedRows, RowSource, slots_of_file
from gnnscale.features.tiered.policies import RemoteOnlyPolicy
from gnnscale.features.tiered.setup import BufferPlan, open_buffer
from gnnscale.features.tiered.sizing import Horizon, SampledBatches, TierSizes, size_tier
from gnnscale.features.tiered.store import TieredStore
from gnnscale.graph import Graph, ShardedFeatures, read_meta
from gnnscale.planner.cost_model.workload import SourceEffect
from gnnscale.training.build.tiered_features import OpenedTier, TierInputs, tier_planner

log = logging.getLogger(__name__)

#: Bytes of rows that evaluation reads at a time.
_READ_BYTES = 16 << 20


class SharedFeatures(FeatureStore):
    """Store of all rows for evaluation by rank 0, which reads each row from its machine."""

    def __init__(self, rows: ShardedStore) -> None:
        """Read from ``rows``, which are sharded over the machines."""
        self._rows = rows

    @property
    def num_rows(self) -> int:
        """Number of rows on all machines."""
        return self._rows.num_rows

    @property
    def width(self) -> int:
        """Features of a row."""
        return self._rows.num_features

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in its stored type."""
        return self._rows.row_bytes

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, ``[n, width]``, and their bytes in the stored type."""
        out = ops.empty((len(vertices), self.width), dtype)
        for part in row_slices(len(vertices), self.row_bytes, _READ_BYTES):
            stored = self._rows.read(vertices[part]), self._rows.dtype_name
            order = np.arange(part.stop - part.start, dtype=np.int32)
            ops.gather(stored, order, out=out[part], num_threads=num_threads)
        return out, Traffic(rows=Access(host_bytes=len(vertices) * self.row_bytes))


@dataclass(frozen=True, kw_only=True)
class _MachineStore:
    """Description by one process of its machine's graph store, which has the rows of one part."""

    machine: str  #: host name
    local_rank: int  #: rank of the process on the machine
    path: str  #: path of the store
    part: int  #: part whose rows the store has, from 0
    num_parts: int
    partition: str  #: content hash of the partition
    content: str  #: content hash of the data that all parts share


def open_rows(features: FeatureStoreConfig, graph: Graph, group: Group) -> ShardedStore | None:
    """Open the rows that are sharded over machines; None unless ``features=shared``.

    All processes call this at the same time, and raise equal errors: ConfigError if there is a
    single machine, or the stores are not the parts of one partition, each on one machine.
    """
    if not isinstance(features, SharedFeaturesConfig):
        return None
    if group.local_size == group.size:
        raise features.refused()
    shard = graph.features
    store: _MachineStore | None = None
    if isinstance(shard, ShardedFeatures):
        store = _MachineStore(
            machine=socket.gethostname(),
            local_rank=group.local_rank,
            path=str(shard.path),
            part=shard.part,
            num_parts=shard.num_parts,
            partition=shard.partition,
            content=read_meta(shard.path).shared_content,
        )
    values = None if store is None else asdict(store)
    values_by_rank = all_gather_object([socket.gethostname(), str(graph.path), values], group)
    for rank, (machine, path, peer_values) in enumerate(values_by_rank):
        if peer_values is None:
            raise ConfigError(
                f"features=shared: expected the store of a part's rows, got {brief(path)} in "
                f"process {rank} on {brief(machine)}; write the stores with gnnscale partition "
                "part_stores=rows"
            )
    machines = [_MachineStore(**peer_values) for _, _, peer_values in values_by_rank]
    check_parts(machines)
    assert isinstance(shard, ShardedFeatures)
    return ShardedStore(
        shard,
        group,
        owners_of([machine.part for machine in machines], group.rank),
        dtype_name=graph.feature_dtype,
        num_features=graph.num_features,
    )


def check_parts(machines: Sequence[_MachineStore]) -> None:
    """Raise ConfigError unless the machines have the parts of one partition, each part once."""
    first = machines[0]
    for rank, store in enumerate(machines):
        for name, value, value0 in (
            ("partition", store.partition, first.partition),
            ("number of parts", store.num_parts, first.num_parts),
            ("topology, labels and owners", store.content, first.content),
        ):
            if value != value0:
                raise ConfigError(
                    f"features=shared: expected parts of one partition, got {name} "
                    f"{brief(value0)} in {brief(first.path)}, process 0 on {brief(first.machine)}, "
                    f"and {brief(value)} in {brief(store.path)}, process {rank} on "
                    f"{brief(store.machine)}"
                )
    ranks: dict[tuple[int, int], int] = {}
    for rank, store in enumerate(machines):
        other = ranks.setdefault((store.part, store.local_rank), rank)
        if other != rank:
            raise ConfigError(
                f"features=shared: expected another part on each machine, got part {store.part} in "
                f"process {other} on {brief(machines[other].machine)} and in process {rank} on "
                f"{brief(store.machine)}; set dataset.store on each machine"
            )
    missing = sorted(set(range(first.num_parts)) - {store.part for store in machines})
    if missing:
        raise ConfigError(
            f"features=shared: expected one machine for each of {first.num_parts} parts, got none "
            f"for part {missing[0]}; set dataset.store on each machine"
        )


def open_sharded_tier(
    rows: ShardedStore, options: SharedFeaturesConfig, inputs: TierInputs
) -> OpenedTier:
    """Open the tiered store of this worker above ``rows``, which are sharded over the machines."""
    group, sample = inputs.group, inputs.sample()

    def plan(samples: Sequence[SampledBatches]) -> BufferPlan:
        all_samples, memory, horizon = inputs.buffer_inputs(options, samples)
        buffer_plan = _plan_remote_rows(rows, all_samples, memory, horizon)
        if buffer_plan is None:
            buffer_plan = _plan_over_disk(rows, all_samples, memory, horizon)
        if group.is_rank0:
            log.info(_describe(rows, buffer_plan))
        return buffer_plan

    def open_source(values: Any) -> RowSource:
        if not values["over_disk"]:
            return rows
        return LocalDiskShard(rows, open_local_file(rows, values["max_gap_bytes"]))

    file = _mapped_shard(rows)
    buffer = open_buffer(group, sample, open_source, plan, file=file)
    if buffer.values["over_disk"]:
        rows.use_local_file(open_local_file(rows, buffer.values["max_gap_bytes"]))
    elif file is not None:
        rows.use_local_mapping(buffer.slots[: rows.num_own])
    effect = SourceEffect()
    if not inputs.deterministic:
        effect = _effect(rows, buffer.values, sample)
    return OpenedTier(store=TieredStore(buffer.rows), effect=effect)


def _effect(rows: ShardedStore, values: Any, sample: SampledBatches) -> SourceEffect:
    """Return miss rate and seconds a row, by a buffer plan's ``values`` and the network's speed.

    All processes measure the network together.
    """
    remote_s = rows.seconds_per_row() * (1 - values["own_share"])
    return SourceEffect(
        row_misses=values["row_misses"] * sample.asked, row_s=remote_s + values["own_s"]
    )


def _plan_remote_rows(
    rows: ShardedStore, sample: SampledBatches, memory_bytes: int, horizon: Horizon
) -> BufferPlan | None:
    """Plan a buffer for other machines' rows, with this machine's shard in memory as well.

    None: the memory left beside the shard does not hold the rows of a step. ConfigError: memory
    does not hold them even though the shard is empty.
    """
    free = memory_bytes - rows.num_own * rows.row_bytes
    try:
        sizes = _sizes(rows, sample, free, horizon)
    except ConfigError:
        if not rows.num_own:
            raise
        return None
    file = _mapped_shard(rows)
    policy = horizon.policy(sizes, sample.num_workers)
    remote_policy = RemoteOnlyPolicy(policy, rows.local_indices, num_kept=sizes.num_kept)
    num_fixed = 0 if file is None else slots_of_file(file)
    planner = tier_planner(remote_policy, sizes, sample, num_fixed=num_fixed)
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
    """Plan a buffer for rows of all machines, with this machine's shard on disk."""
    sizes = _sizes_with_exchange(sample, rows.num_rows, rows.row_bytes, memory_bytes, horizon)
    disk = DiskShardInfo.of(rows)
    planner = tier_planner(horizon.policy(sizes, sample.num_workers), sizes, sample)
    own_share, own_s = disk.local_share(rows, sizes.misses, sample.num_workers)
    values = {"over_disk": True, "own_share": own_share, "own_s": own_s}
    return BufferPlan(
        source=LocalDiskShard(rows, open_local_file(rows, disk.max_gap_bytes)),
        delegates=True,
        planner=planner,
        sizes=sizes,
        values=values
        | {"row_misses": _miss_rate(sizes, sample), "max_gap_bytes": disk.max_gap_bytes},
    )


def _miss_rate(sizes: TierSizes, sample: SampledBatches) -> float:
    """Return the mean fraction of a mini-batch's rows that are not in this machine's memory.

    The mean is over an epoch. Missing rows come from other machines or this machine's disk.
    """
    needed = np.mean([len(vertices) for vertices in sample.vertices]) if sample.vertices else 1
    return min(sizes.misses.mean / max(float(needed), 1), 1)


def _sizes(
    rows: ShardedStore, sample: SampledBatches, memory_bytes: int, horizon: Horizon
) -> TierSizes:
    """Return how many slots of memory hold remote rows that stay, and how many arriving rows."""
    remote_vertices = [vertices[rows.local_indices(vertices) < 0] for vertices in sample.vertices]
    remote = replace(sample, vertices=remote_vertices)
    # Rows of this machine are never missed, so their degrees must not count.
    is_local = rows.local_indices(np.arange(rows.num_rows)) >= 0
    remote_horizon = replace(horizon, priority=np.where(is_local, np.int32(-1), horizon.priority))
    num_remote = rows.num_rows - rows.num_own
    return _sizes_with_exchange(remote, num_remote, rows.row_bytes, memory_bytes, remote_horizon)


def _sizes_with_exchange(
    sample: SampledBatches, num_rows: int, row_bytes: int, memory_bytes: int, horizon: Horizon
) -> TierSizes:
    """Return the slots for rows that stay and for arriving rows, out of ``num_rows``.

    They and the buffers by which machines exchange rows take ``memory_bytes``.
    """

    def sizes_within(memory_bytes: int) -> TierSizes:
        return size_tier(
            sample,
            horizon,
            num_rows=num_rows,
            row_bytes=row_bytes,
            memory_bytes=max(memory_bytes, 0),
        )

    # Staging slots for two steps become slots for four; exchange buffers hold two more.
    sizes = sizes_within(memory_bytes)
    sizes = sizes_within(memory_bytes - 2 * sizes.num_staged * row_bytes)
    return replace(sizes, num_staged=2 * sizes.num_staged)


def _mapped_shard(rows: ShardedStore) -> MappedRows | None:
    """Return this machine's rows, mapped from their file; None: it has no rows."""
    if not rows.num_own:
        return None
    assert isinstance(rows.own, np.memmap)  # mapped from its store
    return rows.own


def _describe(rows: ShardedStore, plan: BufferPlan) -> str:
    sizes = plan.sizes
    if plan.values["over_disk"]:
        return describe_over_disk(rows, sizes)
    num_remote = rows.num_rows - rows.num_own
    part = sizes.num_kept / max(num_remote, 1)
    return (
        f"features=shared: {size(sizes.num_kept * rows.row_bytes)} of memory hold {part:.0%} of "
        f"other machines' {size(num_remote * rows.row_bytes)} of rows; rows that the next "
        f"{sizes.window} steps read soonest stay in memory"
    )
