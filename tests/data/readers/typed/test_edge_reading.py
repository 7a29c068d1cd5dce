"""Edges between types against lists made by hand of their rows."""

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from gnnscale.data import TypedTables, read_ids
from gnnscale.data.frames import from_tables
from gnnscale.graph import Graph

IDS = st.sampled_from([3, 7, 2, 90, -4, 12])


def edges_of(graph: Graph, edge_type: int) -> Counter[tuple[Any, Any]]:
    """Return the edges of a type as pairs of the user's ids, of texts or numbers."""
    ids: Any = read_ids(graph).to_pylist()
    rows = range(graph.schema.num_rows)[graph.schema.rows(edge_type)]
    destinations = graph.schema.vertices(int(graph.schema.destinations[edge_type]))
    return Counter(
        (ids[source], ids[destinations.start + number])
        for number, row in enumerate(rows)
        for source in graph.indices[slice(*graph.indptr[row : row + 2])]
    )


@settings(max_examples=12, deadline=None)
@given(
    users=st.lists(IDS, min_size=1, max_size=4, unique=True),
    orders=st.lists(st.tuples(IDS, IDS), min_size=1, max_size=9),
    keys=st.lists(st.none() | IDS, min_size=1, max_size=9),
    texts=st.booleans(),
)
def test_edges_are_the_rows_of_their_tables(
    users: list[int], orders: list[tuple[int, int]], keys: list[int | None], texts: bool
) -> None:
    # One row each refers to a vertex, as tables without any are refused.
    orders, keys = [*orders, (users[0], 12)], [*keys, users[0]]

    def user(number: int | None) -> Any:
        return f"u{number}" if texts and number is not None else number

    frames = {
        "user": pa.table({"id": list(map(user, users)), "age": [1.0] * len(users)}),
        "item": None,
        "visit": pa.table({"user": list(map(user, keys)), "length": range(len(keys))}),
    }
    table = pa.table({"user": [user(u) for u, _ in orders], "item": [item for _, item in orders]})
    for unknown in ("vertices", "drop"):
        graph = from_tables(
            frames,
            {("user", "buys", "item"): table},
            foreign_keys={("visit", "user"): "user"},
            unknown_ids=unknown,
        )
        allowed = {u for u, _ in orders} | {*keys} if unknown == "vertices" else {*users}
        buys = Counter(
            (user(u), str(item) if texts else item) for u, item in orders if u in allowed
        )
        visits = Counter(
            (str(row) if texts else row, user(key))
            for row, key in enumerate(keys)
            if key is not None and key in allowed
        )
        assert edges_of(graph, 0) == buys
        assert edges_of(graph, 1) == visits
        for number, forward in ((2, buys), (3, visits)):
            assert edges_of(graph, number) == Counter({(b, a): n for (a, b), n in forward.items()})


def test_tables_of_several_files_and_compressed_ones(tmp_path: Path) -> None:
    number = 300_000  # several batches
    (tmp_path / "follows").mkdir()
    for name, first in (("a", 0), ("b", number)):
        ids = range(first, first + number)
        table = pa.table({"source": ids, "target": [7] * number, "weight": [2.0] * number})
        parquet.write_table(table, tmp_path / "follows" / f"{name}.parquet")
    lines = "\n".join(f"{index},{index % 9}" for index in range(number))
    (tmp_path / "has.csv.gz").write_bytes(gzip.compress(f"user,tag\n{lines}\n".encode(), 1))
    graph = TypedTables(
        name="large",
        raw=str(tmp_path),
        vertices={"user": None, "tag": None},
        edges={"user-follows-user": "follows", "user-has-tag": "has.csv.gz"},
        reverse=False,
    ).open()
    assert graph.num_vertices == 2 * number + 9
    assert graph.num_edges == 3 * number
    assert graph.indices[graph.indptr[7] : graph.indptr[8]].tolist() == [*range(2 * number)]
    assert graph.edge_weights[[0, -1]].tolist() == [2, 1]
    first_tag = graph.schema.first_rows[1]
    last = graph.indices[graph.indptr[first_tag + 8] : graph.indptr[first_tag + 9]]
    assert last.tolist() == [*range(8, number, 9)]
