"""Base class and shared steps of cache planners: from hot vertices to the content of caches."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from gnnscale import ops
from gnnscale.cache.hotness.expected import AverageCounts
from gnnscale.cache.hotness.presampled import Presampled, Reads
from gnnscale.cache.plan import CachePlan, CacheTraffic, DeviceCache, TypeReads
from gnnscale.cache.problem import CacheDevice, CacheTask, RowType, feature_bytes, list_bytes
from gnnscale.core import Array, ConfigError, Int64Array, brief, check_range
from gnnscale.core.artifact.files import check_store_directory
from gnnscale.core.config.untrusted import names
from gnnscale.partition.nvlink import MACHINES, THIS_MACHINE


def hottest_rows(task: CacheTask, hotness: Array, num_rows: int) -> Array:
    """Return the ``num_rows`` hottest vertices, hottest first, ties by descending out-degree."""
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
    """Return the vertices whose rows each device caches, by device (Legion, Algorithm 1).

    In ``order``, each row goes to the device that reads it most, of the devices with bytes left.

    Args:
        order: vertices, hottest first.
        local: ``[num_vertices]`` reads of each device.
        capacities: bytes of each device's cache.
    """
    shared = ops.share_out(
        order,
        local,
        capacities=np.array(capacities, np.int64),
        num_threads=task.num_threads,
        **task.row_sizes,
    )
    return group_by_owner(order, shared.member, len(capacities), num_threads=task.num_threads)


def deal(order: Array, capacities: Sequence[int]) -> list[Array]:
    """Deal the vertices of ``order`` to the devices in turn, and return each device's vertices.

    A device gets at most its number of rows in ``capacities``.
    """
    counts = [min(capacity, len(order)) for capacity in capacities]
    turns = np.concatenate([np.arange(count, dtype=np.int64) for count in counts])
    devices = np.repeat(np.arange(len(counts)), counts)
    # The owner of each next vertex: turn by turn, device by device.
    owners = devices[np.lexsort((devices, turns))][: len(order)]
    return group_by_owner(order[: len(owners)], owners, len(capacities))


def group_by_owner(order: Array, owner: Array, num: int, *, num_threads: int = 1) -> list[Array]:
    """Return the vertices of each of ``num`` owners, by owner.

    ``owner[i]``, from 0 on, owns ``order[i]``; -1: nobody.
    """
    member = owner.astype(np.int16, copy=False)
    return ops.split_by_member(order, member, num_members=num, num_threads=num_threads)


def feature_cache(
    task: CacheTask, device: CacheDevice, features: Array, topology: Array
) -> DeviceCache:
    """Return a static cache of ``device``.

    It has the feature rows of the vertices ``features``, and the adjacency lists of the vertices
    ``topology``.
    """
    return DeviceCache(
        device=device.position,
        name=device.name,
        budget_bytes=device.budget_bytes,
        features=features,
        topology=topology,
        feature_bytes=feature_bytes(task.graph, features),
        topology_bytes=list_bytes(task.graph, topology),
    )


def predict_traffic(
    task: CacheTask,
    caches: Sequence[DeviceCache],
    cliques: Sequence[Sequence[int]],
    reads: Presampled | Reads[AverageCounts],
) -> tuple[CacheTraffic, ...]:
    """Return the expected reads of each device, by the memory that serves them.

    The devices are those of ``caches``. The memory is a cache in the device's clique, or the
    host's. ``reads`` are the counts to predict from.
    """
    predicted = []
    for cache in caches:
        clique = next(clique for clique in cliques if cache.device in clique)
        members = {member.device: member for member in caches if member.device in clique}
        reader = cache.device
        content = {peer: member.features for peer, member in members.items()}
        lists: dict[int, float] = {}
        if task.device_at[reader].samples:
            lists = {
                peer: reads.lists.at(reader, member.topology) for peer, member in members.items()
            }
        predicted.append(traffic(task, reader, reads, content, lists))
    return tuple(predicted)


def traffic(
    task: CacheTask,
    reader: int,
    reads: Presampled | Reads[AverageCounts],
    content: Mapping[int, Array],
    lists: Mapping[int, float],
    *,
    counted: Mapping[int, float] | None = None,
) -> CacheTraffic:
    """Return the reads and link traffic of device ``reader``, from what caches serve.

    The host serves the remainder of the device's ``reads``.

    Args:
        content: vertices of the rows that each device caches, by position.
        lists: number of lists that ``reader`` reads from each device's cache.
        counted: reads of all rows of ``content``, by position. None: the function counts them.
    """
    device = task.device_at[reader]
    by_type = _reads_by_type(task, reader, reads, content, counted)
    lists_by_device = [0] * (task.num_devices + 1)
    if device.samples:
        lists_by_device = _by_device(task, lists, reads.lists.total(reader))
    return add_types(task, device, by_type, lists_by_device)


def add_types(
    task: CacheTask,
    device: CacheDevice,
    by_type: Sequence[tuple[RowType, Sequence[int]]],
    lists: Sequence[int],
    *,
    list_requests: int = 0,
) -> CacheTraffic:
    """Return the traffic of ``device``, whose reads of rows are ``by_type``.

    Args:
        by_type: vertex types with rows, each with ``[num_devices + 1]`` reads by device and host.
        lists: ``[num_devices + 1]`` reads of lists, by device and host.
        list_requests: requests for lists that ``lists`` leaves out.
    """
    cached = [rows for row_type, rows in by_type if row_type.is_cached]
    rows = [sum(column) for column in zip(*cached, strict=True)] or [0] * (task.num_devices + 1)
    missed = [(rows[-1], row_type.row_bytes) for row_type, rows in by_type]
    requests = sum(num * device.row_transactions(row_bytes) for num, row_bytes in missed)
    return CacheTraffic(
        rows=tuple(rows),
        lists=tuple(lists),
        transactions=round(requests + list_requests) + lists[-1],
        link_bytes=sum(num * row_bytes for num, row_bytes in missed),
        types=()
        if task.has_equal_rows
        else tuple(
            TypeReads(name=row_type.name, row_bytes=row_type.row_bytes, rows=tuple(rows))
            for row_type, rows in by_type
        ),
    )


def _reads_by_type(
    task: CacheTask,
    reader: int,
    reads: Presampled | Reads[AverageCounts],
    content: Mapping[int, Array],
    counted: Mapping[int, float] | None,
) -> list[tuple[RowType, list[int]]]:
    """Return ``[num_devices + 1]`` reads by device ``reader`` of each vertex type with rows."""
    if task.has_equal_rows:
        if counted is None:
            counted = {peer: reads.rows.at(reader, ids) for peer, ids in content.items()}
        rows = _by_device(task, counted, reads.rows.total(reader))
        return [(task.row_types[0], rows)]
    by_type = []
    for row_type in task.row_types:
        if row_type.row_bytes:
            total = reads.rows.at(
                reader, np.arange(row_type.vertices.start, row_type.vertices.stop)
            )
            hits = {
                peer: reads.rows.at(reader, row_type.of(vertices))
                for peer, vertices in content.items()
            }
            by_type.append((row_type, _by_device(task, hits, round(total))))
    return by_type


def _by_device(task: CacheTask, hits: Mapping[int, float], total: int) -> list[int]:
    """Return ``[num_devices + 1]`` reads by device, ``hits``, and the host's, the remainder."""
    counts = [0] * (task.num_devices + 1)
    for device, reads in hits.items():
        counts[device] = round(reads)
    counts[-1] = max(total - sum(counts), 0)
    return counts


