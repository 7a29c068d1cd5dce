import mmap
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale import ops
from gnnscale.core.errors import GraphError
from gnnscale.graph import Graph
from gnnscale.sampling import LayerSampler, NeighborSampler

INDPTR = np.array([0, 2, 2, 3])
INDICES = np.array([1, 3, 0], np.int32)
MOST = 2**31 - 1
NAN, INF = float("nan"), float("inf")


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


def on_pages(num_bytes: int) -> Any:
    return np.frombuffer(mmap.mmap(-1, num_bytes), np.uint8)


def shared_sum(memory: Any, rank: Any, size: Any, values: Any, poll: Any) -> Any:
    ops.SharedSum(memory, rank=rank, size=size).add(values, poll)
    return values


def arrange_block(**given: Any) -> tuple[Any, ...]:
    made = ops.arrange_block(**given)
    return made.sources, made.forward.edges, made.forward.tiles


def rows_of_file(rows: Any, pool: Any, slots: Any, **opened: Any) -> Any:
    reader = ops.RowReader(**opened)
    reader.wait(reader.submit(rows, pool, slots))
    assert reader.take_counters()["bytes_copied"] == 16


def lists_of_file(**opened: Any) -> None:
    assert ops.DiskLists(**opened).num_bytes == 16 + 2 * 8 + 2 * 4


#: Ten rows of 8 bytes after 4 others.
FILE = tempfile.NamedTemporaryFile()  # noqa: SIM115 (as long as the tests)
FILE.write(bytes(84))
FILE.flush()

# Tables have several values a line.
# fmt: off

BLOCK: dict[str, Any] = {"indptr": INDPTR, "indices": INDICES}
AGGREGATE: dict[str, Any] = {"x": rows(), **BLOCK, "out": torch.empty(3, 2)}
WHOLE: dict[str, Any] = {"indptr": INDPTR, "indices": np.int32([1, 2, 0])}
CUT: dict[str, Any] = {**WHOLE, "owner": np.int16([0, -1, 1]), "num_parts": 2}
HOPS: dict[str, Any] = {
    **WHOLE, "vertices": np.int32([0, 2]), "num_hops": 2, "hops": np.full(3, 255, "u1"),
}
STREAM: dict[str, Any] = {
    **WHOLE, "vertices": np.int32([0, 2]), "num_parts": 2, "num_hops": 2, "max_walked": 9,
    "max_sampled": 9, "seed": 0,
}
PAIRS: dict[str, Any] = {
    "own": rows(3, 6), "z": rows(4, 6), "attention": rows(2, 3), **BLOCK, "slope": 0.2,
}
PAIRS_REFUSED: dict[str, Any] = {
    "own": [rows(2, 6), rows(3, 5), rows(6, 6)[::2], rows(3, 6, torch.bfloat16), None],
    "z": [rows(3, 6), rows(4, 5), rows(8, 6)[::2], rows(4, 6, torch.bfloat16), None],
    "attention": [rows(2, 4), rows(3, 3), rows(3, 2).T, rows(2, 3, torch.bfloat16), None],
    "indptr": [np.array([0, 4, 2, 3]), np.array([0, 1, 2])],
    "indices": [np.int32([1, 4, 0]), np.int32([1, -1, 0]), np.array([1, 3, 0])],
    "slope": [NAN, INF, 1.5, -2, None, "0"],
}
CACHED: dict[str, Any] = {
    "host": rows(), "caches": [rows(1), rows(2)], "slots": np.int32([0, -1, 2, 1]),
    "vertices": np.array([3, 0]), "out": torch.empty(2, 2),
}
ADAM: dict[str, Any] = {
    "x": rows(), "means": torch.zeros(4, 2), "squares": torch.zeros(4, 2), "ids": np.array([3, 0]),
    "gradients": rows(4), "indptr": np.array([0, 2, 3]), "indices": INDICES, "rate": 0.1,
    "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8,
}
ADAGRAD: dict[str, Any] = {
    "x": rows(), "sums": np.zeros(4, "f4"),
    **{name: ADAM[name] for name in ("ids", "gradients", "indptr", "indices", "rate", "epsilon")},
}
#: What all updates of rows refuse alike.
UPDATES: dict[str, Any] = {
    "gradients": [rows(3), rows(4, 3), rows(4).double(), None],
    "indptr": [np.array([0, 4, 3]), np.array([0, 2]), np.int32([0, 2, 3]), None],
    "indices": [np.int32([1, 4, 0]), np.int32([1, -1, 0]), INDICES.astype("i8"), None],
    "weights": [np.ones(2, "f4"), np.ones(3)], "num_self": [-1, 1, 3],
    "rate": [-1.0, NAN, INF, None, "1"], "epsilon": [0.0, -1.0, NAN],
}
SLOTS: dict[str, Any] = {
    "slots": np.int32([0, -1, 2, 1]), "vertices": np.array([3, 0]), "starts": np.array([0, 1, 3]),
    "weights": np.array([0, 5, 7]),
}
SHARED_BYTES = ops.SharedSum.num_bytes(1)
RANKED = ops.RankedSlots(4, [np.array([0]), np.int32([3, 2])])
USES: dict[str, Any] = {"vertices": np.array([3, 0]), "counts": np.zeros(4, "i4")}
SIZES: dict[str, Any] = {"bytes_per_vertex": 8, "offsets": INDPTR, "bytes_per_entry": 4}
LOCAL = np.int32([3, 0, 5])
HOTTEST: dict[str, Any] = {
    "hotness": np.int32([3, 0, 5]), "tie_break": np.array([0, 1, 2]), "capacity": 99, **SIZES,
}
SHARE: dict[str, Any] = {
    "order": np.array([2, 0, 1]), "local": [LOCAL, np.int32([4, 0, 1])],
    "capacities": np.array([40, 50]), **SIZES,
}
ALONG: dict[str, Any] = {"order": np.array([2, 0, 1]), "values": LOCAL, "every": 2, **SIZES}

