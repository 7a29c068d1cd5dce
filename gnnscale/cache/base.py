"""What every cache planner offers: from hot vertices to what each device keeps."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from gnnscale import ops
from gnnscale.cache.hotness import expected, presampled
from gnnscale.cache.plan import CachePlan, CacheTraffic, DeviceCache
from gnnscale.cache.problem import CacheDevice, CacheTask, list_bytes
from gnnscale.core import Array, ConfigError, Int64Array, check_range, shown
from gnnscale.core.artifact.files import check_place
from gnnscale.core.config.untrusted import names
from gnnscale.partition.nvlink import MACHINES, THIS_MACHINE


def hottest_rows(task: CacheTask, hotness: Array, num_rows: int) -> Array:
    """Return the ``num_rows`` hottest vertices, equally hot ones by out-degree.

    Vertices that no batch of an estimate has may yet be read: they come last, by out-degree.
    """
    return ops.hottest(
        hotness,
        task.out_degrees,
        capacity=num_rows,
        bytes_per_vertex=1,
        num_threads=task.num_threads,
    )[:num_rows]


def share_out(
    task: CacheTask, order: Array, local: Sequence[Array], capacities: Sequence[int] | Int64Array
) -> list[Array]:
    """Share rows out by local preference (Legion, Algorithm 1); see ``ops.share_out``."""
    shared = ops.share_out(
        order,
        local,
        capacities=np.array(capacities, np.int64),
        bytes_per_vertex=task.row_bytes,
        num_threads=task.num_threads,
    )
    return split_by_owner(order, shared.member, len(capacities), num_threads=task.num_threads)


def deal(order: Array, capacities: Sequence[int]) -> list[Array]:
    """Deal vertices, hottest first, to devices in turn up to ``capacities`` rows each.

    This is Quiver's hash within a clique. Returns each device's vertices, hottest first.
    """
    rooms = [min(room, len(order)) for room in capacities]
    turns = np.concatenate([np.arange(room, dtype=np.int64) for room in rooms])
    devices = np.repeat(np.arange(len(rooms)), rooms)
    # The seats in the order in which they are taken: turn by turn, device by device.
    seats = devices[np.lexsort((devices, turns))][: len(order)]
    return split_by_owner(order[: len(seats)], seats, len(capacities))


def split_by_owner(order: Array, owner: Array, num: int, *, num_threads: int = 1) -> list[Array]:
    """Return the vertices of each of ``num`` owners in the order of ``order``; -1 owns none."""
    member = owner.astype(np.int16, copy=False)
    return ops.split_by_member(order, member, num_members=num, num_threads=num_threads)


def feature_cache(
    task: CacheTask, device: CacheDevice, features: Array, topology: Array
) -> DeviceCache:
    """Return the cache of ``device`` with these vertices."""
    return DeviceCache(
        device=device.position,
        name=device.name,
        budget_bytes=device.budget_bytes,
        features=features,
        topology=topology,
        feature_bytes=len(features) * task.row_bytes,
        topology_bytes=list_bytes(task.graph, topology),
    )


def predict_traffic(
    task: CacheTask,
    caches: Sequence[DeviceCache],
    cliques: Sequence[Sequence[int]],
    reads: presampled.Presampled | expected.AverageReads,
) -> tuple[CacheTraffic, ...]:
    """Return where each device finds what it reads."""
    found = []
    for cache in caches:
        clique = next(each for each in cliques if cache.device in each)
        members = {each.device: each for each in caches if each.device in clique}
        reader = cache.device
        rows = {each: reads.rows_at(reader, kept.features) for each, kept in members.items()}
        lists: dict[int, float] = {}
        if task.device_at[reader].samples:
            lists = {each: reads.lists_at(reader, kept.topology) for each, kept in members.items()}
        found.append(traffic(task, reader, reads, rows, lists))
    return tuple(found)


def traffic(
    task: CacheTask,  # what is planned for
    reader: int,  # the device's position
    reads: presampled.Presampled | expected.AverageReads,  # what all devices read
    rows: Mapping[int, float],  # rows that it reads at each device
    lists: Mapping[int, float],  # its reads of lists at each device; unused if the host samples
) -> CacheTraffic:
    """Return what the device at position ``reader`` reads."""
    device = task.device_at[reader]
    at_rows = _by_place(task, rows, reads.num_rows(reader))
    at_lists = [0] * (task.num_devices + 1)
    if device.samples:
        at_lists = _by_place(task, lists, reads.num_list_reads(reader))
    return CacheTraffic(
        rows=tuple(at_rows),
        lists=tuple(at_lists),
        transactions=round(at_rows[-1] * device.row_transactions(task.row_bytes)) + at_lists[-1],
        link_bytes=at_rows[-1] * task.row_bytes,
    )


def _by_place(task: CacheTask, kept: Mapping[int, float], total: int) -> list[int]:
    """Return whole numbers of reads by device, the host's last."""
    at = [0] * (task.num_devices + 1)
    for device, reads in kept.items():
        at[device] = round(reads)
    at[-1] = max(total - sum(at), 0)
    return at


