from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.ops import ArrangedBlock, EdgeTiles

NULL = MOST = 0x7FFFFFFF
FIRST = 1 << 31


def e(weight: float, destination: int, first: bool = False) -> int:
    bits = int(np.float32(weight).view(np.uint32))
    return bits << 32 | destination | (FIRST if first else 0)


def ids(*values: int) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def edges_of(given: dict[str, Any]) -> list[tuple[int, int, int, float]]:
    weights, scale, own = given["weights"], given["dst_scale"], given["self_scale"]
    term, one = given["self_term"], np.float32(1)
    found = []
    for v, dst in enumerate(given["destinations"].tolist()):
        if term is not None:
            added = term == "add" and own is not None
            found.append((0, v, dst, own[dst] if added else one))
        for k in range(given["indptr"][dst], given["indptr"][dst + 1]):
            weight = one if weights is None else weights[k]
            weight = weight * (one if scale is None else scale[dst])
            found.append((int(term == "concat"), v, int(given["indices"][k]), weight))
    return found


def sources_of(given: dict[str, Any]) -> list[int]:
    wanted, indptr = given["destinations"].tolist(), given["indptr"]
    lists = [given["indices"][indptr[dst] : indptr[dst + 1]].tolist() for dst in wanted]
    order = list(wanted)
    for j in range(max(map(len, lists), default=0)):
        for x in range(len(lists)):
            neighbors = lists[(x - j) % len(lists)]
            if len(neighbors) > j and neighbors[j] not in order:
                order.append(neighbors[j])
    return order


def written(rows: list[list[tuple[int, float]]]) -> list[int]:
    entries = []
    for row in rows:
        for number, (destination, weight) in enumerate(row or [(NULL, 0.0)]):
            entries.append(e(weight, destination, number == 0))
    return entries + [NULL] * (-len(entries) % 8)


