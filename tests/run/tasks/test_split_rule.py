"""Splits of the edges of one edge type, against all edges one by one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typed_graphs import Lists, random_lists, typed_graph

from gnnscale.graph import Graph, GraphSchema, Relation
from gnnscale.partition.store import GraphIdentity
from gnnscale.run.tasks import edge_structure
from gnnscale.run.tasks.edge_structure import find_relation
from gnnscale.run.tasks.split_rule import PARTS, SplitIdentity, SplitRule, write_edges

TYPES = [
    ("user", "buys", "item"),
    ("item", "bought-by", "user"),
    ("user", "knows", "user"),
    ("user", "known-by", "user"),
    ("item", "like", "item"),
]
SCHEMA = GraphSchema.of({"user": 6, "tag": 2, "item": 4}, TYPES)


class Written:
    """A writer that keeps the rows, as ``NpyWriter`` writes them."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def append(self, rows: Any) -> None:
        self.rows += rows.tolist()


def turned(lists: Lists, edge_type: int, into: int) -> Lists:
    """Return the lists of edge type ``into``: those of ``edge_type``, in reverse."""
    found: Lists = {}
    for (number, v), sources in lists.items():
        for u in sources if number == edge_type else ():
            found.setdefault((into, u), []).append(v)
    return found


def with_reverses(lists: Lists) -> Lists:
    """Return lists whose edge types 1 and 3 are the reverses of 0 and 2."""
    own = {key: sources for key, sources in lists.items() if key[0] not in (1, 3)}
    return own | turned(own, 0, 1) | turned(own, 2, 3)


def edges_of(graph: Graph, indptr: Any, indices: Any) -> list[tuple[int, int, int]]:
    rows = np.repeat(np.arange(SCHEMA.num_rows), np.diff(indptr))
    columns = SCHEMA.edge_type_of(rows), indices, SCHEMA.vertex_of(rows)
    return [tuple(map(int, row)) for row in zip(*columns, strict=True)]  # type: ignore[misc]


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 1 << 20),
    name=st.sampled_from(["user-buys-item", "user-knows-user", "item-bought-by-user"]),
    directed=st.booleans(),
    mutual=st.booleans(),
)
@pytest.mark.parametrize("slice_edges", [3, 1 << 22])
def test_held_out_edges_send_nothing(seed, name, directed, mutual, slice_edges) -> None:
    lists = random_lists(SCHEMA, np.random.default_rng(seed), 2.0)
    if mutual:
        for (_, u), sources in turned(lists, 2, 2).items():
            lists[2, u] = [*lists[2, u], *sources]
    graph = typed_graph(SCHEMA, with_reverses(lists))
    identity = SplitIdentity(
        graph=GraphIdentity(name="", num_vertices=0, num_edges=0, num_train=0, content=""),
        **{"valid_fraction": 0.2, "test_fraction": 0.3, "seed": seed},
        directed=directed,
        edge_type=name,
    )
    writers: dict[str, Any] = {key: Written() for key in ("indptr", "indices", *PARTS)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edge_structure, "_SLICE_EDGES", slice_edges)
        rule = SplitRule.of(graph, identity)
        counts = write_edges(writers, rule, "splitting")
    chosen, (reverse,) = rule.relation.edge_type, rule.relation.reverses
    assert SCHEMA.edge_types[chosen].source == SCHEMA.edge_types[reverse].destination
    everything = edges_of(graph, graph.indptr, graph.indices)
    parts = {part: {tuple(pair) for pair in writers[part].rows} for part in PARTS}
    of_type = {edge[1:] for edge in everything if edge[0] == chosen and edge[1] != edge[2]}
    predicted = set.union(*parts.values())
    assert sum(map(len, parts.values())) == len(predicted)
    if rule.undirected:
        assert predicted | {pair[::-1] for pair in predicted} == of_type
    else:
        assert predicted == of_type
    held_out = parts["valid"] | parts["test"]
    if not directed:
        # A mutual edge of either direction is in the part of the other.
        assert not {pair[::-1] for pair in held_out} & parts["train"]
        held_out |= {pair[::-1] for pair in held_out if name == "user-knows-user"}
    expected = [
        edge
        for edge in everything
        if not (edge[0] == chosen and edge[1:] in held_out)
        and not (edge[0] == reverse and edge[:0:-1] in held_out)
    ]
    assert edges_of(graph, writers["indptr"].rows, writers["indices"].rows) == expected
    assert counts.edges == sum(edge[0] == chosen and edge[1] != edge[2] for edge in everything)


def test_reverses_are_found_by_content(caplog) -> None:
    lists: Lists = {(0, 8): [0, 1], (0, 9): [1], (2, 3): [4], (2, 4): [3, 5]}
    graph = typed_graph(SCHEMA, with_reverses(lists))
    assert find_relation(graph, 0) == Relation(0, (1,))
    assert find_relation(graph, 2) == Relation(2, (3,))
    assert find_relation(graph, 4) == Relation(4)
    # Copies are no other edges; an edge more is one.
    copies = {(1, 0): [8], (1, 1): [8, 8, 9]}
    assert find_relation(typed_graph(SCHEMA, lists | copies), 0) == Relation(0, (1,))
    more = typed_graph(SCHEMA, lists | copies | {(1, 5): [9]})
    assert find_relation(more, 0) == Relation(0)
    assert "100% of its edges are also edges of type item-bought-by-user" in caplog.text
    caplog.clear()
    same = typed_graph(SCHEMA, lists | {(3, 3): [4], (3, 4): [5]})
    assert find_relation(same, 2) == Relation(2)
    assert "67% of its edges are also edges of type user-known-by-user" in caplog.text
