from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale import ops
from gnnscale.data import from_arrays
from gnnscale.graph import EdgeData, Graph
from gnnscale.sampling import MiniBatch, NeighborSampler, NeighborSampling, ShuffledOrder
from gnnscale.sampling.edge_batches import (
    Candidates,
    EdgeSampling,
    LinkSampler,
    LinkSampling,
    StepEdges,
    draw_candidates,
    edge_links,
)
from gnnscale.sampling.edge_removal import without_edges

NUM_VERTICES, NUM_EDGES = 200, 600


def pairs() -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(0)
    found = generator.integers(0, NUM_VERTICES, (2 * NUM_EDGES, 2))
    found = np.unique(np.sort(found[found[:, 0] != found[:, 1]], axis=1), axis=0)
    return generator.permutation(found)[:NUM_EDGES].astype(np.int32)


@pytest.fixture
def graph() -> Graph:
    """An undirected graph whose edges are those that are trained."""
    edges = pairs()
    both = np.concatenate([edges, edges[:, ::-1]])
    return from_arrays((both[:, 0], both[:, 1]), np.zeros((NUM_VERTICES, 1), np.float32))


VERTICES = NeighborSampling(fanouts=[5, 4])
ORDER = ShuffledOrder(np.arange(NUM_EDGES), batch_size=50, seed=1)


@pytest.fixture
def sampler(graph: Graph) -> LinkSampler:
    options: dict[str, Any] = {"num_negatives": 3, "drop_reverses": True, "order": ORDER}
    sampling = LinkSampling(vertices=VERTICES, edges=pairs(), **options)
    assert sampling.num_layers == 2
    return sampling.sampler(graph, seed=1, num_threads=1)


def edges_of(batch: MiniBatch, layer: int) -> list[tuple[int, int]]:
    """Return the edges of a layer as global ids, in their order."""
    block = batch.blocks[layer]
    dst = batch.input_vertices[np.repeat(np.arange(block.num_dst), np.diff(block.indptr))]
    return list(zip(batch.input_vertices[block.indices].tolist(), dst.tolist(), strict=True))


def messages(batch: MiniBatch, layer: int) -> set[tuple[int, int]]:
    return set(edges_of(batch, layer))


def test_seeds_are_ends_and_negatives(sampler: LinkSampler) -> None:
    seeds = np.array([10, 3, 77])
    batch = sampler.sample(seeds, 0)
    links = batch.links
    assert links.destinations.shape == (3, 4)
    edges = pairs()[seeds]
    assert batch.seeds[links.sources].tolist() == edges[:, 0].tolist()
    assert batch.seeds[links.destinations[:, 0]].tolist() == edges[:, 1].tolist()
    assert len(set(batch.seeds.tolist())) == batch.num_seeds
    named = {*links.sources.tolist(), *links.destinations.ravel().tolist()}
    assert named == set(range(batch.num_seeds))


def test_no_message_along_what_any_device_predicts_in_the_step(graph, sampler) -> None:
    seeds = list(ORDER.epoch(0))[2].seeds
    whole = {tuple(edge) for edge in pairs()[seeds].tolist()}
    mine = sampler.sample(seeds[:10], 2)
    sampled = messages(mine, 0) | messages(mine, 1)
    assert sampled
    assert not sampled & whole
    assert not {(dst, src) for src, dst in sampled} & whole
    # Without leaving out, some of them would be there.
    plain = VERTICES.sampler(graph, seed=1, num_threads=1).sample(mine.seeds, 2)
    assert (messages(plain, 0) | messages(plain, 1)) & whole


def test_a_slice_agrees_with_the_whole_batch_and_other_steps_have_other_negatives(sampler) -> None:
    seeds = next(iter(ORDER.epoch(1))).seeds
    whole, part = (sampler.sample(each, ORDER.steps_per_epoch) for each in (seeds, seeds[20:35]))
    for name in ("sources", "destinations"):
        ours = part.seeds[getattr(part.links, name)]
        assert np.array_equal(ours, whole.seeds[getattr(whole.links, name)][20:35])
    assert messages(part, 1) == {edge for edge in messages(whole, 1) if edge[1] in part.seeds}
    batches = [sampler.sample(np.arange(40), step) for step in (0, 1)]
    assert not np.array_equal(*[each.seeds[each.links.destinations[:, 1:]] for each in batches])


def test_edges_of_a_step_follow_the_order() -> None:
    order = ShuffledOrder(np.arange(10), batch_size=4, seed=5)
    edges = StepEdges(order)
    for epoch in (0, 3, 1):
        for place, step in enumerate(order.epoch(epoch)):
            assert np.array_equal(edges(epoch * 3 + place), step.seeds)


def test_only_the_named_edges_go() -> None:
    ends = np.array([1, 2, 2, 0, 3]), np.array([0, 0, 1, 1, 2])
    graph = from_arrays(ends, np.zeros((4, 1), np.float32))
    batch = NeighborSampler(graph, fanouts=[-1, -1]).sample(np.array([0]), 0)
    assert edges_of(batch, 1) == [(1, 0), (2, 0)]
    left = without_edges(batch, np.array([2, 3]), np.array([0, 1]))
    assert edges_of(left, 1) == [(1, 0)]
    assert edges_of(left, 0) == [edge for edge in edges_of(batch, 0) if edge != (2, 0)]
    # Others are as they were: no vertex moves.
    assert np.array_equal(left.input_vertices, batch.input_vertices)


