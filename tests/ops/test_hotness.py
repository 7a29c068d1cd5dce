from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnscale import ops


def slow_hottest(
    hotness: Any, tie_break: Any, capacity: int, sizes: Any, left_out: Any
) -> list[int]:
    ties = np.zeros(len(hotness)) if tie_break is None else -tie_break.astype(object)
    order = np.lexsort((np.arange(len(hotness)), ties, -hotness.astype(object)))
    order = order[~left_out[order]]
    begin = np.cumsum(sizes[order]) - sizes[order]
    return [int(v) for v in order[begin < capacity]]


@st.composite
def byte_sizes(draw: st.DrawFn, num_vertices: int) -> tuple[dict[str, Any], NDArray[np.int64]]:
    each = draw(st.integers(0, 9))
    if draw(st.booleans()):
        return {"bytes_per_vertex": each}, np.full(num_vertices, each)
    lists = draw(st.lists(st.integers(0, 5), min_size=num_vertices, max_size=num_vertices))
    offsets, entry = np.cumsum([0, *lists]), draw(st.integers(0, 9))
    sizes = {"bytes_per_vertex": each, "offsets": offsets, "bytes_per_entry": entry}
    return sizes, np.array(lists, np.int64) * entry + each


@pytest.mark.long
@settings(max_examples=60)
@given(st.data())
def test_the_hottest_vertices_are_the_first_of_all_sorted(data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 40))
    dtype = data.draw(st.sampled_from([np.int32, np.int64, np.float32]))
    limit = np.iinfo(dtype).max if dtype != np.float32 else 2**24
    value = st.integers(0, 3) | st.integers(0, limit)
    hotness = np.array(data.draw(st.lists(value, min_size=n, max_size=n)), dtype)
    if dtype == np.float32:
        hotness /= np.float32(7)
    tie_type = data.draw(st.sampled_from([np.int32, np.int64, None]))
    tie_break = None
    if tie_type is not None:
        ties = st.integers(0, 2) | st.integers(0, np.iinfo(tie_type).max - 1)
        tie_break = np.array(data.draw(st.lists(ties, min_size=n, max_size=n)), tie_type)
    sizes, of_vertex = data.draw(byte_sizes(n))
    capacity = data.draw(st.integers(0, int(of_vertex.sum()) + 5))
    max_bytes = data.draw(st.none() | st.integers(0, int(of_vertex.max(initial=0))))
    only_hot = data.draw(st.booleans())
    too_large = of_vertex > (2**62 if max_bytes is None else max_bytes)
    left_out = too_large | (only_hot & (hotness == 0))
    expected = slow_hottest(hotness, tie_break, capacity, of_vertex, left_out)
    sizes |= {"capacity": capacity, "max_bytes": max_bytes, "only_hot": only_hot}
    for threads in (1, 3):
        found = ops.hottest(hotness, tie_break, num_threads=threads, **sizes)
        assert found.dtype == np.int32
        assert found.tolist() == expected


def slow_share_out(order: list[int], local: Any, capacities: list[int], sizes: Any) -> list[int]:
    left, given_to = list(capacities), []
    for v in order:
        open_to = [k for k in range(len(left)) if left[k] >= sizes[v]]
        member = max(open_to, key=lambda k: (local[k][v], left[k], -k), default=-1)
        given_to.append(member)
        if member >= 0:
            left[member] -= int(sizes[v])
    return given_to


@pytest.mark.long
@settings(max_examples=60)
@given(st.data())
def test_sharing_out_is_algorithm_1_with_room(data: st.DataObject) -> None:
    n, num_members = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 4))
    dtype = data.draw(st.sampled_from([np.int32, np.float32]))
    values = st.lists(st.integers(0, 3), min_size=n, max_size=n)
    local = [np.array(data.draw(values), dtype) for _ in range(num_members)]
    sizes, of_vertex = data.draw(byte_sizes(n))
    room = st.integers(0, int(of_vertex.sum()))
    capacities = data.draw(st.lists(room, min_size=num_members, max_size=num_members))
    order = data.draw(st.permutations(range(n)))[: data.draw(st.integers(0, n))]
    expected = slow_share_out(list(order), local, capacities, of_vertex)
    for threads in (1, 2):
        ids = np.array(order, data.draw(st.sampled_from([np.int32, np.int64])))
        room = {"capacities": np.array(capacities), **sizes}
        found = ops.share_out(ids, local, num_threads=threads, **room)
        assert found.member.dtype == np.int16
        assert found.member.tolist() == expected
        for k in range(num_members):
            taken = [v for v, member in zip(order, expected, strict=True) if member == k]
            assert found.bytes[k] == of_vertex[taken].sum()
            if found.reads is not None:
                assert found.reads[:, k].tolist() == [each[taken].sum() for each in local]
        assert (found.reads is None) == (dtype == np.float32)


@pytest.mark.long
@settings(max_examples=50)
@given(st.data())
def test_scattering_adds_in_the_order_of_the_edges(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 12))
    neighbours = st.lists(st.integers(0, n - 1), max_size=6)
    lists = data.draw(st.lists(neighbours, min_size=n, max_size=n))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    value = st.floats(-1e6, 1e6, width=32) | st.just(0.0)
    values = np.array(data.draw(st.lists(value, min_size=n, max_size=n)), dtype)
    out = np.array(data.draw(st.lists(value, min_size=n, max_size=n)), dtype)
    expected = out.copy()
    for v, each in enumerate(lists):
        for u in each:
            expected[u] += values[v]
    indptr = np.cumsum([0, *map(len, lists)])
    ids = data.draw(st.sampled_from([np.int32, np.int64]))
    indices = np.array([u for each in lists for u in each], ids)
    for threads in (1, 3):
        found = out.copy()
        ops.scatter_to_neighbors(indptr, indices, values, found, num_threads=threads)
        assert found.tolist() == expected.tolist()
