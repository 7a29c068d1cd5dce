"""A valid call of every public function of ``gnnscale.ops`` and of every sampler."""

# ruff: noqa: C408

import atexit
import mmap
import os
import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from gnnscale import ops
from gnnscale.graph import EdgeData, Graph, GraphSchema, GraphTimes
from gnnscale.graph.dtypes import MAX_QUANTIZED, SCALE_BYTES, row_length
from gnnscale.ops import _native
from gnnscale.sampling import (
    LaborSampler,
    LayerSampler,
    NeighborSampler,
    TypedSampler,
    WeightedSampler,
)

Args = dict[str, Any]
STORED = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)
_COMPUTED = (torch.float32, torch.bfloat16)
_NOTHING = np.zeros(1, np.int64)
_METHODS = (
    *("sample_neighbors", "sample_labor", "sample_layers", "reach_neighbors", "reach_labor"),
    *("time_relabelling", "prepare_weights", "sample_typed", "last_times"),
)
_SAMPLERS = (NeighborSampler, WeightedSampler, LaborSampler, LayerSampler, TypedSampler)
_RMAT = dict(a=0.57, b=0.19, c=0.19)


class Block(NamedTuple):
    """A block, or a part of one: ``indptr`` and ``indices`` by these names, and its sizes."""

    lists: Args
    num_dst: int
    num_src: int
    num_edges: int


