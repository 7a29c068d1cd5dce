from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.cache.store.static import CachedFeatures, slots_of
from gnnscale.feature import HostFeatures
from gnnscale.graph import Graph
from gnnscale.stages import Access, Traffic

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)
COMPUTE = (torch.float32, torch.bfloat16)


def test_slots_follow_the_members_of_a_clique() -> None:
    caches = [np.array([4, 1]), np.array([], np.int32), np.array([0, 5])]
    slots = slots_of(6, caches)
    assert slots.starts.tolist() == [0, 2, 2, 4]
    # Of each vertex, the member that has it, and 3 for the host.
    members = [
        ops.count_slots(slots, np.array([vertex]), slots.starts, num_threads=1).argmax()
        for vertex in range(6)
    ]
    assert members == [2, 0, 3, 3, 0, 2]
    # Rows lie in the order of the lists.
    rows = [np.array([[4.0], [1.0]], np.float32), np.empty((0, 1), np.float32)]
    rows.append(np.array([[0.0], [5.0]], np.float32))
    host = np.full((6, 1), -1, np.float32)
    out = torch.empty(6, 1)
    pairs = [(each, "float32") for each in rows]
    ops.gather_cached((host, "float32"), pairs, slots, np.arange(6), out=out, num_threads=1)
    assert out[:, 0].tolist() == [0, 1, -1, -1, 4, 5]


def cached(host: HostFeatures, kept: list[NDArray[Any]], own: int) -> CachedFeatures:
    rows, _ = host.stored
    copies = [rows[vertices].copy() for vertices in kept]
    return CachedFeatures(host, copies, slots_of(host.num_rows, kept), own=own)


@pytest.mark.parametrize("stored", DTYPES)
@pytest.mark.parametrize("dtype", COMPUTE)
def test_rows_are_those_of_the_host_bit_for_bit(
    random_graph: Callable[..., Graph], stored: torch.dtype, dtype: torch.dtype
) -> None:
    host = HostFeatures.of(random_graph(dtype=stored))
    generator = np.random.default_rng(0)
    vertices = generator.integers(0, 300, 500)
    for num_members, fraction in ((1, 0.0), (1, 0.3), (1, 1.0), (3, 0.7)):
        order = generator.permutation(300)[: int(300 * fraction)]
        kept = [order[each::num_members] for each in range(num_members)]
        for own in range(num_members):
            store = cached(host, kept, own)
            expected, _ = host.gather(vertices, dtype=dtype, num_threads=1)
            for threads in (1, 2):
                found, traffic = store.gather(vertices, dtype=dtype, num_threads=threads)
                assert found.dtype == dtype
                assert torch.equal(found, expected)
                hits = int(np.isin(vertices, kept[own]).sum())
                misses = 500 - int(np.isin(vertices, order).sum())
                peers = 500 - hits - misses
                assert traffic == Traffic(
                    rows=Access(
                        hits=hits,
                        peer_hits=peers,
                        misses=misses,
                        host_bytes=misses * host.row_bytes,
                        peer_bytes=peers * host.row_bytes,
                    )
                )


def test_rows_are_read_where_they_are_kept() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    host = HostFeatures(rows, "float32")
    store = cached(host, [np.array([1]), np.array([4])], own=1)
    rows[:] = -1
    found, traffic = store.gather(np.array([0, 1, 4, 4]), dtype=torch.float32, num_threads=1)
    assert found.tolist() == [[-1, -1], [2, 3], [8, 9], [8, 9]]
    assert traffic.rows == Access(hits=2, peer_hits=1, misses=1, host_bytes=8, peer_bytes=8)


def test_a_cache_has_the_shape_of_its_host(random_graph: Callable[..., Graph]) -> None:
    host = HostFeatures.of(random_graph(dtype=torch.float16))
    store = cached(host, [np.array([3])], own=0)
    assert (store.num_rows, store.width, store.row_bytes) == (300, 20, 40)
    empty, traffic = store.gather(np.array([], np.int64), dtype=torch.float32, num_threads=1)
    assert empty.shape == (0, 20)
    assert traffic == Traffic()


@given(st.data())
def test_every_row_is_found_in_one_place(data: st.DataObject) -> None:
    num_vertices = data.draw(st.integers(1, 12))
    # Which member keeps each vertex, 3 for none.
    owner = data.draw(st.lists(st.integers(0, 3), min_size=num_vertices, max_size=num_vertices))
    asked = data.draw(st.lists(st.integers(0, num_vertices - 1), max_size=20))
    own = data.draw(st.integers(0, 2))
    rows = np.arange(num_vertices, dtype=np.float32)[:, None]
    kept = [np.flatnonzero(np.array(owner) == member) for member in range(3)]
    store = cached(HostFeatures(rows, "float32"), kept, own)
    found, traffic = store.gather(np.array(asked, np.int64), dtype=torch.float32, num_threads=1)
    assert found[:, 0].tolist() == asked
    places = [owner[vertex] for vertex in asked]
    access = traffic.rows
    assert access.hits == places.count(own)
    assert access.misses == places.count(3)
    assert access.hits + access.peer_hits + access.misses == len(asked)
