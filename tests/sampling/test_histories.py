"""Samplers of all neighbors that merge units of equal history."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_line import one_line
from timed_shop import timed_shop

from gnnscale.data.interop import from_arrays
from gnnscale.graph import NO_TIME, Graph
from gnnscale.sampling import TimedSampler, TimeRule, histories
from gnnscale.sampling.histories import HistorySampler, first_of_equal, shares_histories

SHOP = timed_shop(num_users=20, num_items=6)


def graph_of(edges: list[tuple[int, int, int]], num_vertices: int) -> Graph:
    src, dst, times = np.array(edges).reshape(-1, 3).T
    features = np.zeros((num_vertices, 1), np.float32)
    return from_arrays((src, dst), features, edge_times=times, time_unit="day")


def sampler_of(graph: Graph, **rule: Any) -> HistorySampler:
    fanouts = [-1, -1]
    return HistorySampler(graph, TimedSampler(graph, fanouts=fanouts, rule=TimeRule(**rule)))


@pytest.mark.parametrize(
    ("bound", "merged"), [("inclusive", [(3, 10), (3, 20)]), ("strict", [(3, 11), (3, 21)])]
)
def test_the_docstring_example(bound, merged) -> None:
    """Vertex 3 is a neighbor of the seeds 4, 5 and 6 as of 12, 15 and 31."""
    edges = [(0, 3, 10), (1, 3, 20), (3, 4, 0), (3, 5, 0), (3, 6, 0)]
    batch = sampler_of(graph_of(edges, 7), bound=bound).sample_units(
        np.array([4, 5, 6]), np.array([12, 15, 31]), 0
    )
    last, first = batch.blocks
    units = list(zip(batch.input_vertices.tolist(), batch.cutoffs.tolist(), strict=True))
    assert units[: last.num_dst] == [(4, 12), (5, 15), (6, 31), *merged]
    assert units[last.num_dst :] == [(3, NO_TIME), (0, NO_TIME), (1, NO_TIME)]
    np.testing.assert_array_equal(first.indices, [3, 3, 4])
    np.testing.assert_array_equal(last.indices, [5, 5, 5, 6, 6, 7])
    np.testing.assert_array_equal(last.indptr, [0, 1, 2, 3, 4, 6])


def test_vertices_without_known_edges_are_one() -> None:
    """Vertex 1 has none before 50; vertex 2 never has any."""
    edges = [(0, 1, 50), (1, 3, 5), (2, 3, 5), (1, 4, 6), (2, 4, 6)]
    batch = sampler_of(graph_of(edges, 5)).sample_units(np.array([3, 4]), np.array([9, 30]), 0)
    assert batch.input_vertices[2:4].tolist() == [1, 2]
    assert batch.blocks[0].num_dst == 4
    assert batch.blocks[0].num_edges == 4  # those of the seeds


def test_types_are_merged_by_their_last_edges_of_any_type() -> None:
    """An item is bought every few days, and users are asked about every day."""
    shop = timed_shop(num_users=20, num_items=30)
    vertices, cutoffs = np.repeat(np.arange(5), 10), np.tile(np.arange(50, 60), 5)
    batch = sampler_of(shop).sample_units(vertices, cutoffs, 0)
    whole = TimedSampler(shop, fanouts=[-1, -1], rule=TimeRule()).sample_units(vertices, cutoffs, 0)
    assert batch.seed_sizes == whole.seed_sizes
    last, first = batch.blocks
    assert first.num_edges == whole.blocks[1].num_edges
    assert first.src_sizes == last.dst_sizes
    assert last.num_edges < whole.blocks[0].num_edges / 2
    assert len(batch.input_vertices) < len(whole.input_vertices)


def test_threads_change_nothing() -> None:
    rows = SHOP.rows
    assert rows is not None
    sampler = sampler_of(SHOP)
    first = sampler.sample_units(rows.vertices[:20], rows.cutoffs[:20], 0)
    assert sampler.num_threads == 1
    sampler.num_threads = 3
    again = sampler.sample_units(rows.vertices[:20], rows.cutoffs[:20], 0)
    assert sampler.num_threads == 3
    np.testing.assert_array_equal(again.input_vertices, first.input_vertices)


def test_rules_without_histories() -> None:
    assert shares_histories(TimeRule(), 2)
    assert not shares_histories(TimeRule(), 1)
    assert not shares_histories(TimeRule(window=5), 2)
    assert not shares_histories(TimeRule(rule="destination"), 2)


@pytest.mark.parametrize("factor", [histories._ODD, np.uint64(0)])
@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([-3, 0, NO_TIME, 2**62]))))
def test_first_of_equal(factor, units) -> None:
    """Also if words of different units are equal, as with the factor 0."""
    vertices, cutoffs = np.array(units, np.int64).reshape(-1, 2).T
    chosen, histories._ODD = histories._ODD, factor
    try:
        firsts, positions = first_of_equal(vertices.astype(np.int32), cutoffs)
    finally:
        histories._ODD = chosen
    expected = list(dict.fromkeys(units))
    assert [units[first] for first in firsts] == expected
    assert [expected[position] for position in positions] == units


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(-5, 5)), min_size=1),
    st.lists(st.tuples(st.integers(0, 4), st.integers(-7, 7)), min_size=1),
    st.booleans(),
)
def test_last_times(edges, units, strict) -> None:
    vertices, cutoffs = np.array(units).T
    timed = TimedSampler(
        graph_of(edges, 5), fanouts=[1], rule=TimeRule(bound="strict" if strict else "inclusive")
    )
    found = timed.last_times(vertices, cutoffs, edge_type=0)
    for (vertex, cutoff), time in zip(units, found.tolist(), strict=True):
        known = [
            of_edge
            for _, to, of_edge in edges
            if to == vertex and (of_edge < cutoff if strict else of_edge <= cutoff)
        ]
        assert time == max(known, default=NO_TIME)


def test_last_times_refuse_other_vertices() -> None:
    timed = TimedSampler(graph_of([(0, 1, 3)], 2), fanouts=[1], rule=TimeRule())
    with one_line("vertices: 2 is no destination", error=ValueError):
        timed.last_times(np.array([2]), np.array([5]), edge_type=0)
    with one_line("edge_type", error=ValueError):
        timed.last_times(np.array([1]), np.array([5]), edge_type=1)


def test_a_last_hop_is_one_hop() -> None:
    timed = TimedSampler(graph_of([(0, 1, 3)], 2), fanouts=[1, 1], rule=TimeRule())
    with one_line("rule: none", "several hops", error=ValueError):
        timed.sample_last(np.array([1]), np.array([5]), 0)
