import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.data.time_inputs import TypedTimes
from gnnscale.data.typed_edges import typed_topology
from gnnscale.graph import NO_TIME, GraphSchema

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


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_lists_ascend_by_time_then_by_source(data) -> None:
    edges, own = [], []
    for source, destination in zip(SCHEMA.sources, SCHEMA.destinations, strict=True):
        ends = st.tuples(st.integers(0, SIZES[source] - 1), st.integers(0, SIZES[destination] - 1))
        pairs = np.array(data.draw(st.lists(ends, max_size=9)), np.int64).reshape(-1, 2)
        edges.append((pairs[:, 0], pairs[:, 1]))
        drawn = st.lists(st.integers(0, 3), min_size=len(pairs), max_size=len(pairs))
        own.append(np.array(data.draw(drawn), np.int64) if data.draw(st.booleans()) else None)
    of_a = np.array([2, 0, 1]) if data.draw(st.booleans()) else None
    times = TypedTimes(unit="step", vertices=[of_a, None], edges=own)
    weights = [np.arange(len(src), dtype=np.float32) for src, _ in edges]
    weights = weights if data.draw(st.booleans()) else None
    graph = typed_topology(SCHEMA, edges, name="t", weights=weights, number_edges=True, times=times)
    assert graph.times.unit == "step"
    for number, (src, dst) in enumerate(edges):
        first = SCHEMA.vertices(int(SCHEMA.sources[number])).start
        known = [
            max(
                NO_TIME if own[number] is None else own[number][edge],
                of_a[src[edge]] if of_a is not None and first == 0 else NO_TIME,
            )
            for edge in range(len(src))
        ]
        for vertex, row in enumerate(np.arange(SCHEMA.num_rows)[SCHEMA.rows(number)]):
            part = slice(*graph.indptr[row : row + 2])
            of_vertex = [edge for edge in range(len(src)) if dst[edge] == vertex]
            ids = sorted(of_vertex, key=lambda edge: (known[edge], src[edge], edge))
            assert graph.edge_ids[part].tolist() == ids
            assert graph.indices[part].tolist() == (src[ids] + first).tolist()
            assert graph.times.edges[part].tolist() == [known[edge] for edge in ids]
            assert weights is None or graph.edge_weights[part].tolist() == ids
    of_vertices = None if of_a is None else [2, 0, 1, *[NO_TIME] * 4]
    vertices = graph.times.vertices
    assert (None if vertices is None else vertices.tolist()) == of_vertices
