"""Tables by type: a shop with users, items and orders, and what is refused of them."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from one_line import one_line

from gnnscale.core import ConfigError, GraphError
from gnnscale.data import TypedTables, read_classes, read_ids, verify_store
from gnnscale.data.frames import from_tables
from gnnscale.data.storage.standardize import ColumnScaling
from gnnscale.data.tables.feature_columns import read_type_columns
from gnnscale.graph import NO_TIME, Graph

USERS = (
    "id,age,town,churned,split\n"
    "ann,30,Bonn,yes,train\nbob,,Oslo,no,train\ncid,50,Bonn,no,valid\ndan,20,Oslo,,test\n"
)
ITEMS = "id,price,kind\n10,1.5,toy\n20,2.5,book\n30,0.5,toy\n"
ORDERS = "user_id,item_id,weight\nann,10,1\nann,20,2\ncid,10,3\n"
SHOP = {
    "vertices": {"user": "users.csv", "item": "items.csv"},
    "edges": {"user-buys-item": "orders.csv"},
    "target": "user",
    "label": "churned",
}
#: Users are 0 to 3, items 4 to 6.
LISTS = {"user-buys-item": [[0, 2], [0], []], "item-rev_buys-user": [[4, 5], [], [4], []]}


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    """Return a function that writes tables, and returns their dataset."""

    def make(users: str = USERS, items: str = ITEMS, orders: str = ORDERS, **options: Any) -> Any:
        raw = tmp_path / "raw"
        raw.mkdir(exist_ok=True)
        for name, table in (("users", users), ("items", items), ("orders", orders)):
            (raw / f"{name}.csv").write_text(table)
        return TypedTables(**({"name": "shop", "raw": str(raw)} | SHOP | options))

    return make


def lists(graph: Graph) -> dict[str, list[list[int]]]:
    """Return by edge type the sources of each destination."""
    rows = [row.tolist() for row in np.split(graph.indices, graph.indptr[1:-1])]
    return {
        str(edge_type): rows[graph.schema.rows(number)]
        for number, edge_type in enumerate(graph.schema.edge_types)
    }


def features(graph: Graph) -> list[Any]:
    matrices: Any = graph.features.matrices
    return [None if matrix is None else matrix.rows.tolist() for matrix in matrices]


def split_of(graph: Graph) -> list[list[int]]:
    return [part.tolist() for part in (graph.train_idx, graph.valid_idx, graph.test_idx)]


def test_a_shop(shop: Any, caplog: pytest.LogCaptureFixture) -> None:
    graph = shop().open()
    assert lists(graph) == LISTS
    assert graph.edge_weights.tolist() == [1, 2, 3, 1, 3, 2]
    assert graph.labels.tolist() == [1, 0, 0, -1, -1, -1, -1]
    assert (read_classes(graph), graph.metric) == (["no", "yes"], "accuracy")
    assert split_of(graph) == [[0, 1], [2], [3]]
    assert read_ids(graph).to_pylist() == ["ann", "bob", "cid", "dan", "10", "20", "30"]
    # The empty age is the mean of ann and bob, who train.
    users = [[30, 0, 1, 0], [30, 1, 0, 1], [50, 0, 1, 0], [20, 0, 0, 1]]
    assert features(graph) == [users, [[1.5, 0, 1], [2.5, 1, 0], [0.5, 0, 1]]]
    columns = read_type_columns(graph)
    assert [column.name for column in columns["user"]] == ["age", "town"]
    assert (columns["user"][0].mean, columns["item"][0].mean) == ((30,), (1.5,))
    assert columns["item"][1].categories == ("book", "toy")
    assert "user: empty numbers get the mean of training" in caplog.text
    assert [check for check in verify_store(graph.path) if check.problem] == []
    assert {path.suffix for path in graph.path.iterdir()} == {".npy", ".json", ".parquet"}
    assert shop().prepare() == graph.path
    assert features(shop().read_graph()) == features(graph)


def test_columns_of_edges_that_nothing_reads_are_logged(shop: Any, caplog: Any) -> None:
    caplog.set_level("INFO")
    shop(orders="user_id,item_id,note,day\nann,10,a,1\n").open()
    note = "orders.csv: not read: note, day; see dataset.edge_features, dataset.weight and "
    note += "dataset.foreign_keys"
    assert note in caplog.text
    caplog.clear()
    shop().open()
    assert "orders.csv: not read" not in caplog.text


#: Ann has bought 10 twice, of which an order lacks its amount; a buyer of 20 is unknown.
BOUGHT = "user_id,item_id,amount,paid,day\n"
BOUGHT += "ann,10,2,card,2024-01-03\nann,20,4,cash,2024-01-01\ncid,10,,card,2024-01-01\n"
BOUGHT += "zoe,20,8,card,2024-01-01\n"
OF_EDGES = {"edge_features": {"user-buys-item": ["amount", "paid", "day"]}}


def edge_rows(graph: Graph) -> list[Any]:
    """Return by edge type the features of the edges in the order of their lists."""
    types = graph.schema.edge_types_at(graph.indptr, 0, graph.num_edges)
    return [
        None if matrix is None else matrix.rows[graph.edge_rows[types == number]].tolist()
        for number, matrix in enumerate(graph.edges.by_type.matrices)
    ]


def test_features_of_edges(shop: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An amount, whether it is empty, card and cash, and days; the mean amount is 3."""
    caplog.set_level("INFO")
    graph = shop(orders=BOUGHT, unknown_ids="drop", **OF_EDGES).open()
    assert lists(graph) == LISTS
    first, second, third = [2, 0, 1, 0, 2], [4, 0, 0, 1, 0], [3, 1, 1, 0, 0]
    # Of item 10: ann and cid, of item 20: ann; of ann: 10 and 20, of cid: 10.
    assert edge_rows(graph) == [[first, third, second], [first, second, third]]
    one, other = graph.edges.by_type.matrices
    assert one is other
    columns = read_type_columns(graph, edges=True)
    assert list(columns) == ["user-buys-item", "item-rev_buys-user"]
    assert [column.content for column in columns["user-buys-item"]] == [
        *("numbers", "categories", "dates")
    ]
    assert columns["user-buys-item"][0].mean == (3,)
    assert "user-buys-item: empty numbers get the mean of training" in caplog.text
    assert "not read" not in caplog.text
    assert "3 edges  1.0 per item, 5 features, float32" in caplog.text
    assert [check for check in verify_store(graph.path) if check.problem] == []
    again = shop(orders=BOUGHT, unknown_ids="drop", **OF_EDGES).read_graph()
    assert edge_rows(again) == edge_rows(graph)
    graph.save(tmp_path / "copy")
    assert read_type_columns(Graph.open(tmp_path / "copy"), edges=True) == columns
    graph.without_edge_features().save(tmp_path / "bare")
    bare = Graph.open(tmp_path / "bare")
    assert read_type_columns(bare, edges=True) == {}
    assert read_type_columns(bare) == read_type_columns(graph)


