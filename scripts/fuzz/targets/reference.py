"""Slow answers in NumPy to compare the answers of ``ops`` with."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch


def _matrix(rows: Any) -> Any:
    if isinstance(rows, torch.Tensor):
        return rows.detach().to(torch.float64).numpy()
    array, name = rows
    if name == "bfloat16":
        return (np.asarray(array).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.asarray(array, np.float64)


def _ints(values: Any) -> Any:
    return np.asarray(values).astype(np.int64)


def gather(args: dict[str, Any]) -> Any:
    return _matrix(args["x"])[_ints(args["ids"])]


def _members(args: dict[str, Any], starts: Any) -> tuple[Any, Any]:
    """Return the cache and the slot of every vertex; a cache beyond the last if none has it."""
    slots = _ints(args["slots"])[_ints(args["vertices"])]
    found = np.searchsorted(starts, slots, side="right") - 1
    return np.where(slots < 0, len(starts) - 1, found), slots


def gather_cached(args: dict[str, Any]) -> Any:
    caches = [_matrix(each) for each in args["caches"]]
    starts = np.cumsum([0, *map(len, caches)])
    member, slots = _members(args, starts)
    rows = _matrix(args["host"])[_ints(args["vertices"])]
    every = np.concatenate([*caches, np.zeros((1, rows.shape[1]))])  # one if there is no cache
    rows = np.where((slots >= 0)[:, None], every[slots], rows)
    return np.concatenate([rows.ravel(), np.bincount(member, minlength=len(starts))])


def gather_ranked(args: dict[str, Any]) -> Any:
    table = np.full(int(args["num_vertices"]), -1)
    for slot, vertex in enumerate([v for each in args["members"] for v in _ints(each).tolist()]):
        table[vertex] = slot
    return table[_ints(args["vertices"])]


def count_slots(args: dict[str, Any]) -> Any:
    starts = _ints(args["starts"])
    member, _ = _members(args, starts)
    weights = args["weights"]
    degrees = np.ones(len(member), np.int64) if weights is None else np.diff(_ints(weights))
    counts = np.zeros(len(starts), np.int64)
    np.add.at(counts, member, degrees[: len(member)])
    return counts


def count_uses(args: dict[str, Any]) -> Any:
    counts = _ints(args["counts"]).copy()
    degrees = np.diff(_ints(args["indptr"])) if "indptr" in args else 1
    np.add.at(counts, _ints(args["vertices"]), degrees)
    return counts


def copy_rows(args: dict[str, Any]) -> Any:
    target = np.array(_matrix(args["target"]))
    target[_ints(args["slots_of_target"])] = _matrix(args["source"])[_ints(args["vertices"])]
    return target


def aggregate(args: dict[str, Any]) -> Any:
    x, indptr, indices = _matrix(args["x"]), _ints(args["indptr"]), _ints(args["indices"])
    rows = indices if args["ids"] is None else _ints(args["ids"])
    if args["ids"] is not None and not args["ids_per_edge"]:
        rows = rows[indices]
    messages = x[rows]
    if args["weights"] is not None:
        messages = messages * np.asarray(args["weights"], np.float64)[:, None]
    out = np.zeros((len(indptr) - 1, x.shape[1]))
    dst = np.repeat(np.arange(len(out)), np.diff(indptr))
    np.add.at(out, dst, messages[: len(dst)])
    if args["dst_scale"] is not None:
        out *= np.asarray(args["dst_scale"], np.float64)[:, None]
    num_self = int(args["num_self"])
    if num_self:
        own = _matrix(args["self_rows"])
        own = own[:num_self] if args["self_ids"] is None else own[_ints(args["self_ids"])]
        if args["self_scale"] is not None:
            own = own * np.asarray(args["self_scale"], np.float64)[:, None]
        out[:num_self] += own[:num_self]
    if args["gate"] is not None:
        out[_matrix(args["gate"]) <= 0] = 0
    return out


def add_rows(args: dict[str, Any]) -> Any:
    messages = _matrix(args["x"])[_ints(args["ids"])]
    if args["weights"] is not None:
        messages = messages * np.asarray(args["weights"], np.float64)[:, None]
    out = np.array(_matrix(args["out"]))
    dst = np.repeat(_ints(args["out_ids"]), np.diff(_ints(args["indptr"])))
    np.add.at(out, dst, messages)
    return out


def arrange_block(args: dict[str, Any]) -> Any:
    """Return the sums of the weights that each wanted destination takes of its sources."""
    indptr, indices, wanted = (_ints(args[name]) for name in ("indptr", "indices", "destinations"))
    weights, scale, own = (args[name] for name in ("weights", "dst_scale", "self_scale"))
    every = np.ones(len(indices)) if weights is None else np.asarray(weights, np.float64)
    sums = np.zeros(len(wanted))
    for v, dst in enumerate(wanted):
        sums[v] = every[indptr[dst] : indptr[dst + 1]].sum()
        sums[v] *= 1 if scale is None else scale[dst]
        if args["self_term"] is not None:
            sums[v] += 1 if own is None or args["self_term"] == "concat" else own[dst]
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


def gather_columns(args: dict[str, Any]) -> Any:
    x, picked, out = _matrix(args["x"]), _ints(args["ids"]), args["out"]
    words = int(args["num_columns_words"]) if out is None else len(out)
    wide = np.zeros((len(picked), words * 16))
    wide[:, : x.shape[1]] = x[picked]
    return wide.reshape(len(picked), words, 16).transpose(1, 0, 2)


def edge_dot(args: dict[str, Any]) -> Any:
    indptr, indices = _ints(args["indptr"]), _ints(args["indices"])
    dst = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return (_matrix(args["a"])[dst] * _matrix(args["x"])[indices[: len(dst)]]).sum(axis=1)


def expand_edges(args: dict[str, Any]) -> Any:
    indptr = _ints(args["indptr"])
    dst = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)) + int(args["first_dst"])
    return np.stack([_ints(args["indices"])[: len(dst)], dst])


def count_in_degrees(args: dict[str, Any]) -> Any:
    dst = _ints(args["dst"]) - int(args["first"])
    return np.bincount(dst, minlength=len(args["counts"])) + _ints(args["counts"])


def transpose_block(args: dict[str, Any]) -> Any:
    return np.bincount(_ints(args["indices"]), minlength=int(args["num_src"]))


def csc_sort(args: dict[str, Any]) -> Any:
    indptr, indices = _ints(args["indptr"]), _ints(args["indices"])
    lists = [np.sort(indices[a:b]) for a, b in pairwise(indptr)]
    if args["drop_duplicates"]:
        lists = [np.unique(each) for each in lists]
    return np.concatenate(lists) if lists else np.zeros(0, np.int64)


def relu_dropout_backward(args: dict[str, Any]) -> Any:
    y, grad = (args[name].detach().to(torch.float64).numpy() for name in ("y", "grad"))
    return np.where(y > 0, grad * args["scale"], 0)


def edge_softmax(args: dict[str, Any]) -> Any:
    indptr, scores = _ints(args["indptr"]), _matrix(args["scores"])
    bias = np.ones(len(scores)) if args["bias"] is None else np.asarray(args["bias"], np.float64)
    parts = []
    for begin, end in pairwise(indptr):
        raised = np.exp(scores[begin:end]) * bias[begin:end, None]
        parts.append(raised / raised.sum(axis=0))
    return np.concatenate(parts) if parts else np.zeros((0, scores.shape[1]))


def count_cut(args: dict[str, Any]) -> Any:
    indptr, owner = _ints(args["indptr"]), _ints(args["owner"])
    counts = np.zeros((int(args["num_parts"]),) * 2, np.int64)
    src = owner[_ints(args["indices"])]
    dst = np.repeat(owner, np.diff(indptr))
    kept = (src >= 0) & (dst >= 0)
    np.add.at(counts, (src[kept], dst[kept]), 1)
    return counts


def hops_from(args: dict[str, Any]) -> Any:
    indptr, indices, hops = (_ints(args[name]) for name in ("indptr", "indices", "hops"))
    hops = hops.copy()
    hops[_ints(args["vertices"])] = 0
    dst = np.repeat(np.arange(len(hops)), np.diff(indptr))
    for hop in range(int(args["num_hops"])):
        np.minimum.at(hops, indices[hops[dst] == hop], hop + 1)
    return hops


def cached_after_one(args: dict[str, Any]) -> Any:
    """Return the slots of the second batch, 0 for any of the cache's."""
    first, then = _ints(args["vertices"]), _ints(args["then"])
    priority, capacity = _ints(args["priority"]), int(args["capacity"])
    shared = -1 if args["match"] else 1  # against their next use
    order = np.lexsort((first, -priority[first], -shared * np.isin(first, then)))
    cached = set(first[order[:capacity]].tolist())
    held = {v: capacity + i for i, v in enumerate(first.tolist())} if args["match"] else {}
    return np.array([0 if v in cached else held.get(v, -1) for v in then.tolist()])


