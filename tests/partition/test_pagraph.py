import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line

from gnnscale import ops
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.graph import Graph, Split
from gnnscale.partition import NO_PART, UNREACHED, PaGraph, Parts
from gnnscale.partition.base import problem_of


def graph_of(lists: list[list[int]], train: list[int]) -> Graph:
    """The graph in which ``lists`` are the neighbors of each vertex, all of them labelled."""
    num_vertices = len(lists)
    return Graph(
        name="tiny",
        indptr=np.cumsum([0, *map(len, lists)]),
        indices=np.array([u for each in lists for u in each], np.int32),
        features=np.zeros((num_vertices, 1), np.float32),
        feature_dtype="float32",
        labels=np.zeros(num_vertices, np.int64),
        num_classes=1,
        split=Split(train_idx=np.array(train)),
    )


def assigned(graph: Graph, num_parts: int, num_hops: int, num_threads: int = 1) -> Parts:
    parts = PaGraph().assign(graph, num_parts=num_parts, num_hops=num_hops, num_threads=num_threads)
    assert problem_of(parts, graph) is None
    assert (parts.num_parts, parts.num_hops, parts.columns) == (num_parts, num_hops, None)
    return parts


def test_two_communities_by_hand() -> None:
    # Two triangles, and vertex 6, which sends to one vertex of each. Nobody hears of 7, which has
    # a neighbor, nor of 8, which has none.
    lists = [[1, 2], [0, 2], [0, 1, 6], [4, 5, 6], [3, 5], [3, 4], [], [0], []]
    parts = assigned(graph_of(lists, [0, 1, 3, 5]), 2, 2)
    # 0 comes first. 1 has it in common with part 0; 3 and 5 have nothing, and part 1 is smaller.
    # 2 is near part 0 and 4 near part 1; 6 is two hops from part 0, one from part 1.
    assert parts.owner.tolist() == [0, 0, 0, 1, 1, 1, 1, NO_PART, NO_PART]
    assert parts.hops.tolist() == [
        [0, 0, 1, 255, 255, 255, 2, 255, 255],
        [255, 255, 255, 0, 1, 0, 1, 255, 255],
    ]
    assert parts.notes == (
        "overlaps of neighborhoods are exact",
        "2 of 9 vertices and 1 of 15 edges are in no part: no training vertex reaches them in 2 "
        "hops",
    )


def test_replicas_are_shared_out_evenly() -> None:
    # Every training vertex has the same 400 neighbors, each as near to either.
    shared = list(range(3, 403))
    parts = assigned(graph_of([shared, shared, shared, *([] for _ in shared)], [0, 1, 2]), 3, 1)
    assert sorted(parts.owner[:3].tolist()) == [0, 1, 2]
    assert (np.abs(np.bincount(parts.owner[3:]) - 400 / 3) < 40).all()


def test_loops_and_repeated_edges_count_once() -> None:
    lists = [[0, 0, 1], [1, 1, 2, 2], [2], [3, 3]]
    once = [sorted(set(each)) for each in lists]
    for num_parts in (1, 2, 3):
        parts = assigned(graph_of(lists, [0, 1, 3]), num_parts, 2)
        expected = assigned(graph_of(once, [0, 1, 3]), num_parts, 2)
        assert parts.owner.tolist() == expected.owner.tolist()
        assert parts.hops.tolist() == expected.hops.tolist()


def random_graph(num_vertices: int, degree: int, num_train: int) -> Graph:
    generator = np.random.default_rng(degree)
    sizes = (generator.integers(2 * degree) for _ in range(num_vertices))
    lists = [generator.integers(num_vertices, size=size).tolist() for size in sizes]
    return graph_of(lists, generator.permutation(num_vertices)[:num_train].tolist())


@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(0, 3), st.integers(1, 5), st.data())
def test_parts_hold_together(num_vertices, degree, num_hops, data) -> None:
    graph = random_graph(num_vertices, degree + 1, data.draw(st.integers(1, num_vertices)))
    parts = assigned(graph, data.draw(st.integers(1, min(5, len(graph.train_idx)))), num_hops)
    fewest = parts.hops.min(axis=0)
    assert (parts.owner == NO_PART).tolist() == (fewest == UNREACHED).tolist()
    others = np.setdiff1d(np.flatnonzero(parts.owner != NO_PART), graph.train_idx)
    assert (parts.hops[parts.owner[others], others] == fewest[others]).all()
    own = parts.train_vertices(graph.train_idx)
    assert max(map(len, own)) - min(map(len, own)) <= 1
    for part, vertices in enumerate(own):
        hops = np.full(num_vertices, UNREACHED, np.uint8)
        starts = vertices.astype(np.int32)
        ops.hops_from(graph.indptr, graph.indices, starts, num_hops, hops, num_threads=1)
        assert hops.tolist() == parts.hops[part].tolist()