#: The largest budget of a device, 1 PiB: more than any has, and many of them fit into 64 bits.
_MAX_BYTES = 1 << 50
#: Folders are called after policies.
_POLICY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,62}")


@dataclass(frozen=True, kw_only=True)
class CachePlannerConfig(ABC):
    """Base of the configuration group ``cache_planner``.

    Attributes:
        budget_bytes: memory of each device's cache; None for ``ratio``, or for what the device has
            left beside the model and its mini-batches (PaGraph, section 3.3).
        ratio: the same as feature rows, as a part of all vertices (0.1 for a tenth).
        reserve: the part of a device's memory that is kept free if neither is given.
        nvlink: which devices read each other's caches: ``dgx_v100``, ``siton``, ``dgx_a100``, or a
            file with a matrix of links, of which the first devices are taken; ``nvml`` for those
            of this machine's GPUs; None for no device.
        store: directory of the plan; None for a default in
            ``${GNNSCALE_HOME:-~/.cache/gnnscale}/cache_plans``.
    """

    budget_bytes: int | None = None
    ratio: float | None = None
    reserve: float = 0.1
    nvlink: str | None = field(
        default=None, metadata=names("place", known=(*MACHINES, THIS_MACHINE))
    )
    store: str | None = field(default=None, metadata=names("place"))

    #: Whether there is a cache at all.
    caches: ClassVar[bool] = True

    @property
    @abstractmethod
    def policy(self) -> str:
        """What reports call the policy."""

    @property
    def shares(self) -> bool:
        """Whether devices read each other's caches, as far as ``nvlink`` joins them."""
        return False

    def __post_init__(self) -> None:
        if not _POLICY.fullmatch(self.policy):
            raise ConfigError(
                f"cache_planner.name={shown(self.policy)}: must be a word of at most 63 letters, "
                "digits and the signs _ + -"
            )
        if self.budget_bytes is not None:
            check_range("cache_planner.budget_bytes", self.budget_bytes, 0, _MAX_BYTES)
        if self.ratio is not None and not 0 <= self.ratio < math.inf:
            raise ConfigError(f"cache_planner.ratio={self.ratio}: must be finite and at least 0")
        if self.budget_bytes is not None and self.ratio is not None:
            raise ConfigError(
                f"cache_planner.ratio={self.ratio}: cannot be given with "
                f"cache_planner.budget_bytes={self.budget_bytes}"
            )
        if not 0 <= self.reserve < 1:
            raise ConfigError(f"cache_planner.reserve={self.reserve}: must be at least 0, below 1")
        if self.store is not None:
            if not self.store or "\0" in self.store:
                raise ConfigError(f"cache_planner.store={shown(self.store)}: not a path")
            check_place(self.store, option="cache_planner.store")

    @property
    def sizes_itself(self) -> bool:
        """Whether a cache takes what its device has left."""
        return self.budget_bytes is None and self.ratio is None

    @property
    def keeps_batch(self) -> bool:
        """Whether rows of a mini-batch stay for the next one, beyond the budget."""
        return False

    @abstractmethod
    def plan(self, task: CacheTask) -> CachePlan:
        """Decide what each device of ``task`` keeps.

        Raises:
            ConfigError: the policy does not go with the run.
        """
