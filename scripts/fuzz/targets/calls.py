"""A valid call of every public function of ``gnnscale.ops`` and of every sampler."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.graph import Graph
from gnnscale.sampler import LayerSampler, NeighborSampler, WeightedSampler

from .draw import STORED, Draw

__all__ = ["CALLS", "MAKERS", "graph_of"]

Args = dict[str, Any]
_COMPUTED = (torch.float32, torch.bfloat16)


def empty(draw: Draw) -> Args:
    return {"shape": (draw.size(0, 9), draw.size(0, 9)), "dtype": draw.rng.choice(STORED)}


def gather(draw: Draw) -> Args:
    rows, width, n = draw.size(1, 9), draw.size(1, 20), draw.size(0, 9)
    x: Any = draw.tensor(rows, width, draw.rng.choice(STORED))
    if draw.rng.random() < 0.3:
        x = _as_numpy(x)
    out = draw.tensor(n, width, draw.rng.choice(_COMPUTED))
    return {"x": x, "ids": draw.ids(n, rows), "out": out, "num_threads": draw.threads()}


def read_ahead(draw: Draw) -> Args:
    made = gather(draw)
    made.pop("out")
    return made


def add_rows(draw: Draw) -> Args:
    indptr, indices, num_src = draw.block()
    num_dst, width = len(indptr) - 1, 16 * draw.size(1, 9)
    num_out = num_dst + draw.size(0, 3)
    chosen = np.array(sorted(draw.rng.sample(range(num_out), num_dst)), np.int32)
    return {
        "x": draw.tensor(num_src, width, draw.rng.choice(STORED)),
        "ids": indices,
        "indptr": indptr,
        "out_ids": chosen,
        "out": draw.tensor(num_out, width, torch.float32),
        "num_threads": draw.threads(),
        "weights": draw.maybe(draw.floats(len(indices))),
    }


def aggregate(draw: Draw) -> Args:
    indptr, indices, num_src = draw.block()
    num_dst, width, num_rows = len(indptr) - 1, draw.size(1, 20), num_src + 3
    num_self = draw.size(0, num_dst)
    per_edge = draw.rng.random() < 0.2
    out = draw.tensor(num_dst, width, draw.rng.choice(_COMPUTED))
    given = draw.maybe(True) or per_edge
    return {
        "x": draw.tensor(num_rows, width, draw.rng.choice(STORED)),
        "indptr": indptr,
        "indices": indices,
        "out": out,
        "num_threads": draw.threads(),
        "ids": draw.ids(len(indices) if per_edge else num_src, num_rows) if given else None,
        "ids_per_edge": per_edge,
        "weights": draw.maybe(draw.floats(len(indices))),
        "dst_scale": draw.maybe(draw.floats(num_dst)),
        "self_rows": draw.tensor(num_rows, width, draw.rng.choice(STORED)) if num_self else None,
        "self_ids": draw.maybe(draw.ids(num_self, num_rows)) if num_self else None,
        "self_scale": draw.maybe(draw.floats(num_self)) if num_self else None,
        "num_self": num_self,
        "gate": draw.maybe(draw.tensor(num_dst, width, out.dtype)),
    }


def edge_dot(draw: Draw) -> Args:
    indptr, indices, num_src = draw.block()
    width = draw.size(1, 20)
    out = np.zeros((len(indices), 2), np.float32)
    return {
        "a": draw.tensor(len(indptr) - 1, width),
        "x": draw.tensor(num_src, width),
        "indptr": indptr,
        "indices": indices,
        "out": out[:, 1] if draw.rng.random() < 0.5 else out[:, 1].copy(),
        "num_threads": draw.threads(),
    }


def expand_edges(draw: Draw) -> Args:
    indptr, indices, _ = draw.block()
    out = np.zeros((2, len(indices)), np.int64)
    return {"indptr": indptr, "indices": indices, "first_dst": draw.size(0, 99), "out": out}


def transpose_block(draw: Draw) -> Args:
    indptr, indices, num_src = draw.block()
    return {
        "indptr": indptr,
        "indices": indices,
        "num_src": num_src,
        "weights": draw.maybe(draw.floats(len(indices))),
        "dst_scale": draw.maybe(draw.floats(len(indptr) - 1)),
    }


def relu_dropout(draw: Draw) -> Args:
    n, width = draw.size(0, 9), draw.size(0, 20)
    values = draw.floats(n * width).reshape(n, width)
    return {
        "x": torch.from_numpy(values).to(draw.rng.choice(_COMPUTED)),
        "vertices": draw.ids(n, 1 << 31),
        "p": draw.rng.choice((0.0, 0.5, 0.9)),
        "seed": draw.rng.getrandbits(64),
        "step": draw.size(0, 99),
        "layer": draw.size(0, 9),
        "num_threads": draw.threads(),
    }


def relu_dropout_backward(draw: Draw) -> Args:
    y = draw.flat(draw.size(0, 80), draw.rng.choice(_COMPUTED))
    grad = draw.flat(y.numel(), y.dtype).view(y.shape)
    return {"y": y, "grad": grad, "scale": 2.0, "num_threads": draw.threads()}


def edge_softmax(draw: Draw) -> Args:
    indptr, indices, _ = draw.block()
    scores = torch.from_numpy(draw.floats(len(indices) * 3).reshape(-1, 3))
    bias = draw.maybe(np.abs(draw.floats(len(indices))) + 0.5)
    return {"indptr": indptr, "scores": scores, "bias": bias, "num_threads": draw.threads()}


def edge_softmax_backward(draw: Draw) -> Args:
    indptr, indices, _ = draw.block()
    alpha, grad = (torch.from_numpy(draw.floats(len(indices) * 3).reshape(-1, 3)) for _ in range(2))
    return {"indptr": indptr, "alpha": alpha, "grad": grad, "num_threads": draw.threads()}


def count_in_degrees(draw: Draw) -> Args:
    n = draw.size(1, 9)
    first, dst = draw.size(0, 9), draw.ids(draw.size(0, 20), n)
    return {"dst": dst + dst.dtype.type(first), "counts": np.zeros(n, np.int64), "first": first}


def csc_scatter(draw: Draw) -> Args:
    n, num_edges = draw.size(1, 9), draw.size(0, 20)
    first, shift, num_buckets = draw.size(0, 9), draw.size(0, 3), draw.size(1, 4)
    src = draw.ids(num_edges, 99)
    return {
        "src": src,
        "dst": draw.ids(num_edges, n, src.dtype) + src.dtype.type(first),
        "bucket_of": draw.ids(((n - 1) >> shift) + 1, num_buckets, np.int32),
        **{"num_buckets": num_buckets, "first": first, "shift": shift},
        "out": np.zeros((2, num_edges), src.dtype),
        "num_threads": draw.threads(),
    }


def csc_fill(draw: Draw) -> Args:
    n, num_edges = draw.size(1, 9), draw.size(0, 20)
    src = draw.ids(num_edges, n)
    dst = draw.ids(num_edges, n, src.dtype)
    first = draw.size(0, n)
    last = draw.size(first, n)
    ends = np.cumsum(np.bincount(dst, minlength=n))
    cursor = (ends - np.bincount(dst, minlength=n))[first:last].astype(np.int64)
    out = np.zeros(num_edges, src.dtype)
    return {"src": src, "dst": dst, "first": first, "last": last, "cursor": cursor, "out": out}


def csc_sort(draw: Draw) -> Args:
    indptr, indices = draw.csc()
    drop = draw.rng.random() < 0.5
    return {
        **{"indptr": indptr, "indices": indices, "drop_duplicates": drop},
        "num_threads": draw.threads(),
    }


def count_cut(draw: Draw) -> Args:
    indptr, indices = draw.csc()
    num_parts, num_vertices = draw.size(1, 5), len(indptr) - 1
    owner = (draw.ids(num_vertices, num_parts + 1, np.int64) - 1).astype(np.int16)
    return {
        **{"indptr": indptr, "indices": indices, "owner": owner, "num_parts": num_parts},
        "num_threads": draw.threads(),
    }


def hops_from(draw: Draw) -> Args:
    indptr, indices = draw.csc()
    num_vertices = len(indptr) - 1
    return {
        **{"indptr": indptr, "indices": indices, "num_hops": draw.size(0, 5)},
        "vertices": draw.ids(draw.size(0, 4), num_vertices, indices.dtype),
        "hops": np.full(num_vertices, 255, np.uint8),
        "num_threads": draw.threads(),
    }


def pagraph_stream(draw: Draw) -> Args:
    indptr, indices = draw.csc()
    num_vertices = len(indptr) - 1
    vertices = draw.rng.sample(range(num_vertices), draw.size(0, num_vertices))
    return {
        **{"indptr": indptr, "indices": indices, "vertices": np.array(vertices, indices.dtype)},
        **{"num_parts": draw.size(1, 5), "num_hops": draw.size(1, 4)},
        **{"max_walked": draw.size(0, 20), "max_sampled": draw.size(1, 12)},
        **{"seed": draw.rng.getrandbits(64), "num_threads": draw.threads()},
    }


def hottest(draw: Draw) -> Args:
    n = draw.size(0, 12)
    hotness = draw.ids(n, 5)
    if draw.rng.random() < 0.3:
        hotness = hotness.astype(np.float32)
    return {
        "hotness": hotness,
        "tie_break": draw.maybe(draw.ids(n, 3)),
        "capacity": draw.size(0, 99),
        **_sizes(draw, n),
        **{"max_bytes": draw.maybe(draw.size(0, 30)), "only_hot": draw.rng.random() < 0.5},
        "num_threads": draw.threads(),
    }


def share_out(draw: Draw) -> Args:
    n, num_members = draw.size(1, 12), draw.size(1, 4)
    kind = draw.rng.choice((np.int32, np.float32))
    order = draw.rng.sample(range(n), draw.size(0, n))
    return {
        "order": np.array(order, draw.rng.choice((np.int32, np.int64))),
        "local": [draw.ids(n, 4).astype(kind) for _ in range(num_members)],
        "capacities": draw.ids(num_members, 50, np.int64),
        **_sizes(draw, n),
        "num_threads": draw.threads(),
    }


def running_sums(draw: Draw) -> Args:
    n, kind = draw.size(1, 12), draw.rng.choice((np.int32, np.float32))
    return {
        **{"order": draw.ids(draw.size(0, 20), n), "values": draw.ids(n, 9).astype(kind)},
        **{"every": draw.size(1, 20), **_sizes(draw, n)},
        "num_threads": draw.threads(),
    }


def split_by_member(draw: Draw) -> Args:
    n, num_members = draw.size(0, 12), draw.size(1, 4)
    return {
        "order": draw.ids(n, 99),
        "member": draw.ids(n, num_members + 1, np.int16) - np.int16(1),
        **{"num_members": num_members, "num_threads": draw.threads()},
    }


def arrange_block(draw: Draw) -> Args:
    indptr, indices, num_src = draw.block()
    num_dst = len(indptr) - 1
    rows = (1, 2, 3, 16, 99)
    return {
        **{"indptr": indptr, "indices": indices, "num_src": num_src},
        "destinations": _distinct(draw, num_dst).astype(np.int32),
        "weights": draw.maybe(draw.floats(len(indices))),
        "dst_scale": draw.maybe(draw.floats(num_dst)),
        "self_scale": draw.maybe(draw.floats(num_dst)),
        "self_term": draw.rng.choice(("add", "concat", None)),
        **{"tile_rows": draw.rng.choice(rows), "backward_tile_rows": draw.rng.choice(rows)},
    }


def gather_columns(draw: Draw) -> Args:
    num_rows, width, n = draw.size(1, 9), draw.size(1, 40), draw.size(0, 9)
    words = (width + 15) // 16 + draw.size(0, 2)
    given = draw.rng.random() < 0.5
    return {
        "x": draw.tensor(num_rows, width, draw.rng.choice(STORED)),
        "ids": draw.ids(n, num_rows),
        "num_columns_words": None if given else words,
        "out": np.ones((words, n, 16), np.float32) if given else None,
        "num_threads": draw.threads(),
    }


def _sizes(draw: Draw, num_vertices: int) -> Args:
    """Draw the bytes that vertices take in a cache."""
    if draw.rng.random() < 0.5:
        return {"bytes_per_vertex": draw.size(0, 9), "offsets": None, "bytes_per_entry": 0}
    offsets = np.zeros(num_vertices + 1, np.int64)
    np.cumsum(draw.ids(num_vertices, 5, np.int64), out=offsets[1:])
    return {"bytes_per_vertex": draw.size(0, 9), "offsets": offsets, "bytes_per_entry": 4}


def scatter_to_neighbors(draw: Draw) -> Args:
    indptr, indices = draw.csc()
    kind = draw.rng.choice((np.float32, np.float64))
    return {
        **{"indptr": indptr, "indices": indices},
        "values": draw.floats(len(indptr) - 1).astype(kind),
        "out": draw.floats(len(indptr) - 1).astype(kind),
        "num_threads": draw.threads(),
    }


def rmat_edges(draw: Draw) -> Args:
    n = draw.size(2, 20)
    num_edges = draw.size(0, n * (n - 1) // 4)
    seed = draw.rng.getrandbits(64)
    return {
        **{"num_vertices": n, "num_edges": num_edges, "a": 0.57, "b": 0.19, "c": 0.19},
        **{"seed": seed, "num_threads": draw.threads()},
    }


def rmat_draws(draw: Draw) -> Args:
    return {
        **{"num_vertices": draw.size(2, 20), "a": 0.57, "b": 0.19, "c": 0.19},
        **{"seed": draw.rng.getrandbits(64), "first": draw.size(0, 99)},
        **{"num_draws": draw.size(0, 30), "num_threads": draw.threads()},
    }


def rmat_numbering(draw: Draw) -> Args:
    return {"num_vertices": draw.size(2, 30), "seed": draw.rng.getrandbits(64)}


def planted_partition_edges(draw: Draw) -> Args:
    n = draw.size(2, 6) * 2
    return {
        "community": (np.arange(n) % 2).astype(np.int32),
        "weight": np.abs(draw.floats(n)) + np.float32(0.5),
        "num_edges": draw.size(0, 20),
        "within": draw.rng.random(),
        "seed": draw.rng.getrandbits(64),
    }


def make_undirected(draw: Draw) -> Args:
    indptr, indices = draw.csc()
    return {"indptr": indptr, "indices": indices, "num_threads": draw.threads()}


def write_metis(draw: Draw) -> Args:
    indptr, indices = draw.csc()
    return {
        **{"fd": _sink(), "indptr": indptr, "indices": indices},
        "vertex_weights": draw.maybe(draw.ids(len(indptr) - 1, 99, np.int64)),
        "edge_weights": draw.maybe(draw.ids(len(indices), 99, np.int32)),
        "num_threads": draw.threads(),
    }


def refine(draw: Draw) -> Args:
    made = _weighted(draw)
    n, num_parts = len(made["indptr"]) - 1, draw.size(1, 4)
    num_weights = made["vertex_weights"].shape[1]
    most = draw.ids(num_parts * num_weights, 20, np.int64).reshape(num_parts, num_weights)
    together = draw.rng.random() < 0.3
    return {
        **made,
        "max_weights": most,
        "owner": np.zeros(n, np.int32) if together else draw.ids(n, num_parts, np.int32),
        "labels": draw.ids(n, n, np.int32) if together else None,
        "num_clusters": n if together else 0,
        "num_rounds": draw.size(0, 4),
        "num_threads": draw.threads(),
    }


def find_clusters(draw: Draw) -> Args:
    made = _weighted(draw)
    n, num_weights = made["vertex_weights"].shape
    return {
        **made,
        "max_weights": draw.ids(num_weights, 20, np.int64),
        "owner": draw.maybe(draw.ids(n, 3, np.int32)),
        "num_rounds": draw.size(0, 3),
    }


def contract(draw: Draw) -> Args:
    made = _weighted(draw)
    n = len(made["indptr"]) - 1
    num_clusters = draw.size(1, n)
    return {
        **made,
        **{"labels": draw.ids(n, num_clusters, np.int32), "num_clusters": num_clusters},
        "threshold": draw.rng.choice((1, 1, 5)),
        "num_threads": draw.threads(),
    }


def _weighted(draw: Draw) -> Args:
    """Draw an undirected graph with weights."""
    indptr, indices, *_ = ops.make_undirected(*draw.csc(), 1)
    n, num_weights = len(indptr) - 1, draw.size(1, 3)
    return {
        **{"indptr": indptr, "indices": indices},
        "vertex_weights": draw.ids(n * num_weights, 5, np.int64).reshape(n, num_weights),
        "edge_weights": draw.maybe(draw.ids(len(indices), 5, np.int32) + np.int32(1)),
    }


def native_replacement(draw: Draw) -> Args:
    num_vertices = draw.size(1, 12)
    return {
        "priority": draw.ids(num_vertices, 4, np.int32),
        **{"capacity": draw.size(0, num_vertices), "match": draw.rng.random() < 0.5},
    }


def serve_batches(draw: Draw) -> Args:
    made = native_replacement(draw)
    return {
        **made,
        "vertices": _distinct(draw, len(made["priority"])),
        "then": _distinct(draw, len(made["priority"])),
        "num_threads": draw.threads(),
    }


def gather_cached(draw: Draw) -> Args:
    num_vertices, width, n = draw.size(1, 9), draw.size(1, 20), draw.size(0, 9)
    dtype = draw.rng.choice(STORED)
    slots, starts = draw.slots(num_vertices)
    return {
        "host": draw.tensor(num_vertices, width, dtype),
        "caches": [draw.tensor(int(size), width, dtype) for size in np.diff(starts)],
        **{"slots": slots, "vertices": draw.ids(n, num_vertices)},
        "out": draw.tensor(n, width, draw.rng.choice(_COMPUTED)),
        "num_threads": draw.threads(),
    }


def count_slots(draw: Draw) -> Args:
    num_vertices, n = draw.size(1, 9), draw.size(0, 9)
    slots, starts = draw.slots(num_vertices)
    return {
        **{"slots": slots, "starts": starts, "vertices": draw.ids(n, num_vertices)},
        "weights": draw.maybe(np.cumsum([0, *draw.ids(n, 5, np.int64)])),
        "num_threads": draw.threads(),
    }


def ranked_slots(draw: Draw) -> Args:
    num_vertices = draw.size(1, 99)
    sizes = [draw.size(0, 9) for _ in range(draw.size(0, 3))]
    return {
        "num_vertices": num_vertices,
        "members": [draw.ids(size, num_vertices) for size in sizes],
    }


def gather_ranked(draw: Draw) -> Args:
    made = ranked_slots(draw)
    return {
        **made,
        "vertices": draw.ids(draw.size(0, 9), made["num_vertices"]),
        "num_threads": draw.threads(),
    }


def count_uses(draw: Draw) -> Args:
    num_vertices = draw.size(1, 9)
    return {
        "vertices": draw.ids(draw.size(0, 20), num_vertices),
        "counts": draw.ids(num_vertices, 99, np.int32),
        "num_threads": draw.threads(),
    }


def count_reads(draw: Draw) -> Args:
    made = count_uses(draw)
    return {"indptr": np.cumsum([0, *draw.ids(len(made["vertices"]), 5, np.int64)]), **made}


def copy_rows(draw: Draw) -> Args:
    num_rows, num_slots, width = draw.size(1, 9), draw.size(1, 9), draw.size(1, 20)
    slots = draw.rng.sample(range(num_slots), draw.size(0, num_slots))
    dtype = draw.rng.choice(STORED)
    return {
        "source": draw.tensor(num_rows, width, dtype),
        "vertices": draw.ids(len(slots), num_rows),
        "target": draw.tensor(num_slots, width, dtype),
        "slots_of_target": np.array(slots, draw.rng.choice((np.int32, np.int64))),
        "num_threads": draw.threads(),
    }


def draw_negatives(draw: Draw) -> Args:
    return {
        "edges": draw.ids(draw.size(0, 9), 1 << 31, np.int64),
        "count": draw.size(0, 9),
        "num_vertices": draw.size(1, 99),
        "seed": draw.size(0, 99),
        "step": draw.size(0, 99),
        "num_threads": draw.threads(),
    }


def draw_of_pairs(draw: Draw) -> Args:
    n = draw.size(0, 9)
    ends = {name: draw.ids(n, 1 << 31, np.int64) for name in ("first", "second")}
    return {**ends, "seed": draw.size(0, 99), "num_threads": draw.threads()}


def integer_ids(draw: Draw) -> Args:
    return {"ids": draw.ids(draw.size(0, 99), draw.rng.choice((200, 1 << 31)), np.int64)}


def find_integers(draw: Draw) -> Args:
    wanted = draw.ids(draw.size(0, 99), 200, np.int64)
    return {**integer_ids(draw), "wanted": wanted, "num_threads": draw.threads()}


def text_ids(draw: Draw) -> Args:
    lengths = [draw.size(0, 4) for _ in range(draw.size(0, 20))]
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    return {"offsets": offsets, "data": draw.ids(int(offsets[-1]), 3, np.uint8)}


def find_texts(draw: Draw) -> Args:
    return {**text_ids(draw), "num_threads": draw.threads()}


def _call_integers(ids: Any, wanted: Any, num_threads: Any) -> Any:
    return ops.IntegerIds(ids).find(wanted, num_threads=num_threads)


def _call_texts(offsets: Any, data: Any, num_threads: Any) -> Any:
    known = ops.TextIds(np.array([0, 1, 3, 3]), np.array([2, 0, 1], np.uint8))
    return known.find(offsets, data, num_threads=num_threads)


def native_sampler(draw: Draw) -> Args:
    return {"graph": graph_of(*draw.csc())}


def sample_neighbors(draw: Draw) -> Args:
    graph = graph_of(*draw.csc())
    hops = draw.size(1, 3)
    return {
        "graph": graph,
        "seeds": _seeds(draw, graph),
        "fanouts": [draw.rng.choice((-1, 1, 2, 5)) for _ in range(hops)],
        "replace": draw.rng.random() < 0.5,
        "seed": draw.rng.getrandbits(64),
        "step": draw.size(0, 99),
        "num_threads": draw.threads(),
        "only_new": draw.rng.random() < 0.3,
    }


def sample_layers(draw: Draw) -> Args:
    graph = graph_of(*draw.csc())
    sizes = [draw.size(1, 6) for _ in range(draw.size(1, 3))]
    seed, step = draw.rng.getrandbits(64), draw.size(0, 99)
    return {
        "graph": graph,
        **{"seeds": _seeds(draw, graph), "layer_sizes": sizes, "seed": seed, "step": step},
    }


def reach_neighbors(draw: Draw) -> Args:
    made = sample_neighbors(draw)
    made.pop("only_new")
    return made


def time_relabelling(draw: Draw) -> Args:
    made = reach_neighbors(draw)
    made.pop("replace")
    return made


def no_arguments(draw: Draw) -> Args:
    return {}


def graph_of(indptr: Any, indices: Any) -> Graph:
    """Return a graph whose topology is given."""
    return Graph(
        name="tiny",
        indptr=indptr,
        indices=indices,
        features=_NOTHING[:, None],
        feature_dtype="float32",
        labels=_NOTHING,
        num_classes=2,
        train_idx=_NOTHING,
        valid_idx=_NOTHING,
        test_idx=_NOTHING,
    )


_NOTHING = np.zeros(1, np.int64)


def _seeds(draw: Draw, graph: Graph) -> Any:
    return _distinct(draw, len(graph.indptr) - 1)


def _distinct(draw: Draw, n: int) -> Any:
    picked = draw.rng.sample(range(n), draw.size(0, n))
    return np.array(picked, draw.rng.choice((np.int32, np.int64)))


def _as_numpy(x: torch.Tensor) -> Any:
    name = str(x.dtype).removeprefix("torch.")
    bits = x.view(torch.int16).numpy().view(np.uint16) if name == "bfloat16" else x.numpy()
    return bits, name


_written: list[int] = []


def _sink() -> int:
    """Return a file that is written to."""
    if not _written:
        _written.append(os.open(os.devnull, os.O_WRONLY))
    return _written[0]


def _with_graph(method: str) -> Callable[..., Any]:
    def call(graph: Graph, **others: Any) -> Any:
        return getattr(ops.NativeSampler(graph), method)(**others)

    return call


def _call_replacement(
    priority: Any, capacity: Any, match: Any, vertices: Any, then: Any, num_threads: Any
) -> Any:
    """Expect two batches, and return the slots of the second after the first was served."""
    replacement = ops.NativeReplacement(priority, capacity=capacity, match=match)
    replacement.expect(vertices, num_threads=num_threads)
    try:
        replacement.expect(then, num_threads=num_threads)
    except (TypeError, ValueError) as error:
        raise type(error)(f"then: {error}") from None
    replacement.look_up(num_threads=num_threads)
    replacement.advance(num_threads=num_threads)
    return replacement.look_up(num_threads=num_threads)


def _call_ranked(num_vertices: Any, members: Any, vertices: Any, num_threads: Any) -> Any:
    """Return the slots of vertices, which the rows of the caches hold, and -1 those of the host."""
    slots = ops.RankedSlots(num_vertices, members)
    ops.count_slots(slots, vertices, slots.starts, num_threads=num_threads)
    rows = np.arange(slots.starts[-1], dtype=np.float32)[:, None]
    caches = [(rows[a:b], "float32") for a, b in pairwise(slots.starts.tolist())]
    host = np.broadcast_to(np.full((1, 1), -1, np.float32), (int(num_vertices), 1))
    out = np.zeros((len(vertices), 1), np.float32)
    ops.gather_cached(
        (host, "float32"), caches, slots, vertices, out=(out, "float32"), num_threads=num_threads
    )
    return out[:, 0]


def _call_neighbor_sampler(graph: Graph, seeds: Any, step: Any, **others: Any) -> Any:
    return NeighborSampler(graph, **others).sample(seeds, step)


def _call_weighted_sampler(graph: Graph, seeds: Any, step: Any, **others: Any) -> Any:
    return WeightedSampler(graph, **others).sample(seeds, step)


def _call_layer_sampler(graph: Graph, seeds: Any, step: Any, **others: Any) -> Any:
    return LayerSampler(graph, **others).sample(seeds, step)


def weighted_sampler(draw: Draw) -> Args:
    made = reach_neighbors(draw)
    graph = made["graph"]
    weights = np.abs(draw.floats(graph.num_edges))
    return {**made, "graph": replace(graph, edge_weights=weights)}


#: What draws the arguments of a valid call, by the name of what is called.
MAKERS: dict[str, Callable[[Draw], Args]] = {
    **{"simd_level": no_arguments, "supported_simd_level": no_arguments},
    "keep_freed_memory": no_arguments,
    **{
        "empty": empty,
        "gather": gather,
        "gather_from_disk": gather,
        "read_ahead": read_ahead,
        "aggregate": aggregate,
        "add_rows": add_rows,
    },
    **{"edge_dot": edge_dot, "expand_edges": expand_edges, "transpose_block": transpose_block},
    **{"relu_dropout": relu_dropout, "relu_dropout_backward": relu_dropout_backward},
    **{"edge_softmax": edge_softmax, "edge_softmax_backward": edge_softmax_backward},
    **{"count_in_degrees": count_in_degrees, "csc_fill": csc_fill, "csc_sort": csc_sort},
    **{"csc_scatter": csc_scatter, "rmat_draws": rmat_draws, "rmat_numbering": rmat_numbering},
    **{"rmat_edges": rmat_edges, "planted_partition_edges": planted_partition_edges},
    **{"count_cut": count_cut, "hops_from": hops_from, "pagraph_stream": pagraph_stream},
    **{"hottest": hottest, "share_out": share_out, "scatter_to_neighbors": scatter_to_neighbors},
    **{"running_sums": running_sums, "split_by_member": split_by_member},
    **{"arrange_block": arrange_block, "gather_columns": gather_columns},
    **{"make_undirected": make_undirected, "write_metis": write_metis, "refine": refine},
    **{"find_clusters": find_clusters, "contract": contract},
    "NativeReplacement": native_replacement,
    "NativeReplacement.advance": serve_batches,
    **{"gather_cached": gather_cached, "count_slots": count_slots, "copy_rows": copy_rows},
    **{"count_uses": count_uses, "count_reads": count_reads},
    **{"RankedSlots": ranked_slots, "RankedSlots.gather_cached": gather_ranked},
    **{"draw_negatives": draw_negatives, "draw_of_pairs": draw_of_pairs},
    **{"IntegerIds": integer_ids, "IntegerIds.find": find_integers},
    **{"TextIds": text_ids, "TextIds.find": find_texts},
    "NativeSampler": native_sampler,
    "NativeSampler.sample_neighbors": sample_neighbors,
    "NativeSampler.sample_layers": sample_layers,
    "NativeSampler.reach_neighbors": reach_neighbors,
    "NativeSampler.time_relabelling": time_relabelling,
    "NeighborSampler.sample": reach_neighbors,
    "WeightedSampler.sample": weighted_sampler,
    "LayerSampler.sample": sample_layers,
}
_OTHERS: dict[str, Callable[..., Any]] = {
    "NativeReplacement.advance": _call_replacement,
    **{"IntegerIds.find": _call_integers, "TextIds.find": _call_texts},
    "RankedSlots.gather_cached": _call_ranked,
    "NativeSampler.sample_neighbors": _with_graph("sample_neighbors"),
    "NativeSampler.sample_layers": _with_graph("sample_layers"),
    "NativeSampler.reach_neighbors": _with_graph("reach_neighbors"),
    "NativeSampler.time_relabelling": _with_graph("time_relabelling"),
    "NeighborSampler.sample": _call_neighbor_sampler,
    "WeightedSampler.sample": _call_weighted_sampler,
    "LayerSampler.sample": _call_layer_sampler,
}
#: What is called, by the same names.
CALLS: dict[str, Callable[..., Any]] = {
    name: _OTHERS[name] if name in _OTHERS else getattr(ops, name) for name in MAKERS
}
