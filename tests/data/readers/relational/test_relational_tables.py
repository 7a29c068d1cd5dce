"""Relational tables: a shop with users, orders, and the task which users leave."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from gnnscale.core import ConfigError, GraphError
from gnnscale.data import Relational, read_ids, verify_store
from gnnscale.data.tables.categories import TrainedColumns
from gnnscale.data.tables.feature_columns import read_type_columns
from gnnscale.graph import NO_TIME, Graph

SCHEMA = """
time_unit: day
tables:
  users: {file: users.csv, key: id, null: '\\N'}
  orders:
    file: orders.csv
    key: number
    foreign_keys: {user: users, friend: users}
    time: day
    drop: [note]
tasks:
  churn: {file: churn.csv, table: users, vertex: user, cutoff: day, label: left}
  spend: {file: spend.csv, table: users, vertex: user, cutoff: day, label: sum, metric: mae}
"""
USERS = "id,age,town\nann,30,Bonn\nbob,\\N,\\N\ncid,50,Bonn\n"
ORDERS = (
    "number,user,friend,day,price,note\n"
    "1,ann,bob,1970-01-05,3,a\n2,ann,,1970-01-09,4,b\n3,bob,zoe,1970-01-15,5,c\n"
    "4,,bob,1970-01-20,6,d\n"
)
CHURN = (
    "user,day,left,split\nann,1970-01-08,no,train\nann,1970-01-10,yes,train\n"
    "bob,1970-01-16,no,valid\nann,1970-01-21,yes,test\n"
)
SPEND = "user,day,sum,split\nann,1970-01-08,2.5,train\nbob,1970-01-09,1,train\n"
#: Users are 0 to 2, orders 3 to 6.
LISTS = {
    "orders-user-users": [[3, 4], [5], []],
    "orders-friend-users": [[], [3, 6], []],
    "users-rev_user-orders": [[0], [0], [1], []],
    "users-rev_friend-orders": [[1], [], [], [1]],
}
TIMES = {
    "orders-user-users": [[4, 8], [14], []],
    "orders-friend-users": [[], [4, 19], []],
    "users-rev_user-orders": [[4], [8], [14], []],
    "users-rev_friend-orders": [[4], [], [], [19]],
}


@pytest.fixture
def shop(tmp_path: Path, home: Path) -> Any:
    """Return a function that writes the folder, and returns its dataset."""

    def make(files: Any = (), **options: Any) -> Any:
        raw = tmp_path / "shop"
        raw.mkdir(exist_ok=True)
        texts = {"users": USERS, "orders": ORDERS, "churn": CHURN, "spend": SPEND}
        for name, text in (texts | dict(files)).items():
            if name != "schema":
                (raw / f"{name}.csv").write_text(text)
        (raw / "schema.yaml").write_text(dict(files).get("schema", SCHEMA))
        return Relational(**({"name": "shop", "raw": str(raw), "task": "churn"} | options))

    return make


def by_type(graph: Graph, values: Any) -> dict[str, list[list[int]]]:
    """Return ``values`` of edges by edge type and destination."""
    rows = [row.tolist() for row in np.split(values, graph.indptr[1:-1])]
    return {
        str(edge_type): rows[graph.schema.rows(number)]
        for number, edge_type in enumerate(graph.schema.edge_types)
    }


def split_of(graph: Graph) -> list[list[int]]:
    assert graph.rows is not None
    split = graph.rows.split
    return [part.tolist() for part in (split.train_idx, split.valid_idx, split.test_idx)]


def test_a_shop(shop: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    dataset = shop()
    graph = dataset.open()
    assert by_type(graph, graph.indices) == LISTS
    assert by_type(graph, graph.times.edges) == TIMES
    assert graph.times.vertices.tolist() == [NO_TIME] * 3 + [4, 8, 14, 19]
    assert graph.times.unit == "day"
    rows = graph.rows
    assert (rows.vertices.tolist(), rows.cutoffs.tolist()) == ([0, 0, 1, 0], [7, 9, 15, 20])
    assert (rows.labels.tolist(), rows.num_classes, rows.metric) == ([0, 1, 0, 1], 2, "accuracy")
    assert split_of(graph) == [[0, 1], [2], [3]]
    assert read_ids(graph).to_pylist() == ["ann", "bob", "cid", "1", "2", "3", "4"]
    # Means of users are over all, those of orders over rows up to day 9.
    users, orders = graph.features.matrices
    assert users.rows.tolist() == [[30, 0, 1], [40, 1, 0], [50, 0, 1]]
    assert orders.rows.tolist() == [[3], [4], [5], [6]]
    columns = read_type_columns(graph)
    assert [column.mean for column in columns["orders"]] == [(3.5,)]
    verify_store(dataset.prepare())
    lost = [line for line in caplog.text.splitlines() if "left out, since" in line]
    assert len(lost) == 4  # a line for each key, told when the store is made and opened
    assert "user: 1 of 4 edges left out, since the cell is empty" in lost[0]
    told = "friend: 2 of 4 edges left out, since the cell is empty in 1 and holds no id of users"
    assert told in lost[1]
    assert "task churn: classes: 0 no, 1 yes" in caplog.text


def test_a_task_of_values_by_two_dates(shop: Any) -> None:
    dates = {"valid_from": "1970-01-09", "test_from": "1970-01-10"}
    graph = shop(task="spend", split="time", **dates).open()
    assert (graph.rows.labels.tolist(), graph.rows.metric) == ([2.5, 1], "mae")
    assert split_of(graph) == [[0], [1], []]
    other = shop(task="spend", split="time", **dates | {"test_from": "1970-01-11"})
    assert other.store_path() != shop(task="spend", split="time", **dates).store_path()


def test_no_task_and_tables_without_times(shop: Any) -> None:
    graph = shop(task=None).open()
    assert (graph.rows, graph.times.unit) == (None, "day")
    without = SCHEMA.replace("    time: day\n", "")
    assert shop({"schema": without}, task=None).open().times is None
    with pytest.raises(GraphError, match="task churn has cut-offs, expected a table with a column"):
        shop({"schema": without}).open()


def test_rows_of_unknown_vertices(shop: Any, caplog: pytest.LogCaptureFixture) -> None:
    churn = CHURN + "zoe,1970-01-22,no,test\neve,1970-01-22,no,test\n"
    line = "task churn: column user of 2 of 6 rows has no id of users, such as 'zoe' in row 5 of "
    with pytest.raises(GraphError, match=line):
        shop({"churn": churn}).open()
    graph = shop({"churn": churn}, unknown_ids="drop").open()
    assert split_of(graph) == [[0, 1], [2], [3]]
    assert f"{line}" in caplog.text
    assert "are left out (dataset.unknown_ids=drop)" in caplog.text
    churn = CHURN.replace("ann", "zoe").replace("bob", "zoe")
    with pytest.raises(GraphError, match="no row is left"):
        shop({"churn": churn}, unknown_ids="drop").open()


def test_rows_without_a_label(shop: Any) -> None:
    churn = CHURN.replace("10,yes", "10,")
    dates = {"split": "time", "valid_from": "1970-01-12", "test_from": "1970-01-20"}
    for split in ({}, dates):
        with pytest.raises(GraphError, match=r"have no label|has no label"):
            shop({"churn": churn}, **split).open()
        assert split_of(shop({"churn": churn}, unlabelled="drop", **split).open())[0] == [0]


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({"schema": SCHEMA.replace("users.csv", "user.csv")}, {}, "tables.users.file=user.csv: mi"),
        (
            {"schema": SCHEMA.replace("key: number", "key: nr")},
            {},
            "has no column 'nr' (tables.ord",
        ),
        ({"schema": SCHEMA.replace("time: day", "time: date")}, {}, "(tables.orders.time), it has"),
        (
            {"schema": SCHEMA.replace("user: users", "usr: users")},
            {},
            "(tables.orders.foreign_keys",
        ),
        (
            {"schema": SCHEMA.replace("user: users", "user: shops")},
            {},
            "foreign_keys.user=shops: e",
        ),
        ({"schema": SCHEMA.replace("[note]", "[notes]")}, {}, "'notes' (tables.orders.drop)"),
        ({"schema": SCHEMA.replace("label: left", "label: lft")}, {}, "'lft' (tasks.churn.label)"),
        ({"schema": SCHEMA.replace("table: users", "table: u")}, {}, "tasks.churn.table=u: expect"),
        (
            {"schema": SCHEMA.replace("unit: day", "unit: step")},
            {},
            "(tables.orders.time) holds date32[day]: expected numbers, as time_unit=step",
        ),
        ({}, {"task": "chrn"}, "task=chrn: expected a task of "),
        ({}, {"split": "random"}, "dataset.split"),
        ({}, {"split": "time"}, "dataset.valid_from: required for a split by time"),
        (
            {},
            {"split": "time", "valid_from": "1970-01-09", "test_from": "1970-01-08"},
            "dataset.test_from=1970-01-08: expected a time after dataset.valid_from=1970-01-09",
        ),
        ({}, {"valid_from": "1970-01-09"}, "valid_from=1970-01-09: expected dataset.split=time"),
        ({}, {"unknown_ids": "vertices"}, "dataset.unknown_ids"),
        (
            {"orders": ORDERS.replace("1970-01-09", "NaT")},
            {},
            "row 2: day is empty",
        ),
        (
            {"orders": ORDERS.replace("1970-01-09", "")},
            {},
            "row 2: day is empty",
        ),
        (
            {"orders": ORDERS.replace("1970-01-09", "soon")},
            {},
            "row 2: day is 'soon', expected a date or time without",
        ),
        ({"churn": CHURN.replace("1970-01-16", "")}, {}, "row 3: day is empty"),
        (
            {"churn": CHURN.replace("1970-01-16", "1970-01-07")},
            {},
            "expected train rows before val",
        ),
        ({"churn": CHURN.replace("split", "part")}, {}, "has no column 'split'"),
        ({"users": USERS.replace("cid", "ann")}, {}, "row 3: id 'ann' is that of another vertex"),
        (
            {"orders": ORDERS.replace(",bob,", ",,").replace(",zoe,", ",,")},
            {},
            "no edge is left of",
        ),
    ],
)
def test_what_is_refused(
    shop: Any, files: dict[str, str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises((ConfigError, GraphError)) as caught:
        shop(files, **options).open()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_columns_that_show_the_future_are_told(shop: Any, caplog: pytest.LogCaptureFixture) -> None:
    orders = ORDERS.replace("price", "paid").replace("05,3", "05,1970-01-06")
    for day in "4", "5", "6":
        orders = orders.replace(f",{day},", ",1970-01-02,")
    users = "id,last\nann,1970-01-09\nbob,1970-01-16\ncid,1970-01-01\n"
    dataset = shop({"orders": orders, "users": users})
    dataset.prepare()
    told = [line for line in caplog.text.splitlines() if "shows the future" in line]
    assert len(told) == 2
    assert "users: feature 'last' is newer than the cut-off of the task's row in 1 of 4" in told[0]
    assert "orders: feature 'paid' is newer than the time of the row in 1 of 4 rows" in told[1]
    caplog.clear()
    dataset.prepare()  # an up-to-date store says so again
    assert caplog.text.count("shows the future") == 2


def test_a_file_in_place_of_the_folder(shop: Any) -> None:
    dataset = shop()
    file = str(Path(dataset.raw) / "users.csv")
    with pytest.raises(GraphError, match="expected a folder with the tables and schema"):
        Relational(name="shop", raw=file).open()


def test_predictions_read_the_columns_of_the_run_and_no_labels(shop: Any) -> None:
    run = shop()
    trained = TrainedColumns(types=read_type_columns(run.open()))
    files = {
        # By themselves, towns are nearly all different, and so no categories.
        "users": "id,age,town,more\n"
        + "".join(f"u{i},,t{i},1\n" for i in range(20))
        + "ann,,,1\nbob,,,1\n",
        "churn": "user,day,split\nann,1970-02-01,\n",
    }
    dataset = shop(files, task=None, store=None).with_options(run, ["raw"])
    assert dataset.task == "churn"
    graph = dataset.to_predict(trained, splits=False).open()
    assert (graph.rows.labels.tolist(), split_of(graph)) == ([-1], [[], [], []])
    assert [column.name for column in read_type_columns(graph)["users"]] == ["age", "town"]


@settings(max_examples=20, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.none() | st.integers(0, 5), st.integers(-9, 9)), min_size=1, max_size=12
    )
)
def test_edges_are_foreign_keys_at_the_times_of_their_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int | None, int]]
) -> None:
    raw = tmp_path_factory.mktemp("raw")
    rows = [*rows, (0, 3)]
    ids = [3, 0, 4]  # keys of three users; 1, 2 and 5 dangle
    parquet.write_table(pa.table({"id": ids, "x": [1.0, 2, 3]}), raw / "a.parquet")
    keys, times = zip(*rows, strict=True)
    parquet.write_table(pa.table({"a": keys, "t": times}), raw / "b.parquet")
    (raw / "schema.yaml").write_text(
        "time_unit: step\ntables:\n  a: {file: a.parquet, key: id}\n"
        "  b: {file: b.parquet, foreign_keys: {a: a}, time: t}\n"
    )
    graph = Relational(name="t", raw=str(raw)).read_graph()
    assert graph.times is not None
    found_edges = by_type(graph, graph.indices), by_type(graph, graph.times.edges)
    lists: Any = {"b-a-a": [[] for _ in ids], "a-rev_a-b": [[] for _ in rows]}
    of_time: Any = {"b-a-a": [[] for _ in ids], "a-rev_a-b": [[] for _ in rows]}
    for row, (key, time) in sorted(enumerate(rows), key=lambda pair: (pair[1][1], pair[0])):
        if key in ids:
            user = ids.index(key)
            lists["b-a-a"][user].append(3 + row)
            of_time["b-a-a"][user].append(time)
            lists["a-rev_a-b"][row].append(user)
            of_time["a-rev_a-b"][row].append(time)
    assert found_edges == (lists, of_time)
