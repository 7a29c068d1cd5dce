import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.core.stages import Access
from gnnscale.features.cached import CachedAdjacency
from gnnscale.graph import Graph
from gnnscale.sampling import Block, MiniBatch, NeighborSampler


@pytest.fixture
def batch(tiny_graph: Graph) -> MiniBatch:
    """Seeds 0 and 1 with all their neighbours, two hops: lists of 0, 1, 2, 3, then of 0, 1."""
    found = NeighborSampler(tiny_graph, fanouts=[9, 9]).sample(np.array([0, 1]), 0)
    assert [(block.num_dst, block.num_edges) for block in found.blocks] == [(4, 5), (2, 3)]
    assert found.input_vertices[:4].tolist() == [0, 1, 2, 3]
    return found


def test_without_a_cache_all_is_read_at_the_host(batch: MiniBatch) -> None:
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
def test_lists_are_read_where_they_are(batch, places, own, hits, peers, misses) -> None:
    at = np.array(places, np.int32)
    lists = CachedAdjacency(at, num_members=2, own=own, request_bytes=32, id_bytes=8)
    moved = {"host_bytes": misses * 8, "link_bytes": misses * 32, "peer_bytes": peers * 8}
    counts = {"hits": hits, "peer_hits": peers, "misses": misses, "link_requests": misses}
    assert lists.read(batch) == Access(**counts, **moved)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 1)), min_size=1, max_size=8),
    st.integers(1, 2),
)
def test_one_hop_is_counted_list_by_list(lists: list[tuple[int, int]], num_threads: int) -> None:
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
