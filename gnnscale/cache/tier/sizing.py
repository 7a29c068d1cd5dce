"""How many rows of a source memory holds, and how far a tier looks and reads ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnnscale.artifact.files import size
from gnnscale.cache.belady import Belady, belady_bytes
from gnnscale.cache.tier.misses import Misses, expect_misses
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
