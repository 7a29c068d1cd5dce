import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from one_line import one_line

from gnnscale.data import Tables, from_arrays
from gnnscale.data.storage.standardize import ColumnScaling
from gnnscale.data.tables.categories import Column
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.graph import Graph
from gnnscale.run.checkpoint import INPUT_SCHEMA
from gnnscale.run.checkpoint.input_schema import InputSchema, read_input_schema, write_input_schema

EDGES = (np.array([0, 1]), np.array([1, 2]))
COLUMNS = (Column(name="age", width=1), Column(name="text", width=3))
TRAINED = InputSchema(
    graph="mine",
    num_features=4,
    num_classes=2,
    labels="classes",
    columns=COLUMNS,
    classes=["a", "b"],
)


def test_labels_of_several_types(tmp_path: Path) -> None:
    graph = from_typed_arrays(
        {"user": np.ones((2, 1), np.float32), "item": np.ones((2, 1), np.float32)},
        {("user", "buys", "item"): ([0], [1])},
        {"user": ["no", "yes"], "item": np.float32([0.5, 1])},
    )
    write_input_schema(tmp_path, InputSchema.of(graph))
    schema = read_input_schema(tmp_path)
    assert schema is not None
    assert (schema.num_classes, schema.target, schema.is_part) == (2, None, False)
    users, items = schema.of_target("user"), schema.of_target("item")
    assert (users.num_classes, users.labels, users.classes) == (2, "classes", ["no", "yes"])
    assert (items.num_classes, items.labels, items.classes) == (1, "regression", None)
    assert (users.is_part, InputSchema.of(graph.of_target("user")).of_target(None).is_part) == (
        True,
        False,
    )
    with one_line("vertices=tag: expected a type that the run has learned, user or item;"):
        schema.of_target("tag")


def graph_of(num_features: int, labels: np.ndarray) -> Graph:
    return from_arrays(EDGES, np.ones((3, num_features), np.float32), labels)


def test_what_a_graph_says_of_its_models(tmp_path: Path) -> None:
    one = InputSchema.of(graph_of(4, np.array([0, 1, 2])))
    assert (one.num_features, one.num_classes, one.labels) == (4, 3, "classes")
    assert (one.columns, one.classes) == (None, None)
    assert (one.multilabel, one.regression) == (False, False)
    assert InputSchema.of(graph_of(1, np.array([0.5, 1, 2], np.float32))).regression
    assert InputSchema.of(graph_of(1, np.array([[0, 1], [1, 0], [1, 1]]))).multilabel
    assert read_input_schema(tmp_path) is None
    write_input_schema(tmp_path, TRAINED)
    assert read_input_schema(tmp_path) == TRAINED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_features": 0}, "signature.num_features"),
        ({"num_classes": 10**9}, "signature.num_classes"),
        ({"labels": "x"}, "signature.labels"),
        ({"classes": ["a"]}, "1 names of 2 classes"),
        ({"columns": [{"name": "a", "width": -1}]}, "signature.columns"),
    ],
)
def test_what_no_run_wrote(tmp_path: Path, change: dict, message: str) -> None:
    write_input_schema(tmp_path, TRAINED)
    file = tmp_path / INPUT_SCHEMA
    entries = json.loads(file.read_text())
    del entries["crc32"]  # as an earlier release wrote it
    file.write_text(json.dumps(entries | change))
    with one_line("signature.json: signature", message):
        read_input_schema(tmp_path)
    file.write_text("[")
    with one_line("signature.json: signature"):
        read_input_schema(tmp_path)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ((COLUMNS[0],), "has no features 'text', which the run was trained on; it has age"),
        ((*COLUMNS, Column(name="i", width=1)), "'i', which the run was not trained on; set data"),
        ((COLUMNS[0], replace(COLUMNS[1], width=2)), "has 2 numbers in each 'text', and the run"),
        (COLUMNS[::-1], "have another order than those that the run was trained on"),
    ],
)
def test_columns_of_other_names(monkeypatch, found, message) -> None:
    read = "gnnscale.run.checkpoint.input_schema.read_columns"
    monkeypatch.setattr(read, lambda graph: found)
    with one_line(message):
        TRAINED.fitted(graph_of(4, np.zeros(3, np.int64)))


def test_features_are_scaled_as_those_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    scaling = ColumnScaling(mean=[1.0] * 4, deviation=[2.0] * 4)
    run = replace(TRAINED, columns=None, scaling=scaling)
    graph = graph_of(4, np.zeros(3, np.int64))
    assert run.fitted(graph).features.tolist() == [[0] * 4] * 3
    read = "gnnscale.data.storage.standardize.read_scaling"
    monkeypatch.setattr(read, lambda graph: scaling)
    assert run.fitted(graph) is graph
    for other in (
        replace(run, scaling=None),
        replace(run, scaling=ColumnScaling(mean=[0.0] * 4, deviation=[1.0] * 4)),
    ):
        with one_line("has features with a scaling that is not the run's"):
            other.fitted(graph)
    with pytest.raises(ValueError, match="scales 1 of 4 features"):
        replace(run, scaling=ColumnScaling(mean=[1.0], deviation=[1.0]))


