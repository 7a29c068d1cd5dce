"""Features of vertex types of other tables, arranged and scaled as in training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_line import one_line

from gnnscale.data import Tables, TypedTables
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.graph import Graph
from gnnscale.nn.typed_options import RSAGE
from gnnscale.run.checkpoint.input_schema import (
    InputSchema,
    read_input_schema,
    write_input_schema,
)
from gnnscale.run.typed_inputs import read_by_type

MODEL = RSAGE(num_layers=1, without_features="constant")
#: Users who train joined 1 day after the first on average, with deviation 1; prices: 1.5, 0.5.
USERS = "id,joined,town,y,split\nann,2024-01-03,Rome,0,train\nbob,2024-01-01,Bern,1,train\n"
USERS += "cid,2024-01-09,Oslo,1,valid\n"
ITEMS = "id,price\n1,1\n2,2\n"
#: Four days after the first day of training, without Bern.
NEXT = "id,joined,town\ndan,2024-01-05,Rome\neve,,Oslo\n"
ORDERS = "user,item,tag\nann,1,x\nbob,2,y\n"


def tables(folder: Path, users: str, items: str = ITEMS, **options: Any) -> TypedTables:
    folder.mkdir(exist_ok=True)
    orders = ORDERS if users == USERS else ORDERS.replace("ann", "dan").replace("bob", "eve")
    for name, text in (("users", users), ("items", items), ("orders", orders)):
        (folder / f"{name}.csv").write_text(text)
    named = {
        "vertices": {"user": "users.csv", "item": "items.csv"},
        "edges": {"user-buys-item": "orders.csv"},
        "target": "user",
        "label": "y",
        "ends": {"user-buys-item": ["user", "item"]},
    }
    return TypedTables(name="new", raw=str(folder), **(named | options))


def rows_of(graph: Graph) -> list[Any]:
    matrices: Any = graph.features.matrices
    return [np.array(matrix.rows).tolist() for matrix in matrices]


@pytest.fixture
def dataset(tmp_path: Path) -> TypedTables:
    return tables(tmp_path / "may", USERS)


def other(run: TypedTables, folder: Path, *args: str, schema: InputSchema, **options: Any) -> Graph:
    tables(folder, *args)
    source = read_as(run, folder, schema, **options)
    return read_by_type(MODEL, source.open(), seed=0)


def read_as(run: TypedTables, folder: Path, schema: InputSchema, **options: Any) -> Any:
    """Return the tables in ``folder``, with options of a run to predict them."""
    source = TypedTables(name="new", raw=str(folder), **options)
    named: Any = source.with_options(run, [*options])
    return named.to_predict(schema.trained_columns, splits=False)


@pytest.mark.parametrize("standardize", [False, True])
def test_types_by_hand(dataset: TypedTables, tmp_path: Path, standardize: bool) -> None:
    trained = replace(dataset, standardize=standardize).open()
    schema = InputSchema.of(read_by_type(MODEL, trained, seed=0))
    write_input_schema(tmp_path, schema)
    assert read_input_schema(tmp_path) == schema
    graph = other(dataset, tmp_path / "june", NEXT, "id,price\n1,3\n2,1\n", schema=schema)
    # Days since 2024-01-01, empty: their mean, 1; Bern, Oslo, Rome.
    users = np.array([[4, 0, 0, 1], [1, 0, 1, 0]], np.float32)
    items = np.array([[3], [1]], np.float32)
    if standardize:
        users = users - [1, 0, 0, 0]
        items = (items - 1.5) / 0.5
    assert rows_of(schema.fitted(graph)) == [users.tolist(), items.tolist()]
    assert schema.fitted(trained) is trained
    # Features of a type that the run did not read are not read.
    bare = replace(schema, type_columns={"item": schema.type_columns["item"]})
    graph = other(dataset, tmp_path / "june", NEXT, schema=bare)
    assert graph.features.widths == (1, 1)


def test_types_that_do_not_fit(dataset: TypedTables, tmp_path: Path) -> None:
    schema = InputSchema.of(read_by_type(MODEL, dataset.open(), seed=0))
    new = NEXT.replace("Oslo", "Paris")
    graph = other(dataset, tmp_path / "a", new, schema=schema)
    with one_line("column 'town' of new: expected the categories of training, got 'Paris'"):
        schema.fitted(graph)
    assert rows_of(schema.fitted(graph, unseen="empty"))[0][1] == [1, 0, 0, 0]
    for options, words in (
        ({"features": {"user": ["joined"]}}, "has no features of user 'town', which the run"),
        ({"features": {"user": ["town", "joined"]}}, "features={user: [joined,town]}"),
        ({"standardize": True}, "features of user with a scaling that is not the run's"),
        ({"categories": {"user": ["joined", "town"]}}, "expected dates as in training, got cat"),
    ):
        graph = other(dataset, tmp_path / "a", NEXT, schema=schema, **options)
        with one_line(words):
            schema.fitted(graph)
    numbers = NEXT.replace("Rome", "7").replace("Oslo", "9")
    graph = other(
        dataset, tmp_path / "a", numbers, schema=schema, features={"user": ["joined", "town"]}
    )
    with one_line("set dataset.categories={user: [town]}"):
        schema.fitted(graph)


def test_edge_types_by_hand(dataset: TypedTables, tmp_path: Path) -> None:
    """Tags x and y of edges keep their positions; both directions share the rows."""
    features = {"user-buys-item": ["tag"]}
    trained = replace(dataset, edge_features=features, standardize=True).open()
    schema = InputSchema.of(read_by_type(MODEL, trained, seed=0))
    write_input_schema(tmp_path, schema)
    assert read_input_schema(tmp_path) == schema
    assert schema.types is not None
    assert schema.types.edge_widths == (2, 2)
    folder = tmp_path / "june"
    graph = other(dataset, folder, NEXT, schema=schema)
    assert graph.edges.by_type is not None
    orders = (folder / "orders.csv").read_text().replace(",x", ",y")
    (folder / "orders.csv").write_text(orders)
    graph = read_by_type(MODEL, read_as(dataset, folder, schema).open(), seed=0)
    assert graph.edges.by_type.widths == (1, 1)
    fitted = schema.fitted(graph).edges.by_type
    assert fitted is not None
    one, both = fitted.matrices
    assert one is both
    assert one.rows.tolist() == [[0, 1], [0, 1]]
    (folder / "orders.csv").write_text(orders.replace(",y", ",z"))
    graph = read_by_type(MODEL, read_as(dataset, folder, schema).open(), seed=0)
    with one_line("column 'tag' of new: expected the categories of training, got 'z'"):
        schema.fitted(graph)
    bare = graph.without_edge_features()
    with one_line(
        "0 features of user-buys-item, and the run was trained on 2 of new; set dataset."
        "edge_features={user-buys-item: [tag]}"
    ):
        schema.fitted(bare)
    unread = InputSchema.of(read_by_type(MODEL, trained.without_edge_features(), seed=0))
    assert unread.fitted(graph, unseen="empty").edges.by_type is None


def test_an_edge_type_without_edges_needs_no_features() -> None:
    def graph(src: list[int], features: Any) -> Graph:
        knows = ("user", "knows", "user")
        likes = ("user", "likes", "user")
        made = from_typed_arrays(
            {"user": np.ones((2, 1), np.float32)},
            {knows: (src, src), likes: ([0], [1])},
            edge_features={knows: features, likes: [1]},
        )
        return read_by_type(MODEL, made, seed=0)

    schema = InputSchema.of(graph([0, 1], [[1, 2], [3, 4]]))
    fitted = schema.fitted(graph([], None)).edges.by_type
    assert fitted is not None
    assert fitted.widths == (2, 1)
    with one_line("has 0 features of user-knows-user, and the run was trained on 2"):
        schema.fitted(graph([1], None))


def test_a_table_without_types_is_read_by_a_model_of_types(tmp_path: Path) -> None:
    def table(folder: str, rows: str, **options: Any) -> Graph:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "vertices.csv").write_text(f"id,town,age\n{rows}")
        (tmp_path / folder / "edges.csv").write_text("source,target\n1,2\n")
        source = Tables(name="new", raw=str(tmp_path / folder), label=None, **options)
        return read_by_type(MODEL, source.open(), seed=0)

    schema = InputSchema.of(table("a", "1,Rome,1\n2,Bern,3\n", standardize=True))
    graph = table("b", "1,Rome,5\n2,Rome,1\n")
    # Bern, Rome, age; mean 2 and deviation 1.
    assert rows_of(schema.fitted(graph)) == [[[0, 1, 3], [0, 1, -1]]]
    with one_line("set dataset.features=[town,age]"):
        schema.fitted(table("c", "1,Rome,5\n2,Rome,1\n", features=["age", "town"]))
