import gc
import os
import signal
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fault_injection import processes
from hypothesis import given, settings
from hypothesis import strategies as st
from typed_graphs import typed_graph

from gnnscale import ops
from gnnscale.cache import LookAhead
from gnnscale.cache.belady import count_hits
from gnnscale.core.stages import Access, Traffic
from gnnscale.features import HostFeatures
from gnnscale.features.cached import (
    CachedAdjacency,
    CachedFeatures,
    LookAheadFeatures,
    RowsAddress,
    TypedLookAhead,
    map_rows,
    rank_slots,
    share_rows,
)
from gnnscale.graph import GraphSchema
from gnnscale.sampling import Block, MiniBatch, NeighborSampler, TypedSampler

#: Types of rows as they are kept, and as they are asked for.
STORED = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)
each_dtype = pytest.mark.parametrize(
    ("stored", "dtype"), [*product(STORED, (torch.float32, torch.bfloat16))]
)


def test_slots_follow_the_members_of_a_clique():
    caches = [np.array([4, 1]), np.array([], np.int32), np.array([0, 5])]
    slots = rank_slots(6, caches)
    assert slots.starts.tolist() == [0, 2, 2, 4]
    # Of each vertex, the member that has it, and 3 for the host.
    for vertex, member in enumerate([2, 0, 3, 3, 0, 2]):
        reads = ops.count_slots(slots, np.array([vertex]), slots.starts, num_threads=1)
        assert reads.argmax() == member
    # Rows lie in the order of the lists.
    rows = [(each[:, None].astype(np.float32), "float32") for each in caches]
    host, out = (np.full((6, 1), -1, np.float32), "float32"), torch.empty(6, 1)
    ops.gather_cached(host, rows, slots, np.arange(6), out=out, num_threads=1)
    assert out[:, 0].tolist() == [0, 1, -1, -1, 4, 5]


def cached(host, kept, own):
    rows, _ = host.stored
    copies = [rows[vertices].copy() for vertices in kept]
    return CachedFeatures(host, copies, rank_slots(host.num_rows, kept), own=own)


@each_dtype
def test_rows_are_those_of_the_host_bit_for_bit(random_graph, stored, dtype):
    host = HostFeatures.of(random_graph(dtype=stored))
    generator = np.random.default_rng(0)
    vertices = generator.integers(0, 300, 500)
    for num_members, fraction in ((1, 0.0), (1, 0.3), (1, 1.0), (3, 0.7)):
        order = generator.permutation(300)[: int(300 * fraction)]
        kept = [order[each::num_members] for each in range(num_members)]
        for own in range(num_members):
            store = cached(host, kept, own)
            expected, _ = host.gather(vertices, dtype=dtype, num_threads=1)
            hits = int(np.isin(vertices, kept[own]).sum())
            misses = 500 - int(np.isin(vertices, order).sum())
            peers = 500 - hits - misses
            moved = {"host_bytes": misses * host.row_bytes, "peer_bytes": peers * host.row_bytes}
            rows = Access(hits=hits, peer_hits=peers, misses=misses, **moved)
            for threads in (1, 2):
                found, traffic = store.gather(vertices, dtype=dtype, num_threads=threads)
                assert found.dtype == dtype
                assert torch.equal(found, expected)
                assert traffic == Traffic(rows=rows)


@settings(max_examples=20)
@given(st.data())
def test_every_row_is_found_in_one_place(data):
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
    hits, misses = places.count(own), places.count(3)
    access = traffic.rows
    expected = (hits, len(asked) - hits - misses, misses)
    assert (access.hits, access.peer_hits, access.misses) == expected


FLOAT = np.dtype(np.float32)


def priorities(num_vertices):
    return (np.arange(num_vertices, dtype=np.int32) * 7) % 5


def opened(host, num_rows, window, match):
    policy = LookAhead(window=window, num_rows=num_rows, match=match)
    return LookAheadFeatures(host, policy, priority=priorities(host.num_rows))


def served(store, batches, ahead):
    """Gather ``batches``, each once the ``ahead`` steps after it were told of."""
    for step in range(len(batches) + ahead):
        if step < len(batches):
            store.expect(batches[step])
        batch = batches[step - ahead] if step >= ahead else None
        if batch is not None:
            yield batch, *store.gather(batch, dtype=torch.float32, num_threads=1)