def test_columns_without_names_count(caplog, tmp_path) -> None:
    """What was trained on arrays is applied to a table, and the other way round, with a warning."""
    graph = graph_of(4, np.zeros(3, np.int64))
    replace(TRAINED, columns=None).fitted(graph)
    assert not caplog.messages
    TRAINED.fitted(graph)
    assert caplog.messages == [
        f"dataset: features of {graph.name} have no names, and those of mine do: their order must "
        "be age,text"
    ]
    TRAINED.fitted(graph_of(4, np.zeros(3, np.int64)))
    with one_line("has 5 features, and the run was trained on 4 of mine"):
        TRAINED.fitted(graph_of(5, np.zeros(3, np.int64)))
    table = table_graph(tmp_path / "new", THIS_MONTH)
    replace(TRAINED, columns=None, num_features=table.num_features).fitted(table)
    assert caplog.messages[-1] == (
        "dataset: features of mine have no names, and those of new do: their order must be city,age"
    )


OF_EDGES = (Column(name="amount", width=1), Column(name="age", width=1))


def with_edge_features(num_features: int) -> Graph:
    rows = np.ones((2, num_features), np.float32)
    return from_arrays(EDGES, np.ones((3, 4), np.float32), [0, 1, 1], edge_features=rows)


def test_features_of_edges_of_another_number(tmp_path: Path) -> None:
    run = InputSchema.of(with_edge_features(2))
    assert (run.num_edge_features, run.edge_columns) == (2, None)
    write_input_schema(tmp_path, run)
    assert read_input_schema(tmp_path) == run
    run.fitted(with_edge_features(2))
    with one_line("has 3 features of each edge, and the run was trained on 2 of graph"):
        run.fitted(with_edge_features(3))
    with one_line("has 0 features of each edge, and the run was trained on 2 of graph"):
        run.fitted(graph_of(4, np.zeros(3, np.int64)))
    # A run that read none is applied to any graph.
    replace(run, num_edge_features=0).fitted(with_edge_features(3))
    run = InputSchema.of(edge_graph(tmp_path / "a", PAID))
    graph = edge_graph(tmp_path / "b", PAID, edge_features=None)
    with one_line(
        f"new ({tmp_path / 'b'}) has 0 features of each edge, and the run was trained on 4 of new; "
        "set dataset.edge_features=[amount,kind]"
    ):
        run.fitted(graph)
    graph = from_arrays(EDGES, np.ones((3, 4), np.float32), edge_features=np.ones((2, 3)))
    assert InputSchema.of(graph).fitted(graph) is graph
    unread = InputSchema.of(graph.without_edge_features())
    assert (unread.num_edge_features, unread.edge_columns) == (0, None)
    assert unread.fitted(graph).edge_rows is None


def test_weights_are_those_of_a_run_or_missing_in_both(tmp_path: Path) -> None:
    plain = graph_of(4, np.zeros(3, np.int64))
    weighted = from_arrays(EDGES, np.ones((3, 4), np.float32), edge_weights=[1, 2])
    with_weights, without = InputSchema.of(weighted), InputSchema.of(plain)
    with_weights.check_weights(weighted)
    without.check_weights(plain)
    with one_line("the given graph have no weights, and the run was", "dataset.weight=COLUMN"):
        with_weights.check_weights(plain)
    with one_line("have weights, and the run was trained on graph without; dataset.weight=null"):
        without.check_weights(weighted)
    # An earlier release kept no word of weights.
    TRAINED.check_weights(weighted)


def test_columns_of_edges_of_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    run = replace(TRAINED, num_edge_features=2, edge_columns=OF_EDGES)
    read = "gnnscale.run.checkpoint.input_schema.read_edge_columns"
    for found, message in (
        (OF_EDGES[::-1], "features of edges of graph have another order than those that the run"),
        (OF_EDGES[:1], "graph has no features of edges 'age', which the run was trained on; it"),
        ((*OF_EDGES, Column(name="x", width=1)), "x', which the run was not trained on; set data"),
    ):
        monkeypatch.setattr(read, lambda graph, found=found: found)
        with one_line(message):
            run.fitted(with_edge_features(2))


