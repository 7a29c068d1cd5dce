"""Legion: a cache of lists and rows per clique, divided by a cost model (sections 4.2, 4.3)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.cache.base import CachePlannerConfig, feature_cache, group_by_owner, traffic
from gnnscale.cache.hotness.expected import AverageCounts, ExpectedCounts
from gnnscale.cache.hotness.presampled import Presampled, Reads
from gnnscale.cache.legion.cost_model import CliqueCost, PrefixSums, best_num_lists, curve
from gnnscale.cache.plan import CachePlan, CacheTraffic, CurvePoint, DeviceCache
from gnnscale.cache.problem import CacheDevice, CacheTask, no_vertices, sizes_of_lists
from gnnscale.core import Array, Int32Array, Int64Array, check_choice, check_range

#: Vertices between two stored prefix sums of hotness or bytes.
_STRIDE = 1 << 14


@dataclass(frozen=True, kw_only=True)
class CliqueContent:
    """Vertices that each of the K devices of a clique caches, their bytes, and who reads them."""

    vertices: list[Array]  #: vertices of each device, hottest first
    bytes: Int64Array  #: ``[K]`` int64 cached bytes
    #: ``[K, K]`` int64; at ``[j, k]`` device ``j``'s reads from ``k`` in the presampled epoch
    reads: Int64Array


@dataclass(frozen=True, kw_only=True)
class HotVertices:
    """Vertices that a clique may cache, in two orders: by reads of lists, and by reads of rows.

    Each order has as many vertices as fit into the clique's memory.
    """

    #: ``[m]`` Q_T, vertices by descending reads of their lists, A_T: one per traversed edge, and
    #: one per visit for the offsets. Lists without reads, and lists larger than each device's
    #: memory, are excluded
    lists: Array
    list_bytes: PrefixSums  #: prefix sums of the bytes of ``lists``
    list_hotness: PrefixSums  #: prefix sums of the reads of ``lists``
    total_list_hotness: float  #: reads of the lists of all vertices
    #: ``[n]`` Q_F, vertices by descending number of batches that read them, A_F; with types by
    #: the link bytes of these reads for each byte of the row
    rows: Array
    row_hotness: PrefixSums  #: prefix sums of the reads of ``rows``, or of their link bytes
    total_row_hotness: float  #: reads of the rows of all vertices, or their link bytes

    def share_lists(
        self, task: CacheTask, clique: Sequence[int], num_lists: int, capacities: Int64Array
    ) -> CliqueContent:
        """Share the first ``num_lists`` of ``lists`` out among the devices of ``clique``: G_T.

        A list goes to the device that reads it most, of the devices with bytes of ``capacities``
        left; a list that fits on no device is left out.
        """
        local = [_list_reads(task, [device], task.presampled) for device in clique]
        return _share(task, self.lists[:num_lists], local, capacities, **task.list_sizes)

    def share_rows(
        self, task: CacheTask, clique: Sequence[int], capacities: Int64Array
    ) -> CliqueContent:
        """Share ``rows`` out among the devices of ``clique``, within ``capacities`` in bytes: G_F.

        A row goes to the device that reads it most, of the devices with bytes left.
        """
        order = self.rows
        if task.has_equal_rows:
            order = order[: sum(int(capacity) // task.row_bytes for capacity in capacities)]
        local = [task.presampled.rows.of(device) for device in clique]
        return _share(task, order, local, capacities, **task.row_sizes)


def _share(
    task: CacheTask, order: Array, local: Sequence[Int32Array], capacities: Int64Array, **sizes: Any
) -> CliqueContent:
    """Assign each vertex of ``order`` to one device of a clique (Algorithm 1, step 3).

    Args:
        order: vertices, hottest first.
        local: ``[num_vertices]`` reads of each device; the one that reads most gets the vertex.
        capacities: bytes of each device; a device without bytes left gets no more.
        sizes: arguments of ``ops.share_out`` for the bytes of a vertex.
    """
    threads = task.num_threads
    shared = ops.share_out(order, local, capacities=capacities, num_threads=threads, **sizes)
    assert shared.reads is not None
    return CliqueContent(
        vertices=group_by_owner(order, shared.member, len(capacities), num_threads=threads),
        bytes=shared.bytes,
        reads=shared.reads,
    )


def _list_reads(
    task: CacheTask,
    devices: Sequence[int],
    reads: Presampled | Reads[ExpectedCounts] | Reads[AverageCounts],
) -> Array:
    """Return ``[num_vertices]`` reads of lists, A_T, by those of ``devices`` that sample."""
    samplers = [device for device in devices if task.device_at[device].samples]
    if not samplers:
        return np.zeros(task.graph.num_vertices, np.int32)
    return reads.lists.sum(samplers)


def candidates(
    task: CacheTask, clique: Sequence[int], reads: Presampled | Reads[ExpectedCounts]
) -> HotVertices:
    """Return a clique's vertices, sorted by its devices' reads (Algorithm 1, steps 1 and 2).

    ``reads`` rank the vertices, equals by out-degree. The prefix sums of hotness are those of
    ``task.counted``, the run's mean reads.
    """
    budgets = [task.device_at[device].budget_bytes for device in clique]
    list_reads, appearances = _list_reads(task, clique, reads), reads.rows.sum(clique)
    lists = ops.hottest(
        list_reads,
        task.out_degrees,
        capacity=sum(budgets),
        max_bytes=max(budgets),
        only_hot=True,
        num_threads=task.num_threads,
        **task.list_sizes,
    )
    rows = task.order_rows(appearances, clique, budgets)
    is_sorted = task.num_epochs == 1  # the counts that rank vertices are also their hotness
    if not is_sorted:
        list_reads = _list_reads(task, clique, task.counted)
        appearances = task.counted.rows.sum(clique)
    if not task.has_equal_rows:
        appearances = task.price_reads(appearances, clique)
    return HotVertices(
        lists=lists,
        list_bytes=_sums(
            task, lists, lambda part: sizes_of_lists(task.graph, lists[part]), **task.list_sizes
        ),
        list_hotness=_hotness_sums(task, lists, list_reads, is_sorted),
        total_list_hotness=_total(list_reads),
        rows=rows,
        row_hotness=_hotness_sums(task, rows, appearances, is_sorted and task.has_equal_rows),
        total_row_hotness=_total(appearances),
    )


def _hotness_sums(task: CacheTask, order: Array, hotness: Array, is_sorted: bool) -> PrefixSums:
    return _sums(task, order, lambda part: hotness[order[part]], values=hotness, falling=is_sorted)


def _sums(
    task: CacheTask, order: Array, numbers: Callable[[slice], Array], **values: Any
) -> PrefixSums:
    sums = ops.running_sums(order, every=_STRIDE, num_threads=task.num_threads, **values)
    return PrefixSums(sums=sums, stride=_STRIDE, num_numbers=len(order), numbers=numbers)


def _total(hotness: Array) -> float:
    """Return the sum of ``hotness``, exact for integers."""
    is_integer = np.issubdtype(hotness.dtype, np.integer)
    total: float = hotness.sum(dtype=np.int64 if is_integer else np.float64).item()
    return total


_HOTNESS = ("expected", "presampled")


@dataclass(frozen=True, kw_only=True)
class Legion(CachePlannerConfig):
    """Legion's hotness-aware unified cache (section 4.2) and automatic cache management (4.3).

    Presampling counts the reads of each device. A clique caches the hottest lists and rows once,
    each on the device that reads it most. Its memory is divided between lists and rows to minimize
    the remaining transactions.

    Attributes:
        alpha: share of the memory for adjacency lists. None: the best share.
        hotness: ``expected`` for the expected reads of the run's epochs; ``presampled`` for the
            reads of one epoch, as in the paper.
    """

    alpha: float | None = None
    hotness: str = "expected"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("cache_planner.hotness", self.hotness, _HOTNESS)
        if self.alpha is not None:
            check_range("cache_planner.alpha", self.alpha, 0, 1)

    @property
    def policy(self) -> str:
        """Name of the policy in reports."""
        return "legion"

    @property
    def shares(self) -> bool:
        """Whether devices read each other's caches: True."""
        return True

    def plan(self, task: CacheTask) -> CachePlan:
        """Return the plan of all cliques, each planned by itself."""
        planned = [self._plan_clique(task, clique) for clique in task.cliques]
        devices = [pair for plan in planned for pair in zip(plan.caches, plan.traffic, strict=True)]
        devices.sort(key=lambda pair: pair[0].device)
        return CachePlan(
            planner=self.policy,
            cliques=task.cliques,
            devices=tuple(cache for cache, _ in devices),
            alphas=tuple(plan.alpha for plan in planned),
            predicted=tuple(traffic for _, traffic in devices),
            exact=task.num_epochs == 1 and task.is_exact,
            curve=_sum_curves([plan.curve for plan in planned]),
        )

    def _plan_clique(self, task: CacheTask, clique: Sequence[int]) -> "_CliquePlan":
        reads = task.expected if self.hotness == "expected" else task.presampled
        hot = candidates(task, clique, reads)
        cost = clique_cost(task, clique, hot)
        if self.alpha is None:
            num_lists = best_num_lists(cost)
        else:
            num_lists = cost.num_lists(cost.topology_bytes(self.alpha))
        lists, rows = _contents(task, clique, hot, cost, num_lists)
        return _CliquePlan(
            caches=_caches(task, clique, lists, rows),
            traffic=_predict(task, clique, lists, rows),
            alpha=float(cost.list_bytes.at(num_lists) / max(cost.budget_bytes, 1)),
            curve=curve(cost),
        )


