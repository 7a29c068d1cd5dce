"""Random numbers of link prediction: negatives, and which edges are held out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import _native
from gnnscale.ops.native import Array, contiguous

__all__ = ["draw_negatives", "draw_of_pairs"]


def draw_negatives(
    edges: Array, count: int, num_vertices: int, *, seed: int, step: int, num_threads: int = 1
) -> NDArray[np.int64]:
    """Draw ``count`` vertices for each edge, uniformly and independently.

    Every draw is a pure function of ``(seed, step, edge, index)``.

    Args:
        edges: ``[n]`` numbers of edges.
        count: vertices for each.
        num_vertices: they are below this.
        seed: of the run.
        step: of the run.
        num_threads: threads to use; the result does not depend on it.

    Returns:
        ``[n, count]`` int64.
    """
    drawn: NDArray[np.int64] = _native.draw_negatives(
        _wide(edges), count, num_vertices, seed, step, num_threads
    )
    return drawn.reshape(len(edges), int(count))


def draw_of_pairs(
    first: Array, second: Array, *, seed: int, num_threads: int = 1
) -> NDArray[np.float64]:
    """Draw a uniform number in (0, 1) for each pair of vertices, a function of pair and seed.

    Args:
        first: ``[n]`` vertex ids.
        second: ``[n]`` vertex ids.
        seed: fixes the draws.
        num_threads: threads to use; the result does not depend on it.

    Returns:
        ``[n]`` float64.
    """
    drawn: NDArray[np.float64] = _native.draw_of_pairs(
        _wide(first), _wide(second), seed, num_threads
    )
    return drawn


def _wide(ids: Any) -> Any:
    """Return ids as int64; what is no array of int32 or int64 is for the extension to refuse."""
    known = isinstance(ids, np.ndarray) and ids.dtype in (np.int32, np.int64) and ids.ndim == 1
    return contiguous(ids.astype(np.int64, copy=False)) if known else ids