# Values that several functions refuse.
THREADS = [0, 2**40, 1.5]
TWO_ROWS = [
    torch.empty(1, 2), torch.empty(2, 2, dtype=torch.float16), torch.empty(1, 2).expand(2, 2),
    (read_only(np.empty((2, 2), "f4")), "float32"),
]
VERTICES = [
    np.array([0, 4]), np.array([0, -1]), np.array([0, 2**62]), np.array([0.0, 1.0]),
    np.array([0, 1], "i2"), np.array([[0], [1]]), np.array([0, 1], ">i4"), [0, 1],
    aligned_badly(2, "i8"), None,
]
SLOT_TABLES = [
    *(np.int32([number, 0, 0, -1]) for number in (3, -2, MOST, -MOST - 1)), np.zeros(3, "i4"),
    np.zeros(8, "i4")[::2], np.zeros(4, "i8"), np.zeros((4, 1), "i4"),
    aligned_badly(4, "i4"), [0, 0, 0, 0], None,
]
COUNTS = [
    np.zeros(4), np.zeros(4, "i8"), np.zeros(4, "u4"), np.zeros((4, 1), "i4"),
    np.zeros(8, "i4")[::2], read_only(np.zeros(4, "i4")), None, aligned_badly(4, "i4"),
]
OFFSETS = [
    np.array([0, 5]), np.array([0, 5, 6, 7]), np.array([0, 5, 4]), np.array([1, 2, 3]),
    np.array([0, -5, 4]), np.int32([0, 5, 6]), np.ones(3), [0, 5, 6], np.zeros(6, "i8")[::2],
]
TOPOLOGY = {
    "indptr": [np.array([0, 2, 2, 4]), np.array([1, 2, 2, 3]), np.empty(0, "i8")],
    "indices": [np.array([1, 2, 0], "i2"), np.array([1, 2, 0], "u4")],
    "num_threads": [0],
}
OF_SIZES = {
    "bytes_per_vertex": [-1, 2**31, 1.5, None],
    "bytes_per_entry": [-1, 2**31, "4"],
    "offsets": [
        None, np.zeros(3, "i8"), np.zeros(4, "i4"),
        *(np.array([0, 2, bad, 3]) for bad in (1, 4, -1, 2**62)),
        *(np.array([bad, 2, 2, 3]) for bad in (1, -1)),
        *(np.array([0, 2, 2, bad]) for bad in (-1, 2**61, 2**63 - 1)),
    ],
    "num_threads": [0],
}

