"""Replanning of caches between epochs, if their hit rate differs from the prediction.

A plan may have been made for other seeds, fan-outs or parts than the run has. Sampling is a pure
function of the step, so the next epochs can be sampled in advance, and the new plan caches the rows
that they read most.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.cache import CachePlan, Presampler, row_types
from gnnscale.cache import base as planner
from gnnscale.cache.hotness import degree, presampled
from gnnscale.core import Array, Int32Array, Traffic
from gnnscale.distributed.process_group import Group, all_gather_object
from gnnscale.graph import Graph
from gnnscale.planner import DevicePlan, device_plan
from gnnscale.sampling import SamplerConfig, SeedOrder
from gnnscale.training.build.cache import OpenedCache, refill, shared_rows

#: Maximum difference of measured and predicted hit rate.
_MAX_GAP = 0.05
#: Number of epochs presampled for a plan: an epoch of few batches does not predict the next ones.
_PRESAMPLED_EPOCHS = 4

log = logging.getLogger(__name__)


def hit_rate_gap(plan: CachePlan, traffic: Sequence[Traffic]) -> tuple[float, float] | None:
    """Return the measured and the predicted hit rate of the device where they differ most.

    None: no static cache differs by more than 5 percentage points, or the plan is exact. An exact
    plan predicts the sum over the run's own batches, while single epochs differ.
    """
    if plan.exact:
        return None
    pairs = []
    for cache, forecast in zip(plan.devices, plan.predicted or (), strict=False):
        measured, predicted = traffic[cache.device].rows.hit_rate, forecast.feature_hit_rate
        if cache.look_ahead is None and measured is not None and predicted is not None:
            pairs.append((measured, predicted))
    worst = max(pairs, key=lambda pair: abs(pair[0] - pair[1]), default=None)
    return worst if worst is not None and abs(worst[0] - worst[1]) > _MAX_GAP else None


class CacheReplanner:
    """Replanner of a run's caches between epochs; every worker has one, and all act alike."""

    def __init__(
        self,
        graph: Graph,
        sampler: SamplerConfig,
        order: SeedOrder,
        group: Group,
        plan: CachePlan,
        cache: OpenedCache | None,
        *,
        epochs: int,
        seed: int,
        num_threads: int,
    ) -> None:
        """Start with ``plan`` and this worker's ``cache`` (None: no cache).

        The run has ``epochs``, whose mini-batches follow from ``sampler``, ``order`` and ``seed``.
        Workers of a machine share ``num_threads`` to sample them in advance.
        """
        self._graph = graph
        self._row_types = [rows for rows in row_types(graph) if rows.is_cached]
        self._sampler = sampler
        self._num_epochs = epochs
        self._seed = seed
        self._num_threads = max(1, num_threads // group.local_size)
        self._order = order
        self._group = group
        self._cache = cache
        self.plan = plan

    def check(self, epoch: int, traffic: Sequence[Traffic], devices: DevicePlan) -> None:
        """Plan and fill caches again if the hit rates in ``traffic`` are not as the plan predicts.

        Every worker calls this after the same ``epoch``, with equal ``traffic``; after the last
        epoch nothing is done. The next epochs are sampled for the split of ``devices``.
        """
        gap = hit_rate_gap(self.plan, traffic)
        if gap is None or epoch + 1 >= self._num_epochs:
            return
        start = time.perf_counter()
        epochs = range(epoch + 1, min(epoch + 1 + _PRESAMPLED_EPOCHS, self._num_epochs))
        self._replan(epochs, devices)
        if self._group.is_rank0:
            log.info(
                f"epoch {epoch + 1}: the hit rate of caches was {100 * gap[0]:.1f} %, predicted "
                f"{100 * gap[1]:.1f} %; planned again from the batches of the next {len(epochs)} "
                f"epochs in {time.perf_counter() - start:.2f} s"
            )

    def _replan(self, epochs: range, devices: DevicePlan) -> None:
        rank, plan = self._group.rank, self.plan
        uses = self._presample(epochs, devices) if plan.has(rank) else None
        hotness = self._clique_hotness(uses)
        features: dict[int, Array] = {}
        own_reads = None
        if uses is not None:
            features = self._choose_rows(plan.clique_of(rank), hotness)
            own_reads = self._count_reads(features, uses)
        reads = all_gather_object(own_reads, self._group)
        self.plan = replace(
            plan,
            devices=tuple(
                replace(cache, features=features.get(cache.device, cache.features))
                for cache in plan.devices
            ),
            num_epochs=len(epochs),
            predicted=tuple(
                replace(traffic, rows=tuple(reads[cache.device]), types=())
                for cache, traffic in zip(plan.devices, plan.predicted or (), strict=True)
            ),
        )
        refill(self._cache, self.plan, self._graph, self._group)

    def _clique_hotness(self, uses: Int32Array | None) -> dict[int, Int32Array]:
        """Exchange ``uses``, the reads of each row by this worker's device; None: it has no cache.

        The result is these counts by rank, of every device in this worker's clique.
        """
        rank = self._group.rank
        if not self.plan.has_peers:
            return {} if uses is None else {rank: uses}
        clique = () if uses is None else self.plan.clique_of(rank)
        num_rows = None if uses is None else len(uses)
        with shared_rows(num_rows, 1, np.dtype(np.int32), self._group) as map_rank:
            if uses is not None:
                map_rank(rank)[:, 0] = uses
            columns = {member: map_rank(member) for member in clique}
        return {member: np.ascontiguousarray(rows[:, 0]) for member, rows in columns.items()}

    def _presample(self, epochs: range, devices: DevicePlan) -> Int32Array:
        """Return how often this worker's device reads each row in ``epochs``."""
        rank = self._group.rank
        draws = Presampler(
            self._graph,
            self._sampler,
            self._order,
            split=partial(device_plan.apportion, devices.split),
            seed=self._seed,
            num_threads=self._num_threads,
        )
        return presampled.presample(draws, epochs, devices=[rank]).rows.of(rank)

    def _choose_rows(
        self, clique: Sequence[int], hotness: dict[int, Int32Array]
    ) -> dict[int, Array]:
        """Return the rows that ``clique`` reads most, by the rank that is to cache each.

        Of each vertex type a rank caches as many as before.
        """
        total = hotness[clique[0]].copy()
        for member in clique[1:]:
            total += hotness[member]
        degrees = degree.out_degree(self._graph)
        by_type = []
        for rows in self._row_types:
            ids, owned = rows.vertices, [rows.of(self.plan.of(m).features) for m in clique]
            capacities = np.array([len(vertices) for vertices in owned], np.int64)
            num_rows = int(capacities.sum())
            options: dict[str, Any] = {"bytes_per_vertex": 1, "num_threads": 1}
            order = ops.hottest(total[ids], degrees[ids], capacity=num_rows, **options)[:num_rows]
            local = [hotness[member][ids] for member in clique]
            shared = ops.share_out(order, local, capacities=capacities, **options)
            parts = planner.group_by_owner(order, shared.member, len(clique))
            by_type.append([part + part.dtype.type(ids.start) for part in parts])
        features = [np.concatenate(parts) for parts in zip(*by_type, strict=True)]
        return dict(zip(clique, features, strict=True))

    def _count_reads(self, features: dict[int, Array], uses: Int32Array) -> list[int]:
        """Return how many of this worker's reads each device's cache serves, by rank.

        ``uses`` are the reads of each row, ``features`` the cached rows by rank. The last entry
        counts reads from the host.
        """
        reads = [0] * (self._group.size + 1)
        for member, vertices in features.items():
            reads[member] = int(uses[vertices].sum(dtype=np.int64))
        total = sum(int(uses[rows.vertices].sum(dtype=np.int64)) for rows in self._row_types)
        reads[-1] = total - sum(reads)
        return reads
