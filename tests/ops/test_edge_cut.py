from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gnnscale import ops


def csc(edges: Any, num_vertices: int, dtype: Any = np.int32) -> tuple[Any, Any]:
    edges = np.array(list(edges), np.int64).reshape(-1, 2)
    order = np.argsort(edges[:, 1], kind="stable")
    indptr = np.zeros(num_vertices + 1, np.int64)
    np.cumsum(np.bincount(edges[:, 1], minlength=num_vertices), out=indptr[1:])
    return indptr, edges[order, 0].astype(dtype)


def both_ways(edges: Any, num_vertices: int, dtype: Any = np.int32) -> tuple[Any, Any]:
    pairs = {(u, v) for a, b in edges for u, v in ((a, b), (b, a)) if a != b}
    return csc(sorted(pairs), num_vertices, dtype)


#: Two triangles and the bridge between them.
BRIDGE = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3)]
ONES = np.ones((6, 1), np.int64)
HALF = np.full((2, 1), 3)


def cut_of(indptr: Any, indices: Any, owner: Any, weights: Any = None) -> int:
    dst = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    crossing = owner[dst] != owner[indices]
    return int(crossing.sum() if weights is None else weights[crossing].sum()) // 2


def test_an_undirected_graph_is_returned_as_it_is() -> None:
    for dtype in (np.int32, np.int64):
        indptr, indices = both_ways(BRIDGE, 6, dtype)
        made = ops.make_undirected(indptr, indices, 2)
        assert made.indptr is indptr
        assert made.indices is indices
        assert made[2:] == (0, 0, 0)


def edges_of(n: int) -> st.SearchStrategy[Any]:
    return st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=60)


pairs = st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), edges_of(n)))


@pytest.mark.long
@settings(max_examples=50)
@given(pairs, st.sampled_from([np.int32, np.int64]), st.integers(1, 3))
def test_undirected_is_what_sets_say(drawn: Any, dtype: Any, num_threads: int) -> None:
    n, edges = drawn
    indptr, indices = csc(edges, n, dtype)
    before = indices.copy()
    made = ops.make_undirected(indptr, indices, num_threads)
    assert np.array_equal(indices, before)
    assert made.indices.dtype == dtype
    simple = {(u, v) for u, v in edges if u != v}
    both = simple | {(v, u) for u, v in simple}
    indptr, indices = csc(sorted(both), n, dtype)
    assert np.array_equal(made.indptr, indptr)
    assert np.array_equal(made.indices, indices)
    loops = sum(u == v for u, v in edges)
    counts = (loops, len(edges) - loops - len(simple), len(both) - len(simple))
    assert (made.num_loops, made.num_duplicates, made.num_one_way) == counts


def metis_text(tmp_path: Path, *lists: Any, **weights: Any) -> list[str]:
    with (tmp_path / "graph").open("wb") as file:
        num_bytes = ops.write_metis(file.fileno(), *lists, **weights, num_threads=2)
    assert (tmp_path / "graph").stat().st_size == num_bytes
    return (tmp_path / "graph").read_text().splitlines()


def test_text_is_that_of_the_manual(tmp_path: Path) -> None:
    lists = both_ways([(0, 1), (1, 2)], 4)
    assert metis_text(tmp_path, *lists) == ["4 2 00", "2", "1 3", "2", ""]
    weights = {"vertex_weights": np.array([5, 6, 7, 8])}
    assert metis_text(tmp_path, *lists, **weights) == ["4 2 10", "5 2", "6 1 3", "7 2", "8"]
    weights["edge_weights"] = np.int32([9, 9, 3, 3])
    text = ["4 2 11", "5 2 9", "6 1 9 3 3", "7 2 3", "8"]
    assert metis_text(tmp_path, *lists, **weights) == text


def test_a_file_that_cannot_be_written_is_an_os_error() -> None:
    with open("/dev/full", "wb") as file, pytest.raises(OSError, match="space"):
        ops.write_metis(file.fileno(), *both_ways(BRIDGE, 6), num_threads=1)


def refine(lists: Any, **given: Any) -> ops.Refined:
    default = {"vertex_weights": ONES, "max_weights": HALF, "num_rounds": 10, "num_threads": 1}
    return ops.refine(*lists, **(default | given))