def test_features_of_edges_scaled_dropped_and_chosen_as_categories(shop: Any) -> None:
    only = {"edge_features": {"user-buys-item": ["amount"]}, "reverse": False}
    dropped = shop(orders=BOUGHT, missing="drop", **only).open()
    # Zoe is no user, as age is a number; the order without amount is left out.
    assert lists(dropped)["user-buys-item"] == [[0], [0], []]
    assert edge_rows(dropped) == [[[2], [4]]]
    scaled = shop(orders=BOUGHT, unknown_ids="drop", standardize=True, **only).open()
    amounts = np.array([2, 3, 4]) - 3
    expected = np.stack([amounts / np.sqrt(2 / 3), [0, 1, 0]], 1)
    np.testing.assert_allclose(edge_rows(scaled)[0], expected, rtol=1e-6)
    kinds = shop(
        orders="user_id,item_id,rank\nann,10,1\ncid,20,3\nann,30,1\n",
        edge_features={"user-buys-item": ["rank"]},
        edge_categories={"user-buys-item": ["rank"]},
        reverse=False,
    ).open()
    assert edge_rows(kinds) == [[[1, 0], [0, 1], [1, 0]]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"edge_features": {"user-likes-item": ["amount"]}},
            "dataset.edge_features: user-likes-it",
        ),
        ({"edge_features": {"user-buys-item": ["amount", "amount"]}}, "got amount twice"),
        ({"edge_features": {"user-buys-item": ["weight"]}}, "got weight twice"),
        ({"edge_categories": {"user-buys-item": ["paid"]}}, "expected columns of edge_features"),
        ({"edge_features": {"user-buys-item": ["item_id"]}}, "got item_id twice"),
        ({"edge_features": {"user-buys-item": ["price"]}}, "no column 'price' (dataset.edge_feat"),
        (OF_EDGES | {"missing": "refuse", "unknown_ids": "drop"}, "amount"),
    ],
)
def test_columns_of_edges_that_are_refused(shop: Any, options: Any, words: str) -> None:
    with pytest.raises((ConfigError, GraphError), match=re.escape(words)):
        shop(orders=BOUGHT, users=USERS.replace("bob,,", "bob,1,"), **options).open()


