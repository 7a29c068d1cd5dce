"""Sizes of a tiered store: rows in host memory, and steps to look ahead and to prefetch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnscale.cache.belady import Belady, belady_bytes
from gnnscale.core import Array, ConfigError, Float64Array, Int32Array, Int64Array
from gnnscale.core.artifact import row_slices, size
from gnnscale.features.tiered.policies import missing_rows

#: Last batches of a sample whose misses are representative of full memory.
_NUM_LAST = 4

#: Degree classes per doubling of the degree; vertices of a class have equal read probability.
_CLASSES_PER_DOUBLING = 4

#: Bytes of degrees to count at a time.
_COUNTED_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Misses:
    """Expected number of a mini-batch's rows that host memory lacks, and typical missing rows."""

    num_rows: int  #: rows of the mini-batch
    mean: float  #: mean misses over an epoch that starts with empty memory
    when_full: int  #: misses once memory is full, or at the end of the epoch
    vertices: Array  #: ``[m]`` rows that a typical mini-batch misses, ascending

    @property
    def rate(self) -> float:
        """Mean miss rate over an epoch, 0 to 1."""
        return self.mean / max(self.num_rows, 1)

    def requests(self, *, row_bytes: int, max_gap_bytes: int) -> tuple[int, int]:
        """Return the number of requests that read ``vertices`` from a file, and their total bytes.

        A request also reads gaps of at most ``max_gap_bytes`` between its rows.
        """
        if not len(self.vertices):
            return 0, 0
        gaps = (np.diff(self.vertices.astype(np.int64)) - 1) * row_bytes
        is_read = gaps <= max_gap_bytes
        num_bytes = len(self.vertices) * row_bytes + int(gaps[is_read].sum())
        return 1 + int((~is_read).sum()), num_bytes


