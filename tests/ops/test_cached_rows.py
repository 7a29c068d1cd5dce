from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnscale import ops

STORED = ("float32", "float16", "bfloat16", "uint8")


def stored(bits: Any, name: str) -> tuple[NDArray[Any], str]:
    if name == "bfloat16":
        return (np.asarray(bits, np.float32).view(np.uint32) >> 16).astype(np.uint16), name
    return np.asarray(bits).astype(name), name


@st.composite
def stores(draw: st.DrawFn) -> dict[str, Any]:
    """A host, caches of copies, and vertices to read; row v of a copy is 100 + v, of the host v."""
    num_vertices, width = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    name = draw(st.sampled_from(STORED))
    vertex = st.integers(0, num_vertices - 1)
    cached = draw(st.lists(vertex, unique=True))
    num_caches = draw(st.integers(0, 5))
    cached = cached if num_caches else []
    slots = np.full(num_vertices, -1, np.int32)
    slots[cached] = np.arange(len(cached))
    cuts = sorted(draw(st.integers(0, len(cached))) for _ in range(max(num_caches - 1, 0)))
    starts = np.array([0, *cuts, len(cached)] if num_caches else [0], np.int64)
    values = np.repeat(np.arange(num_vertices), width).reshape(num_vertices, width)
    copies = values[cached] + 100
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    size, dtype = draw(st.integers(0, 300)), draw(st.sampled_from([np.int32, np.int64]))
    return {
        **{"host": stored(values, name), "slots": slots, "starts": starts},
        "caches": [stored(copies[a:b], name) for a, b in pairwise(starts)],
        "vertices": generator.integers(0, num_vertices, size, dtype=dtype),
        "threads": draw(st.sampled_from([1, 2, 3])),
    }


def members_of(store: dict[str, Any]) -> NDArray[np.int64]:
    slots = store["slots"][store["vertices"]]
    member = np.searchsorted(store["starts"], slots, side="right") - 1
    return np.where(slots < 0, len(store["starts"]) - 1, member)


@pytest.mark.long
@settings(max_examples=60)
@given(stores(), st.sampled_from([torch.float32, torch.bfloat16]))
def test_rows_come_from_the_cache_that_has_them(store: dict[str, Any], dtype: torch.dtype) -> None:
    vertices, width = store["vertices"], store["host"][0].shape[1]
    wide = torch.full((len(vertices), width + 1), 7.0).to(dtype)
    rows = (store["host"], store["caches"], store["slots"], vertices)
    counts = ops.gather_cached(*rows, out=wide[:, :width], num_threads=store["threads"])
    member = members_of(store)
    num_caches = len(store["caches"])
    assert counts.dtype == np.int64
    assert counts.tolist() == np.bincount(member, minlength=num_caches + 1).tolist()
    expected = np.where(member < num_caches, vertices + 100, vertices)
    assert (wide[:, :width].float().numpy() == expected[:, None]).all()
    assert (wide[:, width].float() == 7).all()


@settings(max_examples=40)
@given(stores(), st.data())
def test_slots_are_counted_without_reading(store: dict[str, Any], data: st.DataObject) -> None:
    vertices, member = store["vertices"], members_of(store)
    num_caches = len(store["starts"]) - 1
    options = {"num_threads": store["threads"]}
    found = ops.count_slots(store["slots"], vertices, store["starts"], **options)
    assert found.tolist() == np.bincount(member, minlength=num_caches + 1).tolist()
    seed = data.draw(st.integers(0, 99))
    degrees = np.random.default_rng(seed).integers(0, 9, len(vertices))
    offsets = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    found = ops.count_slots(store["slots"], vertices, store["starts"], weights=offsets, **options)
    expected = np.zeros(num_caches + 1, np.int64)
    np.add.at(expected, member, degrees)
    assert found.tolist() == expected.tolist()


