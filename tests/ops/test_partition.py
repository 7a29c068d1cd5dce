import signal
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnscale import ops


@st.composite
def topologies(draw: st.DrawFn) -> tuple[NDArray[np.int64], NDArray[Any]]:
    num_vertices = draw(st.integers(1, 12))
    neighbours = st.lists(st.integers(0, num_vertices - 1), max_size=6)
    lists = draw(st.lists(neighbours, min_size=num_vertices, max_size=num_vertices))
    dtype = draw(st.sampled_from([np.int32, np.int64]))
    return topology_of(lists, dtype)


def topology_of(lists: list[list[int]], dtype: Any = np.int32) -> tuple[NDArray[np.int64], Any]:
    indices = np.array([u for each in lists for u in each], dtype)
    return np.cumsum([0, *map(len, lists)]), indices


def slow_hops(indptr: Any, indices: Any, vertices: Any, num_hops: int) -> list[int]:
    found = np.full(len(indptr) - 1, 255)
    reached = set(np.asarray(vertices).tolist())
    for hop in range(num_hops + 1):
        new = [v for v in reached if found[v] == 255]
        found[new] = hop
        reached = {int(u) for v in new for u in indices[indptr[v] : indptr[v + 1]]}
    return [int(hop) for hop in found]


@pytest.mark.long
@settings(max_examples=50)
@given(topologies(), st.data())
def test_counting_cuts_is_counting_edges(graph: Any, data: st.DataObject) -> None:
    indptr, indices = graph
    num_vertices, num_parts = len(indptr) - 1, data.draw(st.integers(1, 4))
    parts = st.integers(-1, num_parts - 1)
    owner = data.draw(st.lists(parts, min_size=num_vertices, max_size=num_vertices))
    expected = np.zeros((num_parts, num_parts), np.int64)
    for v in range(num_vertices):
        for u in indices[indptr[v] : indptr[v + 1]]:
            if owner[u] >= 0 and owner[v] >= 0:
                expected[owner[u], owner[v]] += 1
    owner = np.array(owner, np.int16)
    for threads in (1, 3):
        found = ops.count_cut(indptr, indices, owner, num_parts, num_threads=threads)
        assert found.tolist() == expected.tolist()


@pytest.mark.long
@settings(max_examples=50)
@given(topologies(), st.data())
def test_hops_are_the_fewest_whenever_a_vertex_was_added(graph: Any, data: st.DataObject) -> None:
    indptr, indices = graph
    vertex = st.integers(0, len(indptr) - 2)
    num_hops = data.draw(st.integers(0, 4))
    hops = np.full(len(indptr) - 1, 255, np.uint8)
    added: list[int] = []
    for more in data.draw(st.lists(st.lists(vertex, max_size=4), max_size=4)):
        before = int((hops < 255).sum())
        vertices = np.array(more, indices.dtype)
        apart = np.repeat(vertices, 2)[::2]  # vertices come in any layout
        new = ops.hops_from(indptr, indices, apart, num_hops, hops, num_threads=2)
        added += more
        assert hops.tolist() == slow_hops(indptr, indices, added, num_hops)
        assert new == (hops < 255).sum() - before


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("indptr", "indices", "said"),
    [
        ([0, 2, 2, 3], [-(2**40), 2, 0], "indices: -1099511627776 is no vertex"),
        ([0, -1, 2, 3], [1, 2, 0], "indptr: the neighbours of vertex 0 are 0 to -1"),
    ],
)
def test_a_damaged_topology_is_noticed(threads: int, indptr: Any, indices: Any, said: str) -> None:
    topology = np.array(indptr), np.array(indices)
    with pytest.raises(ValueError, match=f"^{said}"):
        ops.count_cut(*topology, np.zeros(3, np.int16), 1, num_threads=threads)
    hops = np.full(3, 255, np.uint8)
    with pytest.raises(ValueError, match=f"^{said}"):
        ops.hops_from(*topology, np.array([0]), 1, hops, num_threads=threads)
    for max_walked in (0, 100):
        with pytest.raises(ValueError, match=f"^{said}"):
            stream(topology, [0], num_parts=1, max_walked=max_walked, num_threads=threads)


