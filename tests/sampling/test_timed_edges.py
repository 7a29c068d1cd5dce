"""Mini-batches of labeled edges as of their times, on graphs small enough to write down."""

from dataclasses import replace

import numpy as np
import pytest

from gnnscale import Graph, from_arrays
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.run.tasks.cutoffs import before_edges, listed_cutoff_edges
from gnnscale.sampling import NeighborSampling
from gnnscale.sampling.timed_edges import TimedEdgeSampling, unit_links

#: Source, destination and time of each labeled edge, which all send messages.
EDGES = np.array([(0, 2, 5), (1, 2, 7), (0, 2, 7), (2, 1, 9), (1, 0, 3)])


def tiny() -> Graph:
    src, dst, times = EDGES.T
    return from_arrays(
        (src, dst),
        np.ones((3, 1), np.float32),
        edge_labels=np.zeros(5, np.int64),
        edge_times=times,
        edge_features=np.arange(5, dtype=np.float32)[:, None],
    )


def sample(graph: Graph, rows: list[int], **options):
    vertices = before_edges(NeighborSampling(fanouts=[-1], **options))
    sampling = TimedEdgeSampling(
        vertices=vertices,
        ends=graph.edges.ends,
        times=graph.edges.row_times,
        features=graph.edge_features,
        left_out=listed_cutoff_edges(graph, vertices),
    )
    return sampling.sampler(graph, seed=0, num_threads=1).sample(np.array(rows), 0)


def messages(batch) -> dict[tuple[int, int], list[int]]:
    """Return by unit the sources of its messages."""
    (block,) = batch.blocks
    lists = np.split(batch.input_vertices[block.indices], block.indptr[1:-1])
    units = zip(batch.seeds.tolist(), batch.cutoffs[: batch.num_seeds].tolist(), strict=True)
    return {unit: ids.tolist() for unit, ids in zip(units, lists, strict=True)}


@pytest.mark.parametrize(
    ("options", "of_0_at_7", "of_2_at_7", "of_2_at_9"),
    [
        ({}, [1], [0], [0, 0, 1]),
        # Both edges of time 7 to vertex 2 are listed: neither is seen as of time 7.
        ({"bound": "inclusive"}, [1], [0], [0, 0, 1]),
        ({"window": 1}, [], [], []),
        ({"window": 2}, [], [0], [0, 1]),
    ],
)
def test_an_edge_is_seen_by_later_ones_alone(options, of_0_at_7, of_2_at_7, of_2_at_9) -> None:
    batch = sample(tiny(), [2, 3, 1], **options)
    of_1 = {(1, 7): [], (1, 9): []}
    assert messages(batch) == {(0, 7): of_0_at_7, (2, 7): of_2_at_7, (2, 9): of_2_at_9} | of_1
    links = batch.links
    ends = np.stack([links.sources, links.destinations[:, 0]], axis=1)
    np.testing.assert_array_equal(batch.seeds[ends], EDGES[[2, 3, 1], :2])
    np.testing.assert_array_equal(batch.cutoffs[ends], EDGES[[2, 3, 1], 2:].repeat(2, axis=1))
    np.testing.assert_array_equal(links.features[:, 0], [2, 3, 1])


def test_the_inclusive_bound_sees_edges_of_the_same_time_between_others() -> None:
    """Of the edges of time 7 only 0 -> 2 is listed, so that 1 -> 2 is seen as of 7."""
    graph = tiny()
    edges = replace(graph.edges, ends=graph.edges.ends[2:3], row_times=graph.edges.row_times[2:3])
    batch = sample(replace(graph, edges=edges), [0], bound="inclusive")
    assert messages(batch) == {(0, 7): [1], (2, 7): [0, 1]}  # 0 -> 2 of time 5


def test_units_are_shared_and_in_the_order_of_vertices() -> None:
    ends, times = np.array([[3, 1], [1, 3], [3, 2]]), np.array([4, 4, 2])
    (vertices, cutoffs), links = unit_links(ends, times)
    assert list(zip(vertices, cutoffs, strict=True)) == [(1, 4), (2, 2), (3, 2), (3, 4)]
    assert links.sources.tolist() == [3, 0, 2]
    assert links.destinations.tolist() == [[0], [3], [1]]


def test_types_and_the_reverse_of_an_edge() -> None:
    rates, rated = ("user", "rates", "item"), ("item", "rated_by", "user")
    src, dst, times = np.array([0, 1, 0]), np.array([0, 0, 1]), np.array([1, 2, 2])
    graph = from_typed_arrays(
        {"user": np.ones((2, 1), np.float32), "item": np.ones((2, 1), np.float32)},
        {rates: (src, dst), rated: (dst, src)},
        edge_times={rates: times, rated: times},
        edge_labels=(rates, np.array([0, 1, 0])),
    )
    for bound in ("strict", "inclusive"):
        vertices = before_edges(NeighborSampling(fanouts=[-1], bound=bound))
        sampling = TimedEdgeSampling(
            vertices=vertices,
            ends=graph.edges.ends,
            times=graph.edges.row_times,
            features=None,
            left_out=listed_cutoff_edges(graph, vertices),
        )
        batch = sampling.sampler(graph, seed=0, num_threads=1).sample(np.array([1]), 0)
        # User 1 has no past; item 0 (vertex 2) was rated by user 0.
        assert batch.seeds.tolist() == [1, 2]
        (block,) = batch.blocks
        assert [relation.num_edges for relation in block.relations] == [1, 0]
        assert batch.vertices(0).tolist() == [1, 0]