#: What is called, its valid arguments, and what takes the place of one of them.
TABLE: list[tuple[Callable[..., Any], dict[str, Any], dict[str, list[Any]]]] = [
    (ops.gather, {"x": rows(), "ids": np.array([3, 0]), "out": torch.empty(2, 2)}, {
        # Too small for two rows, or not float32 or bfloat16.
        "out": [
            *TWO_ROWS, torch.empty(2, 1), torch.empty(2, 2, dtype=torch.float64),
            np.empty((2, 2), "f4"),
        ],
        "x": [
            rows(dtype=torch.float64), rows().T, rows()[0], rows().to_sparse(), rows().to("meta"),
            (rows().numpy(), "float64"), (rows().numpy(), "float16"),
            (rows().numpy().astype(">f4"), "float32"),
            (aligned_badly(8, "f4").reshape(4, 2), "float32"), None,
        ],
        "ids": [
            *(np.array([0, 1], kind) for kind in ("i2", "?", "f8", "u4", "O")),
            np.array([[0], [1]]), np.array([0, 1], ">i4"), np.array(1), [0, 1],
            aligned_badly(2, "i8"),
            *(np.array([0, bad]) for bad in (-1, 4, 2**31, -(2**63), 2**62)),
        ],
        "num_threads": [0, 10**9, 2**80, 1.5],
    }),
    (ops.aggregate, AGGREGATE, {
        "indptr": [
            np.array([0, 3, 2, 3]), np.array([0, 2, 2, 4]), np.array([1, 2, 2, 3]),
            np.array([0, -(2**63), 2, 3]), INDPTR.astype("i4"), np.empty(0, "i8"),
            np.array([0, 0, 2, 2, 2, 2, 3])[::2],
        ],
        "indices": [
            np.int32([1, 4, 0]), np.int32([1, -1, 0]), INDICES.astype("i8"),
            np.repeat(INDICES, 2)[::2],
        ],
        "ids": [np.array([0, 1, 4, 2])], "weights": [np.ones(3), np.ones(2, "f4")],
        "dst_scale": [np.ones(3), np.ones(2, "f4")],
        "gate": [torch.ones(2, 2), torch.ones(3, 1), torch.ones(3, 2, dtype=torch.bfloat16)],
        "num_self": [-1, 4], "ids_per_edge": [1],
    }),
    (ops.aggregate, AGGREGATE | {"self_rows": rows(), "num_self": 2}, {
        "self_ids": [np.array([0, 4]), np.array([0])], "self_scale": [np.ones(1, "f4")],
        "self_rows": [rows(4, 3), rows(1), None],
    }),
    (ops.aggregate, AGGREGATE | {"ids": np.array([0, 1, 3]), "ids_per_edge": True}, {
        "ids": [None, np.array([0, 1]), np.array([0, 1, 4])],
    }),
    (ops.add_rows, {
        "x": rows(4, 16), "ids": np.array([1, 3, 0]), "indptr": np.array([0, 1, 3]),
        "out_ids": np.int32([0, 2]), "out": torch.zeros(3, 16), "weights": None,
    }, {
        "ids": [*(np.array([1, bad, 0]) for bad in (4, -1, 2**62))],
        "x": [rows(4, 15), rows(4, 32)],
        "indptr": [np.array([0, 4, 3]), np.array([0, 1, 2]), np.array([0, 3])],
        "weights": [np.ones(2, "f4")],
        "out_ids": [*map(np.int32, ([0, 3], [-1, 2], [1, 1], [2, 0])), np.array([0, 2])],
        "out": [torch.zeros(3, 16, dtype=torch.bfloat16)],
    }),
    (ops.edge_dot, {"a": rows(3), "x": rows(), **BLOCK, "out": np.zeros(3, "f4")}, {
        "a": [rows(2), rows(3, dtype=torch.bfloat16)], "x": [rows(4, 3), rows(3)],
        "out": [np.zeros(2, "f4"), np.zeros(3), read_only(np.zeros(3, "f4"))],
    }),
    (ops.aggregate_max, {
        "x": rows(), **BLOCK, "out": torch.empty(3, 2), "counts": torch.empty(3, 2),
    }, {
        "x": [rows(4, 3), rows(3), rows(dtype=torch.bfloat16), rows(dtype=torch.float16), None],
        "indptr": [np.array([0, 4, 2, 3]), np.array([0, 1, 2]), np.array([-1, 0, 1, 3])],
        "indices": [np.int32([1, 4, 0]), np.int32([1, -1, 0]), np.array([1, 3, 0])],
        "out": [torch.empty(2, 2), torch.empty(3, 3), torch.empty(3, 2, dtype=torch.bfloat16)],
        "counts": [torch.empty(2, 2), torch.empty(3, 3), torch.empty(3, 2, dtype=torch.bfloat16)],
        "num_threads": THREADS,
    }),
    (ops.aggregate_max_backward, {
        "x": rows(3), "largest": rows(), "shares": rows(), **BLOCK, "out": torch.empty(3, 2),
    }, {
        "x": [rows(2), rows(3, 3), rows(3, dtype=torch.bfloat16), rows(3, dtype=torch.uint8)],
        "largest": [rows(3), rows(4, 3), rows(dtype=torch.bfloat16), None],
        "shares": [rows(3), rows(4, 3), rows(dtype=torch.bfloat16), None],
        "indptr": [np.array([0, 4, 2, 3]), np.array([0, 1, 2])],
        "indices": [np.int32([1, 4, 0]), np.int32([1, -1, 0])],
        "out": [torch.empty(2, 2), torch.empty(3, 3), torch.empty(3, 2, dtype=torch.float16)],
        "num_threads": THREADS,
    }),
    (ops.pair_scores, PAIRS | {"out": torch.empty(3, 2)}, PAIRS_REFUSED | {
        "out": [torch.empty(2, 2), torch.empty(3, 1), torch.empty(3, 2, dtype=torch.bfloat16)],
    }),
    (ops.pair_scores_backward, PAIRS | {"grad": rows(3)}, PAIRS_REFUSED | {
        "grad": [rows(2), rows(3, 1), rows(2, 3).T, rows(3, dtype=torch.bfloat16), None],
    }),
    (ops.adam_rows, ADAM, {
        "x": [rows(dtype=torch.bfloat16), rows(8)[::2], rows().double(), rows(4, 3)],
        "means": [rows(3), rows(4, 3), rows(8)[::2], rows(dtype=torch.bfloat16), None],
        "squares": [rows(3), rows(4, 3), rows(8)[::2], rows(dtype=torch.bfloat16), None],
        "ids": VERTICES,
        "beta1": [-0.1, 1.1, NAN], "beta2": [-0.1, 1.1, NAN],
        **UPDATES, "num_threads": THREADS,
    }),
    (ops.adam_rows, {**ADAM, "num_self": 2, "self_rows": rows(2)}, {
        "self_rows": [rows(1), rows(2, 3), None], "self_scale": [np.ones(1, "f4"), np.ones(2)],
    }),
    (ops.adagrad_rows, ADAGRAD, {
        "x": [rows(dtype=torch.bfloat16), rows(8)[::2], rows().double(), rows(4, 3)],
        "sums": [
            np.zeros(3, "f4"), np.zeros(4), np.zeros(8, "f4")[::2], np.zeros((4, 1), "f4"), None,
        ],
        "ids": VERTICES, **UPDATES, "num_threads": THREADS,
    }),
    (ops.edge_softmax, {"indptr": INDPTR, "scores": rows(3), "bias": None}, {
        # Once, the result of strided scores was lost.
        "scores": [rows(2, 3).T, rows(6)[::2], rows(2), rows(3, dtype=torch.float64)],
        "bias": [np.ones(2, "f4")],
    }),
    (ops.edge_softmax_backward, {"indptr": INDPTR, "alpha": rows(3), "grad": rows(3)}, {
        "grad": [rows(3, 1), rows(2, 3).T], "alpha": [rows(2)],
    }),
    (ops.expand_edges, {**BLOCK, "first_dst": 0, "out": np.zeros((2, 3), "i8")}, {
        "out": [np.zeros((2, 2), "i8"), np.zeros((3, 2), "i8"), np.zeros((2, 3), "i4")],
        "indptr": [np.array([0, 9, 2, 3])],
    }),
    (ops.transpose_block, {**BLOCK, "num_src": 4}, {
        "num_src": [3, -1], "weights": [np.ones(3)], "dst_scale": [np.ones(4, "f4")],
    }),
    (ops.count_in_degrees, {"dst": np.array([0, 2]), "counts": np.zeros(3, "i8")}, {
        "dst": [np.array([0, 3]), np.array([0, -1])], "first": [-1, 2**63 - 1, 2**63, None],
        "counts": [np.zeros(3), np.zeros(3, "i4")],
    }),
    (ops.csc_scatter, {
        "src": np.array([0, 2]), "dst": np.array([5, 4]), "bucket_of": np.int32([1, 0]),
        "num_buckets": 2, "first": 2, "shift": 1, "num_threads": 2, "out": np.zeros((2, 2), "i8"),
    }, {
        "dst": [
            *(np.array([5, bad]) for bad in (1, 6, -1, 2**62)), np.int32([5, 4]), np.array([5]),
            None,
        ],
        "bucket_of": [*(np.int32([1, bad]) for bad in (-1, 2, MOST)), np.array([1, 0]), [1, 0]],
        "num_buckets": [0, -1, 2**31, 1.5], "shift": [-1, 63, 64, 1.5], "first": [-1, 2**63, None],
        "out": [*map(np.zeros, ((2, 1), (3, 2), 2), ["i8"] * 3), np.zeros((2, 2), "i4")],
    }),
    (ops.csc_fill, {
        "src": np.array([0, 2]), "dst": np.array([1, 1]), "first": 0, "last": 2,
        "cursor": np.zeros(2, "i8"), "out": np.zeros(2, "i8"),
    }, {
        "cursor": [np.array([0, 1]), np.array([0, -1]), np.zeros(1, "i8")],
        "dst": [np.array([1]), np.int32([1, 1])], "out": [np.zeros(2, "i4")], "last": [-1],
    }),
    (ops.csc_sort, {"indptr": INDPTR, "indices": INDICES.copy(), "drop_duplicates": False}, {
        "indptr": [np.array([0, 3, 2, 3]), np.array([0, 2, 2, 30])],
        "indices": [read_only(INDICES.copy())],
    }),
    (ops.relu_dropout, {
        "x": rows(), "vertices": np.arange(4), "p": 0.5, "seed": 1, "step": 2, "layer": 0,
    }, {
        "x": [
            rows().T, rows(dtype=torch.float64), rows(dtype=torch.uint8), rows(4, 4)[:, :2],
            rows()[0], rows(1).expand(4, 2), (read_only(np.empty((4, 2), "f4")), "float32"),
        ],
        "p": [NAN, -0.1, 1.5, "half", None],
        "vertices": [
            *(np.arange(4, dtype=kind) for kind in ("i2", "f8")), *map(np.arange, (0, 3, 5)),
            np.zeros((4, 1), "i8"), None,
        ],
        "seed": [-1, 2**64, 1.0], "step": [-1, 2**64, "0"], "layer": [-1, 2**64, None],
    }),
    (ops.relu_dropout_backward, {"y": rows(), "grad": rows(), "scale": 2.0}, {
        "y": [rows(3), rows(dtype=torch.bfloat16)], "grad": [rows().T], "scale": [NAN],
    }),
    (ops.rmat_edges, {"num_vertices": 9, "num_edges": 5, "a": 0.5, "b": 0.2, "c": 0.2, "seed": 0}, {
        "a": [NAN, -1, 2, INF, "x"], "num_vertices": [1, 2**31, -5, 10**30],
        "num_edges": [-1, 19, 2**62],
    }),
    (ops.rmat_draws, {
        "num_vertices": 9, "a": 0.5, "b": 0.2, "c": 0.2, "seed": 0, "first": 3, "num_draws": 5,
    }, {
        "a": [NAN, -1, 2], "num_vertices": [1, 2**31, -5], "num_draws": [-1, 2**62, None],
        "first": [-1, 2**64, 0.5],
    }),
    (ops.rmat_numbering, {"num_vertices": 9, "seed": 0}, {
        "num_vertices": [1, 2**31, None], "seed": [-1, 2**64],
    }),
    (ops.read_ahead, {"x": rows(), "ids": np.array([3, 0])}, {
        "ids": [*(np.array([0, bad]) for bad in (-1, 4, 2**62)), np.zeros(2), None],
        "x": [rows().T, np.ones((4, 2)), None],
    }),
    (ops.planted_partition_edges, {
        "community": np.int32([0, 1, 0, 1]), "weight": np.ones(4, "f4"), "num_edges": 5,
        "within": 0.5, "seed": 0,
    }, {
        "community": [np.int32([0, bad, 0, 1]) for bad in (-1, 2**30)] + [np.int32([0, 1, 0, 0])],
        "weight": [
            np.float32([1, 1, np.nan, 1]), np.float32([1, 1, 0, 1]),
            np.float32([1e30, 1e-30, 1e-30, 1e-30]), np.ones(3, "f4"),
        ],
        "within": [NAN], "num_edges": [-1],
    }),
    (ops.count_cut, CUT, TOPOLOGY),
    (ops.count_cut, CUT, {
        "indptr": [np.array([0, bad, 2, 3]) for bad in (5, -1, 2**62)],
        "indices": [np.array([1, bad, 0]) for bad in (3, -1, 2**62)],
        "owner": [
            *(np.int16([0, bad, 1]) for bad in (-2, 2, 32767)), np.zeros(4, "i2"),
            np.zeros(3, "i4"), np.zeros(6, "i2")[::2],
        ],
        "num_parts": [0, -1, 1025, 1.5],
    }),
    (ops.hops_from, HOPS, {
        **TOPOLOGY, "vertices": [*(np.int32([bad]) for bad in (-1, 3, MOST)), np.array([0]), [0]],
        "num_hops": [-1, 255, 2**40, None],
        "hops": [
            np.full(3, 255, "i8"), np.full(3, 1, "i1"), np.full(4, 255, "u1"),
            np.full((3, 1), 255, "u1"), read_only(np.full(3, 255, "u1")),
        ],
    }),
    (ops.pagraph_stream, STREAM, {
        **TOPOLOGY, "vertices": [*map(np.int32, ([-1], [3], [2, 2])), np.array([0, 2])],
        "num_parts": [0, 1025, -1, 0.5], "num_hops": [0, 255, "2"], "seed": [-1, 2**64],
        "max_walked": [-1, 2**31, 2.5], "max_sampled": [0, 2**31, None],
    }),
    # Rows in caches.
    (ops.gather_cached, CACHED, {
        "vertices": VERTICES,
        "slots": [*SLOT_TABLES, ops.RankedSlots(5, [np.array([0]), np.array([3, 2])])],
        "host": [
            rows(4, 3), rows(5), rows().half(), rows(4, 4)[:, ::2],
            (np.zeros((4, 6), "u1"), "int8"),
        ],
        "caches": [
            None, rows(), (rows(),) * 1025,
            *([rows(3), bad] for bad in (rows(1, 3), rows().half(), rows(4, 4)[:, ::2])),
            *([rows(3), bad] for bad in (rows().to_sparse(), None, 3)),
        ],
        "out": [*TWO_ROWS, torch.empty(2, 3)], "num_threads": THREADS,
    }),
    (ops.gather_cached, CACHED | {"slots": RANKED}, {
        "caches": [[rows(2), rows(1)], [rows(1), rows(3)], [rows(3)]],
        "vertices": [np.array([3, 4])],
    }),
    (ops.count_slots, SLOTS, {
        "vertices": VERTICES, "slots": SLOT_TABLES,
        "starts": [
            np.array([0, 3, 1]), np.array([1, 1, 3]), np.array([0, -1, 3]), np.array([], int),
            np.int32([0, 3]), np.arange(1026), np.array([0, 2**31]), [0, 3], None,
        ],
        "weights": OFFSETS, "num_threads": THREADS,
    }),
    (ops.count_slots, SLOTS | {"slots": RANKED}, {
        "starts": [np.array([0, 2, 3])], "vertices": [np.array([3, -1])],
    }),
    (ranked_slots, {"num_vertices": 4, "members": [np.array([0]), np.array([3, 2])]}, {
        "num_vertices": [-1, 3, 2**62, 1.5, None, "4"],
        "members": [None, np.zeros((2, 2), "i8"), [np.array([0])] * 1025, 3],
    }),
    (ops.count_uses, USES, {"vertices": VERTICES, "counts": COUNTS, "num_threads": THREADS}),
    (ops.count_reads, USES | {"indptr": np.array([0, 5, 7])}, {
        "vertices": VERTICES, "counts": COUNTS, "indptr": [*OFFSETS, None], "num_threads": THREADS,
    }),
    (ops.copy_rows, {
        "source": rows(), "vertices": np.array([3, 0]), "target": rows(3),
        "slots_of_target": np.array([2, 0]),
    }, {
        "vertices": VERTICES, "num_threads": THREADS,
        "source": [
            rows(4, 3), rows().half(), rows(3), (np.zeros((4, 8), "u1"), "int8"), None,
        ],
        "target": [
            rows(3, 3), rows(2), rows(3).to(torch.bfloat16), rows(1).expand(3, 2),
            (read_only(np.empty((3, 2), "f4")), "float32"),
        ],
        "slots_of_target": [
            *(np.array([0, bad]) for bad in (0, 3, -1, 2**62)), *map(np.arange, (0, 1, 3)),
        ],
    }),
    # What caches are made of.
    (ops.hottest, HOTTEST, {
        **OF_SIZES,
        "hotness": [
            *(np.array([0, bad, 1]) for bad in (-1, -(2**63))),
            *(np.float32([0, 1, bad]) for bad in (-1, NAN, -INF)),
            *(np.zeros(3, kind) for kind in ("f8", "i2", "u4", "?")),
        ],
        "tie_break": [
            *(np.zeros(3, kind) for kind in ("f4", "i2", "u8")), np.zeros(4, "i8"),
            np.empty(0, "i8"), np.array([0, -1, 1]),
        ],
        "capacity": [-1, 2**63, 1.0], "max_bytes": [-1, 2**63, 1.0], "only_hot": [2, None, "no"],
    }),
    (ops.running_sums, ALONG, {
        **OF_SIZES,
        "order": [*(np.array([0, bad]) for bad in (-1, 3, 2**62)), np.zeros(2), [0, 1], None],
        "values": [np.zeros(3, kind) for kind in ("f8", "i8", "i2")], "every": [0, -1, 2**63, 1.5],
        "falling": [None],
    }),
    (ops.split_by_member, {
        "order": np.array([2, 0, 1]), "member": np.int16([1, 0, -1]), "num_members": 2,
    }, {
        "order": [np.zeros(3), [0, 1, 2], None], "num_members": [-1, 1025, None],
        "member": [
            *(np.zeros(3, kind) for kind in ("i4", "u2", "f2")),
            *(np.int16([0, 1, bad]) for bad in (2, -2)),
        ],
    }),
    (ops.share_out, SHARE, {
        **OF_SIZES,
        "order": [
            *(np.array([0, bad]) for bad in (-1, 3, 2**62, -(2**63))), np.zeros(2), [0, 1], None,
        ],
        "capacities": [np.array([1]), np.array([1, -1]), np.array([1.0, 2.0])],
        "local": [
            [], None, np.zeros((2, 3), "i4"), [LOCAL, np.zeros(3, "f4")],
            [LOCAL, np.zeros(4, "i4")], [LOCAL, np.zeros(6, "i4")[::2]], [LOCAL, None],
            [LOCAL, np.int32([0, 0, -1])],
        ],
    }),
    (ops.scatter_to_neighbors, {**WHOLE, "values": np.ones(3), "out": np.zeros(3)}, {
        "indptr": [np.array([0, bad, 2, 3]) for bad in (4, -1)],
        "indices": [np.array([1, bad, 0]) for bad in (3, -1, 2**40)],
        "values": [*(np.zeros(3, kind) for kind in ("f2", "i8")), np.zeros(2)],
        "out": [np.zeros(4), np.zeros(3, "f4"), read_only(np.zeros(3))],
    }),
    (shared_sum, {
        "memory": on_pages(SHARED_BYTES), "rank": 0, "size": 1, "values": np.ones(3, "f4"),
        "poll": lambda: None,
    }, {
        "memory": [
            on_pages(SHARED_BYTES - 1), on_pages(SHARED_BYTES + 1),
            on_pages(SHARED_BYTES + 8)[8:], on_pages(2 * SHARED_BYTES)[::2],
            on_pages(SHARED_BYTES).view("i1"), on_pages(SHARED_BYTES)[None],
            read_only(on_pages(SHARED_BYTES)), bytearray(SHARED_BYTES), None,
        ],
        "rank": [-1, 1, 0.0, None], "size": [0, -1, 2, 1025, 2**64, 1.0, None],
        "values": [
            *(np.ones(3, kind) for kind in ("f2", "i4", "u8", "?", ">f4", ">i8", "c8", "O")),
            np.ones(6)[::2], np.ones((3, 1)), np.ones(()), read_only(np.ones(3)),
            aligned_badly(3, "f8"), torch.ones(3), [1.0], None,
        ],
        "poll": [None, 3, "print"],
    }),
    # What a streaming kernel reads.
    (arrange_block, {
        **BLOCK, "num_src": 4, "destinations": np.int32([2, 0]), "self_term": "add",
        "tile_rows": 1, "backward_tile_rows": 1,
    }, {
        "indptr": [
            *(np.array([0, bad, 2, 3]) for bad in (3, -1, 2**62)),
            *(np.array([0, 2, 2, bad]) for bad in (2, 4, -1, 2**62)), np.array([1, 2, 2, 3]),
            INDPTR.astype("i4"), np.empty(0, "i8"),
        ],
        "indices": [
            *(np.int32([1, bad, 0]) for bad in (4, -1, MOST)), INDICES.astype("i8"),
            np.repeat(INDICES, 2)[::2],
        ],
        "num_src": [2, -1, 2**31, 1.5, None],
        "destinations": [
            *(np.int32([0, bad]) for bad in (0, 3, -1, MOST)), np.array([0]), [0], None,
        ],
        "weights": [np.ones(3), np.ones(2, "f4")], "dst_scale": [np.ones(3), np.ones(2, "f4")],
        "self_scale": [np.ones(3), np.ones(4, "f4")],
        "self_term": ["mean", "", 1, True, [], ("add",)],
        "tile_rows": [0, -1, 2**30 + 1, 2**64, 1.0, None],
        "backward_tile_rows": [0, -1, 2**30 + 1, 1.0, "1"],
        "num_banks": [0, -1, 257, 1.0, "1", None],
    }),
    (ops.gather_columns, {"x": rows(), "ids": np.array([3, 0])}, {
        "ids": [*(np.array([0, bad]) for bad in (-1, 4, 2**62)), np.zeros(2), [0, 1], None, 3],
        "x": [np.ones((4, 2)), np.ones(4, "f4"), None, rows().T, rows().to_sparse(), [[1.0]]],
        "num_columns_words": [0, -1, 2**31, 1.5, "1"],
        "out": [
            *(np.zeros((1, *shape), "f4") for shape in ((3, 16), (1, 16), (2, 15))),
            np.zeros((2, 16), "f4"), np.zeros((0, 2, 16), "f4"), np.zeros((1, 2, 16)),
            torch.zeros(1, 2, 16), np.zeros((1, 2, 32), "f4")[:, :, ::2],
            np.zeros((16, 2, 1), "f4").T, read_only(np.zeros((1, 2, 16), "f4")),
            aligned_badly(32, "f4").reshape(1, 2, 16),
        ],
        "num_threads": THREADS,
    }),
    (rows_of_file, {
        "path": FILE.name, "offset": 4, "num_rows": 10, "row_bytes": 8, "depth": 4,
        "max_gap_bytes": 0, "max_request_bytes": 4096, "engine": "auto", "direct": True,
        "rows": np.array([9, 0]), "pool": rows(), "slots": np.int32([3, 0]),
    }, {
        "path": [
            None, 3, FILE.name.encode(), FILE.name + "\0", "\ud800", FILE, "/", "/dev/null",
        ],
        "offset": [-1, 5, 2**62, 2**62 + 1, 2**64, 1.5, None],
        "num_rows": [-1, 11, 2**33, 2**33 + 1, 2**64, 1.5, None],
        "row_bytes": [0, -1, 9, 2**20, 2**20 + 1, 2**64, 1.5, None],
        "depth": [0, -1, 1025, 2**64, 1.5, None], "max_gap_bytes": [-1, 2**24 + 1, 2**64, None],
        "max_request_bytes": [0, -1, 2**24 + 1, 2**64, None],
        "engine": ["", "uring", None, 3, b"auto", ["auto"]], "direct": [1, None, "yes"],
        "rows": [
            *(np.array([0, bad]) for bad in (10, -1, 2**33, 2**62, -(2**63))),
            *(np.array([0, 1], kind) for kind in ("i2", "u4", "f8", "?", "O", ">i4")),
            np.array([0]), np.array([[0], [1]]), [0, 1], None, aligned_badly(2, "i8"),
        ],
        "slots": [
            *(np.int32([0, bad]) for bad in (4, -1, MOST, -MOST - 1)), np.array([0, 1]),
            np.int32([0]), np.int32([[0], [1]]), np.zeros(4, "i4")[::2], [0, 1], None,
            aligned_badly(2, "i4"),
        ],
        "pool": [
            rows(4, 3), rows(4, 1), rows(8, 4)[:, ::2], rows(1).expand(4, 2), rows(0), rows(3),
            rows().T, rows()[0], rows().to_sparse(), rows().to("meta"), rows().double(), None,
            (read_only(np.empty((4, 2), "f4")), "float32"), np.empty((4, 2), "f4"),
            (aligned_badly(8, "f4").reshape(4, 2), "float32"), (rows().numpy(), "uint8"),
        ],
    }),
    (lists_of_file, {
        "path": FILE.name, "indptr": INDPTR, "indices": INDICES, "held": np.array([0]),
        "offset": 4, "depth": 4, "max_gap_bytes": 0, "engine": "auto", "direct": True,
    }, {
        "path": [None, 3, FILE.name.encode(), FILE.name + "\0", "\ud800", "/", "/dev/null"],
        "indptr": [np.array([0, 2, 4]), np.int32([0, 2, 3]), np.array([1, 2, 3]), None],
        "indices": [INDICES[:2], INDICES.astype("i2"), INDICES.astype("f4"), None],
        "held": [
            np.array([3]), np.array([-1]), np.array([1, 0]), np.array([1, 1]), np.array([2**32]),
            np.array([0.0]), [0], None,
        ],
        "offset": [-1, 73, 2**62, 2**62 + 1, 2**64, 1.5, None],
        "depth": [0, -1, 1025, 2**64, 1.5, None], "max_gap_bytes": [-1, 2**24 + 1, 2**64, None],
        "engine": ["none", None, 3], "direct": [1, None],
    }),
    (rows_of_file, {
        "path": FILE.name, "offset": 0, "num_rows": 10, "row_bytes": 8, "depth": 1024,
        "max_gap_bytes": 0, "rows": np.array([9, 0]), "pool": rows(), "slots": np.int32([3, 0]),
    }, {"max_request_bytes": [2**18 + 1]}),
]
UNTHREADED = {
    ops.expand_edges, ops.transpose_block, ops.count_in_degrees, ops.csc_fill, ops.csc_scatter,
    ops.rmat_numbering, ops.planted_partition_edges, ranked_slots, arrange_block, rows_of_file,
    lists_of_file, shared_sum,
}
#: Arguments that have to agree with each other may be blamed in each other's place.
BLAMED_TOGETHER: dict[tuple[Callable[..., Any], str], tuple[str, ...]] = {
    (ops.add_rows, "x"): ("out",), (ops.edge_dot, "a"): ("indptr",),
    (ops.adam_rows, "x"): ("means", "gradients"), (ops.adagrad_rows, "x"): ("sums", "gradients"),
    **{
        (update, name): blamed for update in (ops.adam_rows, ops.adagrad_rows)
        for name, blamed in (
            ("gradients", ("indices",)), ("indptr", ("ids",)), ("num_self", ("self_rows",)),
            ("self_rows", ("num_self",)),
        )
    },
    (ops.aggregate_max, "x"): ("out", "indices"), (ops.aggregate_max, "indptr"): ("out",),
    (ops.aggregate_max_backward, "x"): ("largest", "indptr"),
    (ops.aggregate_max_backward, "largest"): ("shares",),
    **{(each, name): ("indptr", "indices", "z") for each in (ops.pair_scores,
       ops.pair_scores_backward) for name in ("own", "z", "attention")},
    (ops.edge_dot, "x"): ("indices",), (ops.edge_softmax, "scores"): ("indptr",),
    (ops.edge_softmax_backward, "alpha"): ("indptr", "grad"),
    (ops.aggregate, "num_self"): ("self_rows",), (ops.transpose_block, "num_src"): ("indices",),
    (ops.aggregate, "self_rows"): ("num_self",),
    (ops.relu_dropout_backward, "y"): ("grad", "out"), (ops.csc_sort, "indices"): ("indptr",),
    (ops.count_slots, "slots"): ("vertices",), (ranked_slots, "num_vertices"): ("members[1]",),
    (ops.count_uses, "counts"): ("vertices",), (ops.gather_cached, "host"): ("caches[0]", "slots"),
    (ops.gather_cached, "caches"): ("caches[1]",), (ops.copy_rows, "target"): ("slots_of_target",),
    (ops.copy_rows, "source"): ("target", "vertices"),
    (rows_of_file, "offset"): ("num_rows",), (rows_of_file, "row_bytes"): ("num_rows", "pool"),
    (rows_of_file, "rows"): ("slots",), (rows_of_file, "pool"): ("slots",),
    (rows_of_file, "max_request_bytes"): ("depth",),
    (lists_of_file, "indices"): ("indptr",), (lists_of_file, "offset"): ("num_rows",),
    (shared_sum, "size"): ("memory",),
}
# fmt: on


