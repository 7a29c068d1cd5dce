"""Schemas of relational tables: what is read, and one line for what is refused."""

from pathlib import Path

import pytest

from gnnscale.core import ConfigError
from gnnscale.data.readers.relational.schema import read_schema
from gnnscale.graph import EdgeType

SCHEMA = """
time_unit: ms
tables:
  orders: {file: o.csv, key: id, foreign_keys: {user: users}, time: day, drop: [a], null: '\\N'}
  users: {file: u.csv, key: uid}
  visits: {file: v.parquet, foreign_keys: {who: users}, columns: [length]}
tasks:
  churn: {file: churn.csv, table: users, vertex: user, cutoff: day, label: y, kind: classes}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "schema.yaml"


def test_tables_and_tasks(file: Path) -> None:
    file.write_text(SCHEMA)
    schema = read_schema(file)
    orders, users, visits = schema.tables.values()
    assert (orders.null, orders.columns, orders.other_roles) == (
        "\\N",
        None,
        {"id", "user", "day", "a"},
    )
    assert (users.time, users.foreign_keys, visits.key) == (None, {}, None)
    assert [*schema.edge_types()] == [
        EdgeType("orders", "user", "users"),
        EdgeType("visits", "who", "users"),
    ]
    assert (schema.time_unit, schema.tasks["churn"].metric) == ("ms", None)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (SCHEMA, "[1]", "schema.yaml: expected a mapping by names, got a list"),
        ("tables:", "table:", "table: unknown key, did you mean 'tables'?"),
        ("time: day", "tme: day", "tables.orders: tme: unknown key, did you mean 'time'?"),
        ("file: o.csv, ", "", "tables.orders.file: required"),
        ("file: o.csv", "file: /o.csv", "tables.orders.file=/o.csv: expected a file or folder"),
        ("user: users", "user: user", "tables.orders.foreign_keys.user=user: expected a table"),
        (", key: uid", "", "foreign_keys.user=users: expected a table with a key"),
        ("time: day", "time: id", "tables.orders.time=id: expected a column besides the key"),
        ("time: day", "time: user", "foreign_keys.user: expected a column besides the time"),
        ("columns: [length]", "columns: [who]", "columns: who: expected a feature, got a fore"),
        ("drop: [a]", "columns: [id]", "columns: id: expected a feature, got the key"),
        ("drop: [a]", "drop: [a], columns: [b]", "tables.orders.drop: expected no drop beside"),
        ("drop: [a]", "drop: [a, a]", "tables.orders.drop: a: appears twice"),
        ("drop: [a]", "drop: a", "tables.orders.drop: Expected `array`, got `str`"),
        ("'\\N'", '"\\N"', "YAML reads escapes in double quotes, and '\\N' in single quotes"),
        ("  users:", "  2020:", "tables: 2020: expected a text as name; quote it"),
        ("time_unit: ms", "time_unit: week", "time_unit=week: expected one of auto, day, s"),
        ("table: users", "table: user", "tasks.churn.table=user: expected a table, one of orders"),
        ("label: y", "label: day", "tasks.churn.cutoff=day: expected a column of its role alone"),
        ("cutoff: day, ", "", "tasks.churn.cutoff: required"),
        ("kind: classes", "kind: class", "tasks.churn.kind=class: expected a kind, one of auto"),
        ("kind: classes", "metric: auc", "tasks.churn.metric=auc: expected a metric, one of acc"),
    ],
)
def test_what_is_refused(file: Path, old: str, new: str, message: str) -> None:
    assert old in SCHEMA
    file.write_text(SCHEMA.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        read_schema(file)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_file_no_edge_and_a_reverse_that_is_named(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"schema.yaml: missing; dataset=relational reads keys"):
        read_schema(file)
    file.write_text("tables: {a: {file: a.csv, key: id}}")
    with pytest.raises(ConfigError, match="tables: expected a table with foreign_keys"):
        read_schema(file)
    both = "{file: %s.csv, key: id, foreign_keys: {%s: %s}}"
    tables = [
        f"  {a}: {both % (a, key, b)}" for a, key, b in (("a", "k", "b"), ("b", "rev_k", "a"))
    ]
    file.write_text("tables:\n" + "\n".join(tables))
    with pytest.raises(ConfigError, match=r"tables.a.foreign_keys.k: expected another column"):
        read_schema(file)