def _slots(args: dict[str, Any], answer: Any) -> Any:
    return np.where((answer >= 0) & (answer < int(args["capacity"])), 0, answer)


def _bytes(args: dict[str, Any], num_vertices: int) -> Any:
    sizes = np.full(num_vertices, int(args["bytes_per_vertex"]))
    if args["offsets"] is not None:
        sizes += int(args["bytes_per_entry"]) * np.diff(_ints(args["offsets"]))
    return sizes


def hottest(args: dict[str, Any]) -> Any:
    hotness = _ints(args["hotness"])
    ties = np.zeros_like(hotness) if args["tie_break"] is None else _ints(args["tie_break"])
    order, sizes = np.lexsort((-ties, -hotness)), _bytes(args, len(hotness))
    if args["max_bytes"] is not None:
        order = order[sizes[order] <= int(args["max_bytes"])]
    if args["only_hot"]:
        order = order[hotness[order] > 0]
    sizes = sizes[order]
    return order[np.cumsum(sizes) - sizes < int(args["capacity"])]


def share_out(args: dict[str, Any]) -> Any:
    local, left = np.stack(args["local"], axis=1), _ints(args["capacities"]).copy()
    sizes, given = _bytes(args, len(local)), []
    for v in _ints(args["order"]):
        open_to = [k for k in range(len(left)) if left[k] >= sizes[v]]
        given.append(max(open_to, key=lambda k: (local[v, k], left[k], -k), default=-1))
        if given[-1] >= 0:
            left[given[-1]] -= sizes[v]
    return np.array(given, np.int64)