def call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    return function(**({} if function in UNTHREADED else {"num_threads": 1}) | arguments)


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "arguments", "wrong"), TABLE, ids=[case[0].__name__ for case in TABLE]
)
def test_wrong_arguments_are_refused_and_valid_ones_answered(function, arguments, wrong) -> None:
    for name, value in ((name, value) for name, values in wrong.items() for value in values):
        with pytest.raises((TypeError, ValueError)) as error:
            call(function, arguments | {name: value})
        message = str(error.value)
        blamed = (name, *BLAMED_TOGETHER.get((function, name), ()))
        assert message.split(":")[0] in blamed, (name, value, message)
        assert "\n" not in message
    answer = call(function, arguments)
    written = [*(answer if isinstance(answer, tuple) else [answer]), arguments.get("out")]
    numbers = [np.asarray(each) for each in written if each is not None]
    assert all(np.isfinite(each).all() for each in numbers)


def test_shapes_are_tuples_of_whole_numbers_within_limits() -> None:
    for large in ((-1,), (2**40, 2**40), (2**62,), (-(2**40), -(2**40))):
        with pytest.raises(ValueError, match=r"^shape: "):
            ops.empty(large, torch.float32)
    with pytest.raises(MemoryError, match=r"^shape: "):
        ops.empty((2**45,), torch.float32)
    wrong: list[Any] = [5, "ab", [3], (True,), (2.0,), (None, 3), (np.int64(3),)]
    for shape in wrong:
        with pytest.raises(TypeError, match=r"^shape: "):
            ops.empty(shape, torch.float32)
    with pytest.raises(TypeError, match=r"^dtype: "):
        ops.empty((1,), "float32")  # type: ignore[arg-type]


