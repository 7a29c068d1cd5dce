import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line
from typed_graphs import SCHEMAS, random_lists, shop, typed_graph

from gnnscale.core.errors import GraphError
from gnnscale.graph import EdgeType, GraphSchema

SHOPS = GraphSchema.of(
    {"user": 3, "item": 2, "shop": 0},
    [("user", "buys", "item"), ("item", "bought_by", "user"), ("shop", "sells", "item")],
)


def test_ids_and_rows_by_hand() -> None:
    assert SHOPS.first_vertices.tolist() == [0, 3, 5, 5]
    # A user has one list, an item two: of what users buy, and of what shops sell.
    assert SHOPS.first_rows.tolist() == [0, 3, 7, 7]
    assert [SHOPS.rows(number) for number in range(3)] == [
        slice(3, 7, 2),
        slice(0, 3, 1),
        slice(4, 7, 2),
    ]
    assert SHOPS.vertices(1) == slice(3, 5)
    assert SHOPS.type_of(np.array([0, 2, 3, 4])).tolist() == [0, 0, 1, 1]
    assert (SHOPS.num_vertices, SHOPS.num_rows) == (5, 7)


def test_ids_are_split_by_type() -> None:
    schema = GraphSchema.of({"none": 0, "a": 12, "b": 3, "c": 12, "d": 12}, [("a", "to", "d")])
    parts = schema.split(np.array([5, 0, 14, 38, 27], np.int32))
    assert [part.tolist() for part in parts] == [[], [5, 0], [2], [], [11, 0]]
    assert [part.dtype for part in parts] == [np.int32] * 5
    assert [len(part) for part in schema.split(np.array([], np.int32))] == [0] * 5
    (whole,) = GraphSchema.homogeneous(9).split(np.array([7, 2]))
    assert whole.tolist() == [7, 2]


def test_native_code_finds_the_same_rows() -> None:
    vertices, edges = SHOPS.native
    assert vertices == [(0, 3), (3, 2), (5, 0)]
    for number, (source, destination, offset, stride) in enumerate(edges):
        assert (source, destination) == (SHOPS.sources[number], SHOPS.destinations[number])
        ids, rows = SHOPS.vertices(destination), SHOPS.rows(number)
        found = [v * stride + offset for v in range(ids.start, ids.stop)]
        assert found == list(range(rows.start, rows.stop, rows.step))


def test_every_row_is_of_one_edge_type() -> None:
    rows = [row for number in range(3) for row in np.arange(SHOPS.num_rows)[SHOPS.rows(number)]]
    assert sorted(rows) == list(range(SHOPS.num_rows))


def test_a_graph_without_types_has_one_of_each() -> None:
    schema = GraphSchema.homogeneous(4)
    assert schema.is_homogeneous
    assert schema.native == ([(0, 4)], [(0, 0, 0, 1)])
    assert schema.rows(0) == slice(0, 4, 1)
    assert not SHOPS.is_homogeneous


def test_names() -> None:
    assert str(SHOPS.edge_types[0]) == "user-buys-item"
    assert SHOPS.edge_types[0] == EdgeType("user", "buys", "item")


def test_lists_of_vertices_by_hand() -> None:
    # Users have 2, 0 and 1 neighbors; items 1 by each edge type, and 3 by the second.
    indptr = np.array([0, 2, 2, 3, 4, 5, 5, 8])
    assert SHOPS.vertex_offsets(indptr).tolist() == [0, 2, 2, 3, 5, 8]


@settings(max_examples=50, deadline=None)
@given(SCHEMAS, st.integers(0, 99))
def test_a_graph_without_its_types_has_all_neighbors(schema, seed) -> None:
    lists = random_lists(schema, np.random.default_rng(seed), 2)
    graph = typed_graph(schema, lists)
    merged = graph.without_types()
    assert (merged.types, merged.num_features) == (None, 0)
    assert merged.indices is graph.indices
    assert merged.num_vertices == schema.num_vertices == len(merged.indptr) - 1
    for v in range(schema.num_vertices):
        expected = [u for (_, end), sources in lists.items() if end == v for u in sources]
        neighbors = merged.indices[merged.indptr[v] : merged.indptr[v + 1]]
        assert sorted(neighbors.tolist()) == sorted(expected)


def test_a_graph_without_its_types_shares_all_else() -> None:
    graph = shop(30, 12)
    merged = graph.without_types()
    assert merged.labels is graph.labels
    assert merged.split is graph.split
    assert merged.origin is graph.origin
    assert merged.without_types() is merged


@pytest.mark.parametrize(
    ("edges", "line"),
    [
        ([("user", "buys", "thing")], "user-buys-thing: 'thing' is no vertex type, allowed are"),
        ([("user", "buys", "user")] * 2, "edge type user-buys-user: appears twice"),
        (
            [("user", "a-user", "user"), ("user-a", "user", "user")],
            "user-a-user-user: appears twice",
        ),
        ([], "0 edge types: allowed are 1 to 1024"),
    ],
)
def test_types_that_are_refused(edges, line) -> None:
    with one_line(line, error=GraphError):
        GraphSchema.of({"user": 1}, edges)
