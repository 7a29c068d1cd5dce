"""How many rows of a source memory holds, and how far a tier looks and reads ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from gnnscale.cache.belady import Belady, belady_bytes
from gnnscale.core import Array, ConfigError, Float64Array, Int32Array, Int64Array
from gnnscale.core.artifact.files import size
from gnnscale.core.artifact.npy import row_slices

#: Batches of a sample that say what one misses, once memory is full.
_LAST = 4

#: Degrees from one to its double are so many classes, whose vertices are read alike.
_CLASSES_PER_DOUBLING = 4

#: Rows whose degrees are counted in one go.
_COUNTED_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Misses:
    """What a mini-batch misses."""

    num_rows: int  #: rows that it needs
    mean: float  #: rows that it misses, over an epoch that begins with empty memory
    when_full: int  #: rows that it misses when memory has just become full, or at the epoch's end
    #: ``[m]`` what one of them misses, ascending
    vertices: Array

    @property
    def rate(self) -> float:
        """The part of its rows that it misses, over an epoch."""
        return self.mean / max(self.num_rows, 1)

    def requests(self, *, row_bytes: int, max_gap_bytes: int) -> tuple[int, int]:
        """Return the requests that read ``vertices`` from a file, and the bytes of these.

        Rows with at most ``max_gap_bytes`` between them are read by one request.
        """
        if not len(self.vertices):
            return 0, 0
        gaps = (np.diff(self.vertices.astype(np.int64)) - 1) * row_bytes
        closed = gaps <= max_gap_bytes
        num_bytes = len(self.vertices) * row_bytes + int(gaps[closed].sum())
        return 1 + int((~closed).sum()), num_bytes


def expect_misses(
    batches: Sequence[Array],
    num_kept: int,
    window: int,
    *,
    priority: Int32Array,
    num_steps: int,
    num_threads: int,
) -> Misses:
    """Return what a mini-batch misses while ``num_kept`` rows come into memory, and thereafter.

    The run's first mini-batches are served. If they do not fill the memory, the chances of their
    vertices say what later ones will miss.

    Args:
        batches: the run's first mini-batches.
        window: steps that are known beyond the one that is served.
        priority: ``[num_rows]`` the out-degree of each row, which also decides among rows that are
            read equally soon; -1 of those that are never asked for.
        num_steps: of an epoch.
    """
    num_kept = min(num_kept, len(priority))
    missing = _served(batches, num_kept, window, priority, num_threads)
    if not missing:
        return Misses(num_rows=0, mean=0.0, when_full=0, vertices=np.zeros(0, np.int64))
    # The usual one of the last.
    last = sorted(range(len(missing))[-_LAST:], key=lambda each: len(missing[each]))
    usual = last[len(last) // 2]
    counts = [len(each) for each in missing[:num_steps]]
    if (sum(counts) >= num_kept and num_kept < len(priority)) or num_steps <= len(batches):
        when_full = len(missing[usual])
        mean = (sum(counts) + (num_steps - len(counts)) * when_full) / max(num_steps, 1)
    else:
        mean, when_full = ReadChances.of(batches, priority).misses(num_kept, num_steps)
    return Misses(
        num_rows=len(batches[usual]), mean=mean, when_full=when_full, vertices=missing[usual]
    )


def _served(
    batches: Sequence[Array], num_kept: int, window: int, priority: Int32Array, num_threads: int
) -> list[Array]:
    """Return what each batch misses, ascending, from empty memory on."""
    policy = Belady(
        len(priority), num_kept, window=window, priority=priority, num_threads=num_threads
    )
    known = iter(batches)
    for each in islice(known, window):
        policy.expect(each)
    missing = []
    for batch in batches:
        following = next(known, None)
        if following is not None:
            policy.expect(following)
        missing.append(np.sort(batch[policy.look_up() < 0]))
        policy.advance()
    return missing


@dataclass(frozen=True, kw_only=True)
class ReadChances:
    """How likely a mini-batch reads a vertex, by its out-degree: those of a class are alike."""

    num_vertices: Int64Array  #: ``[num_classes]``
    chance: Float64Array  #: ``[num_classes]`` of each vertex of the class

    @classmethod
    def of(cls, batches: Sequence[Array], degrees: Int32Array) -> ReadChances:
        """Count the classes of the vertices of ``batches``, and of all.

        Args:
            degrees: ``[num_vertices]`` out-degree; -1 of those that are never asked for.
        """
        highest = int(degrees.max(initial=0)) + 2
        doublings = np.log2(np.arange(highest) + 1.0)
        classes = np.floor(_CLASSES_PER_DOUBLING * doublings).astype(np.int64)
        every = np.zeros(highest, np.int64)
        for part in row_slices(len(degrees), degrees.itemsize, _COUNTED_BYTES):
            every += np.bincount(degrees[part] + 1, minlength=highest)
        read = sum(
            (np.bincount(degrees[each] + 1, minlength=highest) for each in batches),
            start=np.zeros(highest, np.int64),
        )
        num_vertices = np.bincount(classes, weights=every)
        reads = np.bincount(classes, weights=read) / max(len(batches), 1)
        chance = np.minimum(reads / np.maximum(num_vertices, 1), 1.0)
        return cls(num_vertices=num_vertices.astype(np.int64), chance=chance)

    def distinct(self, num_steps: int) -> float:
        """Return how many vertices so many mini-batches read at least once."""
        return float(self.num_vertices @ (1 - (1 - self.chance) ** num_steps))

    def misses(self, num_kept: int, num_steps: int) -> tuple[float, int]:
        """Return the misses of a step over ``num_steps``, and those once memory is full.

        Memory takes every row that is read until it has ``num_kept``; then the likeliest ones stay.
        """
        fills = num_steps
        if self.distinct(num_steps) > num_kept:
            first = 0  # memory has room after this step, and is full after ``fills``
            while fills - first > 1:
                middle = (first + fills) // 2
                has_room = self.distinct(middle) <= num_kept
                first, fills = (middle, fills) if has_room else (first, middle)
        likeliest = np.argsort(-self.chance, kind="stable")
        of_class = self.num_vertices[likeliest]
        left = np.clip(np.cumsum(of_class) - num_kept, 0, of_class)
        steady = float(left @ self.chance[likeliest])
        new = float(self.num_vertices @ (self.chance * (1 - self.chance) ** max(fills - 1, 0)))
        total = min(self.distinct(num_steps), num_kept) + (num_steps - fills) * steady
        return total / max(num_steps, 1), round(max(new, steady))


#: Steps whose rows may be on their way at once.
AHEAD = 4

#: Rows of the window, in multiples of the rows that are held: beyond it the first choice is as good
#: as that of the whole run (docs/larger-than-memory.md).
_WINDOW_ROWS = 5
MIN_WINDOW, MAX_WINDOW = 2, 32

#: The part of the memory that mini-batches of the window may take.
_WINDOW_PART = 0.1

#: Bytes for each row that is held, beside the row: slots of two kinds, key and next use (Belady).
_SLOT_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class TierSizes:
    """What a tier does with its memory."""

    num_kept: int  #: rows that stay from step to step
    num_staged: int  #: rows beside them, read ahead or needed by one step alone
    window: int  #: steps that are known beyond the one that is planned
    ahead: int = AHEAD  #: steps whose rows may be on their way at once
    misses: Misses  #: what a mini-batch is expected to miss


@dataclass(frozen=True, kw_only=True)
class SampledBatches:
    """The first mini-batches of a run, which say how large the others are."""

    #: the rows that each needs; of several workers that share memory, step by step
    vertices: Sequence[Array]
    num_bytes: int  #: memory of a sampled mini-batch without its rows, at most
    computing_bytes: int = 0  #: memory that one takes, with its rows, while it computes, at most
    asked: float = 1.0  #: the part of a mini-batch's rows that the tier is asked for
    window_above: int = 0  #: steps that a tier above looks ahead of what it asks for
    num_workers: int = 1  #: workers that share memory, each with a mini-batch a step

    @property
    def max_rows(self) -> int:
        """Rows of the largest."""
        return max((len(each) for each in self.vertices), default=0)

    @property
    def usual_rows(self) -> int:
        """Rows of the largest of the last half, before which a cache above may have been empty."""
        return max((len(each) for each in self.vertices[len(self.vertices) // 2 :]), default=0)


@dataclass(frozen=True, kw_only=True)
class Horizon:
    """How far a tier looks ahead, and what decides if that does not."""

    window: int | None  #: steps; None for as many as help
    priority: Int32Array  #: ``[num_rows]`` out-degrees, the order of rows read equally soon
    num_steps: int  #: of an epoch
    num_threads: int

    def policy(self, sizes: TierSizes, num_workers: int) -> Belady:
        """Return which rows stay of those that ``num_workers`` read in turn; empty at first."""
        return Belady(
            len(self.priority),
            sizes.num_kept,
            window=sizes.window * num_workers,
            priority=self.priority,
            num_threads=self.num_threads,
        )


def size_tier(
    sample: SampledBatches,
    horizon: Horizon,
    *,
    num_rows: int,
    row_bytes: int,
    memory_bytes: int,
) -> TierSizes:
    """Divide memory among rows that stay, rows on their way, and what is known of the next steps.

    Args:
        sample: the run's first mini-batches, of all workers that share the memory.
        horizon: how far the tier looks ahead.
        num_rows: rows of the source.
        row_bytes: bytes of a row.
        memory_bytes: memory for all of this.

    Raises:
        ConfigError: the rows of a step do not fit.
    """
    batch_rows, workers = sample.max_rows, sample.num_workers
    slot_bytes = row_bytes + _SLOT_BYTES

    def slots_beside(window: int) -> int:
        batches = window * workers
        known = belady_bytes(num_rows, 0, window=batches, batch_rows=batch_rows)
        slots = (memory_bytes - known - batches * sample.num_bytes) // slot_bytes
        return min(slots, num_rows + 2 * batch_rows)

    chosen = MIN_WINDOW if horizon.window is None else horizon.window
    slots = slots_beside(chosen)
    if slots < batch_rows:
        missing = (batch_rows - slots) * slot_bytes
        raise ConfigError(
            f"features.memory_bytes: the rows of a step do not fit into the {size(memory_bytes)} "
            f"for them, {size(missing)} are missing; more memory, a smaller batch_size, smaller "
            f"sampler.fanouts or a smaller features.window (now {chosen}) help"
        )
    if horizon.window is None:
        chosen = _choose_window(slots, sample, memory_bytes)
        slots = max(slots_beside(chosen), batch_rows)
    misses = expect_misses(
        sample.vertices,
        slots,
        chosen * workers,
        priority=horizon.priority,
        num_steps=horizon.num_steps * workers,
        num_threads=horizon.num_threads,
    )
    staged = _staged(slots, num_rows, sample, misses)
    return TierSizes(
        num_kept=min(slots - staged, num_rows), num_staged=staged, window=chosen, misses=misses
    )


def _choose_window(slots: int, sample: SampledBatches, memory_bytes: int) -> int:
    workers = sample.num_workers
    helps = -(-_WINDOW_ROWS * slots // max(sample.usual_rows * workers, 1))
    fits = int(_WINDOW_PART * memory_bytes / max(sample.num_bytes * workers, 1))
    return max(MIN_WINDOW, min(helps, fits, MAX_WINDOW))


def _staged(slots: int, num_rows: int, sample: SampledBatches, misses: Misses) -> int:
    """Return slots for what two steps miss once memory is full: one is read, one is trained."""
    if slots >= num_rows + sample.max_rows:
        return sample.max_rows
    return max(1, min(2 * misses.when_full * sample.num_workers, slots // 2))
