"""Cache policies: none, static by hotness, and those that look ahead."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from gnnscale.cache import base as planner
from gnnscale.cache import belady
from gnnscale.cache.hotness.degree import degree_ratio, pagerank, uniform
from gnnscale.cache.plan import MAX_WINDOW, CachePlan, CacheTraffic, DeviceCache, LookAhead
from gnnscale.cache.problem import CacheDevice, CacheTask, no_vertices
from gnnscale.core import Array, ConfigError, check_choice, check_range, hardware, progress
from gnnscale.core.artifact.files import size
from gnnscale.partition import UNREACHED

#: The metric that counts the run itself.
EXACT = "exact"
#: Whose reads make a vertex hot: the device's own, its clique's, or those of all devices.
SCOPES = ("device", "clique", "all")


@dataclass(frozen=True, kw_only=True)
class StaticCache(planner.CachePlannerConfig):
    """Feature rows of the hottest vertices, chosen before training.

    Attributes:
        name: the policy's name in reports.
        hotness: one of ``METRICS``.
        scope: one of ``SCOPES``.
        shared: whether a clique keeps each row once, and devices read each other's caches.
            Otherwise each device keeps the hottest rows itself.
        local: whether a shared row lies on the device that reads it most; otherwise rows are dealt
            in turn.
    """

    name: str
    hotness: str
    scope: str
    shared: bool = False
    local: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("cache_planner.hotness", self.hotness, METRICS)
        check_choice("cache_planner.scope", self.scope, SCOPES)
        if self.shared and self.scope == "device":
            raise ConfigError(
                "cache_planner.scope=device: devices that share rows need one order of them; "
                "allowed with shared=true are clique, all"
            )
        if self.local and not self.shared:
            raise ConfigError("cache_planner.local=true: needs cache_planner.shared=true")

    @property
    def policy(self) -> str:
        """The name in reports."""
        return self.name

    @property
    def shares(self) -> bool:
        """Whether devices read each other's caches."""
        return self.shared

    def plan(self, task: CacheTask) -> CachePlan:
        """Give each device, or each clique, the hottest rows that fit."""
        exact = self.hotness == EXACT
        cliques = task.cliques if self.shared else tuple((each,) for each in task.device_at)
        caches = [cache for clique in cliques for cache in self._caches(task, clique)]
        caches.sort(key=lambda cache: cache.device)
        reads = task.counted_run if exact else task.counted
        return CachePlan(
            planner=self.policy,
            cliques=cliques,
            devices=tuple(caches),
            alphas=(None,) * len(cliques),
            predicted=planner.predict_traffic(task, caches, cliques, reads),
            num_epochs=task.num_epochs if exact else 1,
            exact=(exact or task.num_epochs == 1) and task.draws_are_exact,
        )

    def _caches(self, task: CacheTask, clique: Sequence[int]) -> list[DeviceCache]:
        members = [task.device_at[each] for each in clique]
        rooms = [member.budget_bytes // task.row_bytes for member in members]
        order = planner.hottest_rows(task, self._hotness(task, clique), sum(rooms))
        if self.local:
            local = [measure(self.hotness, task, [each]) for each in clique]
            capacities = [room * task.row_bytes for room in rooms]
            kept = planner.share_out(task, order, local, capacities)
        else:
            kept = planner.deal(order, rooms)
        none = order[:0]
        return [
            planner.feature_cache(task, member, rows, none)
            for member, rows in zip(members, kept, strict=True)
        ]

    def _hotness(self, task: CacheTask, clique: Sequence[int]) -> Array:
        whose = list(task.device_at) if self.scope == "all" else clique
        return measure(self.hotness, task, whose)


@dataclass(frozen=True, kw_only=True)
class NoCache(planner.CachePlannerConfig):
    """No device has a cache."""

    caches: ClassVar[bool] = False

    @property
    def policy(self) -> str:
        """The name in reports."""
        return "none"

    def plan(self, task: CacheTask) -> CachePlan:
        """Return the plan of no cache."""
        return CachePlan(planner=self.policy, cliques=(), devices=(), alphas=(), predicted=None)


#: Steps that are looked ahead if memory allows it: hit rates do not rise beyond them.
_WINDOW = 8
#: The part of the available memory that batches may take which wait to be trained.
_PART = 0.25


@dataclass(frozen=True, kw_only=True)
class LookAheadCache(planner.CachePlannerConfig):
    """A cache of each device whose rows are replaced by what the next steps read.

    The batches of these steps are drawn ahead, and kept until they are trained: nothing is drawn
    twice. Hits are predicted by drawing the run beforehand.

    Attributes:
        name: the policy's name in reports.
        window: steps that are looked ahead; None for 8, or fewer if memory is short.
        match: whether rows of the batch before are read from the device's memory; they take memory
            beyond the budget.
        predicted_epochs: epochs of the run that are drawn to predict hits; None for all of them,
            0 for none.
    """

    name: str
    window: int | None = None
    match: bool = False
    predicted_epochs: int | None = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window is not None:
            check_range("cache_planner.window", self.window, 1, MAX_WINDOW)
        if self.predicted_epochs is not None:
            check_range("cache_planner.predicted_epochs", self.predicted_epochs, 0)

    @property
    def policy(self) -> str:
        """The name in reports."""
        return self.name

    @property
    def keeps_batch(self) -> bool:
        """Whether it matches."""
        return self.match

    def plan(self, task: CacheTask) -> CachePlan:
        """Decide how far to look ahead, and predict the hits."""
        policies = {
            device.position: LookAhead(
                window=self._window(task, device),
                num_rows=_num_rows(task, device),
                match=self.match,
            )
            for device in task.devices
        }
        epochs = task.num_epochs if self.predicted_epochs is None else self.predicted_epochs
        epochs = min(epochs, task.num_epochs)
        cliques = tuple((position,) for position in policies)
        return CachePlan(
            planner=self.name,
            cliques=cliques,
            devices=tuple(_cache(task, each, policies[each.position]) for each in task.devices),
            alphas=(None,) * len(cliques),
            predicted=_predict_hits(task, policies, epochs) if epochs else None,
            num_epochs=epochs,
            exact=task.draws_are_exact,
        )

    def _window(self, task: CacheTask, device: CacheDevice) -> int:
        """Return the window; raise ConfigError if its batches do not fit into memory."""
        each = task.max_batch_bytes
        allowed = hardware.find_machine().memory.available / max(len(task.devices), 1)
        if self.window is None:
            return int(min(_WINDOW, max(1, _PART * allowed // max(each, 1))))
        needed = self.window * each + belady.belady_bytes(
            task.graph.num_vertices,
            _num_rows(task, device),
            window=self.window,
            batch_rows=task.max_batch_rows,
        )
        if needed > allowed:
            raise ConfigError(
                f"cache_planner.window={self.window}: {device.name} needs about {size(needed)} for "
                f"the batches of so many steps, {size(int(allowed))} are available to it; a "
                "smaller window fits"
            )
        return self.window


def _num_rows(task: CacheTask, device: CacheDevice) -> int:
    return min(device.budget_bytes // task.row_bytes, task.graph.num_vertices)


def _cache(task: CacheTask, device: CacheDevice, policy: LookAhead) -> DeviceCache:
    none = no_vertices(task.graph)
    return replace(
        planner.feature_cache(task, device, none, none),
        feature_bytes=policy.num_rows * task.row_bytes,
        look_ahead=policy,
        matched_bytes=_rows_of_batch(task, device) * task.row_bytes if policy.match else 0,
    )


def _rows_of_batch(task: CacheTask, device: CacheDevice) -> int:
    first = task.first_batches.get(device.position)
    return 0 if first is None else len(first.input_vertices)


def _predict_hits(
    task: CacheTask, policies: dict[int, LookAhead], epochs: int
) -> tuple[CacheTraffic, ...]:
    """Serve the run's batches from caches without rows, and count the hits."""
    caches = {
        position: belady.Belady(
            task.graph.num_vertices,
            policy.num_rows,
            window=policy.window,
            priority=task.out_degrees,
            match=policy.match,
            num_threads=task.num_threads,
        )
        for position, policy in policies.items()
    }
    #: The steps that each cache knows. One whose device has no seeds counts in the window.
    known: dict[int, deque[int]] = {position: deque() for position in caches}
    counts = dict.fromkeys(caches, belady.HitCounts())
    reads = dict.fromkeys(caches, 0)
    batches = task.draws.steps_per_epoch * epochs * len(caches)
    with progress.track(f"looking ahead on {task.graph.name}", batches, "batches") as advance:
        for epoch in range(epochs):
            for draw in task.draws.epoch(epoch, devices=caches):
                advance(1)
                cache, steps = caches[draw.device], known[draw.device]
                while steps and steps[0] + cache.window < draw.step:
                    counts[draw.device] += cache.advance().counts
                    steps.popleft()
                cache.expect(draw.batch.input_vertices)
                steps.append(draw.step)
                reads[draw.device] += draw.batch.num_edges
                reads[draw.device] += sum(block.num_dst for block in draw.batch.blocks)
    for position, cache in caches.items():
        while cache.num_expected:
            counts[position] += cache.advance().counts
    return tuple(
        _traffic(task, task.device_at[position], counts[position], reads[position])
        for position in caches
    )


def _traffic(
    task: CacheTask, device: CacheDevice, counts: belady.HitCounts, reads: int
) -> CacheTraffic:
    rows = [0] * (task.num_devices + 1)
    rows[device.position] = counts.num_hits + counts.num_previous
    rows[-1] = counts.num_misses
    transactions = counts.num_misses * device.row_transactions(task.row_bytes)
    return CacheTraffic(
        rows=tuple(rows),
        lists=(0,) * (task.num_devices + 1),
        transactions=round(transactions + (reads if device.samples else 0)),
        link_bytes=counts.num_misses * task.row_bytes,
    )


def measure(name: str, task: CacheTask, devices: Sequence[int]) -> Array:
    """Return ``[num_vertices]``, how hot each vertex is for ``devices`` by metric ``name``.

    Raises:
        ConfigError: the metric does not go with the run's sampler.
    """
    return _METRICS[name](task, devices)


def _inclusion(task: CacheTask, devices: Sequence[int]) -> Array:
    if task.fanouts is None:
        raise ConfigError(
            "cache_planner.hotness=inclusion: is worked out for sampler=neighbor and full alone"
        )
    total = np.zeros(task.graph.num_vertices)
    for device in devices:
        seeds_of_slice = -(-task.batch_size // task.num_devices)
        num_seeds = min(len(task.train_vertices([device])), seeds_of_slice)
        total += task.inclusion([device], num_seeds).probability
    return total.astype(np.float32)


def _within(task: CacheTask, devices: Sequence[int], hotness: Array) -> Array:
    """Return ``hotness``, with 0 for vertices that no part of ``devices`` has."""
    if task.parts is None or task.parts.hops is None:
        return hotness
    reached = (task.parts.hops[list(devices)] != UNREACHED).any(axis=0)
    return np.where(reached, hotness, 0)


_METRICS: dict[str, Callable[[Any, Sequence[int]], Array]] = {
    "out_degree": lambda task, devices: _within(task, devices, task.out_degrees),
    "degree_ratio": lambda task, devices: _within(task, devices, degree_ratio(task.graph)),
    "pagerank": lambda task, devices: pagerank(
        task.graph, task.train_vertices(devices), num_threads=task.num_threads
    ),
    "inclusion": _inclusion,
    "presampled": lambda task, devices: task.presampled.sum_rows(devices),
    "expected": lambda task, devices: task.expected.sum_rows(devices),
    EXACT: lambda task, devices: task.counted_run.sum_rows(devices),
    "random": lambda task, devices: uniform(task.graph.num_vertices, task.seed),
}
METRICS = tuple(_METRICS)