def test_triangles_by_hand() -> None:
    owner = np.array([0, 1, 0, 1, 0, 1], np.int32)
    refined = refine(both_ways(BRIDGE, 6), max_weights=HALF + 1, owner=owner)
    assert refined == (5, 5, 1, True)
    assert owner.tolist() in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
    lists, owner = both_ways(BRIDGE, 6), np.zeros(6, np.int32)
    refined = refine(lists, owner=owner)
    assert refined.within
    assert (refined.cut_before, refined.cut) == (0, cut_of(*lists, owner))
    assert np.bincount(owner).tolist() == [3, 3]
    heavy = np.array([[9], [1], [1], [1], [1], [1]])
    most, owner = np.full((2, 1), 7), np.zeros(6, np.int32)
    lists = both_ways(BRIDGE, 6)
    assert not refine(lists, vertex_weights=heavy, max_weights=most, owner=owner).within
    labels, num_clusters = ops.find_clusters(
        *both_ways(BRIDGE, 6), vertex_weights=ONES, max_weights=np.array([3]), num_rounds=5
    )
    assert num_clusters == 2
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]
    clusters = {"num_clusters": 2, "labels": np.int32([0, 0, 0, 1, 1, 1])}
    weights = {"vertex_weights": np.arange(12).reshape(6, 2)}
    lists = both_ways([*BRIDGE, (1, 4)], 6)
    coarse = ops.contract(*lists, **weights, **clusters, num_threads=2)
    indptr, indices, edge_weights, vertex_weights = (each.tolist() for each in coarse)
    assert (indptr, indices, edge_weights) == ([0, 1, 2], [1, 0], [2, 2])
    assert vertex_weights == [[6, 9], [24, 27]]
    labels, owner = np.zeros(6, np.int32), np.arange(6, dtype=np.int32) % 2
    with pytest.raises(ValueError, match=r"^labels: cluster 0 has vertices of two owners"):
        refine(both_ways(BRIDGE, 6), owner=owner, labels=labels, num_clusters=1)


weighted = st.integers(2, 14).flatmap(
    lambda n: st.tuples(
        edges_of(n),
        st.integers(1, 3).flatmap(lambda c: arrays(np.int64, (n, c), elements=st.integers(0, 9))),
        st.integers(1, 4),
        st.randoms(use_true_random=False),
    )
)


@pytest.mark.long
@settings(max_examples=50)
@given(weighted)
def test_limits_hold_or_are_told_and_refinement_never_raises_the_cut(drawn: Any) -> None:
    edges, vertex_weights, num_parts, random = drawn
    n, width = vertex_weights.shape
    lists = both_ways(edges, n)
    ends = [sorted((u, v)) for v in range(n) for u in lists[1][lists[0][v] : lists[0][v + 1]]]
    edge_weights = np.array([1 + (3 * u + v) % 5 for u, v in ends], np.int32)
    owner = np.array([random.randrange(num_parts) for _ in range(n)], np.int32)
    before = owner.copy()
    limits = [random.randint(0, vertex_weights.sum() or 1) for _ in range(width)]
    most = np.array([limits] * num_parts)
    weights = {"vertex_weights": vertex_weights, "edge_weights": edge_weights, "max_weights": most}
    answers = []
    for num_threads in (1, 2):
        owner = before.copy()
        threads = {"num_rounds": 5, "num_threads": num_threads}
        refined = ops.refine(*lists, **weights, owner=owner, **threads)
        answers.append((refined, owner.tolist()))
    assert answers[0] == answers[1]
    assert refined.cut_before == cut_of(*lists, before, edge_weights)
    assert refined.cut == cut_of(*lists, owner, edge_weights) <= refined.cut_balanced

    def within(owner: Any) -> bool:
        loads = [np.bincount(owner, column, num_parts) for column in vertex_weights.T]
        return bool((np.stack(loads, 1) <= most).all())

    assert refined.within == within(owner)
    if within(before):
        assert refined.within
        assert refined.cut_balanced == refined.cut_before


@pytest.mark.long
@settings(max_examples=50)
@given(weighted)
def test_clusters_are_no_heavier_than_they_may_and_stay_within_parts(drawn: Any) -> None:
    edges, vertex_weights, num_parts, random = drawn
    n = len(vertex_weights)
    most = np.array([random.randint(0, 20) for _ in range(vertex_weights.shape[1])])
    owner = np.array([random.randrange(num_parts) for _ in range(n)], np.int32)
    sizes = {"vertex_weights": vertex_weights, "max_weights": most}
    labels, num_clusters = ops.find_clusters(
        *both_ways(edges, n), **sizes, owner=owner, num_rounds=3
    )
    assert set(labels) == set(range(num_clusters))
    for cluster in range(num_clusters):
        members = labels == cluster
        assert len(set(owner[members])) == 1
        sums, heaviest = vertex_weights[members].sum(axis=0), vertex_weights[members].max(axis=0)
        # What weighs nothing may join what is too heavy by itself.
        assert ((sums <= most) | (sums == heaviest)).all()


@pytest.mark.long
def test_sampled_edges_weigh_as_much_as_all_of_them() -> None:
    n = 400
    lists = both_ways([(u, v) for u in range(n) for v in range(u)], n)
    weights, labels = np.ones((n, 1), np.int64), np.arange(n, dtype=np.int32)
    options = {"vertex_weights": weights, "labels": labels, "num_clusters": n, "threshold": 10}
    coarse, again = (ops.contract(*lists, **options, num_threads=threads) for threads in (1, 2))
    assert set(coarse.edge_weights) == {10}
    # 79,800 edges, each kept with probability 1/10: a standard deviation of 85.
    assert abs(len(coarse.indices) // 2 - 7980) < 500
    made = ops.make_undirected(coarse.indptr, coarse.indices, 1)
    assert (made.num_loops, made.num_duplicates, made.num_one_way) == (0, 0, 0)
    assert all(np.array_equal(a, b) for a, b in zip(coarse, again, strict=True))
