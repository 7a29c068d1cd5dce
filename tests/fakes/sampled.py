"""What mini-batches have of a graph, by global ids."""

import numpy as np

from gnnscale import Graph
from gnnscale.sampling import Block, MiniBatch


def neighbours(graph: Graph, v: int) -> list[int]:
    return graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()


def picked(batch: MiniBatch, block: Block) -> dict[int, list[int]]:
    """Return, for each destination's global id, the global ids of its sampled neighbours."""
    ids = batch.input_vertices
    lists = np.split(ids[block.indices], block.indptr[1:-1])
    return {int(v): each.tolist() for v, each in zip(ids[: block.num_dst], lists, strict=True)}


def assert_slices_are_of_the_whole(whole: MiniBatch, parts: list[MiniBatch]) -> None:
    """Seeds that are sampled by themselves have what they have in a larger mini-batch."""
    for part in parts:
        for whole_block, part_block in zip(whole.blocks, part.blocks, strict=True):
            expected = picked(whole, whole_block)
            assert all(each == expected[v] for v, each in picked(part, part_block).items())
    reached = np.concatenate([part.input_vertices for part in parts])
    assert set(reached.tolist()) == set(whole.input_vertices.tolist())