def random_batches(num_vertices, number, size):
    generator = np.random.default_rng(3)
    return [generator.permutation(num_vertices)[:size].astype(np.int32) for _ in range(number)]


@each_dtype
@pytest.mark.parametrize("match", [False, True])
def test_rows_are_those_of_the_host_bit_for_bit_look_ahead(random_graph, stored, dtype, match):
    host = HostFeatures.of(random_graph(dtype=stored))
    store = opened(host, 40, 2, match)
    batches = random_batches(300, 12, 90)
    for batch in batches[:3]:
        store.expect(batch)
    hits = 0
    for step, batch in enumerate(batches):
        expected, _ = host.gather(batch, dtype=dtype, num_threads=1)
        found, traffic = store.gather(batch, dtype=dtype, num_threads=1 + step % 2)
        assert found.dtype == dtype
        assert torch.equal(found, expected)
        misses = traffic.rows.misses
        moved = {"misses": misses, "host_bytes": misses * host.row_bytes}
        assert traffic.rows == Access(hits=90 - misses, **moved)
        hits += traffic.rows.hits
        if step + 3 < len(batches):
            store.expect(batches[step + 3])
    assert hits > 40


#: Types without vertices, with wide rows, without rows, and with narrow ones.
TYPES = GraphSchema.of({"none": 0, "wide": 6, "bare": 3, "slim": 4}, [("wide", "to", "slim")])


def typed_batch(vertices):
    """Return a mini-batch of these seeds alone, type by type."""
    return TypedSampler(typed_graph(TYPES, {}), fanouts=[0]).sample(np.array(vertices), 0)


@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(st.none() | st.sets(st.integers(0, 12), min_size=1), min_size=1, max_size=10),
    sizes=st.tuples(st.integers(0, 6), st.integers(0, 4)),
    window=st.integers(1, 3),
    match=st.booleans(),
)
def test_each_type_has_a_cache_that_looks_ahead(steps, sizes, window, match):
    rows = {1: np.arange(18, dtype=np.float32).reshape(6, 3), 3: np.ones((4, 1), np.float32)}
    hosts = {number: HostFeatures(part, "float32") for number, part in rows.items()}
    options = {"window": window, "match": match}
    caches = {
        number: opened(hosts[number], size, **options)
        for number, size in zip((1, 3), sizes, strict=True)
    }
    alone = {
        number: opened(hosts[number], size, **options)
        for number, size in zip((1, 3), sizes, strict=True)
    }
    store = TypedLookAhead(TYPES, [caches.get(number) for number in range(4)])
    assert store.window == window
    batches = [None if each is None else typed_batch(sorted(each)) for each in steps]
    parts = [None if each is None else TYPES.split(each.input_vertices) for each in batches]
    for number in (1, 3):
        for part in parts:
            alone[number].expect(part[number] if part and len(part[number]) else None)
    for batch in batches:
        store.expect(None if batch is None else batch.input_vertices)
    for batch, part in zip(batches, parts, strict=True):
        if batch is None:
            continue
        rehearsed = typed_batch(batch.input_vertices)  # equal vertices of another step
        for each in (rehearsed, batch):
            found, traffic = store.gather_types(each, dtype=torch.float32, num_threads=1)
            assert [len(of_type) for of_type in found] == [len(ids) for ids in part]
            for number in (1, 3):
                assert np.array_equal(found[number].numpy(), rows[number][part[number]])
                read = traffic[number].rows
                expected = Access()
                if len(part[number]):
                    source = (hosts if each is rehearsed else alone)[number]
                    _, known = source.gather(part[number], dtype=torch.float32, num_threads=1)
                    expected = known.rows
                assert read == expected


steps_of_rows = st.lists(st.none() | st.sets(st.integers(0, 9), min_size=1), max_size=12)


@pytest.mark.long
@settings(max_examples=20)
@given(steps_of_rows, st.integers(0, 10), st.integers(1, 4), st.booleans(), st.integers(0, 3))
def test_hits_are_those_of_a_replay(sets, num_rows, window, match, further):
    # How far beyond the window the batches are told of plays no part.
    steps = [None if each is None else np.array(sorted(each), np.int64) for each in sets]
    batches = [each for each in steps if each is not None]
    rows = np.arange(10, dtype=np.float32)[:, None]
    store = opened(HostFeatures(rows, "float32"), num_rows, window, match)
    hits = misses = 0
    for batch, found, traffic in served(store, steps, window + further):
        assert found[:, 0].tolist() == batch.tolist()
        hits, misses = hits + traffic.rows.hits, misses + traffic.rows.misses
    if None in sets:
        # Fewer batches are known where some steps have none; values are right all the same.
        return
    rule = {"num_vertices": 10, "capacity": num_rows, "window": window, "match": match}
    counts = count_hits(batches, **rule, priority=priorities(10), num_threads=1)
    assert (hits, misses) == (counts.num_hits + counts.num_previous, counts.num_misses)