def test_whether_edges_have_weights(tmp_path: Path) -> None:
    ends, rows = (np.array([0, 1]), np.array([1, 0])), np.ones((2, 3), np.float32)
    for weights, expected in ((None, False), ([1.0, 2.0], True)):
        graph = from_arrays(ends, rows, edge_weights=None if weights is None else np.array(weights))
        assert InputSchema.of(graph).edge_weights is expected
        write_input_schema(tmp_path, InputSchema.of(graph))
        assert read_input_schema(tmp_path) == InputSchema.of(graph)
    file = tmp_path / INPUT_SCHEMA
    entries = json.loads(file.read_text())
    # As earlier releases wrote it.
    for name in ("crc32", "edge_weights", "num_edge_features", "edge_columns", "edge_scaling"):
        del entries[name]
    file.write_text(json.dumps(entries))
    read = read_input_schema(tmp_path)
    assert read is not None
    assert read.edge_weights is None
    assert (read.num_edge_features, read.edge_columns, read.edge_scaling) == (0, None, None)


def table_graph(folder: Path, rows: str, **options: object) -> Graph:
    folder.mkdir()
    names = "id,label,split,city,age" if options.get("label", "label") else "id,split,city,age"
    (folder / "vertices.csv").write_text(f"{names}\n{rows}")
    (folder / "edges.csv").write_text("source,target\n1,2\n2,3\n")
    return Tables(name="new", raw=str(folder), **options).open()


THIS_MONTH = "1,0,train,rome,1\n2,1,train,bern,3\n3,0,valid,oslo,5\n4,1,test,,7\n"


@pytest.mark.parametrize("standardize", [False, True])
def test_categories_have_the_places_of_the_run(tmp_path: Path, standardize: bool) -> None:
    run = InputSchema.of(table_graph(tmp_path / "a", THIS_MONTH, standardize=standardize))
    write_input_schema(tmp_path, run)
    read = read_input_schema(tmp_path)
    assert read == run
    next_month = "1,,rome,5\n2,,,3\n3,,oslo,1\n"
    graph = table_graph(tmp_path / "b", next_month, label=None)
    assert graph.num_features == 3
    # bern, oslo, rome, age, whose mean over vertices 1 and 2 is 2.
    expected = np.array([[0, 0, 1, 5], [0, 0, 0, 3], [0, 1, 0, 1]], np.float32)
    if standardize:
        expected = expected - [0, 0, 0, 2]
    assert read.fitted(graph).features.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ("1,,paris,1\n2,,rome,1\n3,,oslo,1\n", {}, "categories of training, got 'paris'"),
        ("1,,7,1\n2,,8,1\n3,,9,1\n", {}, "'city' of new: expected categories as in training"),
        ("1,,rome,1\n2,,oslo,1\n3,,,2\n", {"categories": ["age"]}, "'age' of new: expected num"),
    ],
)
def test_categories_of_another_table_that_do_not_fit(tmp_path, rows, options, message) -> None:
    run = InputSchema.of(table_graph(tmp_path / "a", THIS_MONTH))
    graph = table_graph(tmp_path / "b", rows, label=None, **options)
    with one_line(message):
        run.fitted(graph)


def edge_graph(folder: Path, edges: str, **options: object) -> Graph:
    folder.mkdir()
    (folder / "vertices.csv").write_text("id,age\n0,1\n1,2\n2,3\n")
    (folder / "edges.csv").write_text(f"source,target,amount,kind,y,split\n{edges}")
    options = {"label": None, "edge_features": ["amount", "kind"], **options}
    return Tables(name="new", raw=str(folder), **options).open()


PAID = "0,1,100,sale,0,train\n1,2,300,gift,1,train\n2,0,700,loan,0,valid\n0,2,5,loan,1,test\n"


