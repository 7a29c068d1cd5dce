from typed_graphs import typed_graph

from gnnscale.graph import GraphSchema, Relation, in_degrees


def test_edge_types_of_a_relation_and_in_degrees() -> None:
    assert Relation(2, (0, 4)).turns() == [(2, False), (0, True), (4, True)]
    types = [("user", "buys", "item"), ("item", "like", "item"), ("item", "by", "user")]
    schema = GraphSchema.of({"user": 2, "item": 3}, types)
    graph = typed_graph(schema, {(0, 2): [0, 1, 1], (0, 4): [0], (1, 4): [2, 3], (2, 1): [4]})
    assert in_degrees(graph, 0).tolist() == [0, 0, 3, 0, 1]
    assert in_degrees(graph, 1).tolist() == [0, 0, 0, 0, 2]
    assert in_degrees(graph, 2).tolist() == [0, 1, 0, 0, 0]
