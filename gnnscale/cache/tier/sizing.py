"""How many rows of a source memory holds, and how far a tier looks and reads ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from gnnscale.artifact.files import size
from gnnscale.cache.belady import Belady, belady_bytes
from gnnscale.core import Array, ConfigError, Int32Array

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
#: Batches of a sample that say how many rows a batch misses, once memory is full.
_LAST = 4


@dataclass(frozen=True, kw_only=True)
class Misses:
    """What a usual mini-batch misses, once memory is full."""

    num_rows: int  #: rows that it needs
    #: ``[m]`` those that memory lacks, ascending
    vertices: Array

    @property
    def rate(self) -> float:
        """The part of its rows that it misses."""
        return len(self.vertices) / max(self.num_rows, 1)

    def requests(self, *, row_bytes: int, max_gap_bytes: int) -> tuple[int, int]:
        """Return the requests that read them from a file, and the bytes of these.

        Rows with at most ``max_gap_bytes`` between them are read by one request.
        """
        if not len(self.vertices):
            return 0, 0
        gaps = (np.diff(self.vertices.astype(np.int64)) - 1) * row_bytes
        closed = gaps <= max_gap_bytes
        num_bytes = len(self.vertices) * row_bytes + int(gaps[closed].sum())
        return 1 + int((~closed).sum()), num_bytes


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

    vertices: Sequence[Array]  #: the rows that each needs
    num_bytes: int  #: memory of a sampled mini-batch without its rows, at most
    computing_bytes: int = 0  #: memory that one takes, with its rows, while it computes, at most
    asked: float = 1.0  #: the part of a mini-batch's rows that the tier is asked for
    window_above: int = 0  #: steps that a tier above looks ahead of what it asks for

    @property
    def max_rows(self) -> int:
        """Rows of the largest."""
        return max((len(each) for each in self.vertices), default=0)

    @property
    def usual_rows(self) -> int:
        """Rows of the largest of the last half, before which a cache above may have been empty."""
        return max((len(each) for each in self.vertices[len(self.vertices) // 2 :]), default=0)


def size_tier(
    sample: SampledBatches,
    *,
    num_rows: int,
    row_bytes: int,
    memory_bytes: int,
    window: int | None,
    priority: Int32Array,
    num_threads: int,
) -> TierSizes:
    """Divide memory among rows that stay, rows on their way, and what is known of the next steps.

    Args:
        sample: the run's first mini-batches.
        num_rows: rows of the source.
        row_bytes: bytes of a row.
        memory_bytes: memory for all of this.
        window: steps that are looked ahead; None for as many as help.
        priority: ``[num_rows]`` the order of rows that are read equally soon.

    Raises:
        ConfigError: the rows of a step do not fit.
    """
    batch_rows = sample.max_rows
    slot_bytes = row_bytes + _SLOT_BYTES

    def slots_beside(window: int) -> int:
        known = belady_bytes(num_rows, 0, window=window, batch_rows=batch_rows)
        slots = (memory_bytes - known - window * sample.num_bytes) // slot_bytes
        return min(slots, num_rows + 2 * batch_rows)

    chosen = MIN_WINDOW if window is None else window
    slots = slots_beside(chosen)
    if slots < batch_rows:
        missing = (batch_rows - slots) * slot_bytes
        raise ConfigError(
            f"features.memory_bytes: the rows of a step do not fit into the {size(memory_bytes)} "
            f"of a worker, {size(missing)} are missing; more memory, a smaller batch_size, smaller "
            f"sampler.fanouts or a smaller features.window (now {chosen}) help"
        )
    if window is None:
        chosen = _choose_window(slots, sample, memory_bytes)
        slots = max(slots_beside(chosen), batch_rows)
    misses = expect_misses(
        sample.vertices, slots, chosen, priority=priority, num_threads=num_threads
    )
    staged = _staged(slots, num_rows, batch_rows, misses)
    return TierSizes(
        num_kept=min(slots - staged, num_rows), num_staged=staged, window=chosen, misses=misses
    )


def _choose_window(slots: int, sample: SampledBatches, memory_bytes: int) -> int:
    helps = -(-_WINDOW_ROWS * slots // max(sample.usual_rows, 1))
    fits = int(_WINDOW_PART * memory_bytes / max(sample.num_bytes, 1))
    return max(MIN_WINDOW, min(helps, fits, MAX_WINDOW))


def _staged(slots: int, num_rows: int, batch_rows: int, misses: Misses) -> int:
    """Return slots for what two steps miss once memory is full: one is read, one is trained."""
    if slots >= num_rows + batch_rows:
        return batch_rows
    return max(1, min(2 * len(misses.vertices), slots // 2))


def expect_misses(
    batches: Sequence[Array],
    num_kept: int,
    window: int,
    *,
    priority: Int32Array,
    num_threads: int,
) -> Misses:
    """Return what a mini-batch misses once ``num_kept`` rows are in memory.

    The run's first mini-batches are served. If they do not fill the memory, what they would miss of
    the rows with the highest priority stands for what the run will miss.

    Args:
        batches: the run's first mini-batches.
        window: steps that are known beyond the one that is served.
        priority: ``[num_rows]`` the order of rows that are read equally soon.
    """
    num_kept = min(num_kept, len(priority))
    policy = Belady(
        len(priority), num_kept, window=window, priority=priority, num_threads=num_threads
    )
    known = iter(batches)
    for each in islice(known, window):
        policy.expect(each)
    read, missing = 0, []
    for batch in batches:
        following = next(known, None)
        if following is not None:
            policy.expect(following)
        missing.append(np.sort(batch[policy.look_up() < 0]))
        read += policy.advance().counts.num_misses
    if read < num_kept and num_kept < len(priority):
        least = np.partition(priority, len(priority) - num_kept)[len(priority) - num_kept]
        missing = [np.sort(each[priority[each] < least]) for each in batches]
    elif num_kept == len(priority):
        missing = [each[:0] for each in batches]
    if not missing:
        return Misses(num_rows=0, vertices=np.zeros(0, np.int64))
    # The usual one of the last, which saw memory full.
    last = sorted(range(len(missing))[-_LAST:], key=lambda each: len(missing[each]))
    usual = last[len(last) // 2]
    return Misses(num_rows=len(batches[usual]), vertices=missing[usual])