#: Largest budget of a device, 1 PiB: sums over many devices still fit into 64 bits.
_MAX_BYTES = 1 << 50
#: Policy names, which are also names of folders.
_POLICY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,62}")


@dataclass(frozen=True, kw_only=True)
class CachePlannerConfig(ABC):
    """Base of the configuration group ``cache_planner``.

    Attributes:
        budget_bytes: bytes of each device's cache. None: ``ratio``, or the device's memory minus
            the model and its mini-batches (PaGraph, section 3.3).
        ratio: budget in feature rows, as a share of the vertices of each type (0.1 for a tenth).
        reserve: share of a device's memory that is left free if neither budget is set.
        nvlink: devices that read each other's caches: ``dgx_v100``, ``siton``, ``dgx_a100``, or a
            file with a matrix of links, whose first devices are used; ``nvml`` for the links of
            this machine's GPUs. None: no device reads another's cache.
        store: directory of the plan. None: a default in
            ``${GNNSCALE_HOME:-~/.cache/gnnscale}/cache_plans``.
    """

    budget_bytes: int | None = None
    ratio: float | None = None
    reserve: float = 0.1
    nvlink: str | None = field(
        default=None, metadata=names("place", keywords=(*MACHINES, THIS_MACHINE))
    )
    store: str | None = field(default=None, metadata=names("place"))

    caches: ClassVar[bool] = True  #: Whether devices have caches.

    @property
    @abstractmethod
    def policy(self) -> str:
        """Name of the policy in reports."""

    @property
    def shares(self) -> bool:
        """Whether devices linked by ``nvlink`` read each other's caches; False here."""
        return False

    def __post_init__(self) -> None:
        if not _POLICY.fullmatch(self.policy):
            raise ConfigError(
                f"cache_planner.name={brief(self.policy)}: expected a word of at most 63 letters, "
                "digits and the signs _ + -"
            )
        if self.budget_bytes is not None:
            check_range("cache_planner.budget_bytes", self.budget_bytes, 0, _MAX_BYTES)
        if self.ratio is not None and not 0 <= self.ratio < math.inf:
            raise ConfigError(
                f"cache_planner.ratio={self.ratio}: expected a finite number of at least 0"
            )
        if self.budget_bytes is not None and self.ratio is not None:
            raise ConfigError(
                f"cache_planner.ratio={self.ratio}: expected null, since "
                f"cache_planner.budget_bytes={self.budget_bytes} is set"
            )
        if not 0 <= self.reserve < 1:
            raise ConfigError(
                f"cache_planner.reserve={self.reserve}: expected a number from 0 to below 1"
            )
        if self.store is not None:
            if not self.store or "\0" in self.store:
                raise ConfigError(f"cache_planner.store={brief(self.store)}: expected a path")
            check_store_directory(self.store, option="cache_planner.store")

    @property
    def uses_free_memory(self) -> bool:
        """Whether a cache gets the memory that its device has free, since no budget is set."""
        return self.budget_bytes is None and self.ratio is None

    @property
    def matches_batches(self) -> bool:
        """Whether a device keeps a batch's rows for the next one beyond the budget; False here."""
        return False

    @abstractmethod
    def plan(self, task: CacheTask) -> CachePlan:
        """Return the plan of ``task``: each device's cache content and expected traffic.

        Raises:
            ConfigError: the policy does not support the run.
        """
