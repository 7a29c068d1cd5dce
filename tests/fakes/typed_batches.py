"""Mini-batches and rows of random graphs with types."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from typed_graphs import random_lists, typed_graph

from gnnscale.graph import GraphSchema
from gnnscale.nn import Inputs
from gnnscale.sampling import TypedBlock, TypedMiniBatch, TypedSampler

#: Nothing ends at type d, which has no vertices either; no edges come from it.
SCHEMA = GraphSchema.of(
    {"a": 30, "b": 20, "c": 25, "d": 0},
    [*(("a", "x", "b"), ("b", "y", "a"), ("a", "z", "a")), ("c", "x", "b"), ("d", "x", "a")],
)
SEEDS = np.array([0, 1, 2, 7, 35, 41, 55, 60])


@st.composite
def schemas(draw: Any) -> GraphSchema:
    """Schemas with types without vertices, and types at which no edge type ends."""
    names = ["a", "b", "c"][: draw(st.integers(1, 3))]
    counts = {name: draw(st.sampled_from([0, 1, 25])) for name in names}
    counts[names[0]] += 5
    triples = st.tuples(st.sampled_from(names), st.sampled_from("rst"), st.sampled_from(names))
    return GraphSchema.of(counts, draw(st.lists(triples, min_size=1, max_size=5, unique=True)))


def typed_sampler(schema: GraphSchema, fanouts: Sequence[int], **options: Any) -> TypedSampler:
    """A sampler of a random graph."""
    lists = random_lists(schema, np.random.default_rng(schema.num_rows), 2.0)
    return TypedSampler(typed_graph(schema, lists), fanouts=fanouts, **options)


def weighted(block: TypedBlock) -> TypedBlock:
    """A block with weights of edges, some of them 0."""
    generator = np.random.default_rng(block.num_edges)
    relations = tuple(
        replace(each, edge_weights=generator.integers(0, 3, each.num_edges).astype(np.float32))
        for each in block.relations
    )
    return replace(block, relations=relations)


def random_rows(
    schema: GraphSchema, widths: Sequence[int], batch: TypedMiniBatch | None = None
) -> list[torch.Tensor]:
    """Rows of all vertices, or of the input vertices of a batch, by type."""
    generator, rows = torch.Generator().manual_seed(5), []
    for number, width in enumerate(widths):
        vertices = schema.vertices(number)
        table = torch.randn(vertices.stop - vertices.start, width, generator=generator)
        rows.append(table if batch is None else table[batch.vertices(number) - vertices.start])
    return rows


def typed_inputs(schema: GraphSchema, widths: Sequence[int], batch: TypedMiniBatch) -> Inputs:
    rows = tuple(random_rows(schema, widths, batch))
    return Inputs(x=torch.empty(0, 0), aggregated=False, rows=rows)


def source_rows(block: TypedBlock, width: int) -> list[torch.Tensor]:
    """Random rows of the sources of a block, with gradient."""
    return [torch.randn(size, width).requires_grad_() for size in block.src_sizes]
