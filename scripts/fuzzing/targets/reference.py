"""Slow answers in NumPy to compare the answers of ``ops`` with."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from gnnscale.graph.dtypes import MAX_QUANTIZED, SCALE_BYTES, as_float32

from .calls import file_bytes


class Given:
    """Arguments by name, as copies in the widest type: int64 if all values are whole, or float64.

    Lists of arrays stay lists; what is no array stays what it is.
    """

    def __init__(self, args: dict[str, Any]) -> None:
        self._args = args

    def __getattr__(self, name: str) -> Any:
        return self.__dict__.setdefault(name, _wide(self._args[name]))


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.detach().to(torch.float64).numpy()
    elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str):
        value, name = np.asarray(value[0]), value[1]
        if name == "bfloat16":
            value = (value.astype(np.uint32) << 16).view(np.float32)
        elif name in MAX_QUANTIZED:
            # Rows of an odd number of int4 have one more, which is not read.
            width = (value.shape[1] - SCALE_BYTES) * (2 if name == "int4" else 1)
            value = as_float32(value, name, width)
    elif isinstance(value, list):
        if any(isinstance(each, (torch.Tensor, np.ndarray, tuple)) for each in value):
            return [_wide(each) for each in value]
        value = np.asarray(value)
    elif not isinstance(value, np.ndarray):
        return value
    wide = value.astype(np.float64)
    return wide.astype(np.int64) if (wide == np.floor(wide)).all() else wide


def _times(rows: Any, factors: Any) -> Any:
    return rows if factors is None else rows * factors[:, None]


def _destinations(indptr: Any) -> Any:
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def _added(to: Any, at: Any, values: Any) -> Any:
    np.add.at(to, at, values)
    return to


def _members(a: Given, starts: Any) -> tuple[Any, Any]:
    """Return the cache and the slot of every vertex; a cache beyond the last if none has it."""
    slots = a.slots[a.vertices]
    found = np.searchsorted(starts, slots, side="right") - 1
    return np.where(slots < 0, len(starts) - 1, found), slots


def gather_cached(a: Given) -> Any:
    starts = np.cumsum([0, *map(len, a.caches)])
    member, slots = _members(a, starts)
    width = a.out.shape[1]
    rows = a.host[a.vertices][:, :width]
    caches = [each[:, :width] for each in a.caches]
    every = np.concatenate([*caches, np.zeros((1, width))])  # one if there is no cache
    rows = np.where((slots >= 0)[:, None], every[slots], rows)
    return np.concatenate([rows.ravel(), np.bincount(member, minlength=len(starts))])


def gather_ranked(a: Given) -> Any:
    table = np.full(a.num_vertices, -1)
    for slot, vertex in enumerate([v for each in a.members for v in each.tolist()]):
        table[vertex] = slot
    return table[a.vertices]


def count_slots(a: Given) -> Any:
    member, _ = _members(a, a.starts)
    degrees = np.ones(len(member), np.int64) if a.weights is None else np.diff(a.weights)
    return _added(np.zeros(len(a.starts), np.int64), member, degrees[: len(member)])


def copy_rows(a: Given) -> Any:
    target = 1.0 * a.target
    target[a.slots_of_target] = a.source[a.vertices]
    return target


def read_rows(a: Given) -> Any:
    pool = np.zeros((len(a.pool), a.row_bytes), np.int64)
    table = file_bytes()[a.offset :][: a.num_rows * a.row_bytes].reshape(-1, a.row_bytes)
    pool[a.slots] = table[a.rows]
    return pool


def neighbors_of_seeds(a: Given) -> Any:
    lists = [a.indices[a.indptr[v] : a.indptr[v + 1]] for v in a.seeds]
    return np.concatenate([*lists, a.indices[:0]])


def _bytes_of_pool(args: dict[str, Any], _: Any) -> Any:
    return args["pool"].detach().contiguous().view(torch.uint8).numpy().astype(np.int64)


def aggregate(a: Given) -> Any:
    rows = a.indices if a.ids is None else a.ids if a.ids_per_edge else a.ids[a.indices]
    width = a.out.shape[1]
    dst, messages = _destinations(a.indptr), _times(a.x[rows][:, :width], a.weights)
    out = np.zeros((len(a.indptr) - 1, width))
    out = _times(_added(out, dst, messages[: len(dst)]), a.dst_scale)
    if a.num_self:
        own = a.self_rows[: a.num_self] if a.self_ids is None else a.self_rows[a.self_ids]
        out[: a.num_self] += _times(own[:, :width], a.self_scale)[: a.num_self]
    if a.gate is not None:
        out[a.gate <= 0] = 0
    return out


def add_rows(a: Given) -> Any:
    dst = np.repeat(a.out_ids, np.diff(a.indptr))
    return _added(1.0 * a.out, dst, _times(a.x[a.ids], a.weights))


def arrange_block(a: Given) -> Any:
    """Return the sums of the weights that each wanted destination takes of its sources."""
    every = np.ones(len(a.indices)) if a.weights is None else a.weights
    scale, own, sums = a.dst_scale, a.self_scale, np.zeros(len(a.destinations))
    for v, dst in enumerate(a.destinations):
        sums[v] = every[a.indptr[dst] : a.indptr[dst + 1]].sum()
        sums[v] *= 1 if scale is None else scale[dst]
        if a.self_term is not None:
            sums[v] += 1 if own is None or a.self_term == "concat" else own[dst]
    return sums


def _sums_of_rows(args: dict[str, Any], made: Any) -> Any:
    """Add up the weights of each row of the transpose."""
    slots = 1 + (args["self_term"] == "concat")
    sums = np.zeros(slots * len(args["destinations"]))
    for word, words, _ in made.backward.tiles.tolist():
        edges = made.backward.edges[word * 8 : (word + words) * 8]
        row = np.cumsum(edges >> np.uint64(31) & np.uint64(1)).astype(np.int64) - 1
        np.add.at(sums, row, (edges >> np.uint64(32)).astype(np.uint32).view(np.float32))
    return sums.reshape(slots, -1).sum(axis=0)


def gather_columns(a: Given) -> Any:
    words = a.num_columns_words if a.out is None else len(a.out)
    wide = np.zeros((len(a.ids), words * 16))
    wide[:, : a.x.shape[1]] = a.x[a.ids]
    return wide.reshape(len(a.ids), words, 16).transpose(1, 0, 2)


def _row_sums(a: Given) -> Any:
    dst, messages = _destinations(a.indptr), _times(a.gradients[a.indices], a.weights)
    out = _added(np.zeros((len(a.ids), a.x.shape[1])), dst, messages[: len(dst)])
    if a.num_self:
        out[: a.num_self] += _times(a.self_rows, a.self_scale)[: a.num_self]
    return out


def adam_rows(a: Given) -> Any:
    gradients = _row_sums(a)
    means = a.means[a.ids] + (gradients - a.means[a.ids]) * (1 - a.beta1)
    squares = a.squares[a.ids] + (gradients**2 - a.squares[a.ids]) * (1 - a.beta2)
    out = np.array(a.x, np.float64)
    out[a.ids] -= a.rate * means / (np.sqrt(squares) + a.epsilon)
    return out


def adagrad_rows(a: Given) -> Any:
    gradients = _row_sums(a)
    sums = a.sums[a.ids] + (gradients**2).mean(axis=1)
    out = np.array(a.x, np.float64)
    out[a.ids] -= a.rate / (np.sqrt(sums) + a.epsilon)[:, None] * gradients
    return out


def edge_dot(a: Given) -> Any:
    dst = _destinations(a.indptr)
    return (a.a[dst] * a.x[a.indices[: len(dst)]]).sum(axis=1)


def aggregate_max(a: Given) -> Any:
    lists = [a.x[a.indices[begin:end]] for begin, end in pairwise(a.indptr)]
    none = np.zeros((1, a.x.shape[1]))
    return np.stack([(rows if len(rows) else none).max(axis=0) for rows in (*lists, none)])[:-1]


def aggregate_max_backward(a: Given) -> Any:
    src = _destinations(a.indptr)
    dst = a.indices[: len(src)]
    chosen = np.where(a.x[src] == a.largest[dst], a.shares[dst], 0.0)
    return _added(np.zeros(a.x.shape), src, chosen)


def _pairs(a: Given) -> tuple[Any, Any, Any]:
    """Return what LeakyReLU is given for each edge, and both its ends."""
    dst = _destinations(a.indptr)
    src = a.indices[: len(dst)]
    return (a.own[dst] + a.z[src]).reshape(len(dst), *a.attention.shape), src, dst


def pair_scores(a: Given) -> Any:
    pairs, _, _ = _pairs(a)
    return (np.where(pairs > 0, pairs, a.slope * pairs) * a.attention).sum(axis=2)


def pair_scores_backward(a: Given) -> Any:
    pairs, src, dst = _pairs(a)
    grad = a.grad[:, :, None] * np.where(pairs > 0, 1.0, a.slope)
    rows = (grad * a.attention).reshape(len(dst), a.z.shape[1])
    ends = (_added(np.zeros(table.shape), at, rows) for table, at in ((a.own, dst), (a.z, src)))
    return np.concatenate([each.ravel() for each in (*ends, (grad * pairs).sum(axis=0))])


def expand_edges(a: Given) -> Any:
    dst = _destinations(a.indptr)
    return np.stack([a.indices[: len(dst)], dst + a.first_dst])


def csc_sort(a: Given) -> Any:
    kept = np.unique if a.drop_duplicates else np.sort
    lists = [kept(a.indices[begin:end]) for begin, end in pairwise(a.indptr)]
    return np.concatenate(lists) if lists else np.zeros(0, np.int64)


def edge_softmax(a: Given) -> Any:
    raised = _times(np.exp(a.scores), a.bias)
    parts = [raised[begin:end] / raised[begin:end].sum(axis=0) for begin, end in pairwise(a.indptr)]
    return np.concatenate(parts) if parts else raised


def count_cut(a: Given) -> Any:
    src, dst = a.owner[a.indices], np.repeat(a.owner, np.diff(a.indptr))
    kept = (src >= 0) & (dst >= 0)
    return _added(np.zeros((a.num_parts,) * 2, np.int64), (src[kept], dst[kept]), 1)


def hops_from(a: Given) -> Any:
    hops, dst = a.hops, _destinations(a.indptr)
    hops[a.vertices] = 0
    for hop in range(a.num_hops):
        np.minimum.at(hops, a.indices[hops[dst] == hop], hop + 1)
    return hops


def cached_after_one(a: Given) -> Any:
    """Return the slots of the second batch, 0 for any of the cache's."""
    first, then = a.vertices, a.then
    shared = -1 if a.match else 1  # against their next use
    order = np.lexsort((first, -a.priority[first], -shared * np.isin(first, then)))
    cached = set(first[order[: a.capacity]].tolist())
    held = {v: a.capacity + i for i, v in enumerate(first.tolist())} if a.match else {}
    return np.array([0 if v in cached else held.get(v, -1) for v in then.tolist()])


