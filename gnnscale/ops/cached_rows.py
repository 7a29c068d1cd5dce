"""Native operations on feature rows of which caches hold copies: reading, counting and filling.

The caches of several devices that read each other's memory are one list. Their rows are numbered
one cache after the other; the *slot* of a vertex is the number of its row, or -1 where no cache
has it. Slots and vertices are checked as they are read, and may lie in shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import _native
from gnnscale.ops.native import Array, contiguous
from gnnscale.ops.ranked_slots import RankedSlots

if TYPE_CHECKING:
    from gnnscale.ops.tensors import Rows

__all__ = ["copy_rows", "count_reads", "count_slots", "count_uses", "gather_cached"]


def gather_cached(
    host: Rows,
    caches: Sequence[Rows],
    slots: NDArray[np.int32] | RankedSlots,
    vertices: Array,
    *,
    out: Rows,
    num_threads: int,
) -> NDArray[np.int64]:
    """Copy the rows of ``vertices`` to ``out``, from the cache that has each or else from the host.

    The result is that of ``gather`` from ``host``, bit for bit, where the caches hold copies of it.

    Args:
        host: ``[num_vertices, f]`` float32, float16, bfloat16 or uint8.
        caches: a list of at most 1024 ``[rows of the cache, f]`` of the type of ``host``, with at
            most 2^31 - 1 rows in all.
        slots: ``[num_vertices]`` int32 from -1 to the number of all caches' rows less one; or
            those of caches that stay, with as many members and rows of each.
        vertices: ``[n]`` int32 or int64, inside ``[0, num_vertices)``.
        out: ``[n, f]`` float32 or bfloat16; may be a column slice of a wider matrix.
        num_threads: threads to use.

    Returns:
        ``[len(caches) + 1]`` int64: the rows read from each cache and, last, from the host.

    Raises:
        ValueError: a vertex or the slot of one is out of range; some rows may have been written by
            then.
    """
    if isinstance(caches, (list, tuple)):
        caches = [_pair(f"caches[{k}]", cache) for k, cache in enumerate(caches)]
    counts: NDArray[np.int64] = _native.gather_cached(
        _pair("host", host), caches, _native_slots(slots), contiguous(vertices),
        _pair("out", out), num_threads,
    )  # fmt: skip
    return counts


def count_slots(
    slots: NDArray[np.int32] | RankedSlots,
    vertices: Array,
    starts: NDArray[np.int64],
    *,
    weights: NDArray[np.int64] | None = None,
    num_threads: int,
) -> NDArray[np.int64]:
    """Count the vertices that each cache holds, as ``gather_cached`` would read them.

    Args:
        slots: ``[num_vertices]`` int32; or those of caches that stay, with these ``starts``.
        vertices: ``[n]`` int32 or int64, inside ``[0, num_vertices)``.
        starts: ``[K + 1]`` int64, rising from 0: cache ``k`` of K, at most 1024, has the slots from
            ``starts[k]`` to ``starts[k + 1] - 1``.
        weights: ``[n + 1]`` int64 offsets, such as the ``indptr`` of a block: vertex ``i`` counts
            ``weights[i + 1] - weights[i]`` times. None counts each once.
        num_threads: threads to use.

    Returns:
        ``[K + 1]`` int64: the count of each cache and, last, of vertices that none holds.

    Raises:
        ValueError: a vertex or the slot of one is out of range, or offsets fall.
    """
    counts: NDArray[np.int64] = _native.count_slots(
        _native_slots(slots), contiguous(vertices), starts, weights, num_threads
    )
    return counts


def count_uses(vertices: Array, counts: NDArray[np.int32], *, num_threads: int) -> None:
    """Add 1 to ``counts[v]`` for every ``v`` in ``vertices``.

    Nobody else may add to the same counts meanwhile. A count stays at 2^31 - 1, once there.

    Args:
        vertices: ``[n]`` int32 or int64, inside ``[0, num_vertices)``; they may repeat.
        counts: ``[num_vertices]`` int32, updated in place.
        num_threads: threads to use.

    Raises:
        ValueError: a vertex is out of range; some may have been counted by then.
    """
    _native.count_uses(contiguous(vertices), counts, num_threads)


def count_reads(
    indptr: NDArray[np.int64], vertices: Array, counts: NDArray[np.int32], *, num_threads: int
) -> None:
    """Add ``indptr[i + 1] - indptr[i]`` to ``counts[vertices[i]]``, as ``count_uses`` adds 1.

    Args:
        indptr: ``[n + 1]`` int64, rising from 0: the offsets of a block's destinations.
        vertices: ``[n]`` int32 or int64, inside ``[0, num_vertices)``; they may repeat.
        counts: ``[num_vertices]`` int32, updated in place.
        num_threads: threads to use.

    Raises:
        ValueError: offsets fall, and nothing was counted; or a vertex is out of range, and some may
            have been counted.
    """
    _native.count_reads(indptr, contiguous(vertices), counts, num_threads)


def copy_rows(
    source: Rows, vertices: Array, target: Rows, slots_of_target: Array, *, num_threads: int
) -> None:
    """Copy row ``vertices[i]`` of ``source`` to row ``slots_of_target[i]`` of ``target``.

    Args:
        source: ``[num_vertices, f]`` float32, float16, bfloat16 or uint8.
        vertices: ``[n]`` int32 or int64, inside ``[0, num_vertices)``; they may repeat.
        target: ``[num_slots, f]`` of the same type, in other memory.
        slots_of_target: ``[n]`` int32 or int64, distinct, inside ``[0, num_slots)``.
        num_threads: threads to use.

    Raises:
        ValueError: an id is out of range, or a slot comes twice; some rows may have been written by
            then.
    """
    _native.copy_rows(
        _pair("source", source), contiguous(vertices), _pair("target", target),
        contiguous(slots_of_target), num_threads,
    )  # fmt: skip


def _native_slots(slots: NDArray[np.int32] | RankedSlots) -> Any:
    return slots._native if isinstance(slots, RankedSlots) else slots


def _pair(name: str, rows: Rows) -> Any:
    """Return ``(array, name of its element type)``, without torch where that is what came."""
    if isinstance(rows, tuple):
        return rows
    from gnnscale.ops.tensors import as_pair

    return as_pair(name, rows)