def test_the_store_is_reused_and_written_again_if_a_table_changes(
    shop: Any, tmp_path: Path
) -> None:
    path = shop(store=str(tmp_path / "store")).prepare()
    files = json.loads((path / "meta.json").read_text())["raw"]
    assert [file["name"] for file in files] == ["users.csv", "items.csv", "orders.csv"]
    with pytest.raises(GraphError, match=r"orders.csv: changed since"):
        shop(orders=ORDERS + "dan,30,1\n", store=str(path)).prepare()
    copy = Graph.open(path)
    copy.save(tmp_path / "copy")
    saved = Graph.open(tmp_path / "copy")
    assert read_ids(saved).to_pylist() == read_ids(copy).to_pylist()
    assert read_type_columns(saved) == read_type_columns(copy) != {}
    meta = json.loads((path / "meta.json").read_text())
    meta["type_columns"]["user"].pop()
    (path / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(GraphError, match="type_columns of user have 2 features, the type has 4"):
        read_type_columns(Graph.open(path))


def test_relational_tables(shop: Any, caplog: pytest.LogCaptureFixture) -> None:
    orders = "id,user_id,item_id,price\n7,ann,10,1\n5,ann,20.0,2\n9,,10,4\n8,cid,,2\n"
    vertices = SHOP["vertices"] | {"order": "orders.csv"}
    keys = {"order.user_id": "user", "order.item_id": "item"}
    graph = shop(orders=orders, vertices=vertices, edges=None, foreign_keys=keys).open()
    # Users are 0 to 3, items 4 to 6, orders 7 to 10 in the order of their rows.
    assert lists(graph) == {
        "order-user_id-user": [[7, 8], [], [10], []],
        "order-item_id-item": [[7, 9], [8], []],
        "user-rev_user_id-order": [[0], [0], [], [2]],
        "item-rev_item_id-order": [[4], [5], [4], []],
    }
    assert read_ids(graph).to_pylist()[7:] == ["7", "5", "9", "8"]
    # Foreign keys are no features.
    assert features(graph)[2] == [[1], [2], [4], [2]]
    assert graph.edge_weights is None
    assert "orders.csv: user_id: 1 of 4 edges left out, since the cell is empty" in caplog.text


def test_a_type_without_a_table_has_the_ids_of_the_edges(shop: Any) -> None:
    vertices = {"user": "users.csv", "item": None}
    graph = shop(vertices=vertices, orders="user,item\nann,40\nann,-5\ncid,40\n").open()
    assert read_ids(graph).to_pylist()[4:] == ["-5", "40"]
    assert lists(graph)["user-buys-item"] == [[0], [0, 2]]
    assert features(graph)[1] is None
    keys = {"foreign_keys": {"user.town": "town"}, "features": {"user": ["age"]}}
    graph = shop(vertices={"user": "users.csv", "town": None}, edges=None, **keys).open()
    assert lists(graph)["user-town-town"] == [[0, 2], [1, 3]]


def test_ids_of_whole_numbers_stay_numbers(shop: Any) -> None:
    users = USERS.replace("ann", "3").replace("bob", "1").replace("cid", "2").replace("dan", "0")
    orders = "user_id,item_id\n3,10\n3,20\n2,10\n"
    ids = read_ids(shop(users, orders=orders).open())
    assert (str(ids.type), ids.to_pylist()) == ("int64", [3, 1, 2, 0, 10, 20, 30])
    texts = read_ids(shop(users, orders=orders, id_type="string").open())
    assert texts.to_pylist() == ["3", "1", "2", "0", "10", "20", "30"]
    mixed = shop(users, orders=orders + "x,20\n")
    assert mixed.open().num_vertices == 8


def test_ids_by_row_numbers_and_other_columns(shop: Any) -> None:
    graph = shop(
        items=ITEMS.replace("id", "sku"),
        users=USERS.replace("id,age", "user_id,age"),
        orders="buyer,product,amount\nann,0,5\nbob,2,5\n",
        id={"item": None},
        ends={"user-buys-item": ["buyer", "product"]},
        features={"item": ["price"], "user": None},
        categories={"user": ["age"]},
        reverse=False,
    ).open()
    assert lists(graph) == {"user-buys-item": [[0], [], [1]]}
    assert read_ids(graph).to_pylist() == ["ann", "bob", "cid", "dan", "0", "1", "2"]
    assert read_type_columns(graph)["user"][0].categories == ("20", "30", "50")
    assert features(graph)[1] == [[1.5], [2.5], [0.5]]


def test_labels_of_two_types(shop: Any, tmp_path: Path) -> None:
    items = "id,price,kind,stars,split\n10,1,toy,4,train\n20,3,book,2,train\n30,,toy,,test\n"
    options = {"target": None, "label": {"item": "stars", "user": "churned"}}
    graph = shop(items=items, **options, label_kind={"item": "values"}).open()
    assert graph.targets == ("user", "item")
    users, targets = graph.of_target("user"), graph.of_target("item")
    assert (users.labels[:4].tolist(), read_classes(users)) == ([1, 0, 0, -1], ["no", "yes"])
    np.testing.assert_array_equal(targets.labels[4:], np.float32([4, 2, np.nan]))
    assert split_of(graph) == [[0, 1, 4, 5], [2], [3, 6]]
    # The empty price is the mean of the two that train, kinds are two columns.
    assert features(graph)[1] == [[1, 0, 0, 1], [3, 0, 1, 0], [2, 1, 0, 1]]
    for kind, num_classes in (("auto", 5), ({"user": "classes"}, 5)):
        store = str(tmp_path / f"{len(str(kind))}")
        classes = shop(items=items, **options, label_kind=kind, store=store).open()
        assert classes.of_target("item").num_classes == num_classes
    users = USERS + "".join(f"u{i},1,Bonn,{'yes' if i % 2 else 'no'},\n" for i in range(8))
    items += "".join(f"{i},1,toy,{i % 2},\n" for i in range(8))
    drawn = shop(users, items, **options, split="random").read_graph()
    of_users, of_items = drawn.of_target("user").split, drawn.of_target("item").split
    assert len(of_users.train_idx) + len(of_users.valid_idx) + len(of_users.test_idx) == 11
    assert (len(of_items.train_idx), 14 in of_items.train_idx) == (6, False)


@pytest.mark.parametrize("columns", ["source,target", "item,user", "a,b", "user_id,more,item"])
def test_columns_of_ids_by_default(shop: Any, columns: str) -> None:
    rows = [["ann", "10"], ["ann", "20"], ["cid", "10"]]
    if columns == "item,user":
        rows = [row[::-1] for row in rows]
    if "more" in columns:
        rows = [[row[0], "1", row[1]] for row in rows]
    orders = "\n".join([columns, *(",".join(row) for row in rows)])
    assert lists(shop(orders=orders).open()) == LISTS


def test_edges_within_a_type_keep_their_direction(shop: Any) -> None:
    options = {"vertices": {"user": "users.csv"}, "edges": {"user-likes-user": "orders.csv"}}
    graph = shop(orders="a,b\nann,bob\nann,cid\nann,cid\n", **options).open()
    assert lists(graph) == {
        "user-likes-user": [[], [0], [0, 0], []],
        "user-rev_likes-user": [[1, 2, 2], [], [], []],
    }


def test_ids_of_another_type_are_refused(shop: Any) -> None:
    """The third order is of two users; types that share an id are not compared."""
    orders = "user,item\nann,tea\nbob,tea\ncid,ann\n"
    tables = {"items": "id,price\ntea,1\ncup,2\n", "orders": orders}
    message = "edges: 1 ids such as 'ann' stand for vertices of item and are ids of user"
    with one_line(message, error=GraphError):
        shop(**tables).open()
    assert shop(**tables, unknown_ids="drop").open().num_edges == 4
    tables["items"] += "bob,3\n"
    assert shop(**tables).open().num_edges == 6


STRANGE = ORDERS + "eve,10,1\nann,99,1\n"


@pytest.mark.parametrize(
    ("options", "ids", "num_edges", "change"),
    [
        (
            {},
            ["eve", "99"],
            5,
            "1 ids that only the edges have, such as 'eve', are vertices of user",
        ),
        ({"unknown_ids": "drop"}, [], 3, "user-buys-item: 2 of 5 edges left out, since an end is"),
        ({"missing": "drop"}, [], 2, "vertices of user: 1 rows with an empty number left out"),
    ],
)
def test_ids_that_only_edges_have(
    shop: Any, options: Any, ids: Any, num_edges: int, change: str, caplog: Any
) -> None:
    orders = STRANGE.replace("cid,10,3", "bob,10,3") if "missing" in options else STRANGE
    graph = shop(orders=orders, **options).open()
    assert [each for each in read_ids(graph).to_pylist() if each in ("eve", "99")] == ids
    assert graph.num_edges == 2 * num_edges
    assert change in caplog.text
    if ids:
        assert features(graph)[0][4] == [30, 1, 0, 0]
        assert features(graph)[1][3] == [1.5, 1, 0, 0]  # the mean of all items, empty, no kind
        assert graph.labels.tolist() == [1, 0, 0, -1, -1, -1, -1, -1, -1]


def test_values_a_random_split_and_scaling(shop: Any) -> None:
    rows = [f"u{number},{number},{number / 2}\n" for number in range(20)]
    users = "id,age,churned\n" + "".join(rows)
    options = {"split": "random", "standardize": True}
    graph = shop(users, orders="user,item\nu1,10\n", **options).open()
    assert graph.metric == "rmse"
    assert graph.labels[:3].tolist() == [0, 0.5, 1]
    assert np.isnan(graph.labels[20:]).all()
    assert [len(part) for part in split_of(graph)] == [12, 4, 4]
    assert max(map(max, split_of(graph))) < 20
    trained = np.asarray(features(graph)[0])[graph.train_idx]
    assert abs(trained.mean()) < 1e-6
    assert abs(trained.std() - 1) < 1e-6
    scaling = json.loads((graph.path / "meta.json").read_text())["type_scaling"]
    assert ColumnScaling(**scaling["item"]).mean[0] == 1.5


def test_a_split_is_stratified(shop: Any) -> None:
    rows = [f"u{number},{number % 7},{'yes' if number % 10 else 'no'}\n" for number in range(100)]
    users = "id,age,churned\n" + "".join(rows)
    graph = shop(users, orders="user,item\nu1,10\n", split="random").open()
    assert [np.bincount(graph.labels[part]).tolist() for part in split_of(graph)] == [
        *([6, 54], [2, 18], [2, 18])
    ]


def test_frames_are_the_graph_of_their_files(shop: Any, tmp_path: Path) -> None:
    dataset = shop()
    files = dataset.open()
    users, items, orders = (
        pd.read_csv(Path(dataset.raw) / f"{name}.csv") for name in ("users", "items", "orders")
    )
    arguments: dict[str, Any] = {"target": "user", "label": "churned", "name": "shop"}
    edges = {("user", "buys", "item"): orders}
    graph = from_tables({"user": users.set_index("id"), "item": items}, edges, **arguments)
    assert graph.content == files.content
    assert read_ids(graph).to_pylist() == read_ids(files).to_pylist()
    chosen = {("user", "buys", "item"): ["weight"]}
    rated = from_tables(
        *({"user": users.set_index("id"), "item": items}, edges),
        **(arguments | {"weight": None, "edge_features": chosen}),
    )
    assert edge_rows(rated)[0] == [[1], [3], [2]]
    keys = {("order", "user_id"): "user", ("order", "item_id"): "item"}
    frames = {"user": users, "item": items, "order": orders}
    relational = from_tables(frames, foreign_keys=keys, **arguments)
    assert lists(relational)["order-user_id-user"] == [[7, 8], [], [9], []]
    kinds = from_tables({"item": items, "kind": None}, foreign_keys={"item.kind": "kind"})
    assert lists(kinds)["item-kind-kind"] == [[1], [0, 2]]
    for change, message in (
        ({"target": "usr"}, r"^target: usr: expected a type of vertices, .* did you mean 'user'"),
        ({"lable": "plan"}, "^from_tables: lable: unknown option, did you mean 'label'"),
        ({"label": "plan"}, "^user: has no column 'plan'"),
    ):
        with pytest.raises((ConfigError, GraphError), match=message):
            from_tables({"user": users, "item": items}, edges, **arguments | change)
    for frames, message in (
        (
            {"item": items, "user": users.assign(id=range(4))},
            "column 'user_id' holds large_string, the ids",
        ),
        ({"item": items[:0], "user": users}, "^item: empty, it has no row"),
        ({"item": items, "user": [1]}, "^user: expected a data frame .* got list"),
    ):
        with pytest.raises(GraphError, match=message):
            from_tables(frames, edges)
    with pytest.raises(GraphError, match="'a/b': expected a type whose name has no /"):
        from_tables({"a/b": users, "item": items}, edges)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edges": None}, "dataset.edges or dataset.foreign_keys: required"),
        ({"vertices": None}, "dataset.vertices: required, tables by type"),
        ({"vertices": {"user": "users.csv", "item": "../items.csv"}}, "vertices.item=../items.csv"),
        (
            {"vertices": {"user": "user.csv", "item": "items.csv"}},
            "vertices.user=user.csv: .* miss",
        ),
        ({"label_kind": {"user": "value"}}, "dataset.label_kind=value"),
        ({"label": "churn"}, r"users.csv: has no column 'churn' .* did you mean 'churned'"),
        ({"features": {"user": ["ag"]}}, r"users.csv: has no column 'ag' \(dataset.features\)"),
        ({"id": {"item": "sku"}}, r"items.csv: has no column 'sku' .*set dataset.id={item: null}"),
        ({"ends": {"user-buys-item": ["a", "b"]}}, r"orders.csv: has no column 'a' \(dataset.ends"),
        (
            {"edges": {"user-likes-user": "orders.csv"}, "orders": "user,to,at\nann,bob,1\n"},
            "has no columns source and target, it has user, to, at",
        ),
        ({"foreign_keys": {"user.twn": "item"}}, r"'twn' \(dataset.foreign_keys\)"),
        ({"weight": "wait"}, "dataset.weight=wait: expected a column of a table of edges"),
        ({"unknown_ids": "maybe"}, "dataset.unknown_ids=maybe"),
        (
            {"orders": STRANGE, "unknown_ids": "refuse"},
            "user_id is 'eve', which is the id of none of",
        ),
        ({"orders": STRANGE, "missing": "refuse"}, "age is empty"),
        ({"orders": "user,item\nann,milk\n"}, "milk"),
        ({"orders": "user,item\neve,10\n"}, "user holds no id of the 4 vertices of user, such as"),
        ({"orders": "user,item\neve,10\n", "unknown_ids": "drop"}, "no edge is left of 1: 1 have"),
        ({"orders": "user,item\nann,\n"}, "item is empty"),
        (
            {"users": USERS.split("\n", maxsplit=1)[0] + "\n"},
            "users.csv: expected at least one row",
        ),
        (
            {"items": ITEMS.replace("id", "sku")},
            "items.csv: has no column id or item_id, it has sku",
        ),
        ({"orders": ORDERS.replace("3\n", "-3\n")}, "expected a weight of at least 0"),
    ],
)
def test_refused(shop: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, GraphError), match=message) as error:
        shop(**options).prepare()
    assert "\n" not in str(error.value)