ONES = torch.ones(2, 3)


@pytest.mark.parametrize(
    "tensor",
    [
        *(torch._neg_view(ONES), torch._neg_view(ONES.bfloat16()), ONES.to_sparse()),
        *(ONES.bfloat16().to_sparse(), ONES.to("meta"), ONES.to(torch.complex64).conj()),
    ],
    ids=["negative", "negative bfloat16", "sparse", "sparse bfloat16", "meta", "conjugate"],
)
def test_tensors_without_plain_elements(tensor: torch.Tensor) -> None:
    ids, out = np.array([0, 1]), torch.empty(2, 3)
    draw = {"p": 0.5, "seed": 1, "step": 2, "layer": 0}
    for name, function, arguments in (
        ("x", ops.gather, {"x": tensor, "ids": ids, "out": out}),
        ("out", ops.gather, {"x": out, "ids": ids, "out": tensor}),
        ("scores", ops.edge_softmax, {"indptr": ids * 2, "scores": tensor, "bias": None}),
        ("x", ops.relu_dropout, {"x": tensor, "vertices": ids, **draw}),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^{name}: "):
            call(function, arguments)


def test_more_edges_than_memory() -> None:
    community, weight = np.zeros(2, np.int32), np.ones(2, np.float32)
    with pytest.raises(MemoryError, match=r"^num_edges: "):
        ops.planted_partition_edges(community, weight, 2**45, 0.5, 0)


SAMPLE: dict[str, Any] = {
    **{"seeds": np.array([0, 1]), "fanouts": [2, 2], "replace": False},
    **{"seed": 0, "step": 0, "num_threads": 1},
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("seeds", np.array(bad)) for bad in ([2**32], [2**32 + 3], [3.7], [True, False])),
        *(("seeds", np.array(bad)) for bad in ([[1]], [-1], [1, 1])),
        *(("seeds", bad) for bad in (np.array([1], np.int16), np.array([1], np.uint64), [0, 1])),
        *(("fanouts", bad) for bad in ([2**63 - 1], [-2], [10**30], [1.5], [1] * 65)),
        # Its edges have no weights.
        *(("by_weight", True), ("edge_weights", True), ("edge_positions", None)),
        *(("seed", -1), ("seed", 2**64), ("step", -1), ("step", 0.5)),
        *(("num_threads", 0), ("replace", 1), ("only_new", "no")),
    ],
)
def test_samples_that_are_refused(tiny_graph: Graph, name: str, value: Any) -> None:
    sampler = ops.NativeSampler(tiny_graph)
    sampler.sample_neighbors(**SAMPLE)
    with pytest.raises((TypeError, ValueError)) as error:
        sampler.sample_neighbors(**(SAMPLE | {name: value}))
    assert str(error.value).startswith(f"{name}: ")