def running_sums(args: dict[str, Any]) -> Any:
    order, values = _ints(args["order"]), _ints(args["values"])
    sums = np.cumsum([0, *(values + _bytes(args, len(values)))[order]])
    return sums[[*range(0, len(order), int(args["every"])), len(order)]]


def split_by_member(args: dict[str, Any]) -> Any:
    order, member = _ints(args["order"]), _ints(args["member"])
    return np.concatenate([order[member == k] for k in range(int(args["num_members"]))])


def scatter_to_neighbors(args: dict[str, Any]) -> Any:
    values = np.repeat(np.asarray(args["values"]), np.diff(_ints(args["indptr"])))
    expected = np.array(args["out"])
    np.add.at(expected, _ints(args["indices"]), values)
    return expected


def _out(args: dict[str, Any], answer: Any) -> Any:
    is_tensor = isinstance(args["out"], torch.Tensor)
    return _matrix(args["out"]) if is_tensor else np.asarray(args["out"])


def _sorted_lists(args: dict[str, Any], answer: Any) -> Any:
    return np.asarray(args["indices"])[: int(answer[-1])]


def _tensor(args: dict[str, Any], answer: Any) -> Any:
    return answer.to(torch.float64).numpy()


Reference = Callable[[dict[str, Any]], Any]
Answer = Callable[[dict[str, Any], Any], Any]
#: By function: the right answer from the arguments before the call, and where it is afterwards.
REFERENCES: dict[str, tuple[Reference, Answer]] = {
    "gather": (gather, _out),
    "gather_from_disk": (gather, _out),
    "gather_cached": (gather_cached, lambda args, counts: np.append(_out(args, None), counts)),
    "RankedSlots.gather_cached": (gather_ranked, lambda _, answer: answer),
    "count_slots": (count_slots, lambda _, answer: answer),
    "count_uses": (count_uses, lambda args, _: np.asarray(args["counts"])),
    "count_reads": (count_uses, lambda args, _: np.asarray(args["counts"])),
    "copy_rows": (copy_rows, lambda args, _: _matrix(args["target"])),
    "add_rows": (add_rows, _out),
    "aggregate": (aggregate, _out),
    "arrange_block": (arrange_block, _sums_of_rows),
    "gather_columns": (gather_columns, lambda _, answer: answer),
    "edge_dot": (edge_dot, _out),
    "expand_edges": (expand_edges, _out),
    "count_in_degrees": (count_in_degrees, lambda args, _: np.asarray(args["counts"])),
    "transpose_block": (transpose_block, lambda _, answer: np.diff(answer[0])),
    "csc_sort": (csc_sort, _sorted_lists),
    "count_cut": (count_cut, lambda _, answer: answer),
    "hottest": (hottest, lambda _, answer: answer),
    "share_out": (share_out, lambda _, answer: answer.member),
    "running_sums": (running_sums, lambda _, answer: answer),
    "split_by_member": (split_by_member, lambda _, answer: np.concatenate(answer)),
    "scatter_to_neighbors": (scatter_to_neighbors, _out),
    "hops_from": (hops_from, lambda args, _: np.asarray(args["hops"])),
    "NativeReplacement.advance": (cached_after_one, _slots),
    "relu_dropout_backward": (relu_dropout_backward, _tensor),
    "edge_softmax": (edge_softmax, _tensor),
}


def wrong(expected: Any, found: Any) -> bool:
    """Whether an answer differs by more than bfloat16 rounds."""
    return expected.shape != found.shape or not np.allclose(found, expected, rtol=2e-2, atol=0.3)