@pytest.mark.parametrize("standardize", [False, True])
def test_edges_of_another_table_are_those_of_the_run(tmp_path: Path, standardize: bool) -> None:
    trained = edge_graph(tmp_path / "a", PAID, edge_label="y", standardize=standardize)
    write_input_schema(tmp_path, InputSchema.of(trained, trained.edge_labels))
    run = read_input_schema(tmp_path)
    assert run is not None
    loops = {"self_loops": "add"}
    graph = edge_graph(tmp_path / "b", "0,1,200,sale,,\n1,0,500,,,\n2,0,0,loan,,\n", **loops)
    assert graph.num_edge_features == 3
    # amount, whose mean over the edges that train is 200, gift, loan, sale.
    expected = np.array([[200, 0, 0, 1], [500, 0, 0, 0], [0, 0, 1, 0]], np.float32)
    if standardize:
        expected = (expected - [200, 0, 0, 0]) / [100, 1, 1, 1]
    assert run.fitted(graph).edge_features.tolist() == [*expected.tolist(), [0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("edges", "options", "message"),
    [
        ("0,1,1,rent,,\n", {}, "expected the categories of training, got 'rent'"),
        ("0,1,1,7,,\n", {}, "got numbers; set dataset.edge_categories=[kind]"),
        ("0,1,x,sale,,\n", {}, "expected numbers as in training, got categories such as 'x'"),
        (PAID, {"standardize": True}, "prepare it with dataset.standardize=false"),
    ],
)
def test_edges_of_another_table_that_do_not_fit(tmp_path, edges, options, message) -> None:
    run = InputSchema.of(edge_graph(tmp_path / "a", PAID))
    graph = edge_graph(tmp_path / "b", edges, **options)
    with one_line(message):
        run.fitted(graph)


def test_a_scaling_of_another_number_of_features_of_edges(tmp_path: Path) -> None:
    run = InputSchema.of(edge_graph(tmp_path / "a", PAID, standardize=True))
    with pytest.raises(ValueError, match="scales 4 of 3 features of edges"):
        replace(run, num_edge_features=3)


def test_scaled_categories_are_not_arranged(tmp_path: Path) -> None:
    run = InputSchema.of(table_graph(tmp_path / "a", THIS_MONTH, standardize=True))
    rows = "1,0,train,rome,1\n2,1,train,bern,3\n3,0,valid,rome,5\n4,1,test,,7\n"
    graph = table_graph(tmp_path / "b", rows, standardize=True)
    with one_line("prepare it with dataset.standardize=false"):
        run.fitted(graph)


GAPS = "1,0,train,rome,10\n2,1,train,,30\n3,0,valid,oslo,\n4,1,test,,7\n"


@pytest.mark.parametrize("standardize", [False, True])
def test_empty_cells_of_another_table_get_the_mean_of_training(tmp_path, standardize) -> None:
    run = InputSchema.of(table_graph(tmp_path / "a", GAPS, standardize=standardize))
    write_input_schema(tmp_path, run)
    read = read_input_schema(tmp_path)
    assert read is not None
    for rows, ages in (
        ("1,,rome,5\n2,,,NA\n3,,oslo,1\n", (5, 20, 1)),
        ("1,,oslo,\n2,,,2\n3,,,3\n", (20, 2, 3)),
    ):
        graph = table_graph(tmp_path / str(ages), rows, label=None)
        fitted = read.fitted(graph).features
        empty = [age == 20 for age in ages]
        expected = np.stack([ages, empty], axis=1).astype(np.float32)
        if standardize:  # no training vertex is without age
            expected[:, 0] = (expected[:, 0] - 20) / 10
        assert fitted[:, 2:].tolist() == expected.tolist()


def test_gaps_that_training_lacked_are_filled_and_counted(tmp_path, caplog) -> None:
    run = InputSchema.of(table_graph(tmp_path / "a", THIS_MONTH))
    graph = table_graph(tmp_path / "b", "1,,rome,\n2,,oslo,4\n3,,rome,\n", label=None)
    assert run.fitted(graph).features[:, 3].tolist() == [2, 4, 2]
    assert "column 'age' of new: 2 empty cells get the mean of training; in training" in caplog.text
    columns = tuple(replace(column, mean=None) for column in run.columns or ())
    with one_line("expected no empty cell, as the run, of an earlier release"):
        replace(run, columns=columns).fitted(graph)


def test_dates_of_another_table_count_from_the_first_day_of_training(tmp_path) -> None:
    trained = "1,0,train,rome,2024-01-03\n2,1,train,bern,2024-01-01\n3,0,valid,,2024-01-02\n"
    run = InputSchema.of(table_graph(tmp_path / "a", trained + "4,1,test,,2024-01-04\n"))
    graph = table_graph(tmp_path / "b", "1,,rome,2024-02-03\n2,,,2024-02-01\n3,,,\n", label=None)
    assert run.fitted(graph).features[:, 2].tolist() == [33, 31, 1]
    numbers = table_graph(tmp_path / "c", "1,,rome,5\n2,,,6\n3,,,7\n", label=None)
    with one_line("column 'age' of new: expected dates as in training, got numbers"):
        run.fitted(numbers)


def test_unseen_categories_are_empty_by_option(tmp_path, caplog) -> None:
    run = InputSchema.of(table_graph(tmp_path / "a", THIS_MONTH))
    graph = table_graph(tmp_path / "b", "1,,paris,1\n2,,rome,1\n3,,paris,1\n", label=None)
    with one_line("unseen=empty"):
        run.fitted(graph)
    assert run.fitted(graph, unseen="empty").features[:, :3].tolist() == [
        [0, 0, 0],
        [0, 0, 1],
        [0, 0, 0],
    ]
    assert "2 cells have a category that was not in training, such as 'paris'" in caplog.text
    run = InputSchema.of(edge_graph(tmp_path / "c", PAID))
    edges = edge_graph(tmp_path / "d", "0,1,1,rent,,\n1,0,2,sale,,\n")
    assert run.fitted(edges, unseen="empty").edge_features.tolist() == [[1, 0, 0, 0], [2, 0, 0, 1]]