@dataclass(frozen=True, kw_only=True)
class _CliquePlan:
    caches: list[DeviceCache]
    traffic: list[CacheTraffic]
    alpha: float
    curve: tuple[CurvePoint, ...]


def clique_cost(task: CacheTask, clique: Sequence[int], hot: HotVertices) -> CliqueCost:
    """Return the cost model of a clique, ``hot`` being its vertices by hotness."""
    members = [task.device_at[device] for device in clique]
    reads = task.presampled

    def sampled(member: CacheDevice) -> int:
        return reads.lists.total(member.position) if member.samples else 0

    def rows_read(member: CacheDevice) -> int:
        return reads.rows.total(member.position)

    prices: dict[str, Any] = {
        "row_transactions": _mean(members, lambda m: m.row_transactions(task.row_bytes), rows_read),
        "row_price": _mean(members, lambda m: m.row_price(task.row_bytes), rows_read),
    }
    if not task.has_equal_rows:
        # The hotness of rows is in link bytes; an overhead counts as the requests of its bytes.
        requests = _mean(members, lambda m: 1 / m.request_bytes, rows_read)
        sizes = np.diff(task.row_sizes["offsets"])[hot.rows]
        prices = {"row_transactions": requests, "row_price": 1.0, "row_ends": np.cumsum(sizes)}
    return CliqueCost(
        budget_bytes=sum(member.budget_bytes for member in members),
        list_bytes=hot.list_bytes,
        list_hotness=hot.list_hotness,
        total_list_hotness=hot.total_list_hotness,
        row_bytes=task.row_bytes,
        row_hotness=hot.row_hotness,
        total_row_hotness=hot.total_row_hotness,
        n_tsum=sum(map(sampled, members)),
        list_price=_mean(members, lambda m: m.list_price, sampled),
        **prices,
    )