def expect_misses(
    batches: Sequence[Array],
    num_kept: int,
    window: int,
    *,
    priority: Int32Array,
    num_steps: int,
    num_threads: int,
) -> Misses:
    """Return a mini-batch's expected misses: their mean over an epoch, and once memory is full.

    An epoch starts with empty memory of ``num_kept`` rows. Belady with ``window`` serves the run's
    first ``batches``. If they neither fill memory nor cover the epoch, read probabilities of
    vertices give the misses. ``priority`` (``[num_rows]``) has out-degrees, also the tie-break
    order; -1 for rows that are never requested. An epoch has ``num_steps`` mini-batches.
    """
    num_kept = min(num_kept, len(priority))
    policy = Belady(
        len(priority), num_kept, window=window, priority=priority, num_threads=num_threads
    )
    missing = [np.sort(rows) for rows in missing_rows(policy, batches, window)]
    if not missing:
        return Misses(num_rows=0, mean=0.0, when_full=0, vertices=np.zeros(0, np.int64))
    # The typical mini-batch is the median of the last mini-batches.
    last = sorted(range(len(missing))[-_NUM_LAST:], key=lambda index: len(missing[index]))
    typical = last[len(last) // 2]
    counts = [len(rows) for rows in missing[:num_steps]]
    if (sum(counts) >= num_kept and num_kept < len(priority)) or num_steps <= len(batches):
        when_full = len(missing[typical])
        mean = (sum(counts) + (num_steps - len(counts)) * when_full) / max(num_steps, 1)
    else:
        mean, when_full = ReadChances.of(batches, priority).misses(num_kept, num_steps)
    return Misses(
        num_rows=len(batches[typical]), mean=mean, when_full=when_full, vertices=missing[typical]
    )


@dataclass(frozen=True, kw_only=True)
class ReadChances:
    """Probability that a mini-batch reads a vertex, by class of out-degrees."""

    num_vertices: Int64Array  #: ``[num_classes]`` number of vertices of each class
    chance: Float64Array  #: ``[num_classes]`` read probability of each vertex of the class

    @classmethod
    def of(cls, batches: Sequence[Array], degrees: Int32Array) -> "ReadChances":
        """Estimate chances from sampled ``batches``; a degree of -1 marks rows never requested."""
        num_degrees = int(degrees.max(initial=0)) + 2
        doublings = np.log2(np.arange(num_degrees) + 1.0)
        classes = np.floor(_CLASSES_PER_DOUBLING * doublings).astype(np.int64)
        totals = np.zeros(num_degrees, np.int64)
        for part in row_slices(len(degrees), degrees.itemsize, _COUNTED_BYTES):
            totals += np.bincount(degrees[part] + 1, minlength=num_degrees)
        read = sum(
            (np.bincount(degrees[batch] + 1, minlength=num_degrees) for batch in batches),
            start=np.zeros(num_degrees, np.int64),
        )
        num_vertices = np.bincount(classes, weights=totals)
        reads = np.bincount(classes, weights=read) / max(len(batches), 1)
        chance = np.minimum(reads / np.maximum(num_vertices, 1), 1.0)
        return cls(num_vertices=num_vertices.astype(np.int64), chance=chance)

    def distinct(self, num_steps: int) -> float:
        """Return the expected number of distinct vertices that ``num_steps`` mini-batches read."""
        return float(self.num_vertices @ (1 - (1 - self.chance) ** num_steps))

    def misses(self, num_kept: int, num_steps: int) -> tuple[float, int]:
        """Return the mean misses of a step over ``num_steps``, and the misses once memory is full.

        Memory takes every row that is read until it holds ``num_kept`` rows; from then on it holds
        the most probable rows.
        """
        full_at = num_steps  # the step after which memory is full
        if self.distinct(num_steps) > num_kept:
            low = 0  # memory is not full after this step
            while full_at - low > 1:
                middle = (low + full_at) // 2
                is_full = self.distinct(middle) > num_kept
                low, full_at = (low, middle) if is_full else (middle, full_at)
        likeliest = np.argsort(-self.chance, kind="stable")
        of_class = self.num_vertices[likeliest]
        uncached = np.clip(np.cumsum(of_class) - num_kept, 0, of_class)
        steady = float(uncached @ self.chance[likeliest])
        new = float(self.num_vertices @ (self.chance * (1 - self.chance) ** max(full_at - 1, 0)))
        total = min(self.distinct(num_steps), num_kept) + (num_steps - full_at) * steady
        return total / max(num_steps, 1), round(max(new, steady))


#: Steps whose rows may be in flight at a time.
MAX_IN_FLIGHT = 4

#: Rows of the window, in multiples of the rows in memory. With a longer window, Belady's choices
#: are no better (docs/out-of-core.md).
_WINDOW_ROWS = 5
MIN_WINDOW, MAX_WINDOW = 2, 32

#: Largest share of the memory for mini-batches of the window.
_WINDOW_SHARE = 0.1

#: Smallest number of slots of a vertex type.
_MIN_SLOTS = 2

#: Bytes per row in memory, in addition to the row: two slot numbers, key and next use (Belady).
_SLOT_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class TierSizes:
    """Slots of a tiered store's cache and staging area, its look-ahead, and expected misses."""

    num_kept: int  #: capacity of the cache, in rows
    num_staged: int  #: additional slots, for rows that are prefetched or used by one step only
    window: int  #: steps to look ahead of the planned step
    ahead: int = MAX_IN_FLIGHT  #: steps whose rows may be in flight at a time
    misses: Misses  #: expected misses of a mini-batch


@dataclass(frozen=True, kw_only=True)
class SampledBatches:
    """First mini-batches of a run, which predict the size of later mini-batches."""

    #: rows of each mini-batch; step by step if several workers share memory
    vertices: Sequence[Array]
    num_bytes: int  #: largest memory of a sampled mini-batch without its rows
    computing_bytes: int = 0  #: largest memory of a mini-batch in computation, rows included
    #: share of a mini-batch's rows that the tiered store reads; a device cache has the rest
    asked: float = 1.0
    device_window: int = 0  #: steps that the device cache looks ahead
    num_workers: int = 1  #: workers that share memory, with a mini-batch per step each

    @property
    def max_rows(self) -> int:
        """Number of rows of the largest mini-batch."""
        return max(map(len, self.vertices), default=0)

    @property
    def usual_rows(self) -> int:
        """Rows of the largest mini-batch of the sample's second half: a device cache is filled."""
        return max(map(len, self.vertices[len(self.vertices) // 2 :]), default=0)


@dataclass(frozen=True, kw_only=True)
class Horizon:
    """Number of steps that a tiered store looks ahead, and the tie-break order beyond them."""

    window: int | None  #: steps to look ahead. None: as many as help
    priority: Int32Array  #: ``[num_rows]`` out-degrees, the tie-break order
    num_steps: int  #: steps of an epoch
    num_threads: int

    @property
    def least_window(self) -> int:
        """Smallest number of steps to look ahead."""
        return MIN_WINDOW if self.window is None else self.window

    def policy(self, sizes: TierSizes, num_workers: int) -> Belady:
        """Return the policy, of an empty cache of ``sizes``, that ``num_workers`` use in turn."""
        return Belady(
            len(self.priority),
            sizes.num_kept,
            window=sizes.window * num_workers,
            priority=self.priority,
            num_threads=self.num_threads,
        )


def size_tier(
    sample: SampledBatches, horizon: Horizon, *, num_rows: int, row_bytes: int, memory_bytes: int
) -> TierSizes:
    """Return the sizes of cache, staging area and window that fit into ``memory_bytes``.

    ``sample`` has batches of all workers. ConfigError: the rows of a step exceed the memory.
    """
    batch_rows, workers = sample.max_rows, sample.num_workers
    slot_bytes = row_bytes + _SLOT_BYTES

    def num_slots(window: int) -> int:
        slots = (memory_bytes - _window_bytes(sample, window, num_rows)) // slot_bytes
        return min(slots, num_rows + 2 * batch_rows)

    window = horizon.least_window
    slots = num_slots(window)
    if slots < batch_rows:
        raise _no_memory(memory_bytes, (batch_rows - slots) * slot_bytes, window)
    if horizon.window is None:
        window = _choose_window(slots, sample, memory_bytes)
        slots = max(num_slots(window), batch_rows)
    misses = expect_misses(
        sample.vertices,
        slots,
        window * workers,
        priority=horizon.priority,
        num_steps=horizon.num_steps * workers,
        num_threads=horizon.num_threads,
    )
    staged = _num_staged(slots, num_rows, sample, misses)
    return TierSizes(
        num_kept=min(slots - staged, num_rows), num_staged=staged, window=window, misses=misses
    )


def _window_bytes(sample: SampledBatches, window: int, num_rows: int) -> int:
    """Return the bytes of the policy and of the mini-batches of ``window`` steps, without rows."""
    batches = window * sample.num_workers
    policy_bytes = belady_bytes(num_rows, 0, window=batches, batch_rows=sample.max_rows)
    return policy_bytes + batches * sample.num_bytes


def _no_memory(memory_bytes: int, missing_bytes: int, window: int) -> ConfigError:
    return ConfigError(
        f"features.memory_bytes: the rows of a step do not fit into the {size(memory_bytes)} "
        f"for them, {size(missing_bytes)} are missing; more memory, a smaller batch_size, smaller "
        f"sampler.fanouts or a smaller features.window (now {window}) help"
    )


@dataclass(frozen=True, kw_only=True)
class TypeDemand:
    """Rows of one vertex type that share a machine's memory with those of other types."""

    sample: SampledBatches  #: rows of the type in the batches of all workers
    horizon: Horizon  #: look-ahead, and out-degrees of the type's vertices
    row_bytes: int  #: bytes of a row

    @property
    def num_rows(self) -> int:
        """Number of rows of the type."""
        return len(self.horizon.priority)

    @property
    def slot_bytes(self) -> int:
        """Bytes of a row in memory."""
        return self.row_bytes + _SLOT_BYTES

    @property
    def step_bytes(self) -> int:
        """Bytes that a step needs, with rows for a type that the sample hardly reads."""
        num_slots = max(self.sample.max_rows, _MIN_SLOTS)
        fixed = _window_bytes(self.sample, self.horizon.least_window, self.num_rows)
        return fixed + num_slots * self.slot_bytes


def divide_memory(memory_bytes: int, demands: Sequence[TypeDemand]) -> list[int]:
    """Return the bytes of the rows of each vertex type, whose sum is at most ``memory_bytes``.

    Each type gets what a step needs. The rest goes to the rows of all types that a mini-batch reads
    with the highest probability, by classes of out-degrees: a byte of memory then saves most bytes
    of the disk. What all rows leave is divided as the needs of a step are. ConfigError: the rows of
    a step exceed the memory.
    """
    parts = [demand.step_bytes for demand in demands]
    remaining = memory_bytes - sum(parts)
    if remaining < 0:
        raise _no_memory(memory_bytes, -remaining, demands[0].horizon.least_window)
    classes = [
        ReadChances.of(demand.sample.vertices, demand.horizon.priority) for demand in demands
    ]
    types = np.repeat(np.arange(len(demands)), [len(of_type.chance) for of_type in classes])
    class_bytes = np.concatenate(
        [
            of_type.num_vertices * demand.slot_bytes
            for of_type, demand in zip(classes, demands, strict=True)
        ]
    )
    order = np.argsort(-np.concatenate([of_type.chance for of_type in classes]), kind="stable")
    ends = np.minimum(np.cumsum(class_bytes[order]), remaining)
    row_bytes = np.zeros(len(demands), np.int64)
    np.add.at(row_bytes, types[order], np.diff(ends, prepend=0))
    surplus = remaining - int(row_bytes.sum())
    return [
        part + rows + surplus * part // sum(parts)
        for part, rows in zip(parts, row_bytes.tolist(), strict=True)
    ]


def _choose_window(slots: int, sample: SampledBatches, memory_bytes: int) -> int:
    workers = sample.num_workers
    useful = -(-_WINDOW_ROWS * slots // max(sample.usual_rows * workers, 1))
    affordable = int(_WINDOW_SHARE * memory_bytes / max(sample.num_bytes * workers, 1))
    return max(MIN_WINDOW, min(useful, affordable, MAX_WINDOW))


def _num_staged(slots: int, num_rows: int, sample: SampledBatches, misses: Misses) -> int:
    """Return the number of staging slots: the misses of two steps, at most half of ``slots``.

    If all rows fit into ``slots``, it is the rows of the largest mini-batch.
    """
    if slots >= num_rows + sample.max_rows:
        return sample.max_rows
    return max(1, min(2 * misses.when_full * sample.num_workers, slots // 2))
