"""Messages that are left out of mini-batches with types, against all edges one by one."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from typed_graphs import random_lists, typed_graph

from gnnscale.graph import GraphSchema, Relation
from gnnscale.sampling import TypedMiniBatch, TypedSampler
from gnnscale.sampling.edge_batches import LinkSampler
from gnnscale.sampling.edge_removal import without_typed_edges

TYPES = [
    ("user", "buys", "item"),
    ("item", "bought-by", "user"),
    ("user", "knows", "user"),
    ("user", "known-by", "user"),
]
#: The relation that is predicted, with the reverse type.
RELATIONS = [Relation(0, (1,)), Relation(1, (0,)), Relation(2, (3,)), Relation(2), Relation(0)]


def edges_of(batch: TypedMiniBatch, layer: int) -> list[tuple[int, int, int, int]]:
    """Return edge type, source, destination (global ids) and row of each edge, in their order."""
    edges = []
    for number, block in enumerate(batch.blocks[layer].relations):
        src, dst = (batch.vertices(end) for end in batch.ends[number])
        owners = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
        assert block.edge_rows is not None
        columns = src[block.indices], dst[owners], block.edge_rows
        edges += [(number, *map(int, row)) for row in zip(*columns, strict=True)]
    return edges


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(0, 1 << 20))
def test_step_edges_send_nothing_in_any_relation(data, seed) -> None:
    generator = np.random.default_rng(seed)
    schema = GraphSchema.of({"user": 6, "item": 4}, TYPES)
    lists = random_lists(schema, generator, 2.0)
    num_edges = sum(map(len, lists.values()))
    rows: Any = np.arange(num_edges, dtype=np.uint32)
    graph = typed_graph(schema, lists, rows=rows, features=np.zeros((num_edges, 1), np.float32))
    seeds = np.flatnonzero(generator.random(10) < 0.7).astype(np.int32)
    batch = TypedSampler(graph, fanouts=[-1, 2]).sample(seeds, 3)
    relation = data.draw(st.sampled_from(RELATIONS))
    ends = (schema.sources[relation.edge_type], schema.destinations[relation.edge_type])
    spans = [schema.vertices(int(end)) for end in ends]
    count = data.draw(st.integers(0, 12))
    src, dst = (generator.integers(part.start, part.stop, count) for part in spans)
    left = without_typed_edges(batch, src, dst, relation)
    dropped = {(relation.edge_type, u, v) for u, v in zip(src.tolist(), dst.tolist(), strict=True)}
    dropped |= {(r, v, u) for r in relation.reverses for _, u, v in dropped}
    for layer in range(2):
        expected = [edge for edge in edges_of(batch, layer) if edge[:3] not in dropped]
        assert edges_of(left, layer) == expected
        before, after = batch.blocks[layer], left.blocks[layer]
        assert (after.src_sizes, after.dst_sizes) == (before.src_sizes, before.dst_sizes)
        assert all(block.indptr[-1] == block.num_edges for block in after.relations)


def test_a_step_sends_nothing_along_its_edges_and_their_reverses() -> None:
    """Positions are those of the seeds, type after type."""
    schema = GraphSchema.of({"user": 6, "item": 4}, TYPES)
    lists = random_lists(schema, np.random.default_rng(0), 2.0)
    edges = np.array([[5, 6], [0, 9], [3, 6], [5, 8]], np.int32)
    for u, v in edges.tolist():
        lists[0, v], lists[1, u] = [*lists[0, v], u], [*lists[1, u], v]
    count = sum(map(len, lists.values()))
    rows: Any = np.arange(count, dtype=np.uint32)
    graph = typed_graph(schema, lists, rows=rows, features=np.zeros((count, 1), np.float32))
    sampler = LinkSampler(
        TypedSampler(graph, fanouts=[-1, -1]),
        edges,
        num_vertices=10,
        num_negatives=2,
        drop_reverses=False,
        relation=Relation(0, (1,)),
        seed=0,
        step_edges=lambda step: np.arange(4),
    )
    batch: Any = sampler.sample(np.array([3, 0, 1]), 0)
    assert (np.diff(batch.seeds) > 0).all()
    pairs = np.stack([batch.links.sources, batch.links.destinations[:, 0]], axis=1)
    assert batch.seeds[pairs].tolist() == edges[[3, 0, 1]].tolist()
    step_edges = {(0, u, v) for u, v in edges.tolist()} | {(1, v, u) for u, v in edges.tolist()}
    for layer in range(2):
        left = {edge[:3] for edge in edges_of(batch, layer)}
        assert left
        assert not left & step_edges
