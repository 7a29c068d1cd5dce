import numpy as np
import pytest
import scipy.sparse

from gnnscale.core.errors import GraphError
from gnnscale.data import from_networkx, from_scipy, read_classes, read_ids

networkx = pytest.importorskip("networkx")

X = np.eye(3, dtype=np.float32)


def triangle(kind=networkx.DiGraph):
    graph = kind([("a", "b"), ("b", "c"), ("c", "c")])
    for number, node in enumerate(graph.nodes):
        graph.nodes[node].update(
            age=number, place=[0.5, number], job=["cook", "baker", "cook"][number]
        )
    graph.edges["a", "b"].update(weight=2.5)
    return graph


def lists(graph):
    return [list(part) for part in np.split(graph.indices, graph.indptr[1:-1])]


def test_from_networkx() -> None:
    given = triangle()
    graph = from_networkx(given, ["age", "place"], "job", weight="weight")
    assert lists(graph) == [[], [0], [1, 2]]
    assert graph.features.tolist() == [[0, 0.5, 0], [1, 0.5, 1], [2, 0.5, 2]]
    assert (graph.labels.tolist(), read_classes(graph)) == ([1, 0, 1], ["baker", "cook"])
    assert graph.edge_weights.tolist() == [2.5, 1, 1]
    assert read_ids(graph).to_pylist() == ["a", "b", "c"]
    both = from_networkx(triangle(networkx.Graph), edge_features=None, weight="weight")
    assert lists(both) == [[1], [0, 2], [1, 2]]
    assert both.edge_weights.tolist() == [2.5, 2.5, 1, 1, 1]
    assert (both.num_features, both.num_classes) == (0, 0)


def test_edges_that_repeat_and_their_features() -> None:
    given = networkx.MultiGraph()
    given.add_edge(5, 3, f=1.0, g=[2, 3])
    given.add_edge(3, 5, f=4.0, g=[5, 6])
    graph = from_networkx(given, edge_features=["f", "g"])
    assert lists(graph) == [[1, 1], [0, 0]]
    rows = graph.edge_features[graph.edge_rows]
    assert sorted(map(tuple, rows[:2])) == sorted(map(tuple, rows[2:])) == [(1, 2, 3), (4, 5, 6)]
    assert read_ids(graph).to_pylist() == [5, 3]


def test_masks_of_nodes_are_the_split() -> None:
    given = networkx.path_graph(4)
    for node, part in enumerate(("train", "train", "val", "test")):
        given.nodes[node].update({f"{part}_mask": True, "y": node % 2})
    graph = from_networkx(given, labels="y")
    assert (graph.train_idx.tolist(), graph.valid_idx.tolist()) == ([0, 1], [2])
    assert graph.test_idx.tolist() == [3]
    assert read_ids(graph) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"features": ["size"]},
            "node attribute 'size': missing at 3 of 3, such as 'a', 'b'",
        ),
        ({"labels": "rang"}, "node attribute 'rang': missing at 3 of 3, such as 'a', 'b', 'c'$"),
        ({"weight": "wieght"}, "edge attribute 'wieght': missing at all edges$"),
        ({"features": ["job"]}, "node attribute 'job': expected numbers, got 'cook'$"),
        (
            {"edge_features": ["weight"]},
            "edge attribute 'weight': missing at 2 of 3, such as",
        ),
        ({"split": "random"}, "split='random': no vertex has a label"),
    ],
)
def test_what_is_missing_is_named(arguments, message) -> None:
    given = triangle()
    with pytest.raises(GraphError, match=f"^graph: {message}"):
        from_networkx(given, **arguments)


@pytest.mark.parametrize(
    ("values", "expected"),
    [((1, 0), [1, -1, 0]), (("no", "yes"), [0, -1, 1]), ((0.5, 1), [0.5, np.nan, 1])],
)
def test_nodes_without_the_attribute_have_no_label(values, expected, caplog) -> None:
    caplog.set_level("INFO")
    given = triangle()
    for node, value in zip("ac", values, strict=True):
        given.nodes[node]["rank"] = value
    np.testing.assert_array_equal(from_networkx(given, labels="rank").labels, expected)
    assert "'rank': missing at 1 of 3, such as 'b', whose label is unknown" in caplog.text


def test_ids_of_other_nodes_are_their_texts(caplog) -> None:
    assert read_ids(from_networkx(networkx.grid_2d_graph(1, 2))).to_pylist() == ["(0, 0)", "(0, 1)"]
    assert read_ids(from_networkx(networkx.path_graph([1, "1"]))) is None
    assert "nodes have no ids in predictions" in caplog.text


def test_an_empty_graph_and_other_objects() -> None:
    with pytest.raises(GraphError, match="expected at least one row"):
        from_networkx(networkx.Graph())
    for convert in (from_networkx, from_scipy):
        with pytest.raises(GraphError, match=r"^graph: expected a .*got dict$"):
            convert({})
    with pytest.raises(GraphError, match=r"got networkx\.Graph; from_networkx takes it"):
        from_scipy(networkx.path_graph(2))
    with pytest.raises(GraphError, match=r"got scipy.csr_array; from_scipy takes it"):
        from_networkx(scipy.sparse.csr_array(X))


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok", "bsr"])
def test_from_scipy(kind) -> None:
    dense = np.array([[0, 2.5, 0], [0, 0, 1], [0, 0, 4]])
    for form in (scipy.sparse.coo_array, scipy.sparse.coo_matrix):
        matrix = form(dense).asformat(kind)
        graph = from_scipy(matrix, X, [0, 1, 1], train_idx=[0], valid_idx=[1], test_idx=[2])
        assert lists(graph) == [[], [0], [1, 2]]
        assert graph.edge_weights.tolist() == [2.5, 1, 4]
        assert graph.train_idx.tolist() == [0]
        for ones in (dense > 0, (dense > 0).astype(float)):
            assert from_scipy(form(ones).asformat(kind)).edge_weights is None


def test_matrices_that_do_not_fit() -> None:
    with pytest.raises(GraphError, match=r"expected a square matrix, got \[2, 3\]"):
        from_scipy(scipy.sparse.coo_array((2, 3)))
    with pytest.raises(GraphError, match=r"^graph: features: 2 rows for 3 vertices$"):
        from_scipy(scipy.sparse.eye_array(3), X[:2])
    with pytest.raises(GraphError, match="edge weights: edge 0: expected a weight of at least 0"):
        from_scipy(-scipy.sparse.eye_array(3))
