"""What native code refuses: every call here wrote, read or computed something wrong once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale import ops
from gnnscale.core.errors import GraphError
from gnnscale.graph import Graph
from gnnscale.sampler import LayerSampler, NeighborSampler

INDPTR = np.array([0, 2, 2, 3])
INDICES = np.array([1, 3, 0], np.int32)
MOST = 2**31 - 1


def rows(num_rows: int = 4, width: int = 2, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(num_rows * width).view(num_rows, width).to(dtype)


def aligned_badly(size: int, dtype: Any) -> Any:
    data = np.zeros(size * np.dtype(dtype).itemsize + 1, np.uint8)
    return data[1:].view(dtype)


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def ranked_slots(num_vertices: Any, members: Any) -> Any:
    return ops.RankedSlots(num_vertices, members).starts


def arrange_block(**given: Any) -> tuple[Any, ...]:
    made = ops.arrange_block(**given)
    return made.sources, made.forward.edges, made.forward.tiles


GATHER: dict[str, Any] = {"x": rows(), "ids": np.array([3, 0]), "out": torch.empty(2, 2)}
AGGREGATE: dict[str, Any] = {
    "x": rows(),
    "indptr": INDPTR,
    "indices": INDICES,
    "out": torch.empty(3, 2),
}
ADD_ROWS: dict[str, Any] = {
    "x": rows(4, 16),
    "ids": np.array([1, 3, 0]),
    "indptr": np.array([0, 1, 3]),
    "out_ids": np.array([0, 2], np.int32),
    "out": torch.zeros(3, 16),
    "weights": None,
}
EDGE_DOT: dict[str, Any] = {
    "a": rows(3),
    "x": rows(),
    "indptr": INDPTR,
    "indices": INDICES,
    "out": np.zeros(3, np.float32),
}
SOFTMAX: dict[str, Any] = {"indptr": INDPTR, "scores": rows(3), "bias": None}
SOFTMAX_BACK: dict[str, Any] = {"indptr": INDPTR, "alpha": rows(3), "grad": rows(3)}
EXPAND: dict[str, Any] = {
    "indptr": INDPTR,
    "indices": INDICES,
    "first_dst": 0,
    "out": np.zeros((2, 3), np.int64),
}
TRANSPOSE: dict[str, Any] = {"indptr": INDPTR, "indices": INDICES, "num_src": 4}
COUNT: dict[str, Any] = {"dst": np.array([0, 2]), "counts": np.zeros(3, np.int64)}
FILL: dict[str, Any] = {
    "src": np.array([0, 2]),
    "dst": np.array([1, 1]),
    "first": 0,
    "last": 2,
    "cursor": np.zeros(2, np.int64),
    "out": np.zeros(2, np.int64),
}
BUCKETS: dict[str, Any] = {
    "src": np.array([0, 2]),
    "dst": np.array([5, 4]),
    "bucket_of": np.array([1, 0], np.int32),
    **{"num_buckets": 2, "first": 2, "shift": 1, "num_threads": 2},
    "out": np.zeros((2, 2), np.int64),
}
SORT: dict[str, Any] = {"indptr": INDPTR, "indices": INDICES.copy(), "drop_duplicates": False}
DROPOUT: dict[str, Any] = {
    "x": rows(),
    "vertices": np.arange(4),
    **{"p": 0.5, "seed": 1, "step": 2, "layer": 0},
}
DROPOUT_BACK: dict[str, Any] = {"y": rows(), "grad": rows(), "scale": 2.0}
RMAT: dict[str, Any] = {"num_vertices": 9, "num_edges": 5, "a": 0.5, "b": 0.2, "c": 0.2, "seed": 0}
DRAWS: dict[str, Any] = {
    **{"num_vertices": 9, "a": 0.5, "b": 0.2, "c": 0.2, "seed": 0, "first": 3, "num_draws": 5},
}
NUMBERING: dict[str, Any] = {"num_vertices": 9, "seed": 0}
AHEAD: dict[str, Any] = {"x": rows(), "ids": np.array([3, 0])}
PLANTED: dict[str, Any] = {
    "community": np.array([0, 1, 0, 1], np.int32),
    "weight": np.ones(4, np.float32),
    "num_edges": 5,
    "within": 0.5,
    "seed": 0,
}
WHOLE: dict[str, Any] = {"indptr": INDPTR, "indices": np.array([1, 2, 0], np.int32)}
CUT: dict[str, Any] = {**WHOLE, "owner": np.array([0, -1, 1], np.int16), "num_parts": 2}
HOPS: dict[str, Any] = {
    **WHOLE,
    "vertices": np.array([0, 2], np.int32),
    "num_hops": 2,
    "hops": np.full(3, 255, np.uint8),
}
STREAM: dict[str, Any] = {
    **WHOLE,
    "vertices": np.array([0, 2], np.int32),
    **{"num_parts": 2, "num_hops": 2, "max_walked": 9, "max_sampled": 9, "seed": 0},
}
CACHED: dict[str, Any] = {
    **{"host": rows(), "caches": [rows(1), rows(2)], "slots": np.array([0, -1, 2, 1], np.int32)},
    **{"vertices": np.array([3, 0]), "out": torch.empty(2, 2)},
}
SLOTS: dict[str, Any] = {
    "slots": np.array([0, -1, 2, 1], np.int32),
    "vertices": np.array([3, 0]),
    "starts": np.array([0, 1, 3]),
    "weights": np.array([0, 5, 7]),
}
RANKED = ops.RankedSlots(4, [np.array([0]), np.array([3, 2], np.int32)])
MEMBERS: dict[str, Any] = {"num_vertices": 4, "members": [np.array([0]), np.array([3, 2])]}
USES: dict[str, Any] = {"vertices": np.array([3, 0]), "counts": np.zeros(4, np.int32)}
READS: dict[str, Any] = {**USES, "indptr": np.array([0, 5, 7])}
COPY: dict[str, Any] = {
    **{"source": rows(), "vertices": np.array([3, 0]), "target": rows(3)},
    "slots_of_target": np.array([2, 0]),
}

HOTTEST: dict[str, Any] = {
    "hotness": np.array([3, 0, 5], np.int32),
    "tie_break": np.array([0, 1, 2]),
    "capacity": 99,
    "bytes_per_vertex": 8,
    "offsets": INDPTR,
    "bytes_per_entry": 4,
}
SHARE: dict[str, Any] = {
    "order": np.array([2, 0, 1]),
    "local": [np.array([3, 0, 5], np.int32), np.array([4, 0, 1], np.int32)],
    "capacities": np.array([40, 50]),
    **{"bytes_per_vertex": 8, "offsets": INDPTR, "bytes_per_entry": 4},
}
ALONG: dict[str, Any] = {
    **{"order": np.array([2, 0, 1]), "values": np.array([3, 0, 5], np.int32), "every": 2},
    **{"bytes_per_vertex": 8, "offsets": INDPTR, "bytes_per_entry": 4},
}
SPLIT: dict[str, Any] = {
    **{"order": np.array([2, 0, 1]), "member": np.array([1, 0, -1], np.int16), "num_members": 2}
}
ARRANGE: dict[str, Any] = {
    **{"indptr": INDPTR, "indices": INDICES, "num_src": 4},
    **{"destinations": np.array([2, 0], np.int32), "self_term": "add"},
    **{"tile_rows": 1, "backward_tile_rows": 1},
}
COLUMNS: dict[str, Any] = {"x": rows(), "ids": np.array([3, 0])}
SCATTER: dict[str, Any] = {**WHOLE, "values": np.ones(3), "out": np.zeros(3)}

# What is called, its valid arguments, which one is replaced, and by what.
REFUSED: list[tuple[Callable[..., Any], dict[str, Any], str, Any]] = [
    # Too small for two rows, or not float32 or bfloat16.
    (ops.gather, GATHER, "out", torch.empty(1, 2)),
    (ops.gather, GATHER, "out", torch.empty(2, 1)),
    (ops.gather, GATHER, "out", torch.empty(2, 2, dtype=torch.float16)),
    (ops.gather, GATHER, "out", torch.empty(2, 2, dtype=torch.float64)),
    (ops.gather, GATHER, "out", torch.empty(1, 2).expand(2, 2)),
    (ops.gather, GATHER, "out", (read_only(np.empty((2, 2), np.float32)), "float32")),
    (ops.gather, GATHER, "out", np.empty((2, 2), np.float32)),
    (ops.gather, GATHER, "x", rows(dtype=torch.float64)),
    (ops.gather, GATHER, "x", rows().T),
    (ops.gather, GATHER, "x", rows()[0]),
    (ops.gather, GATHER, "x", rows().to_sparse()),
    (ops.gather, GATHER, "x", rows().to("meta")),
    (ops.gather, GATHER, "x", (rows().numpy(), "float64")),
    (ops.gather, GATHER, "x", (rows().numpy(), "float16")),
    (ops.gather, GATHER, "x", (rows().numpy().astype(">f4"), "float32")),
    (ops.gather, GATHER, "x", (aligned_badly(8, np.float32).reshape(4, 2), "float32")),
    (ops.gather, GATHER, "x", None),
    *((ops.gather, GATHER, "ids", np.array([0, 1], kind)) for kind in ("i2", "?", "f8", "u4", "O")),
    (ops.gather, GATHER, "ids", np.array([[0], [1]])),
    (ops.gather, GATHER, "ids", np.array([0, 1], ">i4")),
    (ops.gather, GATHER, "ids", np.array(1)),
    (ops.gather, GATHER, "ids", [0, 1]),
    (ops.gather, GATHER, "ids", aligned_badly(2, np.int64)),
    *((ops.gather, GATHER, "ids", np.array([0, bad])) for bad in (-1, 4, 2**31, -(2**63), 2**62)),
    (ops.gather, GATHER, "num_threads", 0),
    (ops.gather, GATHER, "num_threads", 10**9),
    (ops.gather, GATHER, "num_threads", 2**80),
    (ops.gather, GATHER, "num_threads", 1.5),
    # Neighbours of a block.
    (ops.aggregate, AGGREGATE, "indptr", np.array([0, 3, 2, 3])),
    (ops.aggregate, AGGREGATE, "indptr", np.array([0, 2, 2, 4])),
    (ops.aggregate, AGGREGATE, "indptr", np.array([1, 2, 2, 3])),
    (ops.aggregate, AGGREGATE, "indptr", np.array([0, -(2**63), 2, 3])),
    (ops.aggregate, AGGREGATE, "indptr", INDPTR.astype(np.int32)),
    (ops.aggregate, AGGREGATE, "indptr", np.empty(0, np.int64)),
    (ops.aggregate, AGGREGATE, "indptr", np.array([0, 0, 2, 2, 2, 2, 3])[::2]),
    (ops.aggregate, AGGREGATE, "indices", np.array([1, 4, 0], np.int32)),
    (ops.aggregate, AGGREGATE, "indices", np.array([1, -1, 0], np.int32)),
    (ops.aggregate, AGGREGATE, "indices", INDICES.astype(np.int64)),
    (ops.aggregate, AGGREGATE, "indices", np.repeat(INDICES, 2)[::2]),
    *((ops.add_rows, ADD_ROWS, "ids", np.array([1, bad, 0])) for bad in (4, -1, 2**62)),
    (ops.add_rows, ADD_ROWS, "x", rows(4, 15)),
    (ops.add_rows, ADD_ROWS, "x", rows(4, 32)),
    (ops.add_rows, ADD_ROWS, "indptr", np.array([0, 4, 3])),
    (ops.add_rows, ADD_ROWS, "indptr", np.array([0, 1, 2])),
    (ops.add_rows, ADD_ROWS, "indptr", np.array([0, 3])),
    (ops.add_rows, ADD_ROWS, "weights", np.ones(2, np.float32)),
    *(
        (ops.add_rows, ADD_ROWS, "out_ids", np.array(bad, np.int32))
        for bad in ([0, 3], [-1, 2], [1, 1], [2, 0])
    ),
    (ops.add_rows, ADD_ROWS, "out_ids", np.array([0, 2])),
    (ops.add_rows, ADD_ROWS, "out", torch.zeros(3, 16, dtype=torch.bfloat16)),
    (ops.aggregate, AGGREGATE, "ids", np.array([0, 1, 4, 2])),
    (ops.aggregate, AGGREGATE, "weights", np.ones(3)),
    (ops.aggregate, AGGREGATE, "weights", np.ones(2, np.float32)),
    (ops.aggregate, AGGREGATE, "dst_scale", np.ones(2, np.float32)),
    (ops.aggregate, AGGREGATE, "dst_scale", np.ones(3)),
    (ops.aggregate, AGGREGATE, "gate", torch.ones(2, 2)),
    (ops.aggregate, AGGREGATE, "gate", torch.ones(3, 1)),
    (ops.aggregate, AGGREGATE, "gate", torch.ones(3, 2, dtype=torch.bfloat16)),
    (ops.aggregate, AGGREGATE, "num_self", -1),
    (ops.aggregate, AGGREGATE, "num_self", 4),
    (ops.aggregate, AGGREGATE, "ids_per_edge", 1),
    (ops.edge_dot, EDGE_DOT, "a", rows(2)),
    (ops.edge_dot, EDGE_DOT, "a", rows(3, dtype=torch.bfloat16)),
    (ops.edge_dot, EDGE_DOT, "x", rows(4, 3)),
    (ops.edge_dot, EDGE_DOT, "x", rows(3)),
    (ops.edge_dot, EDGE_DOT, "out", np.zeros(2, np.float32)),
    (ops.edge_dot, EDGE_DOT, "out", np.zeros(3)),
    (ops.edge_dot, EDGE_DOT, "out", read_only(np.zeros(3, np.float32))),
    # Once, the result of strided scores was lost.
    (ops.edge_softmax, SOFTMAX, "scores", rows(2, 3).T),
    (ops.edge_softmax, SOFTMAX, "scores", rows(6)[::2]),
    (ops.edge_softmax, SOFTMAX, "scores", rows(2)),
    (ops.edge_softmax, SOFTMAX, "scores", rows(3, dtype=torch.float64)),
    (ops.edge_softmax, SOFTMAX, "bias", np.ones(2, np.float32)),
    (ops.edge_softmax_backward, SOFTMAX_BACK, "grad", rows(3, 1)),
    (ops.edge_softmax_backward, SOFTMAX_BACK, "grad", rows(2, 3).T),
    (ops.edge_softmax_backward, SOFTMAX_BACK, "alpha", rows(2)),
    (ops.expand_edges, EXPAND, "out", np.zeros((2, 2), np.int64)),
    (ops.expand_edges, EXPAND, "out", np.zeros((3, 2), np.int64)),
    (ops.expand_edges, EXPAND, "out", np.zeros((2, 3), np.int32)),
    (ops.expand_edges, EXPAND, "indptr", np.array([0, 9, 2, 3])),
    (ops.transpose_block, TRANSPOSE, "num_src", 3),
    (ops.transpose_block, TRANSPOSE, "num_src", -1),
    (ops.transpose_block, TRANSPOSE, "weights", np.ones(3)),
    (ops.transpose_block, TRANSPOSE, "dst_scale", np.ones(4, np.float32)),
    (ops.count_in_degrees, COUNT, "dst", np.array([0, 3])),
    (ops.count_in_degrees, COUNT, "dst", np.array([0, -1])),
    (ops.count_in_degrees, COUNT, "counts", np.zeros(3)),
    *((ops.count_in_degrees, COUNT, "first", bad) for bad in (-1, 2**63 - 1, 2**63, None)),
    *((ops.csc_scatter, BUCKETS, "dst", np.array([5, bad])) for bad in (1, 6, -1, 2**62)),
    *((ops.csc_scatter, BUCKETS, "dst", bad) for bad in (np.int32([5, 4]), np.array([5]), None)),
    *((ops.csc_scatter, BUCKETS, "bucket_of", np.int32([1, bad])) for bad in (-1, 2, MOST)),
    *((ops.csc_scatter, BUCKETS, "bucket_of", bad) for bad in (np.array([1, 0]), [1, 0])),
    *((ops.csc_scatter, BUCKETS, "num_buckets", bad) for bad in (0, -1, 2**31, 1.5)),
    *((ops.csc_scatter, BUCKETS, "shift", bad) for bad in (-1, 63, 64, 1.5)),
    *((ops.csc_scatter, BUCKETS, "first", bad) for bad in (-1, 2**63, None)),
    *(
        (ops.csc_scatter, BUCKETS, "out", np.zeros(shape, kind))
        for shape, kind in (
            ((2, 1), np.int64),
            ((2, 2), np.int32),
            ((3, 2), np.int64),
            (2, np.int64),
        )
    ),
    (ops.csc_fill, FILL, "cursor", np.array([0, 1])),
    (ops.csc_fill, FILL, "cursor", np.array([0, -1])),
    (ops.csc_fill, FILL, "cursor", np.zeros(1, np.int64)),
    (ops.csc_fill, FILL, "dst", np.array([1])),
    (ops.csc_fill, FILL, "dst", np.array([1, 1], np.int32)),
    (ops.csc_fill, FILL, "out", np.zeros(2, np.int32)),
    (ops.csc_fill, FILL, "last", -1),
    (ops.csc_sort, SORT, "indptr", np.array([0, 3, 2, 3])),
    (ops.csc_sort, SORT, "indptr", np.array([0, 2, 2, 30])),
    (ops.csc_sort, SORT, "indices", read_only(INDICES.copy())),
    (ops.relu_dropout, DROPOUT, "x", rows().T),
    (ops.relu_dropout, DROPOUT, "x", rows(dtype=torch.float64)),
    (ops.relu_dropout, DROPOUT, "x", rows(dtype=torch.uint8)),
    *((ops.relu_dropout, DROPOUT, "p", bad) for bad in (float("nan"), -0.1, 1.5, "half", None)),
    (ops.relu_dropout, DROPOUT, "x", rows(4, 4)[:, :2]),
    (ops.relu_dropout, DROPOUT, "x", rows()[0]),
    (ops.relu_dropout, DROPOUT, "x", rows(1).expand(4, 2)),
    (ops.relu_dropout, DROPOUT, "x", (read_only(np.empty((4, 2), np.float32)), "float32")),
    *((ops.relu_dropout, DROPOUT, "vertices", np.arange(4, dtype=kind)) for kind in ("i2", "f8")),
    *((ops.relu_dropout, DROPOUT, "vertices", np.arange(size)) for size in (0, 3, 5)),
    (ops.relu_dropout, DROPOUT, "vertices", np.zeros((4, 1), np.int64)),
    (ops.relu_dropout, DROPOUT, "vertices", None),
    *((ops.relu_dropout, DROPOUT, "seed", bad) for bad in (-1, 2**64, 1.0)),
    *((ops.relu_dropout, DROPOUT, "step", bad) for bad in (-1, 2**64, "0")),
    *((ops.relu_dropout, DROPOUT, "layer", bad) for bad in (-1, 2**64, None)),
    (ops.relu_dropout_backward, DROPOUT_BACK, "y", rows(3)),
    (ops.relu_dropout_backward, DROPOUT_BACK, "y", rows(dtype=torch.bfloat16)),
    (ops.relu_dropout_backward, DROPOUT_BACK, "grad", rows().T),
    (ops.relu_dropout_backward, DROPOUT_BACK, "scale", float("nan")),
    *((ops.rmat_edges, RMAT, "a", bad) for bad in (float("nan"), -1, 2, float("inf"), "x")),
    *((ops.rmat_edges, RMAT, "num_vertices", bad) for bad in (1, 2**31, -5, 10**30)),
    *((ops.rmat_edges, RMAT, "num_edges", bad) for bad in (-1, 19, 2**62)),
    *((ops.rmat_draws, DRAWS, "a", bad) for bad in (float("nan"), -1, 2)),
    *((ops.rmat_draws, DRAWS, "num_vertices", bad) for bad in (1, 2**31, -5)),
    *((ops.rmat_draws, DRAWS, "num_draws", bad) for bad in (-1, 2**62, None)),
    *((ops.rmat_draws, DRAWS, "first", bad) for bad in (-1, 2**64, 0.5)),
    *((ops.rmat_numbering, NUMBERING, "num_vertices", bad) for bad in (1, 2**31, None)),
    *((ops.rmat_numbering, NUMBERING, "seed", bad) for bad in (-1, 2**64)),
    *((ops.read_ahead, AHEAD, "ids", np.array([0, bad])) for bad in (-1, 4, 2**62)),
    *((ops.read_ahead, AHEAD, "ids", bad) for bad in (np.zeros(2), None)),
    *((ops.read_ahead, AHEAD, "x", bad) for bad in (rows().T, np.ones((4, 2)), None)),
    (ops.planted_partition_edges, PLANTED, "community", np.array([0, -1, 0, 1], np.int32)),
    (ops.planted_partition_edges, PLANTED, "community", np.array([0, 2**30, 0, 1], np.int32)),
    (ops.planted_partition_edges, PLANTED, "community", np.array([0, 1, 0, 0], np.int32)),
    (ops.planted_partition_edges, PLANTED, "weight", np.float32([1, 1, np.nan, 1])),
    (ops.planted_partition_edges, PLANTED, "weight", np.float32([1, 1, 0, 1])),
    (ops.planted_partition_edges, PLANTED, "weight", np.float32([1e30, 1e-30, 1e-30, 1e-30])),
    (ops.planted_partition_edges, PLANTED, "weight", np.ones(3, np.float32)),
    (ops.planted_partition_edges, PLANTED, "within", float("nan")),
    (ops.planted_partition_edges, PLANTED, "num_edges", -1),
    *(
        (function, arguments, name, bad)
        for function, arguments in (
            (ops.count_cut, CUT),
            (ops.hops_from, HOPS),
            (ops.pagraph_stream, STREAM),
        )
        for name, bad in (
            ("indptr", np.array([0, 2, 2, 4])),
            ("indptr", np.array([1, 2, 2, 3])),
            ("indptr", np.empty(0, np.int64)),
            ("indices", np.array([1, 2, 0], np.int16)),
            ("indices", np.array([1, 2, 0], np.uint32)),
            ("num_threads", 0),
        )
    ),
    *((ops.count_cut, CUT, "indptr", np.array([0, bad, 2, 3])) for bad in (5, -1, 2**62)),
    *((ops.count_cut, CUT, "indices", np.array([1, bad, 0])) for bad in (3, -1, 2**62)),
    *((ops.count_cut, CUT, "owner", np.array([0, bad, 1], np.int16)) for bad in (-2, 2, 32767)),
    (ops.count_cut, CUT, "owner", np.zeros(4, np.int16)),
    (ops.count_cut, CUT, "owner", np.zeros(3, np.int32)),
    (ops.count_cut, CUT, "owner", np.zeros(6, np.int16)[::2]),
    *((ops.count_cut, CUT, "num_parts", bad) for bad in (0, -1, 1025, 1.5)),
    *((ops.hops_from, HOPS, "vertices", np.array([bad], np.int32)) for bad in (-1, 3, 2**31 - 1)),
    (ops.hops_from, HOPS, "vertices", np.array([0])),
    (ops.hops_from, HOPS, "vertices", [0]),
    *((ops.hops_from, HOPS, "num_hops", bad) for bad in (-1, 255, 2**40, None)),
    (ops.hops_from, HOPS, "hops", np.full(3, 255, np.int64)),
    (ops.hops_from, HOPS, "hops", np.full(3, 1, np.int8)),
    (ops.hops_from, HOPS, "hops", np.full(4, 255, np.uint8)),
    (ops.hops_from, HOPS, "hops", np.full((3, 1), 255, np.uint8)),
    (ops.hops_from, HOPS, "hops", read_only(np.full(3, 255, np.uint8))),
    *((ops.pagraph_stream, STREAM, "vertices", np.array([bad], np.int32)) for bad in (-1, 3)),
    (ops.pagraph_stream, STREAM, "vertices", np.array([2, 2], np.int32)),
    (ops.pagraph_stream, STREAM, "vertices", np.array([0, 2])),
    *((ops.pagraph_stream, STREAM, "num_parts", bad) for bad in (0, 1025, -1, 0.5)),
    *((ops.pagraph_stream, STREAM, "num_hops", bad) for bad in (0, 255, "2")),
    *((ops.pagraph_stream, STREAM, "max_walked", bad) for bad in (-1, 2**31, 2.5)),
    *((ops.pagraph_stream, STREAM, "max_sampled", bad) for bad in (0, 2**31, None)),
    *((ops.pagraph_stream, STREAM, "seed", bad) for bad in (-1, 2**64)),
    # Rows in caches.
    *(
        (function, arguments, "vertices", bad)
        for function, arguments in (
            (ops.gather_cached, CACHED),
            (ops.count_slots, SLOTS),
            (ops.count_uses, USES),
            (ops.count_reads, READS),
            (ops.copy_rows, COPY),
        )
        for bad in (
            *(np.array([0, 4]), np.array([0, -1]), np.array([0, 2**62]), np.array([0.0, 1.0])),
            *(np.array([0, 1], np.int16), np.array([[0], [1]]), np.array([0, 1], ">i4"), [0, 1]),
            *(aligned_badly(2, np.int64), None),
        )
    ),
    *(
        (function, arguments, "slots", bad)
        for function, arguments in ((ops.gather_cached, CACHED), (ops.count_slots, SLOTS))
        for bad in (
            *(np.array([number, 0, 0, -1], np.int32) for number in (3, -2, MOST, -MOST - 1)),
            *(np.zeros(3, np.int32), np.zeros(8, np.int32)[::2], np.zeros(4, np.int64)),
            *(np.zeros((4, 1), np.int32), aligned_badly(4, np.int32), [0, 0, 0, 0], None),
        )
    ),
    *(
        (function, arguments, "counts", bad)
        for function, arguments in ((ops.count_uses, USES), (ops.count_reads, READS))
        for bad in (
            *(np.zeros(4), np.zeros(4, np.int64), np.zeros(4, np.uint32), np.zeros((4, 1), "i4")),
            *(np.zeros(8, np.int32)[::2], read_only(np.zeros(4, np.int32)), None),
            aligned_badly(4, np.int32),
        )
    ),
    (ops.gather_cached, CACHED, "host", rows(4, 3)),
    (ops.gather_cached, CACHED, "host", rows(5)),
    (ops.gather_cached, CACHED, "host", rows().half()),
    (ops.gather_cached, CACHED, "host", rows(4, 4)[:, ::2]),
    *((ops.gather_cached, CACHED, "caches", bad) for bad in (None, rows(), (rows(),) * 1025)),
    *(
        (ops.gather_cached, CACHED, "caches", [rows(3), bad])
        for bad in (rows(1, 3), rows().half(), rows(4, 4)[:, ::2], rows().to_sparse(), None, 3)
    ),
    (ops.gather_cached, CACHED | {"slots": RANKED}, "caches", [rows(2), rows(1)]),
    (ops.gather_cached, CACHED | {"slots": RANKED}, "caches", [rows(1), rows(3)]),
    (ops.gather_cached, CACHED | {"slots": RANKED}, "caches", [rows(3)]),
    (ops.gather_cached, CACHED | {"slots": RANKED}, "vertices", np.array([3, 4])),
    (ops.gather_cached, CACHED, "slots", ops.RankedSlots(5, [np.array([0]), np.array([3, 2])])),
    (ops.count_slots, SLOTS | {"slots": RANKED}, "starts", np.array([0, 2, 3])),
    (ops.count_slots, SLOTS | {"slots": RANKED}, "vertices", np.array([3, -1])),
    *((ranked_slots, MEMBERS, "num_vertices", bad) for bad in (-1, 3, 2**62, 1.5, None, "4")),
    *(
        (ranked_slots, MEMBERS, "members", bad)
        for bad in (None, np.zeros((2, 2), np.int64), [np.array([0])] * 1025, 3)
    ),
    (ops.gather_cached, CACHED, "out", torch.empty(1, 2)),
    (ops.gather_cached, CACHED, "out", torch.empty(2, 3)),
    (ops.gather_cached, CACHED, "out", torch.empty(2, 2, dtype=torch.float16)),
    (ops.gather_cached, CACHED, "out", torch.empty(1, 2).expand(2, 2)),
    (ops.gather_cached, CACHED, "out", (read_only(np.empty((2, 2), np.float32)), "float32")),
    *(
        (ops.count_slots, SLOTS, "starts", bad)
        for bad in (
            *(np.array([0, 3, 1]), np.array([1, 1, 3]), np.array([0, -1, 3]), np.array([], int)),
            *(np.array([0, 3], np.int32), np.arange(1026), np.array([0, 2**31]), [0, 3], None),
        )
    ),
    *(
        (function, arguments, name, bad)
        for function, arguments, name in (
            (ops.count_slots, SLOTS, "weights"),
            (ops.count_reads, READS, "indptr"),
        )
        for bad in (
            *(np.array([0, 5]), np.array([0, 5, 6, 7]), np.array([0, 5, 4]), np.array([1, 2, 3])),
            *(np.array([0, -5, 4]), np.array([0, 5, 6], np.int32), np.ones(3), [0, 5, 6]),
            np.zeros(6, np.int64)[::2],
        )
    ),
    (ops.count_reads, READS, "indptr", None),
    (ops.copy_rows, COPY, "source", rows(4, 3)),
    (ops.copy_rows, COPY, "source", rows().half()),
    (ops.copy_rows, COPY, "source", rows(3)),
    (ops.copy_rows, COPY, "source", None),
    (ops.copy_rows, COPY, "target", rows(3, 3)),
    (ops.copy_rows, COPY, "target", rows(2)),
    (ops.copy_rows, COPY, "target", rows(3).to(torch.bfloat16)),
    (ops.copy_rows, COPY, "target", rows(1).expand(3, 2)),
    (ops.copy_rows, COPY, "target", (read_only(np.empty((3, 2), np.float32)), "float32")),
    *((ops.copy_rows, COPY, "slots_of_target", np.array([0, bad])) for bad in (0, 3, -1, 2**62)),
    *((ops.copy_rows, COPY, "slots_of_target", np.arange(size)) for size in (0, 1, 3)),
    *(
        (function, arguments, "num_threads", bad)
        for function, arguments in (
            (ops.gather_cached, CACHED),
            (ops.count_slots, SLOTS),
            (ops.count_uses, USES),
            (ops.count_reads, READS),
            (ops.copy_rows, COPY),
        )
        for bad in (0, 2**40, 1.5)
    ),
    *(
        (function, arguments, name, bad)
        for function, arguments in (
            *((ops.hottest, HOTTEST), (ops.share_out, SHARE), (ops.running_sums, ALONG)),
        )
        for name, bad in (
            *(("bytes_per_vertex", bad) for bad in (-1, 2**31, 1.5, None)),
            *(("bytes_per_entry", bad) for bad in (-1, 2**31, "4")),
            *(("offsets", bad) for bad in (None, np.zeros(3, np.int64), np.zeros(4, np.int32))),
            *(("offsets", np.array([0, 2, bad, 3])) for bad in (1, 4, -1, 2**62)),
            *(("offsets", np.array([bad, 2, 2, 3])) for bad in (1, -1)),
            *(("offsets", np.array([0, 2, 2, bad])) for bad in (-1, 2**61, 2**63 - 1)),
            ("num_threads", 0),
        )
    ),
    *((ops.hottest, HOTTEST, "hotness", np.array([0, bad, 1])) for bad in (-1, -(2**63))),
    *((ops.hottest, HOTTEST, "hotness", np.float32([0, 1, b])) for b in (-1, np.nan, -np.inf)),
    *((ops.hottest, HOTTEST, "hotness", np.zeros(3, kind)) for kind in ("f8", "i2", "u4", "?")),
    *((ops.hottest, HOTTEST, "tie_break", np.zeros(3, kind)) for kind in ("f4", "i2", "u8")),
    (ops.hottest, HOTTEST, "tie_break", np.zeros(4, np.int64)),
    (ops.hottest, HOTTEST, "tie_break", np.empty(0, np.int64)),
    (ops.hottest, HOTTEST, "tie_break", np.array([0, -1, 1])),
    *((ops.hottest, HOTTEST, "capacity", bad) for bad in (-1, 2**63, 1.0)),
    *((ops.hottest, HOTTEST, "max_bytes", bad) for bad in (-1, 2**63, 1.0)),
    *((ops.hottest, HOTTEST, "only_hot", bad) for bad in (2, None, "no")),
    *((ops.running_sums, ALONG, "order", np.array([0, bad])) for bad in (-1, 3, 2**62)),
    *((ops.running_sums, ALONG, "order", bad) for bad in (np.zeros(2), [0, 1], None)),
    *((ops.running_sums, ALONG, "values", np.zeros(3, kind)) for kind in ("f8", "i8", "i2")),
    *((ops.running_sums, ALONG, "every", bad) for bad in (0, -1, 2**63, 1.5)),
    (ops.running_sums, ALONG, "falling", None),
    *((ops.split_by_member, SPLIT, "order", bad) for bad in (np.zeros(3), [0, 1, 2], None)),
    *((ops.split_by_member, SPLIT, "member", np.zeros(3, kind)) for kind in ("i4", "u2", "f2")),
    *((ops.split_by_member, SPLIT, "member", np.int16([0, 1, bad])) for bad in (2, -2)),
    *((ops.split_by_member, SPLIT, "num_members", bad) for bad in (-1, 1025, None)),
    *((ops.share_out, SHARE, "order", np.array([0, bad])) for bad in (-1, 3, 2**62, -(2**63))),
    *((ops.share_out, SHARE, "order", bad) for bad in (np.zeros(2), [0, 1], None)),
    *((ops.share_out, SHARE, "capacities", np.array(bad)) for bad in ([1], [1, -1], [1.0, 2.0])),
    *((ops.share_out, SHARE, "local", bad) for bad in ([], None, np.zeros((2, 3), np.int32))),
    *(
        (ops.share_out, SHARE, "local", [SHARE["local"][0], bad])
        for bad in (
            *(np.zeros(3, np.float32), np.zeros(4, np.int32), np.zeros(6, np.int32)[::2], None),
            np.array([0, 0, -1], np.int32),
        )
    ),
    *((ops.scatter_to_neighbors, SCATTER, "indptr", np.array([0, b, 2, 3])) for b in (4, -1)),
    *((ops.scatter_to_neighbors, SCATTER, "indices", np.array([1, b, 0])) for b in (3, -1, 2**40)),
    *((ops.scatter_to_neighbors, SCATTER, "values", np.zeros(3, kind)) for kind in ("f2", "i8")),
    (ops.scatter_to_neighbors, SCATTER, "values", np.zeros(2)),
    (ops.scatter_to_neighbors, SCATTER, "out", np.zeros(4)),
    (ops.scatter_to_neighbors, SCATTER, "out", np.zeros(3, np.float32)),
    (ops.scatter_to_neighbors, SCATTER, "out", read_only(np.zeros(3))),
    # What a streaming kernel reads.
    *((arrange_block, ARRANGE, "indptr", np.array([0, bad, 2, 3])) for bad in (3, -1, 2**62)),
    *((arrange_block, ARRANGE, "indptr", np.array([0, 2, 2, bad])) for bad in (2, 4, -1, 2**62)),
    (arrange_block, ARRANGE, "indptr", np.array([1, 2, 2, 3])),
    (arrange_block, ARRANGE, "indptr", INDPTR.astype(np.int32)),
    (arrange_block, ARRANGE, "indptr", np.empty(0, np.int64)),
    *((arrange_block, ARRANGE, "indices", np.array([1, b, 0], np.int32)) for b in (4, -1, MOST)),
    (arrange_block, ARRANGE, "indices", INDICES.astype(np.int64)),
    (arrange_block, ARRANGE, "indices", np.repeat(INDICES, 2)[::2]),
    *((arrange_block, ARRANGE, "num_src", bad) for bad in (2, -1, 2**31, 1.5, None)),
    *((arrange_block, ARRANGE, "destinations", np.int32([0, b])) for b in (0, 3, -1, MOST)),
    *((arrange_block, ARRANGE, "destinations", bad) for bad in (np.array([0]), [0], None)),
    *((arrange_block, ARRANGE, "weights", bad) for bad in (np.ones(3), np.ones(2, np.float32))),
    *((arrange_block, ARRANGE, "dst_scale", bad) for bad in (np.ones(3), np.ones(2, np.float32))),
    *((arrange_block, ARRANGE, "self_scale", bad) for bad in (np.ones(3), np.ones(4, np.float32))),
    *((arrange_block, ARRANGE, "self_term", bad) for bad in ("mean", "", 1, True, [], ("add",))),
    *((arrange_block, ARRANGE, "tile_rows", bad) for bad in (0, -1, 2**30 + 1, 2**64, 1.0, None)),
    *((arrange_block, ARRANGE, "backward_tile_rows", bad) for bad in (0, -1, 2**30 + 1, 1.0, "1")),
    *((arrange_block, ARRANGE, "num_banks", bad) for bad in (0, -1, 257, 1.0, "1", None)),
    *((ops.gather_columns, COLUMNS, "ids", np.array([0, bad])) for bad in (-1, 4, 2**62)),
    *((ops.gather_columns, COLUMNS, "ids", bad) for bad in (np.zeros(2), [0, 1], None, 3)),
    *((ops.gather_columns, COLUMNS, "x", bad) for bad in (np.ones((4, 2)), np.ones(4, "f4"), None)),
    *((ops.gather_columns, COLUMNS, "x", bad) for bad in (rows().T, rows().to_sparse(), [[1.0]])),
    *((ops.gather_columns, COLUMNS, "num_columns_words", bad) for bad in (0, -1, 2**31, 1.5, "1")),
    *(
        (ops.gather_columns, COLUMNS, "out", bad)
        for bad in (
            *(np.zeros((1, 3, 16), np.float32), np.zeros((1, 1, 16), np.float32)),
            *(np.zeros((1, 2, 15), np.float32), np.zeros((2, 16), np.float32)),
            *(np.zeros((0, 2, 16), np.float32), np.zeros((1, 2, 16)), torch.zeros(1, 2, 16)),
            *(np.zeros((1, 2, 32), np.float32)[:, :, ::2], np.zeros((16, 2, 1), np.float32).T),
            read_only(np.zeros((1, 2, 16), np.float32)),
            aligned_badly(32, np.float32).reshape(1, 2, 16),
        )
    ),
    *((ops.gather_columns, COLUMNS, "num_threads", bad) for bad in (0, 2**40, 1.5)),
]
THREADED = {
    ops.gather, ops.aggregate, ops.edge_dot, ops.edge_softmax, ops.edge_softmax_backward,
    ops.csc_sort, ops.relu_dropout, ops.relu_dropout_backward, ops.rmat_edges, ops.count_cut,
    ops.rmat_draws, ops.read_ahead,
    ops.hops_from, ops.pagraph_stream, ops.gather_cached, ops.count_slots, ops.count_uses,
    ops.count_reads, ops.copy_rows,
    ops.hops_from, ops.pagraph_stream, ops.hottest, ops.share_out, ops.scatter_to_neighbors,
    ops.running_sums, ops.split_by_member, ops.gather_columns, ops.add_rows,
}  # fmt: skip


def call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    given = {"num_threads": 1, **arguments} if function in THREADED else arguments
    return function(**given)


@pytest.mark.parametrize(
    ("function", "arguments", "name", "value"),
    REFUSED,
    ids=[f"{case[0].__name__}-{case[2]}-{number}" for number, case in enumerate(REFUSED)],
)
def test_what_is_refused(
    function: Callable[..., Any], arguments: dict[str, Any], name: str, value: Any
) -> None:
    with pytest.raises((TypeError, ValueError)) as error:
        call(function, arguments | {name: value})
    message = str(error.value)
    # Arguments that have to agree with each other may be blamed in each other's place.
    assert message.split(":")[0] in (name, *blamed_together(function, name)), message
    assert "\n" not in message


def blamed_together(function: Callable[..., Any], name: str) -> tuple[str, ...]:
    together = {
        (ops.gather, "ids"): (),
        (ops.add_rows, "x"): ("out",),
        (ops.edge_dot, "a"): ("indptr",),
        (ops.edge_dot, "x"): ("indices",),
        (ops.edge_softmax, "scores"): ("indptr",),
        (ops.edge_softmax_backward, "alpha"): ("indptr", "grad"),
        (ops.aggregate, "num_self"): ("self_rows",),
        (ops.transpose_block, "num_src"): ("indices",),
        (ops.relu_dropout_backward, "y"): ("grad", "out"),
        (ops.csc_sort, "indices"): ("indptr",),
        (ops.count_slots, "slots"): ("vertices",),
        (ranked_slots, "num_vertices"): ("members[1]",),
        (ops.count_uses, "counts"): ("vertices",),
        (ops.gather_cached, "host"): ("caches[0]", "slots"),
        (ops.gather_cached, "caches"): ("caches[1]",),
        (ops.copy_rows, "source"): ("target", "vertices"),
        (ops.copy_rows, "target"): ("slots_of_target",),
    }
    return together.get((function, name), ())


@pytest.mark.parametrize(
    ("function", "arguments"),
    list({case[0].__name__: case[:2] for case in REFUSED}.values()),
    ids=list({case[0].__name__: None for case in REFUSED}),
)
def test_what_the_refused_calls_were_made_of_is_valid(
    function: Callable[..., Any], arguments: dict[str, Any]
) -> None:
    answer = call(function, arguments)
    written = [*(answer if isinstance(answer, tuple) else [answer]), arguments.get("out")]
    numbers = [np.asarray(each) for each in written if each is not None]
    assert all(np.isfinite(each).all() for each in numbers)


def test_self_rows_are_checked_too() -> None:
    own = {"self_rows": rows(), "num_self": 2}
    for name, value, blamed in (
        ("self_ids", np.array([0, 4]), "self_ids"),
        ("self_ids", np.array([0]), "self_ids"),
        ("self_scale", np.ones(1, np.float32), "self_scale"),
        ("self_rows", rows(4, 3), "self_rows"),
        ("self_rows", rows(1), "num_self"),
        ("self_rows", None, "self_rows"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^{blamed}: "):
            call(ops.aggregate, AGGREGATE | own | {name: value})


def test_ids_per_edge_need_one_for_each_edge() -> None:
    for ids in (None, np.array([0, 1]), np.array([0, 1, 4])):
        with pytest.raises((TypeError, ValueError), match=r"^ids: "):
            call(ops.aggregate, AGGREGATE | {"ids": ids, "ids_per_edge": True})


@pytest.mark.parametrize("shape", [(-1,), (2**40, 2**40), (2**62,), (-(2**40), -(2**40))])
def test_sizes_of_tensors_have_limits(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^shape: "):
        ops.empty(shape, torch.float32)
    with pytest.raises(MemoryError, match=r"^shape: "):
        ops.empty((2**45,), torch.float32)


@pytest.mark.parametrize("shape", [5, "ab", [3], (True,), (2.0,), (None, 3), (np.int64(3),)])
def test_shapes_are_tuples_of_whole_numbers(shape: Any) -> None:
    with pytest.raises(TypeError, match=r"^shape: "):
        ops.empty(shape, torch.float32)
    with pytest.raises(TypeError, match=r"^dtype: "):
        ops.empty((1,), "float32")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tensor",
    [
        torch._neg_view(torch.ones(2, 3)),
        torch._neg_view(torch.ones(2, 3, dtype=torch.bfloat16)),
        torch.ones(2, 3).to_sparse(),
        torch.ones(2, 3, dtype=torch.bfloat16).to_sparse(),
        torch.ones(2, 3, device="meta"),
        torch.zeros(2, 3, dtype=torch.complex64).conj(),
    ],
    ids=["negative", "negative bfloat16", "sparse", "sparse bfloat16", "meta", "conjugate"],
)
def test_tensors_without_plain_elements(tensor: torch.Tensor) -> None:
    ids, out = np.array([0, 1]), torch.empty(2, 3)
    with pytest.raises((TypeError, ValueError), match=r"^x: "):
        ops.gather(tensor, ids, out=out, num_threads=1)
    with pytest.raises((TypeError, ValueError), match=r"^out: "):
        ops.gather(out, ids, out=tensor, num_threads=1)
    with pytest.raises((TypeError, ValueError), match=r"^scores: "):
        ops.edge_softmax(np.array([0, 2]), tensor, bias=None, num_threads=1)
    with pytest.raises((TypeError, ValueError), match=r"^x: "):
        ops.relu_dropout(tensor, ids, p=0.5, seed=1, step=2, layer=0, num_threads=1)


def test_more_edges_than_memory() -> None:
    community, weight = np.zeros(2, np.int32), np.ones(2, np.float32)
    with pytest.raises(MemoryError, match=r"^num_edges: "):
        ops.planted_partition_edges(community, weight, 2**45, 0.5, 0)


SAMPLE: dict[str, Any] = {
    "seeds": np.array([0, 1]),
    "fanouts": [2, 2],
    "replace": False,
    "seed": 0,
    "step": 0,
    "num_threads": 1,
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seeds", np.array([2**32])),
        ("seeds", np.array([2**32 + 3])),
        ("seeds", np.array([3.7])),
        ("seeds", np.array([True, False])),
        ("seeds", np.array([1], np.int16)),
        ("seeds", np.array([1], np.uint64)),
        ("seeds", np.array([[1]])),
        ("seeds", np.array([-1])),
        ("seeds", np.array([1, 1])),
        ("seeds", [0, 1]),
        ("fanouts", [2**63 - 1]),
        ("fanouts", [-2]),
        ("by_weight", True),  # its edges have no weights
        ("edge_weights", True),
        ("edge_positions", None),
        ("fanouts", [10**30]),
        ("fanouts", [1.5]),
        ("fanouts", [1] * 65),
        ("seed", -1),
        ("seed", 2**64),
        ("step", -1),
        ("step", 0.5),
        ("num_threads", 0),
        ("replace", 1),
        ("only_new", "no"),
    ],
)
def test_samples_that_are_refused(tiny_graph: Graph, name: str, value: Any) -> None:
    sampler = ops.NativeSampler(tiny_graph)
    sampler.sample_neighbors(**SAMPLE)
    with pytest.raises((TypeError, ValueError)) as error:
        sampler.sample_neighbors(**(SAMPLE | {name: value}))
    assert str(error.value).startswith(f"{name}: ")


def test_fan_outs_that_no_memory_could_hold(tiny_graph: Graph) -> None:
    for fanouts in ([2**63 - 1, 5], [2**31 - 1, 5], [2**20 + 1]):
        sampler = NeighborSampler(tiny_graph, fanouts=fanouts, replace=True)
        with pytest.raises(ValueError, match=r"^fanouts: "):
            sampler.sample(np.array([0, 1, 2]), 0)


@pytest.mark.parametrize("sizes", [[0], [-1], [2**40], [1.5]])
def test_layer_sizes_that_are_refused(tiny_graph: Graph, sizes: list[Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^layer_sizes: "):
        LayerSampler(tiny_graph, layer_sizes=sizes).sample(np.array([0]), 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("priority", bad) for bad in (np.zeros(3), np.zeros(3, np.int64), [0, 0, 0], None)),
        *(("priority", bad) for bad in (np.zeros(6, np.int32)[::2], np.zeros((3, 1), np.int32))),
        *(("capacity", bad) for bad in (-1, 4, 2**40, 1.5, None)),
        *(("match", bad) for bad in (1, None, "no")),
        *(("vertices", np.array(bad)) for bad in ([3], [-1], [2**32], [-(2**63)], [0, 0])),
        *(("vertices", np.array(bad)) for bad in ([0.0], [True], [[0, 1]])),
        *(("vertices", bad) for bad in (np.array([0], np.int16), np.array([0], np.uint32), [0])),
        *(("num_threads", bad) for bad in (0, -1, 1.5, 2**40)),
    ],
)
def test_replacements_that_are_refused(name: str, value: Any) -> None:
    valid = {
        **{"priority": np.zeros(3, np.int32), "capacity": 1, "match": True},
        **{"vertices": np.array([2, 0]), "num_threads": 1},
    }

    def serve(arguments: dict[str, Any]) -> None:
        arguments = dict(arguments)
        threads = {"num_threads": arguments.pop("num_threads")}
        vertices = arguments.pop("vertices")
        replacement = ops.NativeReplacement(arguments.pop("priority"), **arguments)
        replacement.expect(vertices, **threads)
        replacement.look_up(**threads)
        replacement.advance(**threads)

    serve(valid)
    with pytest.raises((TypeError, ValueError)) as error:
        serve(valid | {name: value})
    assert str(error.value).startswith(f"{name}: ")


def test_what_replacements_refuse_changes_nothing() -> None:
    replacement = ops.NativeReplacement(np.zeros(3, np.int32), capacity=1, match=False)
    for bad in ([0, 1, 0], [1, 3], [2**32]):
        with pytest.raises(ValueError, match=r"^vertices: "):
            replacement.expect(np.array(bad), num_threads=2)
    with pytest.raises(ValueError, match=r"^vertices: no batch is expected"):
        replacement.advance(num_threads=1)
    replacement.expect(np.array([0, 1]), num_threads=1)
    assert replacement.advance(num_threads=1)[:3] == (0, 0, 2)
    assert replacement.slots.tolist() == [0, -1, -1]


def damaged(graph: Graph, name: str, place: int, value: int) -> Graph:
    from dataclasses import replace

    array = np.array(getattr(graph, name))
    array[place] = value
    return replace(graph, **{name: array})


@pytest.mark.parametrize("value", [-1, 2**30, -(2**31), 5])
def test_an_id_that_is_no_vertex(tiny_graph: Graph, value: int) -> None:
    graph = damaged(tiny_graph, "indices", 2, value)
    for sampler in (
        NeighborSampler(graph, fanouts=[-1, 2]),
        NeighborSampler(graph, fanouts=[3], replace=True, num_threads=2),
        LayerSampler(graph, layer_sizes=[9]),
    ):
        with pytest.raises(GraphError, match=f"tiny: damaged, indices: {value} is no vertex"):
            sampler.sample(np.arange(5), 0)


@pytest.mark.parametrize("value", [-1, 100, 2**62, -(2**63)])
def test_an_offset_that_is_none(tiny_graph: Graph, value: int) -> None:
    graph = damaged(tiny_graph, "indptr", 2, value)
    for sampler in (
        NeighborSampler(graph, fanouts=[-1, 2]),
        LayerSampler(graph, layer_sizes=[9]),
    ):
        with pytest.raises(GraphError, match="tiny: damaged, indptr: "):
            sampler.sample(np.arange(5), 0)


@pytest.mark.parametrize(("place", "value"), [(0, 1), (0, -1), (5, 7), (5, 5), (5, -(2**63))])
def test_a_topology_whose_ends_do_not_fit(tiny_graph: Graph, place: int, value: int) -> None:
    with pytest.raises(ValueError, match=r"^indptr: "):
        ops.NativeSampler(damaged(tiny_graph, "indptr", place, value))


def test_a_graph_that_is_damaged_while_it_is_sampled(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    indices, indptr = np.array(graph.indices), np.array(graph.indptr)
    from dataclasses import replace

    sampler = NeighborSampler(
        replace(graph, indices=indices, indptr=indptr), fanouts=[10, 10], num_threads=2
    )
    finished = threading.Event()

    def damage() -> None:
        generator = np.random.default_rng(0)
        while not finished.is_set():
            at, offset = generator.integers(len(indices)), generator.integers(len(indptr))
            indices[at], indptr[offset] = generator.integers(-(2**31), 2**31, 2)
            indices[at], indptr[offset] = graph.indices[at], graph.indptr[offset]

    thread = threading.Thread(target=damage)
    thread.start()
    try:
        for step in range(300):
            try:
                batch = sampler.sample(np.arange(200), step)
            except GraphError:
                continue
            assert (batch.input_vertices < 300).all()
    finally:
        finished.set()
        thread.join()
