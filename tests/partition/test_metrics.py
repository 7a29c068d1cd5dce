import dataclasses

import numpy as np
import pytest
from fixture_types import Make
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.core.errors import GraphError
from gnnscale.data import from_arrays
from gnnscale.graph import Graph
from gnnscale.partition import P3, UNREACHED, PartitionStats, Parts, Random
from gnnscale.partition import metrics as edges
from gnnscale.partition.metrics import (
    MeasuredCost,
    PartStats,
    PredictedCost,
    cut_matrix,
    examine,
    examine_bytes,
    halo_sizes,
    num_passes,
)

MEASURED = MeasuredCost(seconds=2.0, peak_rss_bytes=None)

PREDICTED = PredictedCost(seconds=1.0, peak_rss_bytes=7)


def looked_at(graph: Graph, parts: Parts) -> PartitionStats:
    return examine(graph, parts, algorithm="any", measured=MEASURED, predicted=PREDICTED)


def part(*sizes: int | None) -> PartStats:
    names = ("num_vertices", "num_inner", "num_train", "num_edges")
    return PartStats(**dict(zip(names, sizes, strict=True)))


def test_parts_with_a_halo_of_one_hop(tiny_graph: Graph) -> None:
    # 0 <- 1, 2; 1 <- 3; 2 <- 0, 3; 4 <- 4
    graph = tiny_graph.with_split(train_idx=np.array([0, 1, 3]))
    parts = Parts(num_parts=2, owner=np.array([0, 0, 1, 1, -1], np.int16), notes=("so it is",))
    assert looked_at(graph, parts) == PartitionStats(
        algorithm="any",
        seconds=2.0,
        peak_rss_bytes=None,
        edge_cut_fraction=3 / 5,
        vertex_balance=1.0,
        edge_balance=3 / 2.5,
        train_balance=2 / 1.5,
        replication_factor=(4 + 3) / 4,
        parts=(part(4, 2, 2, 3), part(3, 2, 1, 2)),
        cut=((1, 1), (2, 1)),
        predicted=PREDICTED,
        notes=("so it is",),
    )


def test_parts_that_say_what_they_reach(tiny_graph: Graph) -> None:
    graph = tiny_graph.with_split(train_idx=np.array([0, 4]))
    far = UNREACHED
    hops = np.array([[0, 1, 1, 2, far], [far, far, far, far, 0]], np.uint8)
    parts = Parts(num_parts=2, owner=np.array([0, 0, 0, 0, 1], np.int16), hops=hops, num_hops=2)
    found = looked_at(graph, parts)
    assert found.parts == (part(4, 4, 1, 5), part(1, 1, 1, 1))
    assert (found.replication_factor, found.edge_cut_fraction) == (1.0, 0.0)
    hops[1, 3] = 1
    assert looked_at(graph, dataclasses.replace(parts, hops=hops)).replication_factor == 6 / 5


