"""Native operations that lay out a mini-batch as a streaming kernel on an FPGA reads it.

The kernel reads one row of a block's sources after the other, and adds each to the rows of a
buffer on the chip that its edges lead to. The buffer holds a tile of the destinations, so there is
a list of edges for each tile, in 512-bit words of eight edges. Backward it does the same with the
transpose. Feature rows come in words of 16 columns, all rows' first word before the second one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from gnnscale import _native
from gnnscale.core.errors import shown
from gnnscale.ops.native import Array, contiguous, naming

if TYPE_CHECKING:
    from gnnscale.ops.tensors import Rows

__all__ = ["ArrangedBlock", "EdgeTiles", "arrange_block", "gather_columns"]

#: As ``OwnRow`` in native/include/gnnscale/arrange.hpp.
_OWN_ROWS = {None: 0, "add": 1, "concat": 2}
_WORD_COLUMNS = 16


@dataclass(frozen=True, kw_only=True)
class EdgeTiles:
    """The edges of all tiles of destinations, in the order in which a kernel reads them.

    In each tile the edges are sorted by source, and every source has at least one entry. What is no
    edge is a null edge, of destination 0x7fffffff and weight 0: the entry of a source without an
    edge in the tile, and what fills the tile's last word.

    Attributes:
        edges: ``[num_words * 8]`` uint64. The low 32 bits are the destination within its tile (31
            bits) and, above it, whether the entry is the first one of its source; the high 32 bits
            are those of the float32 weight.
        tiles: ``[num_tiles, 3]`` int64: the first word of the tile's edges, the number of its
            words, and the number of its destination rows.
    """

    edges: NDArray[np.uint64]
    tiles: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ArrangedBlock:
    """A block as a kernel reads it.

    Attributes:
        sources: ``[num_sources]`` int32 local ids of the block's sources, in the order in which the
            kernel reads their rows; first the wanted destinations, unless there are several banks
            and own rows are not concatenated.
        forward: from ``sources`` to the wanted destinations.
        backward: the transpose, from rows of the wanted destinations to ``sources``; None where it
            was not asked for.
    """

    sources: NDArray[np.int32]
    forward: EdgeTiles
    backward: EdgeTiles | None


def arrange_block(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    num_src: int,
    *,
    destinations: NDArray[np.int32],
    weights: NDArray[np.float32] | None = None,
    dst_scale: NDArray[np.float32] | None = None,
    self_scale: NDArray[np.float32] | None = None,
    self_term: Literal["add", "concat"] | None,
    tile_rows: int,
    backward_tile_rows: int | None,
    num_banks: int = 1,
) -> ArrangedBlock:
    """Put the edges of a block into the order in which a kernel reads them.

    Of the block only the edges to ``destinations`` count; ``v`` is a place in these. An edge weighs
    ``weights[e] * dst_scale[dst]``; what is not given counts as 1. An own edge, from a wanted
    destination to itself, weighs ``self_scale[dst]`` where it is added, and 1 where the own row is
    concatenated. Then there are two slots of rows, the own ones in slot 0 and the neighbours' sums
    in slot 1; otherwise there is slot 0 alone.

    *Sources.* First ``destinations``; then, for ``j = 0, 1, ...`` and ``x = 0, 1, ...``, neighbour
    ``j`` of ``v = (x - j) mod V``, where it has one that is not there yet.

    *Forward.* Tile ``t`` has the destinations from ``t * tile_rows`` on. The destination of an edge
    is ``slot * stride + v - t * tile_rows``, where ``stride`` is the number of the tile's
    destinations, rounded up to a multiple of 16. The edges of one source are sorted by ``v``; with
    the same ``v`` the own edge comes first, and then those of the list in its order.

    *Backward.* Rows ``(slot, v)``, those of slot 0 first, take the place of sources. The tiles are
    of ``backward_tile_rows`` places ``p`` in ``sources``, and the destination of an edge is
    ``p - t * backward_tile_rows``. The edges of one row are sorted by ``p``.

    *Banks.* With more than one, row ``i`` of the buffer is in bank ``i mod num_banks``, and entry
    ``i`` of a list is dealt to lane ``i mod num_banks``. Sources that several edges leave from are
    then spread over the others, in the order above, destinations too unless their own rows are
    concatenated. Of the sources with one edge, the next is one whose edge leads to the bank of its
    lane, if there is any. The edges of each source, forward, and of each row, backward, are ordered
    in the same way: the next is one that leads to the bank of its lane, if there is any. Otherwise
    the lane gets a null edge, provided that the kernel waits for the row anyway, since fewer than
    ``num_banks`` entries have been dealt for each source before; that the list has more than half
    as many; and that these null edges are at most a quarter of the entries.

    The cost is linear in the edges and the entries written. One thread is used.

    Args:
        indptr: ``[num_dst + 1]`` int64.
        indices: ``[num_edges]`` int32 local ids of sources.
        num_src: number of the block's sources, of which its destinations are the first.
        destinations: ``[V]`` int32 local ids of the wanted destinations, distinct, in the kernel's
            order.
        weights: ``[num_edges]`` float32, of any stride; None for ones.
        dst_scale: ``[num_dst]`` float32; None for ones.
        self_scale: ``[num_dst]`` float32, which counts where ``self_term`` is ``"add"``; None for
            ones.
        self_term: what becomes of a destination's own row, as in ``Aggregation``; None leaves it
            out.
        tile_rows: destinations of a tile, from 1 to 2^30.
        backward_tile_rows: sources of a tile of the transpose, from 1 to 2^30; None for no
            transpose.
        num_banks: lanes of the kernel, and banks of its buffer, from 1 to 256.

    Raises:
        TypeError: an array is not of the type that it has to be.
        ValueError: a size does not fit, an offset or an id is out of range, a destination comes
            twice, or the places of entries take more than 31 bits.
        MemoryError: there is not so much memory.
    """
    if self_term is not None and not isinstance(self_term, str):
        raise TypeError(f"self_term: {type(self_term).__name__}, allowed are add, concat and None")
    if self_term not in _OWN_ROWS:
        raise ValueError(f"self_term: {shown(self_term)}, allowed are add, concat and None")
    with naming("tile_rows", (tile_rows, backward_tile_rows, num_banks)):
        sources, forward, backward = _native.arrange_block(
            *(indptr, indices, num_src, contiguous(destinations), weights, dst_scale, self_scale),
            *(_OWN_ROWS[self_term], tile_rows, backward_tile_rows, num_banks),
        )
    return ArrangedBlock(
        sources=sources,
        forward=_tiles(forward),
        backward=None if backward is None else _tiles(backward),
    )


def _tiles(made: tuple[Array, Array]) -> EdgeTiles:
    edges, tiles = made
    return EdgeTiles(edges=edges, tiles=tiles.reshape(-1, 3))


def gather_columns(
    x: Rows | Array,
    ids: Array,
    *,
    num_columns_words: int | None = None,
    out: NDArray[np.float32] | None = None,
    num_threads: int,
) -> NDArray[np.float32]:
    """Gather rows ``ids`` of ``x`` in words of 16 columns.

    ``out[c, i, l] = x[ids[i], 16 c + l]``, and 0 beyond the last column.

    Args:
        x: ``[num_rows, f]`` float32, float16, bfloat16 or uint8; rows may be apart. A NumPy array
            may come without the name of its type, but for bfloat16.
        ids: ``[k]`` int32 or int64, inside ``[0, num_rows)``.
        num_columns_words: words of a row, at least ``⌈f / 16⌉``, which None stands for.
        out: ``[words of a row, k, 16]`` float32, contiguous, to write to in place of a new array;
            it says the number of words, too.
        num_threads: threads to use; the result does not depend on it.

    Returns:
        ``[words of a row, k, 16]`` float32; ``out`` where that is given.

    Raises:
        TypeError: an array is not of the type that it has to be.
        ValueError: an id or a size is out of range.
        MemoryError: there is not so much memory.
    """
    if out is not None:
        if num_columns_words is not None:
            raise ValueError("num_columns_words: not beside out, whose first axis says it")
        _check_words(out)
    with naming("num_columns_words", num_columns_words):
        words: NDArray[np.float32] = _native.gather_columns(
            _pair("x", x),
            contiguous(ids),
            *(num_columns_words, None) if out is None else (out.shape[0], out.reshape(-1)),
            num_threads,
        )
    return words if out is None else out


def _check_words(out: Any) -> None:
    """Refuse an array whose elements are not words one after another."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out: {type(out).__name__}, allowed is float32")
    if out.ndim != 3 or out.shape[2] != _WORD_COLUMNS:
        raise ValueError(
            f"out: shape {list(out.shape)}, allowed is [words of a row, number of ids, 16]"
        )
    if not out.flags.c_contiguous:
        raise ValueError("out: words with gaps, allowed are contiguous arrays")


def _pair(name: str, rows: Any) -> Any:
    """Return ``(array, name of its element type)``, without torch where that is what came."""
    if isinstance(rows, tuple):
        return rows
    if isinstance(rows, np.ndarray):
        return rows, rows.dtype.name
    from gnnscale.ops.tensors import as_pair

    return as_pair(name, rows)
