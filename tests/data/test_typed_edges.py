import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.data.typed_edges import typed_topology
from gnnscale.graph import GraphSchema

SCHEMA = GraphSchema.of(
    {"a": 3, "b": 4}, [("a", "to", "b"), ("b", "of", "b"), ("b", "from", "a"), ("a", "by", "b")]
)
SIZES = [3, 4]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_each_list_has_the_sources_of_its_type(data) -> None:
    edges = []
    for source, destination in zip(SCHEMA.sources, SCHEMA.destinations, strict=True):
        ends = st.tuples(st.integers(0, SIZES[source] - 1), st.integers(0, SIZES[destination] - 1))
        pairs = np.array(data.draw(st.lists(ends, max_size=9)), np.int64).reshape(-1, 2)
        edges.append((pairs[:, 0], pairs[:, 1]))
    weights = [np.arange(len(src), dtype=np.float32) for src, _ in edges]
    graph = typed_topology(SCHEMA, edges, name="t", weights=weights, number_edges=True)
    assert graph.num_vertices == 7
    assert graph.num_edges == sum(len(src) for src, _ in edges)
    for number, (src, dst) in enumerate(edges):
        first = SCHEMA.vertices(int(SCHEMA.sources[number])).start
        rows = np.arange(SCHEMA.num_rows)[SCHEMA.rows(number)]
        for vertex, row in enumerate(rows):
            part = slice(*graph.indptr[row : row + 2])
            ids = graph.edge_ids[part]
            assert graph.indices[part].tolist() == (src[ids] + first).tolist()
            assert sorted(graph.indices[part].tolist()) == graph.indices[part].tolist()
            assert sorted(ids.tolist()) == np.flatnonzero(dst == vertex).tolist()
            assert graph.edge_weights[part].tolist() == ids.tolist()