@pytest.mark.long
def test_neither_threads_nor_the_order_of_training_vertices_matter() -> None:
    # More of them than are counted, and neighborhoods longer than are walked.
    graph = random_graph(9000, 8, 5000)
    first = assigned(graph, 4, 5)
    note = r"overlaps of .* of 5,000 neighborhoods are estimated, from 4,096 training vertices"
    assert re.fullmatch(note, first.notes[0])
    turned = graph.with_split(train_idx=graph.train_idx[::-1])
    for other in (assigned(graph, 4, 5, num_threads=3), assigned(turned, 4, 5)):
        assert np.array_equal(other.owner, first.owner)
        assert np.array_equal(other.hops, first.hops)
    assert [len(each) for each in first.train_vertices(graph.train_idx)] == [1250] * 4


def test_communities_are_found() -> None:
    # 40 communities of 50 vertices, whose ids tell nothing about them, and a tenth of the edges
    # anywhere.
    generator = np.random.default_rng(0)
    place = generator.permutation(2000)
    lists: list[list[int]] = [[] for _ in range(2000)]
    for v in range(2000):
        near = 50 * (v // 50) + generator.integers(50, size=9)
        far = generator.integers(2000, size=int(generator.random() < 0.5))
        lists[place[v]] = place[np.concatenate([near, far])].tolist()
    graph = graph_of(lists, list(range(0, 2000, 2)))
    parts = assigned(graph, 4, 1)
    by_chance = np.full((4, 2000), UNREACHED, np.uint8)
    for part, hops in enumerate(by_chance):
        starts = np.arange(2 * part, 2000, 8, dtype=np.int32)
        ops.hops_from(graph.indptr, graph.indices, starts, 1, hops, num_threads=1)
    found, chance = ((hops != UNREACHED).sum() for hops in (parts.hops, by_chance))
    assert found < 0.8 * chance


def test_labelled_vertices_alone_count() -> None:
    graph = replace(graph_of([[1], [2], [0]], [0, 1, 2]), labels=np.array([0, -1, 0]))
    assert sorted(assigned(graph, 2, 1).owner[[0, 2]].tolist()) == [0, 1]
    with one_line(begins="partitioner.num_parts=3: expected at most the 2 training"):
        assigned(graph, 3, 1)


def test_hops_out_of_range_and_damaged_graphs_are_named() -> None:
    for num_hops in (0, 255):
        with pytest.raises(ConfigError, match=rf"^num_hops={num_hops}: "):
            assigned(graph_of([[0]], [0]), 1, num_hops)
    with pytest.raises(GraphError, match=r"^tiny: damaged, indices: 5 is no vertex"):
        assigned(graph_of([[1], [5]], [0]), 1, 2)


def forecast(graph: Graph, **changes: Any) -> Any:
    options = {"num_parts": 4, "num_hops": 2, "num_threads": 1}
    return PaGraph().forecast(graph, **(options | changes))


def test_a_forecast_counts_what_is_kept(tmp_path: Any) -> None:
    graph = random_graph(2000, 4, 1000)
    found = forecast(graph)
    # Hops, owners, what was seen by which walk, who trains it, and the number of paths.
    assert found.memory_bytes == 2000 * (4 + 2 + 4 + 2 + 4)
    assert found.seconds > 0
    assert forecast(graph, num_parts=8).memory_bytes == found.memory_bytes + 4 * 2000
    # Nearly all have too many paths of 12 hops: the rows of bits come on top, and two cache lines.
    long = forecast(graph, num_hops=12)
    rows = long.memory_bytes - 2000 * (4 + 2 + 4 + 2 + 4 + 128)
    assert 0.6 * 1000 * 1000 / 8 < rows <= 1000 * 1000 / 8
    assert long.seconds > found.seconds
    # A mapped topology counts.
    np.save(tmp_path / "indices.npy", graph.indices)
    mapped = replace(graph, indices=np.load(tmp_path / "indices.npy", mmap_mode="r"))
    assert forecast(mapped).memory_bytes == found.memory_bytes + graph.indices.nbytes