def _mean(
    members: Sequence[CacheDevice],
    price: Callable[[CacheDevice], float],
    weight: Callable[[CacheDevice], int],
) -> float:
    """Return the mean of ``price`` over ``members``, each weighted by its reads, ``weight``."""
    prices = [price(member) for member in members]
    if len(set(prices)) == 1:
        return prices[0]
    weights = [weight(member) for member in members]
    total = sum(weights)
    if total == 0:
        return prices[0]  # no reads
    return sum(p * weight for p, weight in zip(prices, weights, strict=True)) / total


def _contents(
    task: CacheTask, clique: Sequence[int], hot: HotVertices, cost: CliqueCost, num_lists: int
) -> tuple[CliqueContent, CliqueContent]:
    """Return a clique's cached lists, of the ``num_lists`` hottest, and rows for the memory left.

    Each device reserves memory for its share of the rows; lists that do not fit into the remainder
    are left out.
    """
    budgets = [task.device_at[device].budget_bytes for device in clique]
    # Each device reserves an equal share of its memory for the rows that fit with the lists.
    num_rows = int(cost.num_rows(cost.budget_bytes - cost.list_bytes.at(num_lists)))
    all_rows_bytes = cost.rows_size(num_rows)
    capacities = [
        budget - budget * all_rows_bytes // max(cost.budget_bytes, 1) for budget in budgets
    ]
    lists = hot.share_lists(task, clique, num_lists, np.array(capacities, np.int64))
    return lists, hot.share_rows(task, clique, np.array(budgets, np.int64) - lists.bytes)


def _caches(
    task: CacheTask, clique: Sequence[int], lists: CliqueContent, rows: CliqueContent
) -> list[DeviceCache]:
    caches = []
    for k, position in enumerate(clique):
        device = task.device_at[position]
        cache = feature_cache(task, device, rows.vertices[k], no_vertices(task.graph))
        caches.append(
            replace(cache, topology=lists.vertices[k], topology_bytes=int(lists.bytes[k]))
        )
    return caches


def _predict(
    task: CacheTask, clique: Sequence[int], lists: CliqueContent, rows: CliqueContent
) -> list[CacheTraffic]:
    """Return the expected reads of each device, by the cache of the clique, or the host."""
    reads, predicted = task.counted, []
    for j, reader in enumerate(clique):
        content, row_reads, list_reads = dict(zip(clique, rows.vertices, strict=True)), {}, {}
        for k, peer in enumerate(clique):
            counted = int(rows.reads[j, k])
            row_reads[peer] = reads.rows.at(reader, rows.vertices[k], counted)
            if task.device_at[reader].samples:
                counted = int(lists.reads[j, k])
                list_reads[peer] = reads.lists.at(reader, lists.vertices[k], counted)
        predicted.append(traffic(task, reader, reads, content, list_reads, counted=row_reads))
    return predicted


def _sum_curves(curves: Sequence[tuple[CurvePoint, ...]]) -> tuple[CurvePoint, ...]:
    return tuple(
        CurvePoint(
            alpha=points[0].alpha,
            n_t=sum(point.n_t for point in points),
            n_f=sum(point.n_f for point in points),
            n_total=sum(point.n_total for point in points),
        )
        for points in zip(*curves, strict=True)
    )