def tiles_of(lists: list[tuple[list[int], int]]) -> tuple[list[int], list[list[int]]]:
    edges, tiles = [], []
    for entries, rows in lists:
        tiles.append([len(edges) // 8, len(entries) // 8, rows])
        edges += entries
    return edges, tiles


def slow_answer(given: dict[str, Any]) -> Any:
    order, edges = sources_of(given), edges_of(given)
    place = {source: p for p, source in enumerate(order)}
    num_destinations, slots = len(given["destinations"]), 1 + (given["self_term"] == "concat")
    forward = []
    for first in range(0, num_destinations, given["tile_rows"]):
        rows = min(given["tile_rows"], num_destinations - first)
        stride = (rows + 15) // 16 * 16
        entries: list[list[tuple[int, float]]] = [[] for _ in order]
        for slot, v, source, weight in edges:
            if first <= v < first + rows:
                entries[place[source]].append((slot * stride + v - first, weight))
        forward.append((written(entries), rows))
    if given["backward_tile_rows"] is None:
        return order, tiles_of(forward), None
    backward = []
    for first in range(0, len(order), given["backward_tile_rows"]):
        rows = min(given["backward_tile_rows"], len(order) - first)
        entries = [[] for _ in range(slots * num_destinations)]
        for slot, v, source, weight in sorted(edges, key=lambda edge: place[edge[2]]):
            if first <= place[source] < first + rows:
                entries[slot * num_destinations + v].append((place[source] - first, weight))
        backward.append((written(entries), rows))
    return order, tiles_of(forward), tiles_of(backward)


def lists_of(made: EdgeTiles | None) -> Any:
    return None if made is None else (made.edges.tolist(), made.tiles.tolist())


@st.composite
def blocks(draw: st.DrawFn) -> dict[str, Any]:
    num_dst = draw(st.integers(0, 12))
    num_src = num_dst + draw(st.integers(1, 12))
    degrees = draw(st.lists(st.integers(0, 6), min_size=num_dst, max_size=num_dst))
    indptr = np.cumsum([0, *degrees])
    size = int(indptr[-1])
    source = st.integers(0, draw(st.integers(0, num_src - 1)))
    wanted = draw(st.lists(st.sampled_from(range(num_dst)), unique=True)) if num_dst else []
    quarters = st.integers(-8, 8).map(lambda number: number / 4)

    def floats(count: int) -> Any:
        given = draw(st.lists(quarters, min_size=count, max_size=count))
        return np.array(given, np.float32) if draw(st.booleans()) else None

    indices = draw(st.lists(source, min_size=size, max_size=size))
    return {
        **{"indptr": indptr, "indices": ids(*indices), "num_src": num_src},
        **{"destinations": ids(*wanted), "weights": floats(size)},
        **{"dst_scale": floats(num_dst), "self_scale": floats(num_dst)},
        "self_term": draw(st.sampled_from(["add", "concat", None])),
        "tile_rows": draw(st.sampled_from([1, 2, 3, 5, 16, 2**30])),
        "backward_tile_rows": draw(st.sampled_from([None, 1, 2, 4, 7, 2**30])),
    }


@pytest.mark.long
@settings(max_examples=100)
@given(blocks())
def test_blocks_are_those_of_the_definition(given: dict[str, Any]) -> None:
    made = ops.arrange_block(**given)
    arranged = made.sources.tolist(), lists_of(made.forward), lists_of(made.backward)
    assert arranged == slow_answer(given)
    dtypes = made.sources.dtype, made.forward.edges.dtype, made.forward.tiles.dtype
    assert dtypes == (np.int32, np.uint64, np.int64)


def entries_of(tiles: EdgeTiles, num_sources: int, slots: int) -> list[tuple[int, int, int, int]]:
    found = []
    first = 0
    for word, words, rows in tiles.tiles.tolist():
        stride = (rows + 15) // 16 * 16
        source = -1
        for entry in tiles.edges[word * 8 : (word + words) * 8].tolist():
            source += entry >> 31 & 1
            assert 0 <= source < num_sources
            index = entry & NULL
            if index == NULL:
                assert entry >> 32 == 0
                continue
            slot, row = divmod(index, stride) if slots > 1 else (0, index)
            assert row < rows
            found.append((source, slot, first + row, entry >> 32))
        assert source == num_sources - 1
        first += rows
    return sorted(found)


@pytest.mark.long
@settings(max_examples=60)
@given(blocks(), st.sampled_from([2, 3, 4, 8, 16, 256]))
def test_banks_change_nothing_but_the_order(given: dict[str, Any], num_banks: int) -> None:
    one, many = (ops.arrange_block(**given, num_banks=banks) for banks in (1, num_banks))
    num_sources, num_rows = len(one.sources), len(given["destinations"])
    assert sorted(many.sources.tolist()) == sorted(one.sources.tolist())
    slots = 1 + (given["self_term"] == "concat")
    if slots == 2:
        assert many.sources[:num_rows].tolist() == given["destinations"].tolist()
    assert many.forward.tiles[:, 2].tolist() == one.forward.tiles[:, 2].tolist()
    # A quarter of the entries may be left out, and a word may be filled.
    assert (many.forward.tiles[:, 1] <= one.forward.tiles[:, 1] * 1.25 + 1).all()

    def forward(made: ArrangedBlock) -> Any:
        found = entries_of(made.forward, num_sources, slots)
        return sorted((slot * num_rows + v, made.sources[p], w) for p, slot, v, w in found)

    def backward(made: ArrangedBlock) -> Any:
        found = entries_of(made.backward, slots * num_rows, 1)
        return sorted((row, made.sources[p], w) for row, _, p, w in found)

    assert forward(one) == forward(many)
    assert (one.backward is None) == (many.backward is None)
    if one.backward is not None:
        # Both directions have the same edges.
        assert backward(one) == backward(many) == forward(many)


def columns(rows: NDArray[Any], picked: Any, num_words: int) -> NDArray[np.float32]:
    wide = np.zeros((len(picked), num_words * 16), np.float32)
    wide[:, : rows.shape[1]] = rows[picked]
    return np.ascontiguousarray(wide.reshape(len(picked), num_words, 16).transpose(1, 0, 2))


@settings(max_examples=40)
@given(st.data())
def test_columns_are_those_of_numpy(data: st.DataObject) -> None:
    num_rows, width = data.draw(st.integers(1, 20)), data.draw(st.integers(0, 70))
    apart = width + data.draw(st.integers(0, 3))
    name = data.draw(st.sampled_from(["float32", "float16", "uint8"]))
    x = (np.arange(num_rows * apart) % 251).astype(name).reshape(num_rows, apart)[:, :width]
    place = st.integers(0, num_rows - 1)
    dtype = data.draw(st.sampled_from([np.int32, np.int64]))
    picked = np.array(data.draw(st.lists(place, max_size=40)), dtype)
    words = (width + 15) // 16
    expected = columns(x, picked, words)
    for threads in (1, 3):
        for rows in (x, (x, name), torch.from_numpy(x)):
            found = ops.gather_columns(rows, picked, num_threads=threads)
            assert np.array_equal(found, expected)
    more = words + data.draw(st.integers(0, 2))
    out = np.full((more, len(picked), 16), -1, np.float32)
    assert ops.gather_columns(x, picked, out=out, num_threads=2) is out
    assert np.array_equal(out, columns(x, picked, more))
    if more:
        found = ops.gather_columns(x, picked, num_columns_words=more, num_threads=1)
        assert found.dtype == np.float32
        assert np.array_equal(found, out)