@pytest.mark.long
@settings(max_examples=20)
@given(
    seed=st.integers(0, 50),
    removed=st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=40),
)
def test_against_lists(seed: int, removed: list[tuple[int, int]]) -> None:
    src, dst = np.random.default_rng(seed).integers(0, 30, (2, 150))
    graph = from_arrays((src, dst), np.zeros((30, 1), np.float32))
    batch = NeighborSampler(graph, fanouts=[4, 3]).sample(np.array([3, 17, 8]), seed)
    ends = np.array(removed, np.int64).reshape(-1, 2)
    left = without_edges(batch, ends[:, 0], ends[:, 1])
    for layer, block in enumerate(left.blocks):
        expected = [edge for edge in edges_of(batch, layer) if edge not in removed]
        assert edges_of(left, layer) == expected
        assert (block.indptr[0], block.indptr[-1]) == (0, len(block.indices))
    first = left.blocks[0]
    if first.edge_vertices is not None:
        assert np.array_equal(first.edge_vertices, left.input_vertices[first.indices])


@settings(max_examples=20)
@given(
    kinds=st.lists(st.integers(-1, 3), min_size=1, max_size=30).filter(lambda all_: max(all_) >= 0),
    seed=st.integers(0, 99),
)
def test_candidates_are_of_the_destinations_kind(kinds: list[int], seed: int) -> None:
    array = np.array(kinds, np.int32)
    candidates = Candidates.from_kinds(array)
    destinations = np.flatnonzero(array >= 0)
    drawn = candidates.draw(np.arange(len(destinations)), destinations, 7, seed=seed, step=2)
    assert (array[drawn] == array[destinations][:, None]).all()
    # A draw depends on its edge alone, not on those beside it.
    again = candidates.draw(np.array([0]), destinations[:1], 7, seed=seed, step=2)
    assert np.array_equal(again[0], drawn[0])


def test_every_candidate_is_as_likely() -> None:
    found = Candidates.from_kinds(np.array([0, 1, 1, -1, 0], np.int32))
    assert found.vertices.tolist() == [0, 4, 1, 2]
    assert found.offsets.tolist() == [0, 2, 4]
    candidates = Candidates.from_kinds(np.array([0] * 5 + [1] * 4 + [-1] * 3, np.int32))
    drawn = candidates.draw(np.arange(4000), np.full(4000, 6), 5, seed=3, step=0)
    counts = np.bincount(drawn.ravel(), minlength=12)
    assert counts[[*range(5), 9, 10, 11]].sum() == 0
    # Chi-square of three degrees of freedom: above 16.3 once in a thousand.
    assert ((counts[5:9] - 5000) ** 2 / 5000).sum() < 16.3


def test_weighted_candidates_are_as_likely_as_their_weights() -> None:
    candidates = Candidates.from_kinds(np.array([0] * 5 + [1] * 4 + [-1] * 3, np.int32))
    weights = np.array([1, 1, 1, 1, 1, 4, 1, 2, 3, 9, 9, 9.0])
    weighted = candidates.weighted(weights)
    drawn = weighted.draw(np.arange(4000), np.full(4000, 6), 5, seed=3, step=0)
    counts = np.bincount(drawn.ravel(), minlength=12)
    assert counts[[*range(5), 9, 10, 11]].sum() == 0
    expected = 2000 * weights[5:9]
    # Chi-square of three degrees of freedom: above 16.3 once in a thousand.
    assert ((counts[5:9] - expected) ** 2 / expected).sum() < 16.3
    again = weighted.draw(np.array([7]), np.array([6]), 5, seed=3, step=0)
    assert np.array_equal(again[0], drawn[7])
    assert weighted.content == candidates.content


def test_without_kinds_the_draws_are_those_among_all_vertices() -> None:
    edges, options = np.arange(20), {"num_vertices": 9, "seed": 5, "step": 1}
    expected = ops.draw_negatives(edges, 3, 9, seed=5, step=1)
    for candidates in (None, Candidates.from_kinds(np.zeros(9, np.int32))):
        drawn = draw_candidates(candidates, edges, np.zeros(20, np.int64), 3, **options)
        assert np.array_equal(drawn, expected)


ENDS = np.int32([[3, 1], [0, 1], [2, 3], [1, 1]])


def test_ends_are_seeds_once_and_edges_are_places_among_them() -> None:
    features = np.float32([[0], [1], [2], [3]])
    vertices, links = edge_links(ENDS[[2, 0, 3]], np.array([2, 0, 3]), features)
    assert vertices.tolist() == [1, 2, 3]
    assert links.sources.tolist() == [1, 2, 0]
    assert links.destinations.tolist() == [[2], [0], [0]]
    assert links.rows.tolist() == [2, 0, 3]
    assert links.features.tolist() == [[2], [0], [3]]
    assert links.num_bytes == 3 * (4 + 4 + 8 + 4)


def test_predicted_edges_send_messages() -> None:
    graph = from_arrays((ENDS[:, 0], ENDS[:, 1]), np.eye(4, dtype=np.float32))
    graph = replace(graph, edges=EdgeData(ends=ENDS))
    vertices = NeighborSampling(fanouts=[-1])
    sampling = EdgeSampling(vertices=vertices, ends=ENDS, features=None)
    assert sampling.num_layers == 1
    drawn = sampling.sampler(graph, seed=1, num_threads=1)
    drawn.num_threads = 2
    assert drawn.num_threads == 2
    batch = drawn.sample(np.array([0, 1]), 5)
    assert batch.seeds.tolist() == [0, 1, 3]
    # Vertex 1 hears from 0, from itself and from 3, over the two edges that are predicted too.
    block = batch.blocks[0]
    heard = batch.input_vertices[block.indices[block.indptr[1] : block.indptr[2]]]
    assert sorted(heard.tolist()) == [0, 1, 3]
    assert batch.links.features is None