def test_problems_of_all_tables_are_shown(shop: Any) -> None:
    users = USERS.replace("bob,", "ann,").replace("cid,50", "cid,old")
    with pytest.raises(GraphError) as error:
        shop(users=users, items=ITEMS.replace("30,", ",")).prepare()
    for problem in (
        "row 3: age is 'old'",
        "row 2: id 'ann' is that of another",
        "row 3: id is empty",
    ):
        assert problem in str(error.value)


def test_times_by_type(shop: Any) -> None:
    """Orders are known from their day on, but no sooner than their users or items."""
    users = "id,joined\nann,2001-01-02\nbob,2001-01-01\n"
    orders = (
        "user_id,item_id,at\nann,10,2001-01-01\nann,20,2001-01-05\nbob,10,2001-01-01\n"
        "ann,10,2001-01-04\n"
    )
    graph = shop(
        users,
        orders=orders,
        target=None,
        label=None,
        times={"user": "joined", "user-buys-item": "at"},
        time_unit="day",
    ).open()
    first = int(np.datetime64("2001-01-01", "D").astype(np.int64))
    assert graph.times.unit == "day"
    vertices = graph.times.vertices
    assert (vertices[:2] - first).tolist() == [1, 0]
    assert (vertices[2:] == NO_TIME).all()
    assert lists(graph) == {
        "user-buys-item": [[1, 0, 0], [0], []],
        "item-rev_buys-user": [[2, 2, 3], [2]],
    }
    by_row = np.split(graph.times.edges - first, graph.indptr[1:-1])
    # Users 0 and 1: reverses of the orders; items: ann's first order waits for ann.
    assert [part.tolist() for part in by_row] == [[0, 3, 4], [0], [0, 1, 3], [4], []]
    assert graph.feature_widths(edges=False)["user"] == 0