def test_sizes_that_no_memory_could_hold(tiny_graph: Graph) -> None:
    for fanouts in ([2**63 - 1, 5], [2**31 - 1, 5], [2**20 + 1]):
        sampler = NeighborSampler(tiny_graph, fanouts=fanouts, replace=True)
        with pytest.raises(ValueError, match=r"^fanouts: "):
            sampler.sample(np.array([0, 1, 2]), 0)
    sizes: list[Any] = [0, -1, 2**40, 1.5]
    for size in sizes:
        with pytest.raises((TypeError, ValueError), match=r"^layer_sizes: "):
            LayerSampler(tiny_graph, layer_sizes=[size]).sample(np.array([0]), 0)


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

    def serve(priority: Any, capacity: Any, match: Any, vertices: Any, num_threads: Any) -> None:
        replacement = ops.NativeReplacement(priority, capacity=capacity, match=match)
        replacement.expect(vertices, num_threads=num_threads)
        replacement.look_up(num_threads=num_threads)
        replacement.advance(num_threads=num_threads)

    serve(**valid)
    with pytest.raises((TypeError, ValueError)) as error:
        serve(**(valid | {name: value}))
    assert str(error.value).startswith(f"{name}: ")


def test_a_graph_that_is_damaged_while_it_is_sampled(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    indices, indptr = np.array(graph.indices), np.array(graph.indptr)
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
