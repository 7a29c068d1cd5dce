from typing import Any

import numpy as np
import pytest
from fixture_types import Make
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnscale.cache.hotness import degree as module
from gnnscale.cache.hotness import degree_ratio, out_degree, pagerank, uniform
from gnnscale.cache.hotness.degree import slices, sum_at
from gnnscale.core.errors import GraphError
from gnnscale.graph import Graph


@pytest.mark.parametrize("bad", [-1, 4])
def test_a_damaged_graph_is_named(graph_of: Make, bad: int) -> None:
    graph = graph_of([[1], [bad], [], []])
    with pytest.raises(GraphError, match=f"tiny: damaged, indices hold {bad}, allowed are 0 to 3"):
        out_degree(graph)
    with pytest.raises(GraphError, match=f"tiny: damaged, indices: {bad} is no vertex"):
        pagerank(graph, np.array([0, 1]), num_threads=1)


def test_readers_over_what_is_read(graph_of: Make) -> None:
    # In three lists with two neighbors, in two with three, in two with none, in none with two.
    found = degree_ratio(graph_of([[1, 2], [0, 0, 1], [], [0, 2]]))
    assert (found.dtype, found.tolist()) == (np.float32, [3 / 2, np.float32(2 / 3), 2, 0])


def test_iterations_by_hand(graph_of: Make) -> None:
    # 0 reads 1 and 2, 1 reads 3 twice, 2 and 3 read none.
    graph, train = graph_of([[1, 2], [3, 3], [], []]), np.array([0, 2])
    once, twice = (
        pagerank(graph, train, damping=0.5, num_iterations=number, num_threads=1)
        for number in (1, 2)
    )
    # Of 0, a quarter of 1/2 each way; 2 has nowhere to go, so that its half starts again.
    assert once.tolist() == [0.375, 0.125, 0.5, 0]
    assert twice.tolist() == [0.375, 0.09375, 0.46875, 0.0625]


def test_lists_that_a_vertex_is_in_are_counted(graph_of, monkeypatch) -> None:
    graph = graph_of([[1, 2, 2], [1, 3], [3, 1], []])
    for num_entries in (1, 3, 100):
        monkeypatch.setattr(module, "_SLICE_ENTRIES", num_entries)
        found = out_degree(graph)
        assert (found.dtype, found.tolist()) == (np.int32, [0, 3, 2, 2])


def num_iterations(damping: float) -> int:
    """Without a restart ranks move slowly."""
    return 2000 if damping == 1 else 200


def dense_pagerank(graph: Graph, train: list[int], damping: float) -> NDArray[np.float64]:
    n = graph.num_vertices
    restart = np.zeros(n)
    restart[train] = 1 / len(train)
    moves = np.tile(restart, (n, 1))
    for v in range(n):
        list_ = graph.indices[graph.indptr[v] : graph.indptr[v + 1]]
        if len(list_):
            moves[v] = np.bincount(list_, minlength=n) / len(list_)
    rank = restart
    for _ in range(num_iterations(damping)):
        rank = damping * rank @ moves + (1 - damping) * restart
    return rank


@pytest.mark.long
@pytest.mark.parametrize("damping", [0.5, 0.85, 1.0])
def test_ranks_are_those_of_the_dense_iteration(random_graph: Make, damping: float) -> None:
    graph, train = random_graph(), [3, 50, 200]
    options: dict[str, Any] = {"damping": damping, "num_iterations": num_iterations(damping)}
    found, other = (
        pagerank(graph, np.array(train), num_threads=threads, **options) for threads in (1, 3)
    )
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, dense_pagerank(graph, train, damping), rtol=1e-5, atol=1e-9)
    assert np.array_equal(found, other)


def test_numbers_depend_on_seed_and_vertex_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert uniform(4, 0).tolist() == [1763799474, 732666017, 396800827, 1563568682]
    assert uniform(2, 2**64 - 1).tolist() == [1264389893, 443263295]
    n = 100_000
    numbers = uniform(n, 5)
    assert numbers.min() >= 0
    chi_square = ((np.bincount(numbers >> 25, minlength=64) - n / 64) ** 2 / (n / 64)).sum()
    assert chi_square < 120  # 63 degrees of freedom: beyond with probability 2e-5
    assert abs(np.corrcoef(numbers, uniform(n, 6))[0, 1]) < 0.015
    whole = uniform(1000, 3)
    assert whole.dtype == np.int32
    monkeypatch.setattr(module, "_SLICE_ENTRIES", 7)
    assert np.array_equal(uniform(500, 3), whole[:500])
    assert (uniform(1000, 4) != whole).all()


@pytest.fixture(scope="module")
def small_slices() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SLICE_ENTRIES", 3)
        yield


def test_slices_cover_all_entries_once(small_slices) -> None:
    assert [(part.start, part.stop) for part in slices(7)] == [(0, 3), (3, 6), (6, 7)]
    assert list(slices(0)) == []
    assert sum_at(np.array([2**24, 1, 1, 1, 0.5], np.float32), np.arange(5)) == 2**24 + 3.5
    assert sum_at(np.empty(0, np.float32), np.empty(0, np.int64)) == 0


@given(numbers=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20), data=st.data())
def test_sums_are_those_of_whole_arrays(small_slices, numbers, data) -> None:
    at = data.draw(st.lists(st.integers(0, len(numbers) - 1), max_size=20))
    found = sum_at(np.array(numbers, np.int32), np.array(at, np.int32))
    assert found == sum(numbers[place] for place in at)
