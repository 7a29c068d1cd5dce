"""Cache policies: no cache, static caches by hotness, and dynamic caches with look-ahead."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from gnnscale.cache import base, belady
from gnnscale.cache.hotness.degree import degree_ratio, pagerank, uniform
from gnnscale.cache.plan import MAX_WINDOW, CachePlan, CacheTraffic, DeviceCache, LookAhead
from gnnscale.cache.problem import (
    CacheDevice,
    CacheTask,
    RowType,
    feature_bytes,
    look_ahead_bytes,
    no_vertices,
)
from gnnscale.core import Array, ConfigError, check_choice, check_range, hardware, progress
from gnnscale.core.artifact.files import size
from gnnscale.partition import UNREACHED

#: Hotness metric that counts the reads of the run itself.
EXACT = "exact"
#: Devices whose reads make a vertex hot: the device, its clique, or all devices.
SCOPES = ("device", "clique", "all")


@dataclass(frozen=True, kw_only=True)
class StaticCache(base.CachePlannerConfig):
    """Static cache of the hottest feature rows, chosen before training.

    Attributes:
        name: the policy's name in reports.
        hotness: one of ``METRICS``.
        scope: one of ``SCOPES``.
        shared: whether a clique caches each row once, and devices read each other's caches;
            otherwise each device caches the hottest rows.
        local: whether a shared row is on the device that reads it most; otherwise rows are dealt in
            turn.
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
                "cache_planner.scope=device: expected clique or all with shared=true; devices that "
                "share rows need one order of them"
            )
        if self.local and not self.shared:
            raise ConfigError("cache_planner.local=true: expected cache_planner.shared=true")

    @property
    def policy(self) -> str:
        """Name of the policy in reports."""
        return self.name

    @property
    def shares(self) -> bool:
        """Whether devices read each other's caches."""
        return self.shared

    def plan(self, task: CacheTask) -> CachePlan:
        """Return a plan that caches the hottest rows that fit, with each device's expected reads.

        With ``shared`` a clique caches them together, otherwise each device by itself.
        """
        exact = self.hotness == EXACT
        cliques = task.cliques if self.shared else tuple((device,) for device in task.device_at)
        caches = [cache for clique in cliques for cache in self._caches(task, clique)]
        caches.sort(key=lambda cache: cache.device)
        reads = task.run_reads if exact else task.counted
        return CachePlan(
            planner=self.policy,
            cliques=cliques,
            devices=tuple(caches),
            alphas=(None,) * len(cliques),
            predicted=base.predict_traffic(task, caches, cliques, reads),
            num_epochs=task.num_epochs if exact else 1,
            exact=(exact or task.num_epochs == 1) and task.is_exact,
        )

    def _caches(self, task: CacheTask, clique: Sequence[int]) -> list[DeviceCache]:
        members = [task.device_at[device] for device in clique]
        capacities = [member.budget_bytes for member in members]
        if task.has_equal_rows:
            capacities = [capacity // task.row_bytes * task.row_bytes for capacity in capacities]
        devices = list(task.device_at) if self.scope == "all" else clique
        order = task.order_rows(measure(self.hotness, task, devices), clique, capacities)
        if self.local:
            local = [measure(self.hotness, task, [device]) for device in clique]
            rows_by_member = base.share_out(task, order, local, capacities)
        elif task.has_equal_rows:
            rows_by_member = base.deal(order, [bytes_ // task.row_bytes for bytes_ in capacities])
        else:
            # To the device with the most bytes left.
            local = [np.zeros(task.graph.num_vertices, np.int32)] * len(clique)
            rows_by_member = base.share_out(task, order, local, capacities)
        return [
            base.feature_cache(task, member, rows, order[:0])
            for member, rows in zip(members, rows_by_member, strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class NoCache(base.CachePlannerConfig):
    """No caches."""

    caches: ClassVar[bool] = False

    @property
    def policy(self) -> str:
        """Name of the policy in reports."""
        return "none"

    def plan(self, task: CacheTask) -> CachePlan:
        """Return an empty plan."""
        return CachePlan(planner=self.policy, cliques=(), devices=(), alphas=(), predicted=None)


#: Default look-ahead in steps, if memory allows: hit rates do not rise beyond it.
_WINDOW = 8
#: Largest share of the available memory for batches that wait for training.
_WAITING_SHARE = 0.25


@dataclass(frozen=True, kw_only=True)
class LookAheadCache(base.CachePlannerConfig):
    """Dynamic cache of each device, updated by the batches of the next steps.

    These batches are sampled ahead and kept until they are trained, so no batch is sampled twice.
    Hits are predicted by presampling the run.

    Attributes:
        name: the policy's name in reports.
        window: steps to look ahead. None: 8, or fewer if memory is short.
        match: whether rows of the previous batch are reused on the device; they take memory beyond
            the budget.
        predicted_epochs: epochs of the run to presample for the prediction of hits; 0 for no
            prediction. None: all epochs.
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
        """Name of the policy in reports."""
        return self.name

    @property
    def matches_batches(self) -> bool:
        """Whether rows of the previous batch are reused on the device."""
        return self.match

    def plan(self, task: CacheTask) -> CachePlan:
        """Return a plan with the size and look-ahead of each device's cache.

        The first ``predicted_epochs`` are presampled to predict hits; 0: without a prediction.
        """
        policies = {device.position: self._policy(task, device) for device in task.devices}
        epochs = task.num_epochs if self.predicted_epochs is None else self.predicted_epochs
        epochs = min(epochs, task.num_epochs)
        cliques = tuple((position,) for position in policies)
        return CachePlan(
            planner=self.name,
            cliques=cliques,
            devices=tuple(_cache(task, dev, policies[dev.position]) for dev in task.devices),
            alphas=(None,) * len(cliques),
            predicted=_predict_hits(task, policies, epochs) if epochs else None,
            num_epochs=epochs,
            exact=task.is_exact,
        )

    def _policy(self, task: CacheTask, device: CacheDevice) -> LookAhead:
        if task.has_equal_rows:
            num_rows = min(device.budget_bytes // task.row_bytes, task.graph.num_vertices)
            type_rows: tuple[int, ...] = ()
        else:
            type_rows = _divide_rows(task, device)
            num_rows = sum(type_rows)
        return LookAhead(
            window=self._window(task, device, num_rows),
            num_rows=num_rows,
            match=self.match,
            type_rows=type_rows,
        )

    def _window(self, task: CacheTask, device: CacheDevice, num_rows: int) -> int:
        """Return the steps to look ahead: ``window``; if it is None, up to 8 as host memory allows.

        ConfigError: the batches of ``window`` steps exceed the available memory.
        """
        batch_bytes = task.max_batch_bytes
        available = hardware.find_machine().memory.available / max(len(task.devices), 1)
        if self.window is None:
            affordable = _WAITING_SHARE * available // max(batch_bytes, 1)
            return int(min(_WINDOW, max(1, affordable)))
        needed = self.window * batch_bytes + belady.belady_bytes(
            task.graph.num_vertices,
            num_rows,
            window=self.window,
            batch_rows=task.max_batch_rows,
        )
        if needed > available:
            raise ConfigError(
                f"cache_planner.window={self.window}: expected about {size(needed)} of memory for "
                f"the batches of {device.name}, got {size(int(available))}; a smaller window fits"
            )
        return self.window


def _divide_rows(task: CacheTask, device: CacheDevice) -> tuple[int, ...]:
    """Return the rows of each vertex type that the cache of ``device`` may hold.

    They are as many as a static cache would have, of those rows whose reads in the run's first
    epoch save most link bytes for each byte. Once a type's rows are filled, Belady with a window
    over all steps has at least the hits of that cache.
    """
    if not device.budget_bytes:
        return (0,) * len(task.row_types)
    members, capacities = [device.position], [device.budget_bytes]
    order = task.order_rows(measure("presampled", task, members), members, capacities)
    reads = [np.zeros(task.graph.num_vertices, np.int32)]
    (rows,) = base.share_out(task, order, reads, capacities)
    return tuple(len(row_type.of(rows)) for row_type in task.row_types)


def _cache(task: CacheTask, device: CacheDevice, policy: LookAhead) -> DeviceCache:
    empty, matched_bytes = no_vertices(task.graph), 0
    first = task.first_batches.get(device.position)
    if policy.match and first is not None:
        matched_bytes = feature_bytes(task.graph, first.distinct_inputs)
    return replace(
        base.feature_cache(task, device, empty, empty),
        feature_bytes=look_ahead_bytes(task.graph, policy),
        look_ahead=policy,
        matched_bytes=matched_bytes,
    )


class _SimulatedCache:
    """Dynamic cache of the rows of a type, simulated on presampled batches."""

    def __init__(self, task: CacheTask, rows: RowType, policy: LookAhead) -> None:
        """Start with an empty cache of the size and look-ahead of ``policy``."""
        self._cache = belady.Belady(
            rows.num_rows,
            policy.num_rows,
            window=policy.window,
            priority=task.out_degrees[rows.vertices],
            match=policy.match,
            num_threads=task.num_threads,
        )
        #: Steps of the expected batches; steps that read no rows count in the window.
        self._steps: deque[int] = deque()
        self._counts = belady.HitCounts()

    def expect(self, step: int, vertices: Array) -> None:
        """Serve the batches whose windows end before ``step``, which reads ``vertices``."""
        while self._steps and self._steps[0] + self._cache.window < step:
            self._counts += self._cache.advance().counts
            self._steps.popleft()
        self._cache.expect(vertices)
        self._steps.append(step)

    def finish(self) -> belady.HitCounts:
        """Serve the remaining batches, and return the hits and misses of all."""
        while self._cache.num_expected:
            self._counts += self._cache.advance().counts
        return self._counts


def _predict_hits(
    task: CacheTask, policies: dict[int, LookAhead], epochs: int
) -> tuple[CacheTraffic, ...]:
    """Simulate the caches on presampled batches of the first ``epochs``.

    Return each device's traffic. ``policies`` are the look-aheads by device position.
    """
    #: Caches by device and vertex type, and reads of rows that no cache may have.
    caches = {
        (position, number): _SimulatedCache(task, rows, policy.of_type(number))
        for position, policy in policies.items()
        for number, rows in enumerate(task.row_types)
        if rows.is_cached
    }
    uncached: Counter[tuple[int, int]] = Counter()
    reads = dict.fromkeys(policies, 0)
    batches = task.draws.steps_per_epoch * epochs * len(policies)
    with progress.track(f"looking ahead on {task.graph.name}", batches, "batches") as advance:
        for epoch in range(epochs):
            for batch in task.draws.epoch(epoch, devices=policies):
                advance(1)
                for number, rows in enumerate(task.graph.schema.split(batch.batch.distinct_inputs)):
                    cache = caches.get((batch.device, number))
                    if cache is None:
                        uncached[batch.device, number] += len(rows)
                    elif len(rows):
                        cache.expect(batch.step, rows)
                reads[batch.device] += batch.batch.num_edges
                reads[batch.device] += sum(block.num_dst for block in batch.batch.blocks)
    counts = {key: cache.finish() for key, cache in caches.items()}
    counts |= {key: belady.HitCounts(num_misses=num) for key, num in uncached.items()}
    return tuple(
        _traffic(
            task,
            task.device_at[position],
            [
                counts.get((position, number), belady.HitCounts())
                for number in range(len(task.row_types))
            ],
            reads[position],
        )
        for position in policies
    )


def _traffic(
    task: CacheTask, device: CacheDevice, counts: Sequence[belady.HitCounts], reads: int
) -> CacheTraffic:
    """Return the traffic of ``device``: ``counts`` of each type's rows, and ``reads`` of lists."""
    no_reads = [0] * (task.num_devices + 1)
    by_type = []
    for row_type, hits in zip(task.row_types, counts, strict=True):
        if row_type.row_bytes:
            rows = no_reads.copy()
            rows[device.position] = hits.num_hits + hits.num_previous
            rows[-1] = hits.num_misses
            by_type.append((row_type, rows))
    requests = reads if device.samples else 0
    return base.add_types(task, device, by_type, no_reads, list_requests=requests)


def measure(name: str, task: CacheTask, devices: Sequence[int]) -> Array:
    """Return ``[num_vertices]`` hotness of each vertex's row for ``devices`` together.

    ``name`` is one of ``METRICS``.
    """
    return _METRICS[name](task, devices)


def _inclusion(task: CacheTask, devices: Sequence[int]) -> Array:
    if task.fanouts is None:
        raise ConfigError("cache_planner.hotness=inclusion: expected sampler=neighbor or full")
    total = np.zeros(task.graph.num_vertices)
    for device in devices:
        seeds_of_slice = -(-task.batch_size // task.num_devices)
        num_seeds = min(len(task.train_vertices([device])), seeds_of_slice)
        total += task.inclusion([device], num_seeds).probability
    return total.astype(np.float32)


def _within(task: CacheTask, devices: Sequence[int], hotness: Array) -> Array:
    """Return ``hotness``, with 0 for vertices outside of the parts of ``devices`` and their halos.

    If the parts have no halos, or there are no parts, return ``hotness`` itself.
    """
    if task.parts is None or task.parts.hops is None:
        return hotness
    is_in_parts = (task.parts.hops[list(devices)] != UNREACHED).any(axis=0)
    return np.where(is_in_parts, hotness, 0)


_METRICS: dict[str, Callable[[Any, Sequence[int]], Array]] = {
    "out_degree": lambda task, devices: _within(task, devices, task.out_degrees),
    "degree_ratio": lambda task, devices: _within(task, devices, degree_ratio(task.graph)),
    "pagerank": lambda task, devices: pagerank(
        task.graph, task.train_vertices(devices), num_threads=task.num_threads
    ),
    "inclusion": _inclusion,
    "presampled": lambda task, devices: task.presampled.rows.sum(devices),
    "expected": lambda task, devices: task.expected.rows.sum(devices),
    EXACT: lambda task, devices: task.run_reads.rows.sum(devices),
    "random": lambda task, devices: uniform(task.graph.num_vertices, task.seed),
}
METRICS = tuple(_METRICS)