def _slots(args: dict[str, Any], answer: Any) -> Any:
    return np.where((answer >= 0) & (answer < int(args["capacity"])), 0, answer)


def _bytes(a: Given, num_vertices: int) -> Any:
    sizes = np.full(num_vertices, a.bytes_per_vertex)
    return sizes if a.offsets is None else sizes + a.bytes_per_entry * np.diff(a.offsets)


def hottest(a: Given) -> Any:
    ties = np.zeros_like(a.hotness) if a.tie_break is None else a.tie_break
    order, sizes = np.lexsort((-ties, -a.hotness)), _bytes(a, len(a.hotness))
    if a.max_bytes is not None:
        order = order[sizes[order] <= a.max_bytes]
    if a.only_hot:
        order = order[a.hotness[order] > 0]
    return order[np.cumsum(sizes[order]) - sizes[order] < a.capacity]


def share_out(a: Given) -> Any:
    local, left = np.stack(a.local, axis=1), a.capacities
    sizes, given = _bytes(a, len(local)), []
    for v in a.order:
        open_to = [k for k in range(len(left)) if left[k] >= sizes[v]]
        given.append(max(open_to, key=lambda k: (local[v, k], left[k], -k), default=-1))
        if given[-1] >= 0:
            left[given[-1]] -= sizes[v]
    return np.array(given, np.int64)


