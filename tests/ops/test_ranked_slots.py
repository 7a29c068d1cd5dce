from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnscale import ops


def slots_by(ranked: ops.RankedSlots, num_vertices: int) -> list[int]:
    """Return the slot of every vertex, -1 for none: what its row holds in the caches."""
    starts = ranked.starts
    host = torch.full((num_vertices, 1), -1.0)
    rows = torch.arange(float(starts[-1])).view(-1, 1)
    caches = list(rows.split(np.diff(starts).tolist())) if len(starts) > 1 else []
    out = torch.empty(num_vertices, 1)
    vertices = np.arange(num_vertices)
    ops.gather_cached(host, caches, ranked, vertices, out=out, num_threads=1)
    return [int(slot) for slot in out[:, 0]]


def table_of(num_vertices: int, members: list[NDArray[Any]]) -> list[int]:
    table = np.full(num_vertices, -1, np.int64)
    for slot, vertex in enumerate([v for vertices in members for v in vertices.tolist()]):
        table[vertex] = slot
    return [int(slot) for slot in table]


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 300), st.integers(1, 5), st.booleans(), st.booleans(), st.data())
def test_slots_are_those_of_a_table(
    num_vertices: int, num_members: int, ascending: bool, repeated: bool, data: st.DataObject
) -> None:
    vertex = st.integers(0, num_vertices - 1)
    every = data.draw(st.lists(vertex, unique=not repeated))
    cuts = sorted(data.draw(st.integers(0, len(every))) for _ in range(num_members - 1))
    dtype = data.draw(st.sampled_from([np.int32, np.int64]))
    members = np.split(np.array(every, dtype), cuts)
    if ascending:
        members = [np.sort(vertices) for vertices in members]
    ranked = ops.RankedSlots(num_vertices, members)
    assert ranked.starts.tolist() == [0, *cuts, len(every)]
    assert slots_by(ranked, num_vertices) == table_of(num_vertices, members)


def test_slots_by_hand() -> None:
    one = ops.RankedSlots(200, [np.array([3, 64, 127, 199])])
    slots = slots_by(one, 200)
    assert [(v, slot) for v, slot in enumerate(slots) if slot >= 0] == [
        *((3, 0), (64, 1), (127, 2), (199, 3))
    ]
    two = ops.RankedSlots(4, [np.array([3]), np.array([0, 2], np.int32)])
    assert two.starts.tolist() == [0, 1, 3]
    assert slots_by(two, 4) == [1, -1, 2, 0]
    assert slots_by(ops.RankedSlots(3, []), 3) == [-1, -1, -1]
    assert slots_by(ops.RankedSlots(3, [np.array([], np.int64)] * 2), 3) == [-1, -1, -1]
    assert slots_by(ops.RankedSlots(3, (np.array([0, 9, 2])[::2],)), 3) == [0, -1, 1]


def test_memory_is_little() -> None:
    vertices = np.arange(0, 64_000, 2)
    assert ops.RankedSlots(64_000, [vertices]).num_bytes == 16 * 1001
    # Rows in another order need a table of the cached vertices.
    assert ops.RankedSlots(64_000, [vertices[::-1]]).num_bytes == 16 * 1001 + 4 * 32_000


def test_it_is_used_by_the_caches_that_it_was_made_of_alone() -> None:
    slots, host, out = ops.RankedSlots(4, [np.array([3, 1])]), torch.ones(4, 2), torch.empty(1, 2)
    vertices = np.array([0])
    for caches in ([], [host[:1]], [host[:3]], [host[:1], host[:1]]):
        with pytest.raises(ValueError, match=r"^caches: other rows than those that slots was"):
            ops.gather_cached(host, caches, slots, vertices, out=out, num_threads=1)
    with pytest.raises(ValueError, match=r"^starts: other rows than those that slots was"):
        ops.count_slots(slots, vertices, np.array([0, 1, 2]), num_threads=1)
    with pytest.raises(ValueError, match=r"^slots: 4 entries, must be 5"):
        ops.gather_cached(torch.ones(5, 2), [host[:2]], slots, vertices, out=out, num_threads=1)
    with pytest.raises(ValueError, match=r"^vertices: 4 at place 0, allowed are 0 to 3"):
        ops.count_slots(slots, np.array([4]), slots.starts, num_threads=1)


def test_what_is_refused() -> None:
    for num_vertices, members, said in (
        (-1, [], "num_vertices: -1"),
        (2**62, [], "num_vertices: "),
        (1.5, [], "num_vertices: "),
        (4, None, "members: NoneType, allowed is a list"),
        (4, np.zeros((2, 2), int), "members: ndarray, allowed is a list"),
        (4, [np.array([0])] * 1025, "members: 1025 of them, allowed are up to 1024"),
        (4, [np.array([0]), np.array([1, 4])], r"members\[1\]: 4 at place 1, allowed are 0 to 3"),
        (4, [np.array([-1], np.int32)], r"members\[0\]: -1 at place 0, allowed are 0 to 3"),
        (4, [np.array([2**62])], r"members\[0\]: 4611686018427387904 at place 0"),
        (0, [np.array([0])], r"members\[0\]: 0 at place 0"),
        (4, [np.array([1.0])], r"members\[0\]: "),
        (4, [np.array([[1]])], r"members\[0\]: "),
        (4, [None], r"members\[0\]: "),
        (4, [[1]], r"members\[0\]: "),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^{said}"):
            ops.RankedSlots(num_vertices, members)  # type: ignore[arg-type]