@pytest.mark.parametrize(
    ("num_rows", "match", "last", "read"),
    [
        # Row 1 is read again soonest, and stays in its slot.
        (1, False, [1], Access(hits=1)),
        # Rows stay for a batch; row 0 was in the one before that, and is gone.
        (0, True, [0, 2], Access(hits=1, misses=1, host_bytes=8)),
    ],
)
def test_rows_that_stay_are_copies(num_rows, match, last, read):
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    store = opened(HostFeatures(rows, "float32"), num_rows, 1, match)
    answers = served(store, [np.array([0, 1]), np.array([1, 2]), np.array(last)], 1)
    next(answers)
    rows[:] = -1
    _, found, traffic = next(answers)
    assert found.tolist() == [[2, 3], [-1, -1]]
    assert traffic.rows == Access(hits=1, misses=1, host_bytes=8)
    _, found, traffic = next(answers)
    assert found[0].tolist() == ([-1, -1] if match else [2, 3])
    assert traffic.rows == read


def test_unexpected_batches_are_read_at_the_host_and_change_nothing():
    host = HostFeatures(np.arange(40, dtype=np.float32)[:, None], "float32")
    batches, strange = random_batches(40, 10, 12), np.arange(20)
    plain, disturbed = opened(host, 8, 2, match=True), opened(host, 8, 2, match=True)
    expected = [traffic for _, _, traffic in served(plain, batches, 2)]
    found = []
    assert disturbed.gather(strange, dtype=torch.float32, num_threads=1)[1].rows.hit_rate is None
    for _, _, traffic in served(disturbed, batches, 2):
        found.append(traffic)
        # Equal to what comes next, and yet not it.
        for other in (strange, batches[min(len(found), 9)].copy()):
            values, read = disturbed.gather(other, dtype=torch.float32, num_threads=1)
            assert values[:, 0].tolist() == other.tolist()
            assert read == Traffic(rows=Access(host_bytes=4 * len(other)))
    assert found == expected


#: Shares 5 rows, tells where they are, and waits.
OWNER = """
import sys
import numpy as np
from gnnscale.features.cached import share_rows
rows, address = share_rows(5, 3, np.dtype(np.float32))
rows[:] = np.arange(15).reshape(5, 3)
print(address.process, address.file, flush=True)
sys.stdin.read()
"""