def running_sums(a: Given) -> Any:
    sums = np.cumsum([0, *(a.values + _bytes(a, len(a.values)))[a.order]])
    return sums[[*range(0, len(a.order), a.every), len(a.order)]]


def scatter_to_neighbors(a: Given) -> Any:
    return _added(1.0 * a.out, a.indices, np.repeat(a.values, np.diff(a.indptr)))


def count_uses(a: Given) -> Any:
    return _added(a.counts, a.vertices, 1)


def count_reads(a: Given) -> Any:
    return _added(a.counts, a.vertices, np.diff(a.indptr))


def count_in_degrees(a: Given) -> Any:
    return _added(a.counts, a.dst - a.first, 1)


def split_by_member(a: Given) -> Any:
    return np.concatenate([a.order[a.member == k] for k in range(a.num_members)])


#: Functions whose right answer is compared with what they return, or with an argument afterwards.
_BY_PLACE: dict[str, tuple[Callable[[Given], Any], ...]] = {
    "": (count_slots, gather_columns, count_cut, hottest, running_sums, edge_softmax),
    "out": (
        *(add_rows, aggregate, aggregate_max, aggregate_max_backward, edge_dot, expand_edges),
        *(pair_scores, scatter_to_neighbors),
    ),
    "x": (adam_rows, adagrad_rows),
    **{"counts": (count_uses, count_reads, count_in_degrees), "target": (copy_rows,)},
    "hops": (hops_from,),
}
#: By function: the right answer, and its place after the call: an argument, or a function.
REFERENCES: dict[str, tuple[Callable[[Given], Any], str | Callable[..., Any]]] = {
    **{each.__name__: (each, place) for place, every in _BY_PLACE.items() for each in every},
    **dict.fromkeys(
        ("gather", "gather_from_disk"), (lambda a: a.x[a.ids][:, : a.out.shape[1]], "out")
    ),
    "gather_cached": (gather_cached, lambda args, counts: np.append(_wide(args["out"]), counts)),
    "RankedSlots.gather_cached": (gather_ranked, ""),
    "RowReader.submit": (read_rows, _bytes_of_pool),
    "DiskLists": (neighbors_of_seeds, ""),
    "arrange_block": (arrange_block, _sums_of_rows),
    "transpose_block": (
        lambda a: np.bincount(a.indices, minlength=a.num_src),
        lambda _, answer: np.diff(answer[0]),
    ),
    "csc_sort": (csc_sort, lambda args, ends: np.asarray(args["indices"])[: int(ends[-1])]),
    "share_out": (share_out, lambda _, answer: answer.member),
    "split_by_member": (split_by_member, lambda _, answer: np.concatenate(answer)),
    "NativeReplacement.advance": (cached_after_one, _slots),
    "pair_scores_backward": (
        pair_scores_backward,
        lambda _, answer: np.concatenate([_wide(each).ravel() for each in answer]),
    ),
    "relu_dropout_backward": (lambda a: np.where(a.y > 0, a.grad * a.scale, 0), ""),
}


def expected_of(function: str, args: dict[str, Any]) -> Any:
    """Return the right answer from the arguments before the call; None if nothing computes it."""
    return REFERENCES[function][0](Given(args)) if function in REFERENCES else None


def found_of(function: str, args: dict[str, Any], answer: Any) -> Any:
    """Return what the call came to, in the same form."""
    place = REFERENCES[function][1]
    return place(args, answer) if callable(place) else _wide(args[place] if place else answer)


def wrong(expected: Any, found: Any) -> bool:
    """Whether an answer differs by more than bfloat16 rounds."""
    return expected.shape != found.shape or not np.allclose(found, expected, rtol=2e-2, atol=0.3)