class Calls:
    """Draws the arguments of valid calls: a method for each function of ``ops``, by its name.

    Arrays are small, so that millions of them are cheap.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.size, self.pick = rng, rng.randint, rng.choice

    def half(self, share: float = 0.5) -> bool:
        return self.rng.random() < share

    def maybe(self, value: Any) -> Any:
        return value if self.half() else None

    def seed(self) -> int:
        return self.rng.getrandbits(64)

    def ids(self, size: int, bound: int, dtype: Any = None) -> Any:
        """Return ``size`` ids below ``bound``, int32 or int64."""
        dtype = dtype or self.pick((np.int32, np.int64))
        numbers = np.frombuffer(self.rng.randbytes(size * 4), np.uint32)
        return (numbers % max(bound, 1)).astype(dtype)

    def distinct(self, n: int, least: int = 0) -> Any:
        """Return some of the ids below ``n`` in any order, int32 or int64."""
        return np.array(self.rng.sample(range(n), self.size(least, n)), self.pick(("i4", "i8")))

    def starts(self, n: int, bound: int) -> Any:
        """Return the bounds of ``n`` lists, each with fewer than ``bound`` entries."""
        return np.cumsum([0, *self.ids(n, bound, np.int64)])

    def floats(self, size: int) -> Any:
        """Return ``size`` float32 between -8 and 8, which all types can hold."""
        return np.frombuffer(self.rng.randbytes(size), np.int8).astype(np.float32) / np.float32(16)

    def weights(self, size: int) -> Any:
        return self.maybe(self.floats(size))

    def tensor(self, rows: int, width: int, *dtypes: torch.dtype) -> torch.Tensor:
        """Return a matrix, sometimes a slice of the columns of a wider one."""
        dtype, more = self.pick(dtypes or (torch.float32,)), self.pick((0, 0, 1, 3))
        values = torch.from_numpy(self.floats(rows * (width + more)).reshape(rows, width + more))
        if dtype == torch.uint8:
            values = values.abs() * 4
        return values.to(dtype)[:, :width] if more else values.to(dtype)

    def heads(self, num_edges: int) -> torch.Tensor:
        return torch.from_numpy(self.floats(num_edges * 3).reshape(-1, 3))

    def pairs(self) -> Args:
        """Return rows of both ends of edges, and a vector for each head."""
        b, num_heads, width = self.block(), self.size(1, 4), self.size(1, 20)
        sizes = dict(own=(b.num_dst, num_heads * width), z=(b.num_src, num_heads * width))
        sizes |= dict(attention=(num_heads, width))
        tables = {
            name: torch.from_numpy(self.floats(n * width).reshape(n, width))
            for name, (n, width) in sizes.items()
        }
        return dict(**tables, **b.lists, slope=0.25)

    def block(self) -> Block:
        num_dst = self.size(0, 6)
        num_src = num_dst + self.size(1, 6)
        indptr = self.starts(num_dst, self.pick((1, 3, 9)))
        indices = self.ids(int(indptr[-1]), num_src, np.int32)
        return Block(dict(indptr=indptr, indices=indices), num_dst, num_src, len(indices))

    def csc(self) -> Args:
        n = self.size(1, 12)
        indptr = self.starts(n, self.pick((1, 4, 12)))
        return dict(indptr=indptr, indices=self.ids(int(indptr[-1]), n))

    def graph(self) -> Graph:
        graph = graph_of(**self.csc())
        rows = self.maybe(self.ids(graph.num_edges, 9, np.int64).astype(np.uint32))
        return replace(graph, edges=EdgeData(rows=rows))

    def typed_graph(self) -> Graph:
        ends = [(self.size(0, 1), self.size(0, 1)) for _ in range(self.size(1, 3))]
        triples = [("ab"[src], str(number), "ab"[dst]) for number, (src, dst) in enumerate(ends)]
        schema = GraphSchema.of({"a": self.size(1, 6), "b": self.size(1, 6)}, triples)
        indptr = self.starts(schema.num_rows, self.pick((1, 4, 12)))
        row_sources = np.empty(schema.num_rows, np.int64)
        for number, source in enumerate(schema.sources.tolist()):
            row_sources[schema.rows(number)] = source
        sources = np.repeat(row_sources, np.diff(indptr))
        firsts, sizes = schema.first_vertices[:-1], np.diff(schema.first_vertices)
        indices = firsts[sources] + self.ids(len(sources), 60, np.int64) % sizes[sources]
        return replace(graph_of(indptr, indices.astype(np.int32)), types=schema)

    def weighted(self) -> Args:
        indptr, indices, *_ = ops.make_undirected(*self.csc().values(), 1)
        n, num_weights = len(indptr) - 1, self.size(1, 3)
        of_edges = self.maybe(self.ids(len(indices), 5, np.int32) + np.int32(1))
        of_vertices = self.ids(n * num_weights, 5, np.int64).reshape(n, num_weights)
        lists = dict(indptr=indptr, indices=indices)
        return dict(**lists, vertex_weights=of_vertices, edge_weights=of_edges)

    def slots(self, num_vertices: int) -> Any:
        """Return the slots of vertices in up to three caches, and the first of each cache."""
        sizes = [self.size(0, 4) for _ in range(self.size(1, 3))]
        slots = self.ids(num_vertices, sum(sizes) + 1, np.int32) - np.int32(1)
        return slots, np.cumsum([0, *sizes])

    def bytes(self, n: int) -> Args:
        """Return the bytes that ``n`` vertices take in a cache."""
        lists = dict(offsets=None, bytes_per_entry=0)
        if self.half():
            lists = dict(offsets=self.starts(n, 5), bytes_per_entry=4)
        return dict(bytes_per_vertex=self.size(0, 9), **lists)

    def quantized(self, rows: int, width: int) -> Any:
        """Return rows of int8 or int4: any bytes after a scale that is a number."""
        dtype = self.pick(tuple(MAX_QUANTIZED))
        length = row_length(dtype, width)
        stored = np.frombuffer(self.rng.randbytes(rows * length), np.uint8).reshape(rows, length)
        stored = stored.copy()
        stored[:, :SCALE_BYTES] = np.abs(self.floats(rows))[:, None].view(np.uint8)
        return stored, dtype

    def gather(self) -> Args:
        rows, width, n = self.size(1, 9), self.size(1, 20), self.size(0, 9)
        x: Any = self.tensor(rows, width, *STORED)
        x = _as_numpy(x) if self.half(0.3) else x
        x = self.quantized(rows, width) if self.half(0.3) else x
        return dict(x=x, ids=self.ids(n, rows), out=self.tensor(n, width, *_COMPUTED))

    def add_rows(self) -> Args:
        b, width = self.block(), 16 * self.size(1, 9)
        num_out = b.num_dst + self.size(0, 3)
        chosen = np.array(sorted(self.rng.sample(range(num_out), b.num_dst)), np.int32)
        made = dict(x=self.tensor(b.num_src, width, *STORED), ids=b.lists["indices"])
        made |= dict(indptr=b.lists["indptr"], out_ids=chosen, out=self.tensor(num_out, width))
        return dict(**made, weights=self.weights(b.num_edges))

    def aggregate(self) -> Args:
        b, width = self.block(), self.size(1, 20)
        num_rows, num_self, per_edge = b.num_src + 3, self.size(0, b.num_dst), self.half(0.2)
        ids = self.ids(b.num_edges if per_edge else b.num_src, num_rows)
        out = self.tensor(b.num_dst, width, *_COMPUTED)
        x = self.quantized(num_rows, width) if self.half(0.2) else None
        x = self.tensor(num_rows, width, *STORED) if x is None else x
        made = dict(x=x, **b.lists, out=out)
        made |= dict(ids=ids if per_edge else self.maybe(ids), ids_per_edge=per_edge)
        made |= dict(weights=self.weights(b.num_edges), dst_scale=self.weights(b.num_dst))
        made |= dict(num_self=num_self, gate=self.maybe(self.tensor(b.num_dst, width, out.dtype)))
        if not num_self:
            return made | dict.fromkeys(("self_rows", "self_ids", "self_scale"))
        of_self = dict(self_rows=self.tensor(num_rows, width, *STORED))
        of_self |= dict(self_ids=self.maybe(self.ids(num_self, num_rows)))
        return dict(**made, **of_self, self_scale=self.weights(num_self))

    def row_sums(self, width: int, num_rows: int) -> Args:
        """Return gradients of some of the rows of a table, as sums over edges."""
        indptr, num_own = self.starts(num_rows, self.pick((1, 3, 9))), self.size(1, 9)
        rows, num_self = self.tensor(num_own, width, *STORED), self.size(0, num_rows)
        made = dict(gradients=rows, indptr=indptr, num_self=num_self, self_rows=None)
        made |= dict(indices=self.ids(int(indptr[-1]), num_own, np.int32), self_scale=None)
        if num_self:
            made |= dict(self_rows=self.tensor(num_self, width, *STORED))
            made |= dict(self_scale=self.weights(num_self))
        return dict(**made, weights=self.weights(int(indptr[-1])))

    def aggregate_max(self) -> Args:
        b, width, dtype = self.block(), self.size(1, 20), self.pick(_COMPUTED)
        made = dict(x=self.tensor(b.num_src, width, dtype), **b.lists)
        made |= dict(counts=self.maybe(self.tensor(b.num_dst, width)))
        return dict(**made, out=self.tensor(b.num_dst, width, dtype))

    def aggregate_max_backward(self) -> Args:
        b, width, dtype = self.block(), self.size(1, 20), self.pick(_COMPUTED)
        # Here lists of destinations are those of sources.
        made = dict(x=self.tensor(b.num_dst, width, dtype), **b.lists)
        made |= dict(largest=self.tensor(b.num_src, width, dtype))
        made |= dict(shares=self.tensor(b.num_src, width))
        return dict(**made, out=self.tensor(b.num_dst, width, *_COMPUTED))

    def pair_scores(self) -> Args:
        made = self.pairs()
        num_edges, num_heads = len(made["indices"]), len(made["attention"])
        return dict(**made, out=self.tensor(num_edges, num_heads))

    def pair_scores_backward(self) -> Args:
        made = self.pairs()
        num_edges, num_heads = len(made["indices"]), len(made["attention"])
        grad = torch.from_numpy(self.floats(num_edges * num_heads).reshape(-1, num_heads))
        return dict(**made, grad=grad)

    def adam_rows(self) -> Args:
        n, width = self.size(1, 9), self.size(1, 20)
        tables = [torch.from_numpy(self.floats(n * width).reshape(n, width)) for _ in range(3)]
        made = dict(zip(("x", "means", "squares"), (t.clone() for t in tables), strict=True))
        made["squares"] = made["squares"].abs()
        ids = self.distinct(n)
        rates = dict(rate=0.25, beta1=0.5, beta2=0.75, epsilon=self.pick((1e-8, 0.125)))
        return dict(**made, ids=ids, **self.row_sums(width, len(ids)), **rates)

    def adagrad_rows(self) -> Args:
        n, width = self.size(1, 9), self.size(1, 20)
        table = torch.from_numpy(self.floats(n * width).reshape(n, width)).clone()
        ids = self.distinct(n)
        made = dict(x=table, sums=np.abs(self.floats(n)), ids=ids)
        rates = dict(rate=0.25, epsilon=self.pick((1e-8, 0.125)))
        return dict(**made, **self.row_sums(width, len(ids)), **rates)

    def edge_dot(self) -> Args:
        b, width = self.block(), self.size(1, 20)
        out = np.zeros((b.num_edges, 2), np.float32)[:, 1]
        made = dict(a=self.tensor(b.num_dst, width), x=self.tensor(b.num_src, width), **b.lists)
        return dict(**made, out=out if self.half() else out.copy())

    def expand_edges(self) -> Args:
        b = self.block()
        return dict(**b.lists, first_dst=self.size(0, 99), out=np.zeros((2, b.num_edges), np.int64))

    def transpose_block(self) -> Args:
        b = self.block()
        scales = dict(weights=self.weights(b.num_edges), dst_scale=self.weights(b.num_dst))
        return dict(**b.lists, num_src=b.num_src, **scales)

    def relu_dropout(self) -> Args:
        n, width = self.size(0, 9), self.size(0, 20)
        x = torch.from_numpy(self.floats(n * width).reshape(n, width)).to(self.pick(_COMPUTED))
        made = dict(x=x, vertices=self.ids(n, 1 << 31), p=self.pick((0.0, 0.5, 0.9)))
        return dict(**made, seed=self.seed(), step=self.size(0, 99), layer=self.size(0, 9))

    def relu_dropout_backward(self) -> Args:
        size, dtype = self.size(0, 80), self.pick(_COMPUTED)
        shape = (size,) if self.half() or size % 2 else (size // 2, 2)
        y, grad = (torch.from_numpy(self.floats(size)).to(dtype).view(shape) for _ in range(2))
        return dict(y=y, grad=grad, scale=2.0)

    def edge_softmax(self) -> Args:
        b = self.block()
        bias = self.maybe(np.abs(self.floats(b.num_edges)) + np.float32(0.5))
        return dict(indptr=b.lists["indptr"], scores=self.heads(b.num_edges), bias=bias)

    def edge_softmax_backward(self) -> Args:
        b = self.block()
        both = dict(alpha=self.heads(b.num_edges), grad=self.heads(b.num_edges))
        return dict(indptr=b.lists["indptr"], **both)

    def count_in_degrees(self) -> Args:
        n, first = self.size(1, 9), self.size(0, 9)
        dst = self.ids(self.size(0, 20), n)
        return dict(dst=dst + dst.dtype.type(first), counts=np.zeros(n, np.int64), first=first)

    def csc_scatter(self) -> Args:
        n, num_edges = self.size(1, 9), self.size(0, 20)
        first, shift, num_buckets = self.size(0, 9), self.size(0, 3), self.size(1, 4)
        src = self.ids(num_edges, 99)
        dst = self.ids(num_edges, n, src.dtype) + src.dtype.type(first)
        bucket_of = self.ids((n - 1 >> shift) + 1, num_buckets, np.int32)
        made = dict(src=src, dst=dst, bucket_of=bucket_of, num_buckets=num_buckets)
        return dict(**made, first=first, shift=shift, out=np.zeros((2, num_edges), src.dtype))

    def csc_fill(self) -> Args:
        n, num_edges = self.size(1, 9), self.size(0, 20)
        src = self.ids(num_edges, n)
        dst = self.ids(num_edges, n, src.dtype)
        first = self.size(0, n)
        last = self.size(first, n)
        counts = np.bincount(dst, minlength=n)
        cursor = (np.cumsum(counts) - counts)[first:last].astype(np.int64)
        out = np.zeros(num_edges, src.dtype)
        return dict(src=src, dst=dst, first=first, last=last, cursor=cursor, out=out)

    def count_cut(self) -> Args:
        made, num_parts = self.csc(), self.size(1, 5)
        owner = self.ids(len(made["indptr"]) - 1, num_parts + 1, np.int16) - np.int16(1)
        return dict(**made, owner=owner, num_parts=num_parts)

    def hops_from(self) -> Args:
        made = self.csc()
        n = len(made["indptr"]) - 1
        vertices = self.ids(self.size(0, 4), n, made["indices"].dtype)
        hops = np.full(n, 255, np.uint8)
        return dict(**made, num_hops=self.size(0, 5), vertices=vertices, hops=hops)

    def pagraph_stream(self) -> Args:
        made = self.csc()
        vertices = self.distinct(len(made["indptr"]) - 1).astype(made["indices"].dtype)
        made |= dict(vertices=vertices, num_parts=self.size(1, 5), num_hops=self.size(1, 4))
        most = dict(max_walked=self.size(0, 20), max_sampled=self.size(1, 12))
        return dict(**made, **most, seed=self.seed())

    def hottest(self) -> Args:
        n = self.size(0, 12)
        hotness = self.ids(n, 5)
        hotness = hotness.astype(np.float32) if self.half(0.3) else hotness
        made = dict(hotness=hotness, tie_break=self.maybe(self.ids(n, 3)), **self.bytes(n))
        made |= dict(capacity=self.size(0, 99), max_bytes=self.maybe(self.size(0, 30)))
        return dict(**made, only_hot=self.half())

    def share_out(self) -> Args:
        n, num_members = self.size(1, 12), self.size(1, 4)
        kind = self.pick((np.int32, np.float32))
        local = [self.ids(n, 4).astype(kind) for _ in range(num_members)]
        capacities = self.ids(num_members, 50, np.int64)
        return dict(order=self.distinct(n), local=local, capacities=capacities, **self.bytes(n))

    def running_sums(self) -> Args:
        n, kind = self.size(1, 12), self.pick((np.int32, np.float32))
        made = dict(order=self.ids(self.size(0, 20), n), values=self.ids(n, 9).astype(kind))
        return dict(**made, every=self.size(1, 20), **self.bytes(n))

    def split_by_member(self) -> Args:
        n, num_members = self.size(0, 12), self.size(1, 4)
        member = self.ids(n, num_members + 1, np.int16) - np.int16(1)
        return dict(order=self.ids(n, 99), member=member, num_members=num_members)

    def arrange_block(self) -> Args:
        b, rows = self.block(), (1, 2, 3, 16, 99)
        made = dict(
            **b.lists, num_src=b.num_src, destinations=self.distinct(b.num_dst).astype("i4")
        )
        made |= dict(weights=self.weights(b.num_edges), dst_scale=self.weights(b.num_dst))
        made |= dict(
            self_scale=self.weights(b.num_dst), self_term=self.pick(("add", "concat", None))
        )
        return dict(**made, tile_rows=self.pick(rows), backward_tile_rows=self.pick(rows))

    def gather_columns(self) -> Args:
        num_rows, width, n = self.size(1, 9), self.size(1, 40), self.size(0, 9)
        words = (width + 15) // 16 + self.size(0, 2)
        made = dict(x=self.tensor(num_rows, width, *STORED), ids=self.ids(n, num_rows))
        if self.half():
            return dict(**made, num_columns_words=None, out=np.ones((words, n, 16), np.float32))
        return dict(**made, num_columns_words=words, out=None)

    def scatter_to_neighbors(self) -> Args:
        made, kind = self.csc(), self.pick((np.float32, np.float64))
        values, out = (self.floats(len(made["indptr"]) - 1).astype(kind) for _ in range(2))
        return dict(**made, values=values, out=out)

    def rmat_edges(self) -> Args:
        n = self.size(2, 20)
        num_edges = self.size(0, n * (n - 1) // 4)
        return dict(num_vertices=n, num_edges=num_edges, **_RMAT, seed=self.seed())

    def rmat_draws(self) -> Args:
        draws = dict(first=self.size(0, 99), num_draws=self.size(0, 30))
        return dict(num_vertices=self.size(2, 20), **_RMAT, seed=self.seed(), **draws)

    def planted_partition_edges(self) -> Args:
        n = self.size(2, 6) * 2
        weight = np.abs(self.floats(n)) + np.float32(0.5)
        made = dict(community=(np.arange(n) % 2).astype(np.int32), weight=weight)
        return dict(**made, num_edges=self.size(0, 20), within=self.rng.random(), seed=self.seed())

    def write_metis(self) -> Args:
        made = self.csc()
        of_vertices = self.maybe(self.ids(len(made["indptr"]) - 1, 99, np.int64))
        of_edges = self.maybe(self.ids(len(made["indices"]), 99, np.int32))
        return dict(fd=_sink(), **made, vertex_weights=of_vertices, edge_weights=of_edges)

    def refine(self) -> Args:
        made, num_parts, together = self.weighted(), self.size(1, 4), self.half(0.3)
        n, num_weights = made["vertex_weights"].shape
        most = self.ids(num_parts * num_weights, 20, np.int64).reshape(num_parts, num_weights)
        made |= dict(max_weights=most, num_rounds=self.size(0, 4))
        if together:
            owner, labels = np.zeros(n, np.int32), self.ids(n, n, np.int32)
            return dict(**made, owner=owner, labels=labels, num_clusters=n)
        return dict(**made, owner=self.ids(n, num_parts, np.int32), labels=None, num_clusters=0)

    def find_clusters(self) -> Args:
        made = self.weighted()
        n, num_weights = made["vertex_weights"].shape
        made |= dict(max_weights=self.ids(num_weights, 20, np.int64), num_rounds=self.size(0, 3))
        return dict(**made, owner=self.maybe(self.ids(n, 3, np.int32)))

    def contract(self) -> Args:
        made = self.weighted()
        n = len(made["indptr"]) - 1
        num_clusters = self.size(1, n)
        made |= dict(labels=self.ids(n, num_clusters, np.int32), num_clusters=num_clusters)
        return dict(**made, threshold=self.pick((1, 1, 5)))

    def native_replacement(self) -> Args:
        n = self.size(1, 12)
        return dict(priority=self.ids(n, 4, np.int32), capacity=self.size(0, n), match=self.half())

    def serve_batches(self) -> Args:
        made = self.native_replacement()
        n = len(made["priority"])
        return dict(**made, vertices=self.distinct(n), then=self.distinct(n))

    def gather_cached(self) -> Args:
        num_vertices, width, n = self.size(1, 9), self.size(1, 20), self.size(0, 9)
        dtype, (slots, starts) = self.pick(STORED), self.slots(num_vertices)
        caches = [self.tensor(int(size), width, dtype) for size in np.diff(starts)]
        host = self.tensor(num_vertices, width, dtype)
        if self.half(0.2):
            host = self.quantized(num_vertices, width)
            caches = [(host[0][:1].repeat(size, axis=0), host[1]) for size in np.diff(starts)]
        made = dict(host=host, caches=caches, slots=slots)
        made |= dict(vertices=self.ids(n, num_vertices))
        return dict(**made, out=self.tensor(n, width, *_COMPUTED))

    def count_slots(self) -> Args:
        num_vertices, n = self.size(1, 9), self.size(0, 9)
        slots, starts = self.slots(num_vertices)
        made = dict(slots=slots, starts=starts, vertices=self.ids(n, num_vertices))
        return dict(**made, weights=self.maybe(self.starts(n, 5)))

    def ranked_slots(self) -> Args:
        n = self.size(1, 99)
        members = [self.ids(self.size(0, 9), n) for _ in range(self.size(0, 3))]
        return dict(num_vertices=n, members=members)

    def gather_ranked(self) -> Args:
        made = self.ranked_slots()
        return dict(**made, vertices=self.ids(self.size(0, 9), made["num_vertices"]))

    def count_uses(self) -> Args:
        n = self.size(1, 9)
        return dict(vertices=self.ids(self.size(0, 20), n), counts=self.ids(n, 99, np.int32))

    def count_reads(self) -> Args:
        made = self.count_uses()
        return dict(indptr=self.starts(len(made["vertices"]), 5), **made)

    def copy_rows(self) -> Args:
        num_rows, num_slots, width = self.size(1, 9), self.size(1, 9), self.size(1, 20)
        dtype, slots = self.pick(STORED), self.distinct(num_slots)
        source, target = (self.tensor(rows, width, dtype) for rows in (num_rows, num_slots))
        vertices = self.ids(len(slots), num_rows)
        return dict(source=source, vertices=vertices, target=target, slots_of_target=slots)

    def draw_negatives(self) -> Args:
        made = dict(edges=self.ids(self.size(0, 9), 1 << 31, np.int64), count=self.size(0, 9))
        made |= dict(num_vertices=self.size(1, 99), seed=self.size(0, 99), step=self.size(0, 99))
        return made

    def draw_of_pairs(self) -> Args:
        n = self.size(0, 9)
        first, second = (self.ids(n, 1 << 31, np.int64) for _ in range(2))
        return dict(first=first, second=second, seed=self.size(0, 99))

    def row_reader(self) -> Args:
        row_bytes, offset = 4 * self.size(1, 300), self.size(0, 600)
        num_rows = self.size(0, min((_FILE_BYTES - offset) // row_bytes, 99))
        made = dict(path=_file(), offset=offset, num_rows=num_rows, row_bytes=row_bytes)
        made |= dict(depth=self.size(1, 9), max_gap_bytes=self.pick((0, 1000, 9999)))
        made |= dict(max_request_bytes=self.pick((1, 4096, 50_000)), direct=self.half())
        return dict(**made, engine=self.pick(("auto", "threads")))

    def read_rows(self) -> Args:
        made = self.row_reader()
        num_slots = self.size(1, 9)
        slots = self.distinct(num_slots).astype(np.int32) if made["num_rows"] else np.int32([])
        made |= dict(rows=self.ids(len(slots), made["num_rows"]), slots=slots)
        return dict(**made, pool=torch.zeros(num_slots, made["row_bytes"] // 4))

    def disk_lists(self) -> Args:
        lists = self.csc()
        made = dict(**lists, held=np.sort(self.distinct(len(lists["indptr"]) - 1)))
        made |= dict(depth=self.size(1, 9), max_gap_bytes=self.pick((0, 1000)))
        made |= dict(direct=self.half(), engine=self.pick(("auto", "threads")))
        return dict(**made, seeds=self.distinct(len(lists["indptr"]) - 1))

    def integers(self) -> Any:
        return self.ids(self.size(0, 99), self.pick((200, 1 << 31)), np.int64)

    def end_on_bus_error(self) -> Args:
        # No status of a case that ended well.
        return dict(descriptor=2, after=self.rng.randbytes(self.size(0, 256)), status=99)

    def flush_cache_lines(self) -> Args:
        return dict(data=np.zeros(self.size(0, 300), np.uint8))

    def shared_sum(self) -> Args:
        size = self.size(1, 3)
        return dict(memory=self._pages(size), rank=self.size(0, size - 1), size=size)

    def add_shared(self) -> Args:
        count = self.size(0, 99) if self.half(0.9) else self.size(2**17, 2**18)
        # Each of the types that are summed has them.
        values = np.frombuffer(self.rng.randbytes(2 * count), "u2")
        return dict(memory=self._pages(1), values=values.astype(self.pick(("i8", "f8", "f4"))))

    def _pages(self, size: int) -> Any:
        pages = np.frombuffer(mmap.mmap(-1, ops.SharedSum.num_bytes(size)), np.uint8)
        if self.half():  # what another process has written that went wrong
            pages[:4096] = np.frombuffer(self.rng.randbytes(4096), np.uint8)
        return pages

    def text_ids(self) -> Args:
        offsets = self.starts(self.size(0, 20), 5)
        return dict(offsets=offsets, data=self.ids(int(offsets[-1]), 3, np.uint8))

    def sample_neighbors(self) -> Args:
        graph, hops = self.graph(), self.size(1, 3)
        fanouts = [self.pick((-1, 1, 2, 5)) for _ in range(hops)]
        made = dict(graph=graph, seeds=self.distinct(graph.num_vertices), fanouts=fanouts)
        made |= dict(replace=self.half(), seed=self.seed(), step=self.size(0, 99))
        rows = graph.edge_rows is not None and self.half()
        return dict(**made, only_new=self.half(0.3), edge_rows=rows)

    def sample_typed(self) -> Args:
        made = dict(**self._typed(), only_new=self.half(0.3))
        return self._timed(made) if self.half(0.4) else made

    def _timed(self, made: Args) -> Args:
        """Return the arguments with cut-offs, over a graph whose times need not ascend."""
        graph, count = made["graph"], len(made["seeds"])
        times = GraphTimes(unit="s", edges=self.ids(graph.num_edges, 20, np.int64))
        forward = self.half(0.3)
        made |= dict(graph=replace(graph, times=times), cutoffs=self.ids(count, 22, np.int64))
        rules = ("seed", "destination", "walk", *(["none"] if len(made["fanouts"]) == 1 else []))
        made |= dict(rule="walk" if forward else self.pick(rules))
        made |= dict(forward=forward, strict=self.half(), window=self.maybe(self.size(1, 9)))
        return made | dict(last=not made["replace"] and self.half(0.3), disjoint=self.half(0.3))

    def last_times(self) -> Args:
        graph = self.typed_graph()
        times = GraphTimes(unit="s", edges=self.ids(graph.num_edges, 20, np.int64))
        edge_type = self.rng.randrange(len(graph.schema.edge_types))
        span = graph.schema.vertices(int(graph.schema.destinations[edge_type]))
        count = self.size(0, 99) if span.stop > span.start else 0
        vertices = span.start + self.ids(count, max(span.stop - span.start, 1), np.int64)
        made = dict(graph=replace(graph, times=times), vertices=vertices, edge_type=edge_type)
        return made | dict(cutoffs=self.ids(count, 22, np.int64), strict=self.half())

    def _typed(self) -> Args:
        graph, hops = self.typed_graph(), self.size(1, 3)
        types = range(len(graph.schema.edge_types))
        fanouts = [[self.pick((-1, 0, 1, 2, 5)) for _ in types] for _ in range(hops)]
        made = dict(graph=graph, seeds=self.distinct(graph.num_vertices), fanouts=fanouts)
        made |= dict(replace=self.half(), seed=self.seed(), step=self.size(0, 99))
        return made

    def typed_sampler(self) -> Args:
        made = self._typed()
        return made | dict(fanouts=[self.pick((-1, 1, 2, 5)) for _ in range(self.size(1, 3))])

    def sample_labor(self) -> Args:
        made = _without(_reached(self), "replace")
        return dict(**made, layer_dependency=self.half())

    def sample_layers(self) -> Args:
        graph, sizes = self.graph(), [self.size(1, 6) for _ in range(self.size(1, 3))]
        made = dict(graph=graph, seeds=self.distinct(graph.num_vertices), layer_sizes=sizes)
        rows = graph.edge_rows is not None and self.half()
        return dict(**made, seed=self.seed(), step=self.size(0, 99), edge_rows=rows)

    def weighted_sampler(self) -> Args:
        made = _reached(self)
        weights = np.abs(self.floats(made["graph"].num_edges))
        return made | dict(graph=replace(made["graph"], edges=EdgeData(weights=weights)))


def graph_of(indptr: Any, indices: Any) -> Graph:
    return Graph(
        name="tiny",
        indptr=indptr,
        indices=indices,
        features=_NOTHING[:, None],
        feature_dtype="float32",
        labels=_NOTHING,
        num_classes=2,
    )


def _without(args: Args, name: str) -> Args:
    return {each: value for each, value in args.items() if each != name}


def _reached(calls: Calls) -> Args:
    return _without(_without(calls.sample_neighbors(), "only_new"), "edge_rows")


def _as_numpy(x: torch.Tensor) -> Any:
    name = str(x.dtype).removeprefix("torch.")
    bits = x.view(torch.int16).numpy().view(np.uint16) if name == "bfloat16" else x.numpy()
    return bits, name


@cache
def _sink() -> int:
    return os.open(os.devnull, os.O_WRONLY)


#: What rows are read from: the bytes of its numbers, no NaN among them.
_FILE_BYTES = 40_000


@cache
def _file() -> str:
    file, path = tempfile.mkstemp(prefix="gnnscale-fuzz-rows-")
    with os.fdopen(file, "wb") as to:
        to.write(file_bytes().tobytes())
    atexit.register(os.unlink, path)
    return path


@cache
def _list_file() -> str:
    file, path = tempfile.mkstemp(prefix="gnnscale-fuzz-lists-")
    os.close(file)
    atexit.register(os.unlink, path)
    return path


@cache
def file_bytes() -> Any:
    """Return what is in the file of rows."""
    return (np.arange(_FILE_BYTES) % 100).astype(np.uint8)


def _call_method(method: str, graph: Graph, **others: Any) -> Any:
    return getattr(ops.NativeSampler(graph), method)(**others)


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
    host = (np.broadcast_to(np.full((1, 1), -1, np.float32), (int(num_vertices), 1)), "float32")
    out = np.zeros((len(vertices), 1), np.float32)
    ops.gather_cached(host, caches, slots, vertices, out=(out, "float32"), num_threads=num_threads)
    return out[:, 0]


def _call_rows(rows: Any, pool: Any, slots: Any, **opened: Any) -> Any:
    reader = ops.RowReader(**opened)
    ticket = reader.submit(rows, pool, slots)
    reader.is_done(ticket)
    reader.wait(ticket)
    reader.close()
    return reader.take_counters()["bytes_copied"]


def _call_lists(indptr: Any, indices: Any, held: Any, seeds: Any, **options: Any) -> Any:
    """Sample of lists that a file has, and return all neighbours of ``seeds``, list by list."""
    path = _list_file()
    with open(path, "wb") as to:
        to.write(indices.tobytes() if isinstance(indices, np.ndarray) else b"")
    lists = ops.DiskLists(path, indptr, indices, held, offset=0, **options)
    sampler = ops.NativeSampler(replace(graph_of(indptr, indices), lists=lists))
    choices = dict(replace=False, seed=0, step=0, num_threads=1)
    _, _, sources = sampler.sample_neighbors(seeds, [-1], **choices)
    return sources


def _call_shared_sum(memory: Any, values: Any) -> Any:
    """Sum with nobody else: nobody is waited for, whatever the memory holds."""
    ops.SharedSum(memory, rank=0, size=1).add(values, _nothing)
    return values


def _nothing() -> None:
    raise AssertionError("polled")


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
    *("RowReader", "RowReader.submit", "DiskLists"),
    *("LayerSampler.sample", "simd_level", "supported_simd_level", "keep_freed_memory"),
    *("SharedSum", "SharedSum.add", "end_on_bus_error", "flush_cache_lines"),
    "move_to_large_pages",
}
_CALLS: dict[str, Callable[..., Any]] = {
    "NativeReplacement.advance": _call_replacement,
    "IntegerIds.find": lambda ids, wanted, **more: ops.IntegerIds(ids).find(wanted, **more),
    **{"TextIds.find": _call_texts, "RankedSlots.gather_cached": _call_ranked},
    **{"RowReader.submit": _call_rows, "DiskLists": _call_lists},
    "SharedSum.add": _call_shared_sum,
    **{f"NativeSampler.{name}": partial(_call_method, name) for name in _METHODS},
    **{f"{each.__name__}.sample": partial(_sample, each) for each in _SAMPLERS},
}
#: What draws the arguments of a valid call, by the name of what is called.
MAKERS: dict[str, Callable[[Calls], Args]] = {
    **{
        name: maker
        for name, maker in vars(Calls).items()
        if name[0] != "_" and name in dir(_native)
    },
    "move_to_large_pages": Calls.flush_cache_lines,
    "empty": lambda c: dict(shape=(c.size(0, 9), c.size(0, 9)), dtype=c.pick(STORED)),
    "read_ahead": lambda c: _without(c.gather(), "out"),
    "csc_sort": lambda c: dict(**c.csc(), drop_duplicates=c.half()),
    "rmat_numbering": lambda c: dict(num_vertices=c.size(2, 30), seed=c.seed()),
    "make_undirected": lambda c: c.csc(),
    **dict.fromkeys(("simd_level", "supported_simd_level", "keep_freed_memory"), lambda _: {}),
    **{"gather_from_disk": Calls.gather, "NativeSampler": lambda c: dict(graph=c.graph())},
    **{"NativeReplacement": Calls.native_replacement, "RankedSlots": Calls.ranked_slots},
    **{"IntegerIds": lambda c: dict(ids=c.integers()), "TextIds": Calls.text_ids},
    **{"RowReader": Calls.row_reader, "RowReader.submit": Calls.read_rows},
    "DiskLists": Calls.disk_lists,
    "NativeReplacement.advance": Calls.serve_batches,
    "RankedSlots.gather_cached": Calls.gather_ranked,
    "IntegerIds.find": lambda c: dict(ids=c.integers(), wanted=c.ids(c.size(0, 99), 200, np.int64)),
    "TextIds.find": Calls.text_ids,
    **{"SharedSum": Calls.shared_sum, "SharedSum.add": Calls.add_shared},
    "NativeSampler.sample_neighbors": Calls.sample_neighbors,
    "NativeSampler.sample_layers": Calls.sample_layers,
    "NativeSampler.sample_typed": Calls.sample_typed,
    "NativeSampler.last_times": Calls.last_times,
    "TypedSampler.sample": Calls.typed_sampler,
    **dict.fromkeys(
        ("NativeSampler.sample_labor", "NativeSampler.reach_labor"), Calls.sample_labor
    ),
    "NativeSampler.prepare_weights": lambda c: dict(graph=c.weighted_sampler()["graph"]),
    "NativeSampler.time_relabelling": lambda c: _without(_reached(c), "replace"),
    **dict.fromkeys(("NativeSampler.reach_neighbors", "NeighborSampler.sample"), _reached),
    "WeightedSampler.sample": Calls.weighted_sampler,
    "LaborSampler.sample": Calls.sample_labor,
    "LayerSampler.sample": lambda c: _without(c.sample_layers(), "edge_rows"),
}
#: What is called, by the same names.
CALLS = {name: _CALLS[name] if name in _CALLS else getattr(ops, name) for name in MAKERS}


def valid_call(name: str, rng: random.Random) -> Args:
    """Return the arguments of a valid call; starting threads takes time, so that most have one."""
    args = MAKERS[name](Calls(rng))
    if name not in _ALONE:
        args["num_threads"] = rng.choice((1, 1, 1, 1, 1, 1, 2, 3))
    return args