def test_caches_and_members_in_any_form() -> None:
    host, slots, ids = torch.ones(4, 2), np.full(4, -1, np.int32), np.array([0])
    out = torch.empty(1, 2)
    said = r"^caches: 2147483648 rows in all, allowed are"
    for caches in ([torch.ones(1, 2).expand(2**31, 2)], [torch.ones(1, 2).expand(2**30, 2)] * 2):
        with pytest.raises(ValueError, match=said):
            ops.gather_cached(host, caches, slots, ids, out=out, num_threads=1)
    counts = ops.gather_cached(host, [host] * 1024, slots, ids, out=out, num_threads=1)
    assert counts.tolist() == [0] * 1024 + [1]
    source, target = torch.arange(8).view(4, 2).bfloat16(), torch.zeros(3, 2).bfloat16()
    ops.copy_rows(source, np.array([3, 3]), target, np.array([2, 0], np.int32), num_threads=1)
    assert target.tolist() == [[6, 7], [0, 0], [6, 7]]
    wide = np.zeros((2**40, 0), np.float32), "float32"  # takes no memory
    ops.copy_rows(wide, np.array([5]), wide, np.array([7]), num_threads=1)
    assert slots_by(ops.RankedSlots(3, []), 3) == [-1, -1, -1]
    assert slots_by(ops.RankedSlots(3, (np.array([0, 9, 2])[::2],)), 3) == [0, -1, 1]
    vertices = np.arange(0, 64_000, 2)
    assert ops.RankedSlots(64_000, [vertices]).num_bytes == 16 * 1001
    # Rows in another order need a table of the cached vertices.
    assert ops.RankedSlots(64_000, [vertices[::-1]]).num_bytes == 16 * 1001 + 4 * 32_000


@given(
    st.integers(1, 9),
    st.sampled_from([np.int32, np.int64]),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 9)), max_size=300),
    st.sampled_from([1, 3]),
)
def test_uses_and_reads_are_added(num_vertices, dtype, uses, threads) -> None:
    vertices = np.array([number % num_vertices for number, _ in uses], dtype)
    indptr = np.cumsum([0, *(degree for _, degree in uses)], dtype=np.int64)
    counts = np.arange(num_vertices, dtype=np.int32)
    expected = counts + np.bincount(vertices, minlength=num_vertices)
    ops.count_uses(vertices, counts, num_threads=threads)
    assert counts.tolist() == expected.tolist()
    np.add.at(expected, vertices, np.diff(indptr))
    ops.count_reads(indptr, vertices, counts, num_threads=threads)
    assert counts.tolist() == expected.tolist()


@pytest.mark.long
@settings(max_examples=50)
@given(
    st.sampled_from(STORED), st.integers(1, 30), st.integers(1, 200), st.integers(1, 200), st.data()
)
def test_rows_are_copied_as_they_are(name, width, num_rows, num_slots, data) -> None:
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    itemsize = {"float32": 4, "uint8": 1}.get(name, 2)
    kind = np.uint16 if name == "bfloat16" else np.dtype(name)

    def rows(count: int) -> Any:
        # Any bits: what is no number has to survive, too.
        data = generator.integers(0, 256, (count, (width + 1) * itemsize), np.uint8)
        return data.view(kind)[:, :width]

    source, target = rows(num_rows), rows(num_slots)
    size = data.draw(st.integers(0, num_slots))
    ids = [data.draw(st.sampled_from([np.int32, np.int64])) for _ in range(2)]
    vertices = generator.integers(0, num_rows, size, dtype=ids[0])
    slots = generator.permutation(num_slots)[:size].astype(ids[1])
    expected = np.array(target)
    expected[slots] = source[vertices]
    threads = data.draw(st.sampled_from([1, 3]))
    ops.copy_rows((source, name), vertices, (target, name), slots, num_threads=threads)
    assert np.ascontiguousarray(target).tobytes() == np.ascontiguousarray(expected).tobytes()


def slots_by(ranked: ops.RankedSlots, num_vertices: int) -> list[int]:
    starts = ranked.starts
    host = torch.full((num_vertices, 1), -1.0)
    rows = torch.arange(float(starts[-1])).view(-1, 1)
    caches = list(rows.split(np.diff(starts).tolist())) if len(starts) > 1 else []
    out, vertices = torch.empty(num_vertices, 1), np.arange(num_vertices)
    ops.gather_cached(host, caches, ranked, vertices, out=out, num_threads=1)
    return out[:, 0].int().tolist()


@pytest.mark.long
@settings(max_examples=40)
@given(st.integers(1, 300), st.integers(1, 5), st.booleans(), st.booleans(), st.data())
def test_slots_are_those_of_a_table(num_vertices, num_members, ascending, repeated, data) -> None:
    vertex = st.integers(0, num_vertices - 1)
    every = data.draw(st.lists(vertex, unique=not repeated))
    cuts = sorted(data.draw(st.integers(0, len(every))) for _ in range(num_members - 1))
    dtype = data.draw(st.sampled_from([np.int32, np.int64]))
    members = np.split(np.array(every, dtype), cuts)
    if ascending:
        members = [np.sort(vertices) for vertices in members]
    ranked = ops.RankedSlots(num_vertices, members)
    assert ranked.starts.tolist() == [0, *cuts, len(every)]
    table = [-1] * num_vertices
    for slot, v in enumerate(np.concatenate(members)):
        table[v] = slot
    assert slots_by(ranked, num_vertices) == table
