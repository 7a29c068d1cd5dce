"""The native operations. ``gnnscale/_native.pyi`` documents each; this package alone imports them.

They work on NumPy arrays and on torch CPU tensors; who brings a tensor imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gnnscale._native import (
    ArrangedBlock,
    Contracted,
    EdgeTiles,
    IntegerIds,
    NativeReplacement,
    NativeSampler,
    RankedSlots,
    Refined,
    SampledHop,
    Shared,
    TextIds,
    TopologyError,
    UndirectedLists,
    add_rows,
    aggregate,
    arrange_block,
    contract,
    copy_rows,
    count_cut,
    count_in_degrees,
    count_reads,
    count_slots,
    count_uses,
    csc_fill,
    csc_scatter,
    csc_sort,
    damaged,
    draw_negatives,
    draw_of_pairs,
    edge_dot,
    edge_softmax,
    edge_softmax_backward,
    empty,
    expand_edges,
    find_clusters,
    gather,
    gather_cached,
    gather_columns,
    hops_from,
    hottest,
    keep_freed_memory,
    make_undirected,
    pagraph_stream,
    planted_partition_edges,
    read_ahead,
    refine,
    relu_dropout,
    relu_dropout_backward,
    rmat_draws,
    rmat_edges,
    rmat_numbering,
    running_sums,
    scatter_to_neighbors,
    share_out,
    simd_level,
    split_by_member,
    supported_simd_level,
    transpose_block,
    write_metis,
)
from gnnscale.ops.disk import gather_from_disk

if TYPE_CHECKING:
    from gnnscale._native import Replacing, Rows, Sampled
else:
    Replacing = Rows = Sampled = Any  # types of annotations

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
    "SampledHop",
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
    "draw_negatives",
    "draw_of_pairs",
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
    "naming_graph",
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


@contextmanager
def naming_graph(graph: object) -> Iterator[None]:
    """Name the graph, by its path or its name, in the error of a damaged topology.

    Raises:
        GraphError: native code came across an offset or an id that is out of range.
    """
    try:
        yield
    except TopologyError as error:
        raise damaged(graph, str(error)) from None