def test_peers_see_what_the_owner_writes_and_cannot_write():
    rows, address = share_rows(2, 3, FLOAT)
    mapped = map_rows(address, 3, FLOAT)
    with pytest.raises(ValueError, match="read-only"):
        mapped[0, 0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        mapped.flags.writeable = True
    assert not rows.any()
    rows[1] = -1
    assert mapped.tolist() == [[0, 0, 0], [-1, -1, -1]]
    # A mapping that is dropped gives its file back.
    gc.collect()
    opened = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert map_rows(address, 3, FLOAT).shape == rows.shape
    assert len(os.listdir("/proc/self/fd")) == opened


def shared_memory():
    """Files of shared memory that have a name."""
    temporary = Path(tempfile.gettempdir()).glob("*gnnscale-cache*")
    return {*map(Path, processes.shared_memory()), *temporary}


def memory_files(process):
    links = [os.readlink(each) for each in Path(f"/proc/{process}/fd").iterdir()]
    return [each for each in links if "gnnscale-cache" in each]


@pytest.mark.long
def test_a_mapping_outlives_its_owner_and_leaves_nothing():
    before = shared_memory()
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", OWNER], **pipes) as owner:
        process, file = map(int, owner.stdout.readline().split())
        assert process == owner.pid
        assert memory_files(process)
        address = RowsAddress(process=process, file=file, num_rows=5)
        opened = len(os.listdir("/proc/self/fd"))
        rows = map_rows(address, 3, FLOAT)
        # No mapping costs its process more than the one file that keeps it alive.
        assert len(os.listdir("/proc/self/fd")) <= opened + 1
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert rows.tolist() == np.arange(15).reshape(5, 3).tolist()
    assert shared_memory() <= before
    with pytest.raises(OSError, match=str(process)):
        map_rows(address, 3, FLOAT)


@pytest.fixture
def batch(tiny_graph):
    """Seeds 0 and 1 with all their neighbours, two hops: lists of 0, 1, 2, 3, then of 0, 1."""
    found = NeighborSampler(tiny_graph, fanouts=[9, 9]).sample(np.array([0, 1]), 0)
    assert [(block.num_dst, block.num_edges) for block in found.blocks] == [(4, 5), (2, 3)]
    assert found.input_vertices[:4].tolist() == [0, 1, 2, 3]
    return found


def test_without_a_cache_all_is_read_at_the_host(batch):
    # 8 edges and the offsets of 6 lists, each by a request.
    expected = Access(host_bytes=14 * 4, link_bytes=14 * 64, link_requests=14)
    assert CachedAdjacency.none(64).read(batch) == expected
    assert CachedAdjacency.none(64).read(batch).hit_rate is None


@pytest.mark.parametrize(
    ("places", "own", "hits", "peers", "misses"),
    [
        ([-1, -1, -1, -1, -1], 0, 0, 0, 14),
        # Member 0 has the list of 0: two edges and the offsets, read twice.
        ([0, -1, -1, -1, -1], 0, 6, 0, 8),
        ([1, -1, -1, -1, -1], 0, 0, 6, 8),
        ([1, -1, -1, -1, -1], 1, 6, 0, 8),
        # The list of 3 is empty: its offsets alone are spared, a read.
        ([-1, -1, -1, 0, -1], 0, 1, 0, 13),
        ([0, 1, 1, 0, 0], 0, 7, 7, 0),
    ],
)
def test_lists_are_read_where_they_are(batch, places, own, hits, peers, misses):
    at = np.array(places, np.int32)
    lists = CachedAdjacency(at, num_members=2, own=own, request_bytes=32, id_bytes=8)
    moved = {"host_bytes": misses * 8, "link_bytes": misses * 32, "peer_bytes": peers * 8}
    counts = {"hits": hits, "peer_hits": peers, "misses": misses, "link_requests": misses}
    assert lists.read(batch) == Access(**counts, **moved)


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 1)), min_size=1, max_size=8),
    st.integers(1, 2),
)
def test_one_hop_is_counted_list_by_list(lists, num_threads):
    lengths, places = zip(*lists, strict=True)
    num = len(lists)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    block = Block(indptr=indptr, indices=np.zeros(sum(lengths), np.int32), num_src=num)
    batch = MiniBatch(seed=0, step=0, num_seeds=num, input_vertices=np.arange(num), blocks=(block,))
    options = {"num_members": 2, "own": 0, "request_bytes": 64, "num_threads": num_threads}
    found = CachedAdjacency(np.array(places, np.int32), **options).read(batch)
    by_place = dict.fromkeys((-1, 0, 1), 0)
    for length, place in lists:
        by_place[place] += length + 1  # its offsets
    assert [found.misses, found.hits, found.peer_hits] == list(by_place.values())
    assert found.link_requests == by_place[-1]


@pytest.mark.parametrize("match", [False, True])
def test_vertices_that_repeat_are_cached_once(match):
    rows = np.arange(40, dtype=np.float32)[:, None]
    policy = LookAhead(window=2, num_rows=8, match=match)
    host = HostFeatures(rows, "float32")
    store = LookAheadFeatures(host, policy, priority=priorities(40), repeats=True)
    generator = np.random.default_rng(0)
    batches = [generator.integers(0, 40, 60).astype(np.int32) for _ in range(8)]
    distinct = opened(host, 8, 2, match)
    once = [np.unique(batch) for batch in batches]
    expected = [traffic.rows for *_, traffic in served(distinct, once, 2)]
    for number, (batch, found, traffic) in enumerate(served(store, batches, 2)):
        assert found[:, 0].tolist() == batch.tolist()
        assert (traffic.rows.hits > 0) == (expected[number].hits > 0)
        other, _ = store.gather(batch.copy(), dtype=torch.float32, num_threads=1)
        assert torch.equal(other, found)
    assert max(access.hits for access in expected) >= 8
