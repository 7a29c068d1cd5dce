"""A valid call of every public function of ``gnnscale.ops`` and of every sampler."""

# ruff: noqa: C408

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.graph import EdgeData, Graph
from gnnscale.ops import _native
from gnnscale.sampler import LayerSampler, NeighborSampler, WeightedSampler

Args = dict[str, Any]
STORED = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)
_COMPUTED = (torch.float32, torch.bfloat16)
_NOTHING = np.zeros(1, np.int64)
_METHODS = ("sample_neighbors", "sample_layers", "reach_neighbors", "time_relabelling")
_SAMPLERS = (NeighborSampler, WeightedSampler, LayerSampler)
_written: list[int] = []


class Calls:
    """Draws the arguments of valid calls: a method for each function of ``ops``, by its name.

    Arrays are small, so that millions of them are cheap.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def size(self, low: int, high: int) -> int:
        """Return a whole number from ``low`` to ``high``."""
        return self.rng.randint(low, high)

    def ids(self, size: int, bound: int, dtype: Any = None) -> NDArray[Any]:
        """Return ``size`` ids below ``bound``, int32 or int64."""
        dtype = dtype or (np.int64 if self.rng.random() < 0.5 else np.int32)
        numbers = np.frombuffer(self.rng.randbytes(size * 4), np.uint32)
        return (numbers % max(bound, 1)).astype(dtype)

    def floats(self, size: int) -> NDArray[np.float32]:
        """Return ``size`` float32 between -8 and 8, which all types can hold."""
        values = np.frombuffer(self.rng.randbytes(size), np.int8).astype(np.float32)
        values /= 16
        return values

    def tensor(self, rows: int, width: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return a matrix, sometimes a slice of the columns of a wider one."""
        more = self.rng.choice((0, 0, 1, 3))
        values = torch.from_numpy(self.floats(rows * (width + more)).reshape(rows, width + more))
        if dtype == torch.uint8:
            values = values.abs() * 4
        return values.to(dtype)[:, :width] if more else values.to(dtype)

    def flat(self, size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return a contiguous tensor in one or two axes."""
        values = torch.from_numpy(self.floats(size)).to(dtype)
        return values if self.rng.random() < 0.5 or size % 2 else values.view(size // 2, 2)

    def block(self) -> tuple[NDArray[np.int64], NDArray[np.int32], int]:
        """Return ``indptr, indices, num_src`` of a block, or of a part of one."""
        num_dst = self.size(0, 6)
        num_src = num_dst + self.size(1, 6)
        degrees = self.ids(num_dst, self.rng.choice((1, 3, 9)), np.int64)
        indptr = np.zeros(num_dst + 1, np.int64)
        np.cumsum(degrees, out=indptr[1:])
        return indptr, self.ids(int(indptr[-1]), num_src, np.int32), num_src

    def csc(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return the topology of a whole graph."""
        n = self.size(1, 12)
        indptr = np.zeros(n + 1, np.int64)
        np.cumsum(self.ids(n, self.rng.choice((1, 4, 12)), np.int64), out=indptr[1:])
        return indptr, self.ids(int(indptr[-1]), n)

    def slots(self, num_vertices: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the slots of vertices in up to three caches, and where each cache's begin."""
        sizes = [self.size(0, 4) for _ in range(self.size(1, 3))]
        slots = self.ids(num_vertices, sum(sizes) + 1, np.int32) - np.int32(1)
        return slots, np.cumsum([0, *sizes])

    def maybe(self, value: Any) -> Any:
        """Return ``value`` or None."""
        return value if self.rng.random() < 0.5 else None

    def empty(self) -> Args:
        return dict(shape=(self.size(0, 9), self.size(0, 9)), dtype=self.rng.choice(STORED))

    def gather(self) -> Args:
        rows, width, n = self.size(1, 9), self.size(1, 20), self.size(0, 9)
        x: Any = self.tensor(rows, width, self.rng.choice(STORED))
        if self.rng.random() < 0.3:
            x = _as_numpy(x)
        out = self.tensor(n, width, self.rng.choice(_COMPUTED))
        return dict(x=x, ids=self.ids(n, rows), out=out)

    def read_ahead(self) -> Args:
        made = self.gather()
        made.pop("out")
        return made

    def add_rows(self) -> Args:
        indptr, indices, num_src = self.block()
        num_dst, width = len(indptr) - 1, 16 * self.size(1, 9)
        num_out = num_dst + self.size(0, 3)
        chosen = np.array(sorted(self.rng.sample(range(num_out), num_dst)), np.int32)
        return {
            **dict(x=self.tensor(num_src, width, self.rng.choice(STORED)), ids=indices),
            **dict(indptr=indptr, out_ids=chosen),
            "out": self.tensor(num_out, width, torch.float32),
            "weights": self.maybe(self.floats(len(indices))),
        }

    def aggregate(self) -> Args:
        indptr, indices, num_src = self.block()
        num_dst, width, num_rows = len(indptr) - 1, self.size(1, 20), num_src + 3
        num_self = self.size(0, num_dst)
        per_edge = self.rng.random() < 0.2
        out = self.tensor(num_dst, width, self.rng.choice(_COMPUTED))
        given = self.maybe(True) or per_edge
        return {
            **dict(x=self.tensor(num_rows, width, self.rng.choice(STORED)), indptr=indptr),
            **dict(indices=indices, out=out),
            "ids": self.ids(len(indices) if per_edge else num_src, num_rows) if given else None,
            **dict(ids_per_edge=per_edge, weights=self.maybe(self.floats(len(indices)))),
            "dst_scale": self.maybe(self.floats(num_dst)),
            "self_rows": self.tensor(num_rows, width, self.rng.choice(STORED))
            if num_self
            else None,
            "self_ids": self.maybe(self.ids(num_self, num_rows)) if num_self else None,
            "self_scale": self.maybe(self.floats(num_self)) if num_self else None,
            **dict(num_self=num_self, gate=self.maybe(self.tensor(num_dst, width, out.dtype))),
        }

    def edge_dot(self) -> Args:
        indptr, indices, num_src = self.block()
        width = self.size(1, 20)
        out = np.zeros((len(indices), 2), np.float32)
        return {
            **dict(a=self.tensor(len(indptr) - 1, width), x=self.tensor(num_src, width)),
            **dict(indptr=indptr, indices=indices),
            "out": out[:, 1] if self.rng.random() < 0.5 else out[:, 1].copy(),
        }

    def expand_edges(self) -> Args:
        indptr, indices, _ = self.block()
        out = np.zeros((2, len(indices)), np.int64)
        return dict(indptr=indptr, indices=indices, first_dst=self.size(0, 99), out=out)

    def transpose_block(self) -> Args:
        indptr, indices, num_src = self.block()
        return {
            **dict(indptr=indptr, indices=indices, num_src=num_src),
            "weights": self.maybe(self.floats(len(indices))),
            "dst_scale": self.maybe(self.floats(len(indptr) - 1)),
        }

    def relu_dropout(self) -> Args:
        n, width = self.size(0, 9), self.size(0, 20)
        values = self.floats(n * width).reshape(n, width)
        return {
            "x": torch.from_numpy(values).to(self.rng.choice(_COMPUTED)),
            **dict(vertices=self.ids(n, 1 << 31), p=self.rng.choice((0.0, 0.5, 0.9))),
            **dict(seed=self.rng.getrandbits(64), step=self.size(0, 99), layer=self.size(0, 9)),
        }

    def relu_dropout_backward(self) -> Args:
        y = self.flat(self.size(0, 80), self.rng.choice(_COMPUTED))
        grad = self.flat(y.numel(), y.dtype).view(y.shape)
        return dict(y=y, grad=grad, scale=2.0)

    def edge_softmax(self) -> Args:
        indptr, indices, _ = self.block()
        scores = torch.from_numpy(self.floats(len(indices) * 3).reshape(-1, 3))
        bias = self.maybe(np.abs(self.floats(len(indices))) + 0.5)
        return dict(indptr=indptr, scores=scores, bias=bias)

    def edge_softmax_backward(self) -> Args:
        indptr, indices, _ = self.block()
        alpha, grad = (
            torch.from_numpy(self.floats(len(indices) * 3).reshape(-1, 3)) for _ in range(2)
        )
        return dict(indptr=indptr, alpha=alpha, grad=grad)

    def count_in_degrees(self) -> Args:
        n = self.size(1, 9)
        first, dst = self.size(0, 9), self.ids(self.size(0, 20), n)
        return dict(dst=dst + dst.dtype.type(first), counts=np.zeros(n, np.int64), first=first)

    def csc_scatter(self) -> Args:
        n, num_edges = self.size(1, 9), self.size(0, 20)
        first, shift, num_buckets = self.size(0, 9), self.size(0, 3), self.size(1, 4)
        src = self.ids(num_edges, 99)
        return {
            **dict(src=src, dst=self.ids(num_edges, n, src.dtype) + src.dtype.type(first)),
            "bucket_of": self.ids((n - 1 >> shift) + 1, num_buckets, np.int32),
            **dict(num_buckets=num_buckets, first=first, shift=shift),
            "out": np.zeros((2, num_edges), src.dtype),
        }

    def csc_fill(self) -> Args:
        n, num_edges = self.size(1, 9), self.size(0, 20)
        src = self.ids(num_edges, n)
        dst = self.ids(num_edges, n, src.dtype)
        first = self.size(0, n)
        last = self.size(first, n)
        ends = np.cumsum(np.bincount(dst, minlength=n))
        cursor = (ends - np.bincount(dst, minlength=n))[first:last].astype(np.int64)
        out = np.zeros(num_edges, src.dtype)
        return dict(src=src, dst=dst, first=first, last=last, cursor=cursor, out=out)

    def csc_sort(self) -> Args:
        indptr, indices = self.csc()
        drop = self.rng.random() < 0.5
        return dict(indptr=indptr, indices=indices, drop_duplicates=drop)

    def count_cut(self) -> Args:
        indptr, indices = self.csc()
        num_parts, num_vertices = self.size(1, 5), len(indptr) - 1
        owner = (self.ids(num_vertices, num_parts + 1, np.int64) - 1).astype(np.int16)
        return dict(indptr=indptr, indices=indices, owner=owner, num_parts=num_parts)

    def hops_from(self) -> Args:
        indptr, indices = self.csc()
        num_vertices = len(indptr) - 1
        return {
            **dict(indptr=indptr, indices=indices, num_hops=self.size(0, 5)),
            "vertices": self.ids(self.size(0, 4), num_vertices, indices.dtype),
            "hops": np.full(num_vertices, 255, np.uint8),
        }

    def pagraph_stream(self) -> Args:
        indptr, indices = self.csc()
        num_vertices = len(indptr) - 1
        vertices = self.rng.sample(range(num_vertices), self.size(0, num_vertices))
        return {
            **dict(indptr=indptr, indices=indices, vertices=np.array(vertices, indices.dtype)),
            **dict(num_parts=self.size(1, 5), num_hops=self.size(1, 4)),
            **dict(max_walked=self.size(0, 20), max_sampled=self.size(1, 12)),
            "seed": self.rng.getrandbits(64),
        }

    def hottest(self) -> Args:
        n = self.size(0, 12)
        hotness = self.ids(n, 5)
        if self.rng.random() < 0.3:
            hotness = hotness.astype(np.float32)
        return {
            **dict(hotness=hotness, tie_break=self.maybe(self.ids(n, 3))),
            "capacity": self.size(0, 99),
            **self._sizes(n),
            **dict(max_bytes=self.maybe(self.size(0, 30)), only_hot=self.rng.random() < 0.5),
        }

    def share_out(self) -> Args:
        n, num_members = self.size(1, 12), self.size(1, 4)
        kind = self.rng.choice((np.int32, np.float32))
        order = self.rng.sample(range(n), self.size(0, n))
        return {
            "order": np.array(order, self.rng.choice((np.int32, np.int64))),
            "local": [self.ids(n, 4).astype(kind) for _ in range(num_members)],
            "capacities": self.ids(num_members, 50, np.int64),
            **self._sizes(n),
        }

    def running_sums(self) -> Args:
        n, kind = self.size(1, 12), self.rng.choice((np.int32, np.float32))
        return {
            **dict(order=self.ids(self.size(0, 20), n), values=self.ids(n, 9).astype(kind)),
            "every": self.size(1, 20),
            **self._sizes(n),
        }

    def split_by_member(self) -> Args:
        n, num_members = self.size(0, 12), self.size(1, 4)
        return {
            "order": self.ids(n, 99),
            "member": self.ids(n, num_members + 1, np.int16) - np.int16(1),
            "num_members": num_members,
        }

    def arrange_block(self) -> Args:
        indptr, indices, num_src = self.block()
        num_dst = len(indptr) - 1
        rows = (1, 2, 3, 16, 99)
        return {
            **dict(indptr=indptr, indices=indices, num_src=num_src),
            "destinations": self._distinct(num_dst).astype(np.int32),
            "weights": self.maybe(self.floats(len(indices))),
            "dst_scale": self.maybe(self.floats(num_dst)),
            "self_scale": self.maybe(self.floats(num_dst)),
            "self_term": self.rng.choice(("add", "concat", None)),
            **dict(tile_rows=self.rng.choice(rows), backward_tile_rows=self.rng.choice(rows)),
        }

    def gather_columns(self) -> Args:
        num_rows, width, n = self.size(1, 9), self.size(1, 40), self.size(0, 9)
        words = (width + 15) // 16 + self.size(0, 2)
        given = self.rng.random() < 0.5
        return {
            "x": self.tensor(num_rows, width, self.rng.choice(STORED)),
            **dict(ids=self.ids(n, num_rows), num_columns_words=None if given else words),
            "out": np.ones((words, n, 16), np.float32) if given else None,
        }

    def _sizes(self, num_vertices: int) -> Args:
        """Draw the bytes that vertices take in a cache."""
        if self.rng.random() < 0.5:
            return dict(bytes_per_vertex=self.size(0, 9), offsets=None, bytes_per_entry=0)
        offsets = np.zeros(num_vertices + 1, np.int64)
        np.cumsum(self.ids(num_vertices, 5, np.int64), out=offsets[1:])
        return dict(bytes_per_vertex=self.size(0, 9), offsets=offsets, bytes_per_entry=4)

    def scatter_to_neighbors(self) -> Args:
        indptr, indices = self.csc()
        kind = self.rng.choice((np.float32, np.float64))
        return {
            **dict(indptr=indptr, indices=indices),
            "values": self.floats(len(indptr) - 1).astype(kind),
            "out": self.floats(len(indptr) - 1).astype(kind),
        }

    def rmat_edges(self) -> Args:
        n = self.size(2, 20)
        num_edges = self.size(0, n * (n - 1) // 4)
        seed = self.rng.getrandbits(64)
        return dict(num_vertices=n, num_edges=num_edges, a=0.57, b=0.19, c=0.19, seed=seed)

    def rmat_draws(self) -> Args:
        return {
            **dict(num_vertices=self.size(2, 20), a=0.57, b=0.19, c=0.19),
            **dict(seed=self.rng.getrandbits(64), first=self.size(0, 99)),
            "num_draws": self.size(0, 30),
        }

    def rmat_numbering(self) -> Args:
        return dict(num_vertices=self.size(2, 30), seed=self.rng.getrandbits(64))

    def planted_partition_edges(self) -> Args:
        n = self.size(2, 6) * 2
        return {
            "community": (np.arange(n) % 2).astype(np.int32),
            **dict(weight=np.abs(self.floats(n)) + np.float32(0.5), num_edges=self.size(0, 20)),
            **dict(within=self.rng.random(), seed=self.rng.getrandbits(64)),
        }

    def make_undirected(self) -> Args:
        indptr, indices = self.csc()
        return dict(indptr=indptr, indices=indices)

    def write_metis(self) -> Args:
        indptr, indices = self.csc()
        return {
            **dict(fd=_sink(), indptr=indptr, indices=indices),
            "vertex_weights": self.maybe(self.ids(len(indptr) - 1, 99, np.int64)),
            "edge_weights": self.maybe(self.ids(len(indices), 99, np.int32)),
        }

    def refine(self) -> Args:
        made = self._weighted()
        n, num_parts = len(made["indptr"]) - 1, self.size(1, 4)
        num_weights = made["vertex_weights"].shape[1]
        most = self.ids(num_parts * num_weights, 20, np.int64).reshape(num_parts, num_weights)
        together = self.rng.random() < 0.3
        return {
            **made,
            "max_weights": most,
            "owner": np.zeros(n, np.int32) if together else self.ids(n, num_parts, np.int32),
            "labels": self.ids(n, n, np.int32) if together else None,
            **dict(num_clusters=n if together else 0, num_rounds=self.size(0, 4)),
        }

    def find_clusters(self) -> Args:
        made = self._weighted()
        n, num_weights = made["vertex_weights"].shape
        return {
            **made,
            "max_weights": self.ids(num_weights, 20, np.int64),
            **dict(owner=self.maybe(self.ids(n, 3, np.int32)), num_rounds=self.size(0, 3)),
        }

    def contract(self) -> Args:
        made = self._weighted()
        n = len(made["indptr"]) - 1
        num_clusters = self.size(1, n)
        return {
            **made,
            **dict(labels=self.ids(n, num_clusters, np.int32), num_clusters=num_clusters),
            "threshold": self.rng.choice((1, 1, 5)),
        }

    def _weighted(self) -> Args:
        """Draw an undirected graph with weights."""
        indptr, indices, *_ = ops.make_undirected(*self.csc(), 1)
        n, num_weights = len(indptr) - 1, self.size(1, 3)
        return {
            **dict(indptr=indptr, indices=indices),
            "vertex_weights": self.ids(n * num_weights, 5, np.int64).reshape(n, num_weights),
            "edge_weights": self.maybe(self.ids(len(indices), 5, np.int32) + np.int32(1)),
        }

    def native_replacement(self) -> Args:
        num_vertices = self.size(1, 12)
        return {
            "priority": self.ids(num_vertices, 4, np.int32),
            **dict(capacity=self.size(0, num_vertices), match=self.rng.random() < 0.5),
        }

    def serve_batches(self) -> Args:
        made = self.native_replacement()
        return {
            **made,
            "vertices": self._distinct(len(made["priority"])),
            "then": self._distinct(len(made["priority"])),
        }

    def gather_cached(self) -> Args:
        num_vertices, width, n = self.size(1, 9), self.size(1, 20), self.size(0, 9)
        dtype = self.rng.choice(STORED)
        slots, starts = self.slots(num_vertices)
        return {
            "host": self.tensor(num_vertices, width, dtype),
            "caches": [self.tensor(int(size), width, dtype) for size in np.diff(starts)],
            **dict(slots=slots, vertices=self.ids(n, num_vertices)),
            "out": self.tensor(n, width, self.rng.choice(_COMPUTED)),
        }

    def count_slots(self) -> Args:
        num_vertices, n = self.size(1, 9), self.size(0, 9)
        slots, starts = self.slots(num_vertices)
        return {
            **dict(slots=slots, starts=starts, vertices=self.ids(n, num_vertices)),
            "weights": self.maybe(np.cumsum([0, *self.ids(n, 5, np.int64)])),
        }

    def ranked_slots(self) -> Args:
        num_vertices = self.size(1, 99)
        sizes = [self.size(0, 9) for _ in range(self.size(0, 3))]
        return {
            "num_vertices": num_vertices,
            "members": [self.ids(size, num_vertices) for size in sizes],
        }

    def gather_ranked(self) -> Args:
        made = self.ranked_slots()
        return dict(**made, vertices=self.ids(self.size(0, 9), made["num_vertices"]))

    def count_uses(self) -> Args:
        num_vertices = self.size(1, 9)
        return {
            "vertices": self.ids(self.size(0, 20), num_vertices),
            "counts": self.ids(num_vertices, 99, np.int32),
        }

    def count_reads(self) -> Args:
        made = self.count_uses()
        return dict(indptr=np.cumsum([0, *self.ids(len(made["vertices"]), 5, np.int64)]), **made)

    def copy_rows(self) -> Args:
        num_rows, num_slots, width = self.size(1, 9), self.size(1, 9), self.size(1, 20)
        slots = self.rng.sample(range(num_slots), self.size(0, num_slots))
        dtype = self.rng.choice(STORED)
        return {
            "source": self.tensor(num_rows, width, dtype),
            "vertices": self.ids(len(slots), num_rows),
            "target": self.tensor(num_slots, width, dtype),
            "slots_of_target": np.array(slots, self.rng.choice((np.int32, np.int64))),
        }

    def draw_negatives(self) -> Args:
        return {
            **dict(edges=self.ids(self.size(0, 9), 1 << 31, np.int64), count=self.size(0, 9)),
            **dict(num_vertices=self.size(1, 99), seed=self.size(0, 99), step=self.size(0, 99)),
        }

    def draw_of_pairs(self) -> Args:
        n = self.size(0, 9)
        ends = {name: self.ids(n, 1 << 31, np.int64) for name in ("first", "second")}
        return dict(**ends, seed=self.size(0, 99))

    def integer_ids(self) -> Args:
        return dict(ids=self.ids(self.size(0, 99), self.rng.choice((200, 1 << 31)), np.int64))

    def find_integers(self) -> Args:
        wanted = self.ids(self.size(0, 99), 200, np.int64)
        return dict(**self.integer_ids(), wanted=wanted)

    def text_ids(self) -> Args:
        lengths = [self.size(0, 4) for _ in range(self.size(0, 20))]
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
        return dict(offsets=offsets, data=self.ids(int(offsets[-1]), 3, np.uint8))

    def native_sampler(self) -> Args:
        return dict(graph=graph_of(*self.csc()))

    def sample_neighbors(self) -> Args:
        graph = graph_of(*self.csc())
        hops = self.size(1, 3)
        return {
            **dict(graph=graph, seeds=self._seeds(graph)),
            "fanouts": [self.rng.choice((-1, 1, 2, 5)) for _ in range(hops)],
            **dict(replace=self.rng.random() < 0.5, seed=self.rng.getrandbits(64)),
            **dict(step=self.size(0, 99), only_new=self.rng.random() < 0.3),
        }

    def sample_layers(self) -> Args:
        graph = graph_of(*self.csc())
        sizes = [self.size(1, 6) for _ in range(self.size(1, 3))]
        seed, step = self.rng.getrandbits(64), self.size(0, 99)
        return dict(graph=graph, seeds=self._seeds(graph), layer_sizes=sizes, seed=seed, step=step)

    def reach_neighbors(self) -> Args:
        made = self.sample_neighbors()
        made.pop("only_new")
        return made

    def time_relabelling(self) -> Args:
        made = self.reach_neighbors()
        made.pop("replace")
        return made

    def _seeds(self, graph: Graph) -> Any:
        return self._distinct(len(graph.indptr) - 1)

    def _distinct(self, n: int) -> Any:
        picked = self.rng.sample(range(n), self.size(0, n))
        return np.array(picked, self.rng.choice((np.int32, np.int64)))

    def weighted_sampler(self) -> Args:
        made = self.reach_neighbors()
        graph = made["graph"]
        weights = np.abs(self.floats(graph.num_edges))
        return made | dict(graph=replace(graph, edges=EdgeData(weights=weights)))


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
    )


def _as_numpy(x: torch.Tensor) -> Any:
    name = str(x.dtype).removeprefix("torch.")
    bits = x.view(torch.int16).numpy().view(np.uint16) if name == "bfloat16" else x.numpy()
    return bits, name


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


def _call_texts(offsets: Any, data: Any, num_threads: Any) -> Any:
    known = ops.TextIds(np.array([0, 1, 3, 3]), np.array([2, 0, 1], np.uint8))
    return known.find(offsets, data, num_threads=num_threads)


def _sample(sampler: Any, graph: Graph, seeds: Any, step: Any, **others: Any) -> Any:
    return sampler(graph, **others).sample(seeds, step)


#: Those that take no number of threads.
_ALONE = {
    *("empty", "expand_edges", "transpose_block", "count_in_degrees", "csc_fill", "arrange_block"),
    *("rmat_numbering", "planted_partition_edges", "find_clusters", "NativeReplacement"),
    *("RankedSlots", "IntegerIds", "TextIds", "NativeSampler", "NativeSampler.sample_layers"),
    *("LayerSampler.sample", "simd_level", "supported_simd_level", "keep_freed_memory"),
}
_CALLS: dict[str, Callable[..., Any]] = {
    "NativeReplacement.advance": _call_replacement,
    "IntegerIds.find": lambda ids, wanted, **more: ops.IntegerIds(ids).find(wanted, **more),
    "TextIds.find": _call_texts,
    "RankedSlots.gather_cached": _call_ranked,
    **{f"NativeSampler.{name}": _with_graph(name) for name in _METHODS},
    **{f"{each.__name__}.sample": partial(_sample, each) for each in _SAMPLERS},
}
#: What draws the arguments of a valid call, by the name of what is called.
MAKERS: dict[str, Callable[[Calls], Args]] = {
    **{
        name: maker
        for name, maker in vars(Calls).items()
        if name[0] != "_" and name in dir(_native)
    },
    **dict.fromkeys(("simd_level", "supported_simd_level", "keep_freed_memory"), lambda _: {}),
    "gather_from_disk": Calls.gather,
    **{"NativeReplacement": Calls.native_replacement, "RankedSlots": Calls.ranked_slots},
    **{"IntegerIds": Calls.integer_ids, "TextIds": Calls.text_ids},
    "NativeReplacement.advance": Calls.serve_batches,
    "RankedSlots.gather_cached": Calls.gather_ranked,
    **{"IntegerIds.find": Calls.find_integers, "TextIds.find": Calls.text_ids},
    "NativeSampler": Calls.native_sampler,
    **{f"NativeSampler.{name}": vars(Calls)[name] for name in _METHODS},
    "NeighborSampler.sample": Calls.reach_neighbors,
    "WeightedSampler.sample": Calls.weighted_sampler,
    "LayerSampler.sample": Calls.sample_layers,
}
#: What is called, by the same names.
CALLS = {name: _CALLS[name] if name in _CALLS else getattr(ops, name) for name in MAKERS}


def valid_call(name: str, rng: random.Random) -> Args:
    """Return the arguments of a valid call; starting threads takes time, so that most have one."""
    args = MAKERS[name](Calls(rng))
    if name not in _ALONE:
        args["num_threads"] = rng.choice((1, 1, 1, 1, 1, 1, 2, 3))
    return args
