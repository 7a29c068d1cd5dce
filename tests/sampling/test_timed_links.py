"""Links as of their times: known edges and negatives, against loops over all edges."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from timed_visits import timed_visits

from gnnscale.run.tasks.cutoffs import before_edges
from gnnscale.sampling import Candidates, NeighborSampling, timed_links
from gnnscale.sampling.timed_links import (
    KnownLinks,
    TimedCandidates,
    TimedLinkSampling,
    timed_candidates,
)

SIZE = 5
VERTEX, TIME = st.integers(0, SIZE - 1), st.integers(-3, 3)
EDGES = st.lists(st.tuples(VERTEX, VERTEX, TIME), max_size=20)


def known_links(edges) -> KnownLinks:
    src, dst, times = np.array(edges, np.int64).reshape(-1, 3).T
    return KnownLinks(src.astype(np.int32), dst.astype(np.int32), times, num_vertices=SIZE)


@given(EDGES, EDGES)
def test_edges_are_known_from_their_first_time_on(edges, asked) -> None:
    known = known_links(edges)
    src, dst, times = np.array(asked, np.int64).reshape(-1, 3).T
    expected = [any(e[:2] == a[:2] and e[2] <= a[2] for e in edges) for a in asked]
    assert known.contain(src, dst, times).tolist() == expected
    for source, _, time in asked:
        targets = {e[1] for e in edges if e[0] == source}
        assert known.targets(source, None).tolist() == sorted(targets)
        before = {e[1] for e in edges if e[0] == source and e[2] < time}
        assert known.targets(source, time).tolist() == sorted(before)


@given(
    edges=EDGES.filter(len),
    born=st.none() | st.lists(TIME, min_size=SIZE, max_size=SIZE),
    kinds=st.none() | st.lists(st.integers(-1, 1), min_size=SIZE, max_size=SIZE),
    step=st.integers(0, 3),
)
def test_negatives_exist_and_are_no_edges_by_then(edges, born, kinds, step) -> None:
    known = known_links(edges)
    if kinds is not None:
        edges = [edge for edge in edges if kinds[edge[1]] >= 0]
    src, dst, times = np.array(edges, np.int64).reshape(-1, 3).T
    candidates = None if kinds is None else Candidates.from_kinds(np.array(kinds, np.int32))
    negatives = TimedCandidates(
        known_edges=known,
        vertex_times=None if born is None else np.array(born),
        candidates=candidates,
        num_vertices=SIZE,
    )
    ends, rows = np.stack([src, dst], axis=1), np.arange(len(edges))
    drawn = negatives.draw(rows, ends, times, 2, seed=1, step=step)
    for (source, target, time), found in zip(edges, drawn.tolist(), strict=True):
        allowed = {
            vertex
            for vertex in range(SIZE)
            if (kinds is None or kinds[vertex] == kinds[target])
            and (born is None or born[vertex] <= time)
            and not known.contain(np.array([source]), np.array([vertex]), np.array([time]))[0]
        }
        assert not allowed or set(found) <= allowed
    # Draws do not depend on the other edges.
    for row in rows[:3]:
        one = negatives.draw(rows[[row]], ends[[row]], times[[row]], 2, seed=1, step=step)
        np.testing.assert_array_equal(one, drawn[[row]])


def test_negatives_are_uniform_among_allowed_vertices() -> None:
    negatives = TimedCandidates(
        known_edges=known_links([(0, 1, 0), (0, 2, 5)]),
        vertex_times=np.array([0, 0, 0, 0, 9]),
        candidates=None,
        num_vertices=SIZE,
    )
    rows = np.arange(3000)
    ends, times = np.tile([0, 1], (3000, 1)), np.zeros(3000, np.int64)
    drawn = negatives.draw(rows, ends, times, 1, seed=0, step=0)[:, 0]
    counts = np.bincount(drawn, minlength=SIZE)
    assert counts[[1, 4]].tolist() == [0, 0]
    np.testing.assert_allclose(counts[[0, 2, 3]], 1000, atol=110)


def test_edges_without_a_negative_are_told(caplog) -> None:
    timed_links._warn_of_none.cache_clear()
    negatives = TimedCandidates(
        known_edges=known_links([(0, vertex, 0) for vertex in range(SIZE)]),
        vertex_times=None,
        candidates=None,
        num_vertices=SIZE,
    )
    rows, ends = np.arange(2), np.array([[0, 1], [1, 2]])
    with caplog.at_level("WARNING"):
        drawn = negatives.draw(rows, ends, np.zeros(2, np.int64), 3, seed=0, step=0)
    assert drawn.shape == (2, 3)
    (line,) = caplog.messages
    assert "no candidate that exists at its time" in line


def test_messages_are_of_earlier_edges_alone() -> None:
    """Of all edges and their reverses, of both types, none has the time of its unit or a later."""
    for by_type in (False, True):
        graph = timed_visits(by_type=by_type)
        edges = np.stack([np.arange(40, 80), np.arange(40)], axis=1)[:, ::-1].astype(np.int32)
        times = np.arange(40) * 20
        sampling = TimedLinkSampling(
            vertices=before_edges(NeighborSampling(fanouts=[-1, -1])),
            edges=edges,
            times=times,
            edge_type=0,
            num_negatives=2,
        )
        batch = sampling.sampler(graph, seed=0, num_threads=2).sample(np.array([30, 3, 11]), 0)
        by_vertex = {
            vertex: graph.times.edges[graph.indptr[vertex] : graph.indptr[vertex + 1]]
            for vertex in range(graph.num_vertices)
        }
        counts = sum(np.diff(indptr) for _, indptr in batch.lists_read[-1:])
        if not by_type:
            allowed = [
                int((by_vertex[v] < c).sum())
                for v, c in zip(batch.seeds, batch.cutoffs[: batch.num_seeds], strict=True)
            ]
            assert counts.tolist() == allowed
        ends = batch.links.sources, batch.links.destinations
        assert batch.seeds[ends[0]].tolist() == [30, 3, 11]
        assert batch.seeds[ends[1][:, 0]].tolist() == [70, 43, 51]


def test_types_have_the_known_edges_of_one_edge_type() -> None:
    graph = timed_visits(by_type=True)
    known = timed_candidates(graph, 0, None).known_edges
    plain = timed_candidates(timed_visits(), 0, None).known_edges
    for user in range(5):
        np.testing.assert_array_equal(known.targets(user, 300), plain.targets(user, 300))
    assert not len(known.targets(45, None))  # places visit nobody
    assert len(plain.targets(45, None))
