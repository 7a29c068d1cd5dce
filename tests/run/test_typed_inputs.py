"""Rows of vertex types without features."""

import numpy as np
import pytest
from one_line import one_line
from typed_graphs import typed_graph

from gnnscale.core import GraphError
from gnnscale.core.memory import Memory
from gnnscale.data import from_arrays
from gnnscale.features import HostFeaturesConfig
from gnnscale.graph import GraphSchema
from gnnscale.nn.options import GCN
from gnnscale.nn.typed_options import RGAT, RGCN
from gnnscale.run import typed_inputs
from gnnscale.run.typed_inputs import learned_rows, read_by_type

SCHEMA = GraphSchema.of(
    {"user": 2, "item": 3, "alone": 1}, [("user", "buys", "item"), ("item", "like", "item")]
)
#: User 0 has bought items 2 and 3, user 1 has bought 3; item 4 is like 3 and itself.
LISTS = {(0, 2): [0], (0, 3): [0, 1], (1, 4): [3, 4]}


def test_degrees_by_edge_type() -> None:
    graph = typed_graph(SCHEMA, LISTS)
    with pytest.raises(GraphError, match="type alone have neither features nor edges"):
        read_by_type(RGCN(without_features="degrees"), graph, seed=0)
    connected = GraphSchema.of(
        {"user": 2, "item": 3}, [("user", "buys", "item"), ("item", "like", "item")]
    )
    graph = read_by_type(RGCN(without_features="degrees"), typed_graph(connected, LISTS), seed=0)
    users, items = (np.expm1(matrix.rows).round() for matrix in graph.features.matrices)
    assert users.tolist() == [[2], [1]]
    # How many users have bought it, how many it is like, how many are like it.
    assert items.tolist() == [[1, 0, 0], [2, 0, 1], [0, 2, 1]]


def test_constants_and_learned_rows() -> None:
    graph = read_by_type(RGCN(without_features="constant"), typed_graph(SCHEMA, LISTS), seed=0)
    assert [matrix.rows.tolist() for matrix in graph.features.matrices] == [
        [[1], [1]],
        [[1], [1], [1]],
        [[1]],
    ]
    assert learned_rows(HostFeaturesConfig(), graph) is None
    options = RGCN(hidden=4)
    graph = read_by_type(options, typed_graph(SCHEMA, LISTS), seed=3)
    table = learned_rows(HostFeaturesConfig(), graph)
    assert table.shape == (6, 4)
    assert 0 < np.abs(table).max() <= 0.1
    assert np.shares_memory(table[2:5], graph.features.matrices[1].rows)
    again = read_by_type(options, typed_graph(SCHEMA, LISTS), seed=3)
    np.testing.assert_array_equal(again.features.learned_rows, table)
    assert not read_by_type(
        options, typed_graph(SCHEMA, LISTS), seed=None
    ).features.learned_rows.any()


def test_rows_by_the_size_of_a_type(monkeypatch) -> None:
    monkeypatch.setattr(typed_inputs, "_MAX_LEARNED", 2)
    schema = GraphSchema.of({"user": 2, "item": 3}, [("user", "buys", "item")])
    graph = read_by_type(RGCN(hidden=4), typed_graph(schema, {(0, 2): [0]}), seed=0)
    assert (graph.features.learned, graph.features.widths) == ((0,), (4, 1))
    few = Memory(total=10, available=10, installed=10)
    monkeypatch.setattr(typed_inputs, "read_memory", lambda: few)
    with one_line("model.hidden=4", "2 vertices without features", "=degrees"):
        read_by_type(RGCN(hidden=4), typed_graph(schema, {}), seed=0)


def test_a_graph_without_types() -> None:
    graph = from_arrays(([0, 1], [1, 0]), np.ones((2, 3), np.float32))
    assert read_by_type(GCN(), graph, seed=0) is graph
    typed = read_by_type(RGCN(), graph, seed=0)
    assert typed.types == GraphSchema.homogeneous(2)
    assert typed.features.matrices[0].rows is graph.features
    assert typed.input_types.widths == {"vertex": 3}
    assert typed.input_types.edge_widths == ()
    features = np.float32([[1, 2], [3, 4]])
    edgy = from_arrays(([0, 1], [1, 0]), np.ones((2, 3), np.float32), edge_features=features)
    typed = read_by_type(RGAT(), edgy, seed=0)
    assert typed.input_types.edge_widths == (2,)
    assert typed.labeled_edge_features is edgy.edge_features
    assert (typed.num_edge_features, typed.num_labeled_edge_features) == (2, 2)
    assert typed.edge_rows is edgy.edge_rows