def test_edges_of_a_foreign_key_have_the_times_of_their_rows(shop: Any) -> None:
    orders = "id,user_id,item_id,at\n1,ann,10,7\n2,ann,20,5\n3,,20,6\n"
    graph = shop(
        orders=orders,
        vertices={"user": "users.csv", "item": "items.csv", "order": "orders.csv"},
        edges=None,
        foreign_keys={"order.user_id": "user", "order.item_id": "item"},
        target=None,
        label=None,
        times={"order": "at"},
        time_unit="step",
    ).open()
    # Users 0 to 3, items 4 to 6, orders 7 to 9.
    expected = {
        "order-user_id-user": ([[8, 7], [], [], []], [[5, 7], [], [], []]),
        "order-item_id-item": ([[7], [8, 9], []], [[7], [5, 6], []]),
        "user-rev_user_id-order": ([[0], [0], []], [[7], [5], []]),
        "item-rev_item_id-order": ([[4], [5], [5]], [[7], [5], [6]]),
    }
    times = [row.tolist() for row in np.split(graph.times.edges, graph.indptr[1:-1])]
    for number, edge_type in enumerate(graph.schema.edge_types):
        assert lists(graph)[str(edge_type)] == expected[str(edge_type)][0]
        assert times[graph.schema.rows(number)] == expected[str(edge_type)][1]
    assert graph.times.vertices[7:].tolist() == [7, 5, 6]
    assert graph.feature_widths(edges=False)["order"] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"times": {"shop": "at"}},
            "dataset.times: shop: expected a type of dataset.vertices or da",
        ),
        ({"times": {"item": "price"}}, r"column 'price' \(dataset.time\) holds numbers"),
        ({"times": {"user-buys-item": "when"}}, r"has no column 'when' \(dataset.times\)"),
        ({"time_unit": "h"}, "dataset.time_unit=h"),
        (
            {"times": {"tag": "at"}, "vertices": SHOP["vertices"] | {"tag": None}},
            "dataset.times: tag: expected a type with a table",
        ),
    ],
)
def test_bad_times(shop: Any, options: Any, message: str) -> None:
    with pytest.raises((GraphError, ConfigError), match=message):
        shop(**options).prepare()