def slow_stream(graph: Any, vertices: Any, num_parts: int, num_hops: int) -> list[int]:
    training: list[set[int]] = [set() for _ in range(num_parts)]
    whole: list[set[int]] = [set() for _ in range(num_parts)]
    mean = Fraction(len(vertices), num_parts)
    assigned = []
    for v in vertices:
        hops = slow_hops(*graph, [v], num_hops)
        reached = {u for u, hop in enumerate(hops) if hop < 255}
        larger = sum(len(part) > mean for part in training)
        open_parts = [
            part
            for part in range(num_parts)
            if len(training[part]) + 1 <= mean
            or (len(training[part]) < mean and larger < len(vertices) % num_parts)
        ]

        def place(part: int, reached: set[int] = reached) -> tuple[Any, ...]:
            overlap, size = len(training[part] & reached), len(training[part])
            score = overlap * (mean - size) / max(len(whole[part]), 1)
            return -score, size, len(whole[part]), part

        best = min(open_parts, key=place)
        training[best].add(v)
        whole[best] |= reached
        assigned.append(best)
    return assigned


def stream(graph: Any, vertices: Any, **changes: Any) -> tuple[list[int], list[list[int]], int]:
    indptr, indices = graph
    options = {"num_parts": 2, "num_hops": 2, "max_walked": 1000, "max_sampled": 4096, "seed": 0}
    options |= {"num_threads": 1, **changes}
    vertices = np.array(vertices, indices.dtype)
    parts, hops, num_estimated = ops.pagraph_stream(indptr, indices, vertices, **options)
    assert parts.dtype == np.int16
    assert hops.dtype == np.uint8
    return parts.tolist(), hops.tolist(), num_estimated


@pytest.mark.long
@settings(max_examples=60)
@given(topologies(), st.data())
def test_streams_are_algorithm_1(graph: Any, data: st.DataObject) -> None:
    num_vertices = len(graph[0]) - 1
    vertices = data.draw(st.permutations(range(num_vertices)))
    vertices = vertices[: data.draw(st.integers(1, num_vertices))]
    num_parts = data.draw(st.integers(1, len(vertices)))
    num_hops = data.draw(st.integers(1, 4))
    expected = slow_stream(graph, vertices, num_parts, num_hops)
    sizes = {"num_parts": num_parts, "num_hops": num_hops}
    for max_walked, threads in product((0, 5, 1000), (1, 2)):
        work = {"max_walked": max_walked, "num_threads": threads}
        parts, hops, num_estimated = stream(graph, vertices, **sizes, **work)
        assert (parts, num_estimated) == (expected, 0)
    sizes = np.bincount(parts, minlength=num_parts)
    assert sizes.max() - sizes.min() <= 1
    for part in range(num_parts):
        own = [v for v, where in zip(vertices, parts, strict=True) if where == part]
        assert hops[part] == slow_hops(*graph, own, num_hops)


def random_graph(num_vertices: int, degree: int, seed: int) -> Any:
    generator = np.random.default_rng(seed)
    degrees = generator.integers(2 * degree, size=num_vertices)
    sources = generator.random(degrees.sum()) ** 2 * num_vertices
    return np.concatenate([[0], np.cumsum(degrees)]), sources.astype(np.int32)


class ThirdSignalError(Exception):
    pass


@pytest.fixture
def start_signals() -> Iterator[Callable[[], None]]:
    """Let signals come, of which the third raises: not the one that is seen when a call ends."""
    num_signals = 0

    def count(number: int, frame: object) -> None:
        nonlocal num_signals
        num_signals += 1
        if num_signals == 3:
            raise ThirdSignalError

    before = signal.signal(signal.SIGALRM, count)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05) and None
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_stream_ends_with_what_a_signal_raises(start_signals, threads) -> None:
    # To the end it would take hours: each of so many vertices walks to most others.
    num_vertices = 200_000
    sources = np.random.default_rng(0).integers(0, num_vertices, 10 * num_vertices, np.int32)
    topology = (np.arange(0, 10 * num_vertices + 1, 10), sources)
    start_signals()
    with pytest.raises(ThirdSignalError):
        stream(topology, range(num_vertices), num_hops=6, max_walked=2**31 - 1, num_threads=threads)
