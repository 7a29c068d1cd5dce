"""Mini-batches of labelled edges on a tiny graph."""

from dataclasses import replace

import numpy as np

from gnnscale import sampling as sampler
from gnnscale.data.interop import from_arrays
from gnnscale.graph import EdgeData
from gnnscale.sampling.edge_batches import EdgeSampling, edge_links

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
    vertices = sampler.NeighborSampling(fanouts=[-1])
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
