"""The native operations. Those on torch tensors are imported when one of them is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnnscale.ops.along import running_sums, split_by_member
from gnnscale.ops.arrange import ArrangedBlock, EdgeTiles, arrange_block, gather_columns
from gnnscale.ops.cached_rows import (
    copy_rows,
    count_reads,
    count_slots,
    count_uses,
    gather_cached,
)
from gnnscale.ops.edge_cut import (
    Contracted,
    Refined,
    UndirectedLists,
    contract,
    find_clusters,
    make_undirected,
    refine,
    write_metis,
)
from gnnscale.ops.hotness import Shared, hottest, scatter_to_neighbors, share_out
from gnnscale.ops.id_table import IntegerIds, TextIds
from gnnscale.ops.native import (
    NativeSampler,
    Sampled,
    count_in_degrees,
    csc_fill,
    csc_scatter,
    csc_sort,
    expand_edges,
    keep_freed_memory,
    planted_partition_edges,
    rmat_draws,
    rmat_edges,
    rmat_numbering,
    simd_level,
    supported_simd_level,
    transpose_block,
)
from gnnscale.ops.partition import count_cut, hops_from, pagraph_stream
from gnnscale.ops.ranked_slots import RankedSlots
from gnnscale.ops.replacement import NativeReplacement, Replacing

if TYPE_CHECKING:
    from gnnscale.ops.tensors import (
        Rows,
        add_rows,
        aggregate,
        edge_dot,
        edge_softmax,
        edge_softmax_backward,
        empty,
        gather,
        gather_from_disk,
        read_ahead,
        relu_dropout,
        relu_dropout_backward,
    )

__all__ = [
    "ArrangedBlock",
    "Contracted",
    "EdgeTiles",
    "IntegerIds",
    "NativeReplacement",
    "NativeSampler",
    "RankedSlots",
    "Refined",
    "Replacing",
    "Rows",
    "Sampled",
    "Shared",
    "TextIds",
    "UndirectedLists",
    "add_rows",
    "aggregate",
    "arrange_block",
    "contract",
    "copy_rows",
    "count_cut",
    "count_in_degrees",
    "count_reads",
    "count_slots",
    "count_uses",
    "csc_fill",
    "csc_scatter",
    "csc_sort",
    "edge_dot",
    "edge_softmax",
    "edge_softmax_backward",
    "empty",
    "expand_edges",
    "find_clusters",
    "gather",
    "gather_cached",
    "gather_columns",
    "gather_from_disk",
    "hops_from",
    "hottest",
    "keep_freed_memory",
    "make_undirected",
    "pagraph_stream",
    "planted_partition_edges",
    "read_ahead",
    "refine",
    "relu_dropout",
    "relu_dropout_backward",
    "rmat_draws",
    "rmat_edges",
    "rmat_numbering",
    "running_sums",
    "scatter_to_neighbors",
    "share_out",
    "simd_level",
    "split_by_member",
    "supported_simd_level",
    "transpose_block",
    "write_metis",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'gnnscale.ops' has no attribute {name!r}")
    from gnnscale.ops import tensors

    value = getattr(tensors, name)
    globals()[name] = value
    return value
