"""Caches planned again between epochs, when their hit rate is far from the predicted one.

A plan may have been made for other seeds, fan-outs or parts than those of the run. Sampling is a
pure function of the step, so that the next epochs can be drawn in advance: what is kept then is
what these will read most.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gnnscale import ops
from gnnscale.cache import CachePlan, Presampler
from gnnscale.cache import base as planner
from gnnscale.cache.hotness import degree, presampled
from gnnscale.core import Array, Int32Array, Traffic
from gnnscale.distributed.process_group import Group, trade_values
from gnnscale.graph import Graph
from gnnscale.planner import DevicePlan, device_plan
from gnnscale.run.config import RunConfig
from gnnscale.sampling import SeedOrder
from gnnscale.training.build.cache import OpenedCache, refill, traded_rows

#: How far a hit rate may be from what was predicted.
_APART = 0.05
#: Epochs that are drawn to plan for: one of few batches does not predict those that follow.
_EPOCHS = 4

log = logging.getLogger(__name__)


def hit_rate_gap(plan: CachePlan, traffic: Sequence[Traffic]) -> tuple[float, float] | None:
    """Return the measured and the predicted hit rate of the device that differs most.

    None if they do not differ by more than 5 points on any device whose rows stay, and if the
    prediction is of the run's own batches: epochs differ, and their sum does not.
    """
    if plan.exact:
        return None
    pairs = []
    for cache, forecast in zip(plan.devices, plan.predicted or (), strict=False):
        measured, predicted = traffic[cache.device].rows.hit_rate, forecast.feature_hit_rate
        if cache.look_ahead is None and measured is not None and predicted is not None:
            pairs.append((measured, predicted))
    worst = max(pairs, key=lambda pair: abs(pair[0] - pair[1]), default=None)
    return worst if worst is not None and abs(worst[0] - worst[1]) > _APART else None


class CacheReplanner:
    """Keeps the caches of a run at what its batches read; used by every worker alike."""

    def __init__(
        self,
        config: RunConfig,
        graph: Graph,
        order: SeedOrder,
        group: Group,
        plan: CachePlan,
        cache: OpenedCache | None,
    ) -> None:
        """Begin with the caches as they are opened."""
        self._config = config
        self._graph = graph
        self._order = order
        self._group = group
        self._cache = cache
        self.plan = plan

    def check(self, epoch: int, traffic: Sequence[Traffic], devices: DevicePlan) -> None:
        """Plan the caches again if they did not hit as predicted.

        Every worker calls this after the same epoch, with the same traffic.
        """
        if any(each.holds_rows for each in self._config.device_plan.parsed()):
            return  # others may be reading a cache that lies in a device's memory
        gap = hit_rate_gap(self.plan, traffic)
        if gap is None or epoch + 1 >= self._config.epochs:
            return
        start = time.perf_counter()
        epochs = range(epoch + 1, min(epoch + 1 + _EPOCHS, self._config.epochs))
        self._replan(epochs, devices)
        if self._group.is_rank0:
            log.info(
                f"epoch {epoch + 1}: caches had {100 * gap[0]:.1f} % of the rows where "
                f"{100 * gap[1]:.1f} % were predicted; planned anew from the batches of "
                f"{len(epochs)} epochs to come in {time.perf_counter() - start:.2f} s"
            )

    def _replan(self, epochs: range, devices: DevicePlan) -> None:
        rank, plan = self._group.rank, self.plan
        uses = self._count(epochs, devices) if plan.has(rank) else None
        hotness = self._hotness_of_clique(uses)
        features: dict[int, Array] = {}
        mine = None
        if uses is not None:
            features = self._place(plan.clique_of(rank), hotness)
            mine = self._found(features, uses)
        every = trade_values(mine, self._group)
        self.plan = replace(
            plan,
            devices=tuple(
                replace(each, features=features.get(each.device, each.features))
                for each in plan.devices
            ),
            num_epochs=len(epochs),
            predicted=tuple(
                replace(traffic, rows=tuple(every[each.device]))
                for each, traffic in zip(plan.devices, plan.predicted or (), strict=True)
            ),
        )
        refill(self._cache, self.plan, self._graph, self._group)

    def _hotness_of_clique(self, uses: Int32Array | None) -> dict[int, Int32Array]:
        """Return what each device of this worker's clique will read."""
        rank = self._group.rank
        if not self.plan.has_peers:
            return {} if uses is None else {rank: uses}
        clique = () if uses is None else self.plan.clique_of(rank)
        num_rows = None if uses is None else len(uses)
        with traded_rows(num_rows, 1, np.dtype(np.int32), self._group) as mapped:
            if uses is not None:
                mapped(rank)[:, 0] = uses
            found = {each: mapped(each) for each in clique}
        return {each: np.ascontiguousarray(rows[:, 0]) for each, rows in found.items()}

    def _count(self, epochs: range, devices: DevicePlan) -> Int32Array:
        """Count what this worker's device will read in ``epochs``."""
        rank = self._group.rank
        draws = Presampler(
            self._graph,
            self._config.sampler,
            self._order,
            split=partial(device_plan.apportion, devices.split),
            seed=self._config.seed,
            num_threads=max(1, self._config.num_threads // self._group.local_size),
        )
        return presampled.presample(draws, epochs, devices=[rank]).rows_of(rank)

    def _place(self, clique: Sequence[int], hotness: dict[int, Int32Array]) -> dict[int, Array]:
        """Return the rows of each device of a clique: as many as before, by local preference."""
        rooms = np.array([len(self.plan.of(each).features) for each in clique], np.int64)
        total = hotness[clique[0]].copy()
        for each in clique[1:]:
            total += hotness[each]
        num_rows = int(rooms.sum())
        degrees = degree.out_degree(self._graph)
        order = ops.hottest(total, degrees, capacity=num_rows, bytes_per_vertex=1, num_threads=1)[
            :num_rows
        ]
        mine = [hotness[each] for each in clique]
        shared = ops.share_out(order, mine, capacities=rooms, bytes_per_vertex=1, num_threads=1)
        rows = planner.split_by_owner(order, shared.member, len(clique))
        return dict(zip(clique, rows, strict=True))

    def _found(self, features: dict[int, Array], uses: Int32Array) -> list[int]:
        """Return where this worker's reads will be found, device by device and last at the host."""
        at = [0] * (self._group.size + 1)
        for member, vertices in features.items():
            at[member] = int(uses[vertices].sum(dtype=np.int64))
        at[-1] = int(uses.sum(dtype=np.int64)) - sum(at)
        return at