def test_ids_of_no_vertex_have_no_time(shop: Any) -> None:
    users = "id,joined\nann,2001-01-02\n"
    options = {"target": None, "label": None, "times": {"user": "joined"}}
    with pytest.raises(
        GraphError, match="1 ids such as 'cid' are of no vertex of user, and have no t"
    ):
        shop(users, **options).prepare()


def test_times_of_frames() -> None:
    users = pd.DataFrame({"id": ["a", "b"]})
    trades = pd.DataFrame(
        {
            "source": ["a", "b"],
            "target": ["b", "b"],
            "at": pd.to_datetime(["2001-01-01", "2000-01-01"], utc=True),
        }
    )
    triple = ("user", "pays", "user")
    graph = from_tables({"user": users}, {triple: trades}, times={triple: "at"}, reverse=False)
    assert graph.indices.tolist() == [1, 0]
    assert graph.times.edges.tolist() == [946_684_800, 978_307_200]
    plain = from_tables(users, trades, edge_time="at")
    assert plain.times.edges.tolist() == [946_684_800, 978_307_200]


def test_dates_newer_than_their_row_are_told(shop: Any, caplog: pytest.LogCaptureFixture) -> None:
    items = "id,price,added,sold\n10,1,2024-01-02,2024-01-01\n20,2,2024-01-02,2024-01-05\n"
    orders = "user_id,item_id\nann,10\ncid,20\n"
    shop(items=items, orders=orders, times={"item": "added"}).prepare()
    told = "item: feature 'sold' is newer than the time of the row in 1 of 2 rows (50.0%)"
    assert told in caplog.text