def test_slices_change_nothing(random_graph: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph()
    parts = Random().assign(graph, num_parts=3, num_hops=1, num_threads=1)
    hops = np.random.default_rng(0).choice(np.array([0, 1, UNREACHED], np.uint8), (3, 300))
    reached = dataclasses.replace(parts, hops=hops, num_hops=1)
    whole = [looked_at(graph, each) for each in (parts, reached)]
    monkeypatch.setattr("gnnscale.partition.metrics._SLICE_VERTICES", 7)
    assert [looked_at(graph, each) for each in (parts, reached)] == whole


def test_columns_have_no_cut_and_no_edges_no_share(tiny_graph: Graph) -> None:
    found = looked_at(tiny_graph, P3().assign(tiny_graph, num_parts=2, num_hops=1, num_threads=1))
    assert found.cut is found.edge_cut_fraction is found.vertex_balance is None
    assert found.train_balance is None
    assert (found.edge_balance, found.replication_factor) == (1.0, 2.0)
    assert found.parts == 2 * (part(5, None, None, 6),)
    none = {"indptr": np.zeros(6, np.int64), "indices": np.empty(0, np.int32)}
    parts = Parts(num_parts=2, owner=np.array([0, 1, 0, 1, 0], np.int16))
    found = looked_at(dataclasses.replace(tiny_graph, **none), parts)
    assert found.edge_cut_fraction is found.edge_balance is None
    assert found.replication_factor == 1.0


def test_memory_of_metrics_grows_with_the_graph(random_graph: Make) -> None:
    graph = random_graph()
    assert examine_bytes(graph, 4) > graph.topology_bytes
    assert examine_bytes(graph, 64) > examine_bytes(graph, 4)


def test_parts_that_have_nothing_to_train(tiny_graph: Graph) -> None:
    for owner, note in (
        ([0, 0, 1, 1, 1], "part 2 has no training vertex; its device trains those"),
        ([0, 0, 0, 0, 0], "parts 1, 2 have no training vertex; their devices train those"),
    ):
        found = looked_at(tiny_graph, Parts(num_parts=3, owner=np.array(owner, np.int16)))
        assert found.notes == (f"{note} of other parts",)


@st.composite
def divided(draw: st.DrawFn) -> tuple[Graph, np.ndarray, int]:
    """A graph of a few vertices, an owner of each or none, and the number of parts."""
    size, num_parts = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    ids = st.integers(0, size - 1)
    pairs = draw(st.lists(st.tuples(ids, ids), max_size=40))
    src, dst = np.array(pairs, np.int64).reshape(-1, 2).T
    owner = draw(st.lists(st.integers(-1, num_parts - 1), min_size=size, max_size=size))
    graph = from_arrays((src, dst), np.zeros((size, 1), np.float32))
    return graph, np.array(owner, np.int16), num_parts


def neighbors(graph: Graph, vertex: int) -> list[int]:
    return graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]].tolist()


def halo(graph: Graph, owner: np.ndarray, part: int) -> set[int]:
    own = set(np.flatnonzero(owner == part).tolist())
    return {source for vertex in own for source in neighbors(graph, vertex)} - own


@pytest.mark.long
@settings(max_examples=20)
@given(case=divided(), slice_edges=st.integers(1, 50), max_bytes=st.integers(0, 60))
def test_counts_are_those_of_sets(case, slice_edges, max_bytes) -> None:
    graph, owner, num_parts = case
    expected = np.zeros((num_parts, num_parts), np.int64)
    for vertex in range(graph.num_vertices):
        for source in neighbors(graph, vertex):
            if owner[source] >= 0 and owner[vertex] >= 0:
                expected[owner[source], owner[vertex]] += 1
    sets = [halo(graph, owner, part) for part in range(num_parts)]
    anywhere = set(np.flatnonzero(owner >= 0)).union(*sets)
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edges, "_SLICE_EDGES", slice_edges)
        assert (cut_matrix(graph, owner, num_parts, seen.append) == expected).all()
        assert sum(seen) == graph.num_edges
        seen.clear()
        sizes, total = halo_sizes(graph, owner, num_parts, seen.append, max_bytes=max_bytes)
    assert sizes.tolist() == [len(each) for each in sets]
    assert total == len(anywhere)
    assert sum(seen) == num_passes(graph, num_parts, max_bytes) * graph.num_edges


@pytest.mark.parametrize("bad", [-1, 5])
def test_ids_out_of_range_are_refused(tiny_graph: Graph, bad: int) -> None:
    indices, owner = tiny_graph.indices.copy(), np.zeros(5, np.int16)
    indices[3] = bad
    graph = dataclasses.replace(tiny_graph, indices=indices)
    with pytest.raises(GraphError, match=rf"^tiny: damaged, indices: {bad} is no vertex"):
        cut_matrix(graph, owner, 1)
    with pytest.raises(GraphError, match=rf"^tiny: expected neighbors from 0 to 4, got {bad}$"):
        halo_sizes(graph, owner, 1)
