"""Tables of vertices and edges: what they become, and what is refused, by file, row and value."""

import datetime
import gzip
import json
import logging
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from one_line import one_line
from pyarrow import parquet

from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.data import Tables, read_classes, read_ids, verify_store
from gnnscale.data.base import ExistingStore
from gnnscale.data.storage.standardize import read_scaling
from gnnscale.data.tables.categories import Column, TrainedColumns
from gnnscale.data.tables.feature_columns import read_columns, read_edge_columns
from gnnscale.graph import Graph
from gnnscale.graph.store_meta import read_meta

VERTICES = "id,label,split,a,b\n70,0,train,1,2\n5,1,val,3,4.5\n-8,1,TEST,5,6\n9,,,7,8\n"
EDGES = "source,target\n70,5\n9,5\n5,70\n70,-8\n"


def write(folder, vertices=VERTICES, edges=EDGES):
    folder.mkdir(exist_ok=True)
    for name, table in (("vertices", vertices), ("edges", edges)):
        for old in folder.glob(f"{name}.*"):
            old.unlink()
        if isinstance(table, str):
            (folder / f"{name}.csv").write_text(table)
        else:
            table = table if isinstance(table, pa.Table) else pa.table(table)
            parquet.write_table(table, folder / f"{name}.parquet")
    return folder


@pytest.fixture
def tables(tmp_path):
    """Write the tables, CSV where they are texts, and return their dataset."""

    def make(vertices=VERTICES, edges=EDGES, **options):
        raw = write(tmp_path / "raw", vertices, edges)
        return Tables(**({"name": "mine", "raw": str(raw)} | options))

    return make


def lists(graph):
    return [each.tolist() for each in np.split(graph.indices, graph.indptr[1:-1])]


def split_of(part):
    return [ids.tolist() for ids in (part.train_idx, part.valid_idx, part.test_idx)]


def change_meta(graph, change):
    meta = json.loads((graph.path / "meta.json").read_text())
    change(meta)
    (graph.path / "meta.json").write_text(json.dumps(meta))


def refusal(dataset):
    with pytest.raises((GraphError, ConfigError)) as error:
        dataset.prepare()
    assert not dataset.store_path().exists()
    return str(error.value)


PARQUET_VERTICES = {
    **{"id": [70, 5, -8, 9], "label": [0, 1, 1, None], "split": ["train", "val", "TEST", None]},
    **{"a": [1, 3, 5, 7], "b": [2, 4.5, 6, 8]},
}
PARQUET_EDGES = {"source": [70, 9, 5, 70], "target": [5, 5, 70, -8]}


def test_vertices_without_a_label_leave_the_split(tables, caplog):
    vertices = VERTICES.replace(",val,", ",dev,") + "4,,train,1,1\n3,,Validation,1,1\n"
    assert split_of(tables(vertices, unlabelled="drop").open()) == [[0], [1], [2]]
    assert "split: 2 vertices without a label neither train nor validate" in caplog.messages


INDEXED = ",id,label,split,a,Unnamed: 0\n0,70,0,train,1,0\n1,5,1,val,3,1\n2,-8,1,TEST,5,2\n"


def test_columns_without_a_name_are_no_features(tables, caplog):
    caplog.set_level(logging.INFO)
    edges = ",source,target\n0,70,5\n1,9,5\n"
    dataset = tables(INDEXED + "3,9,,,7,3\n", edges)
    assert dataset.open().features.tolist() == [[1], [3], [5], [7]]
    file = dataset.raw_path() / "vertices.csv"
    left_out = "'' (no name), 'Unnamed: 0' (no name)"
    assert f"{file}: no features, unless dataset.features names them: {left_out}" in caplog.messages
    assert "features of vertices: a: number, mean 1" in caplog.messages
    assert any(
        line.endswith("edges.csv: not read: ''; see dataset.edge_features")
        for line in caplog.messages
    )
    named = tables(INDEXED + "3,9,,,7,3\n", edges, features=["", "a"])
    assert named.open().features.tolist() == [[0, 1], [1, 3], [2, 5], [3, 7]]


def test_the_index_of_pandas_is_no_feature(tables, caplog):
    caplog.set_level(logging.INFO)
    table = pa.table(PARQUET_VERTICES | {"__index_level_0__": [0, 1, 2, 3], "row": [3, 2, 1, 0]})
    pandas = {"index_columns": ["row", {"kind": "range"}], "columns": []}
    graph = tables(table.replace_schema_metadata({"pandas": json.dumps(pandas)})).open()
    assert [each.name for each in read_columns(graph)] == ["a", "b"]
    assert "'__index_level_0__' (the index of pandas), 'row' (the index of pandas)" in caplog.text
    for metadata in ("[", '{"index_columns": 5}', "[1]"):
        odd = table.replace_schema_metadata({"pandas": metadata})
        columns = read_columns(tables(odd, split_column="split", name="odd").open())
        assert [each.name for each in columns] == ["a", "b", "row"]


MASKED = (
    "id,label,train_mask,val_mask,test_mask,other_mask,a\n"
    "70,0,{},,,7,1\n5,1,,{},,8,3\n-8,1,,,{},9,5\n"
)


@pytest.mark.parametrize(
    "vertices",
    [
        MASKED.format("True", "True", "true"),
        MASKED.format("1.0", "1.0", "1.0"),
        MASKED.format("1", "1", "1").replace(",,", ",0,").replace(",,", ",0,"),
        {
            **{"id": [70, 5, -8], "label": [0, 1, 1], "train_mask": [True, False, False]},
            **{"valid_mask": [0, 1, 0], "test_mask": [0.0, None, 1.0], "other_mask": [7, 8, 9]},
            "a": [1, 3, 5],
        },
    ],
    ids=["words", "fractions", "numbers", "parquet"],
)
def test_masks_are_the_split(tables, vertices, caplog):
    caplog.set_level(logging.INFO)
    edges = "source,target\n70,5\n"
    graph = tables(vertices, edges).open()
    assert split_of(graph) == [[0], [1], [2]]
    assert graph.features.tolist() == [[1], [3], [5]]
    assert "'train_mask' (a mask)" in caplog.text
    fractions = {"train_fraction": 0.4, "valid_fraction": 0.3}
    drawn = tables(vertices, edges, split="random", **fractions).open()
    assert drawn.features.tolist() == [[1], [3], [5]]
    named = tables(vertices, edges, features=["a", "other_mask"]).open()
    assert named.features.tolist() == [[1, 7], [3, 8], [5, 9]]


@pytest.mark.parametrize(
    "names",
    ["is_train,is_valid,is_test", "Train_Mask,valMask,TEST_MASK", "is_train_mask,dev_mask,is_test"],
)
def test_masks_of_other_spellings(tables, names):
    vertices = MASKED.format(1, 1, 1).replace("train_mask,val_mask,test_mask", names)
    graph = tables(vertices, "source,target\n70,5\n").open()
    assert split_of(graph) == [[0], [1], [2]]
    assert graph.features.tolist() == [[1], [3], [5]]


@pytest.mark.parametrize(
    ("header", "row"),
    [
        (",,id,label,split,a", "7,8,{}"),
        ("Unnamed: 0.1,...1,id,label,split,a", "7,8,{}"),
        ("id,label,split,a,", "{},"),
        ("id,label,split,a,train_mask_0,is_train", "{},1,True"),
        ("id,label,split,a,Train_Mask,val_masks", "{},x,1"),
        (" ,id,label,split,a", "7,{}"),
        ("index,level_0,id,label,split,a", "7,8,{}"),
        ("id,label,split,a,train,Test", "{},1,0"),
        ("id,label,split,a,is_train,is_test", "{},T,F"),
        ("id,label,split,a,old_split", "{},train"),
    ],
)
def test_more_columns_that_are_no_features(tables, header, row):
    lines = ["70,0,train,1", "5,1,val,3", "-8,1,test,5", "9,,,7"]
    vertices = "\n".join([header, *map(row.format, lines)]) + "\n"
    graph = tables(vertices).open()
    assert graph.features.tolist() == [[1], [3], [5], [7]]
    assert [each.name for each in read_columns(graph)] == ["a"]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([b"x"] * 4, "binary"),
        ([{"k": 1}] * 4, "struct<k: int64>"),
        ([["x"]] * 4, "list<"),
        ([datetime.time(1)] * 4, "time64[us]"),
    ],
)
def test_columns_of_other_types_are_left_out_or_refused(tables, caplog, cells, kind):
    caplog.set_level(logging.INFO)
    vertices = PARQUET_VERTICES | {"a": cells}
    assert tables(vertices).open().features.tolist() == [[2], [4.5], [6], [8]]
    assert any(f"dataset.features names them: 'a' (of {kind}" in line for line in caplog.messages)
    for options in ({"features": ["a"]}, {"categories": ["a"]}):
        assert "vertices.parquet: column 'a': expected " in refusal(tables(vertices, **options))


@pytest.mark.parametrize(
    "number",
    [
        *(lambda i: i, lambda i: 1000.0 + i, lambda i: 3 * i + 7, lambda i: 100 - i),
        lambda i: (7 * i + 3) % 20,  # in another order
        lambda i: 5 + 11 * i % 20,
    ],
)
def test_a_feature_that_numbers_the_rows_is_warned_of(tables, caplog, number):
    rows = "".join(f"v{i},{i % 2},{number(i)},{i * i},{i / 2},{i % 19}\n" for i in range(20))
    given = f"id,label,row,a,b,c\n{rows}", "source,target\nv0,v19\n"
    tables(*given, split="random", memory_bytes=1 << 20).open()
    (line,) = [line for line in caplog.messages if "numbers the rows" in line]
    assert "feature 'row' numbers the rows; if their order means nothing, leave" in line
    caplog.clear()
    tables(*given, split="random", features=["row", "a", "b", "c"]).open()
    assert "numbers the rows" not in caplog.text


def test_names_and_texts_that_are_no_features_are_warned_of(tables, caplog):
    parts = ("train", "val", "test")
    rows = "".join(f"v{i},{i % 2},{i % 2},{i * i % 7},u{i},{parts[i % 3]}\n" for i in range(20))
    vertices, edges = f"id,y,label,user_id,code,part\n{rows}", "source,target\nv0,v19\n"
    options = {"label": "y", "split": "random"}
    tables(vertices, edges, **options).open()
    found = [line.partition("vertices.csv: ")[2] for line in caplog.messages]
    for warning in (
        "'label' is by name a label, and among the features",
        "'user_id' is by name an id, and a number among the features",
        "left out of the features: 'code' (20 different texts in 20 cells: an id or a name, such ",
        "feature 'part' holds words of a split; dataset.split_column reads it",
    ):
        assert any(line.startswith(warning) for line in found), warning
    caplog.clear()
    tables(vertices, edges, features=["label", "user_id", "code", "part"], **options).open()
    assert not [line for line in caplog.messages if "vertices.csv" in line]


def test_masks_are_numbers_not_texts_and_edges_have_some(tables):
    masks = enumerate(("train_mask", "val_mask", "test_mask"))
    words = {name: [str(i == j) for j in range(3)] for i, name in masks}
    table = {"id": [70, 5, -8], "label": [0, 1, 1], "a": [1, 3, 5]} | words
    line = refusal(tables(table, "source,target\n70,5\n", name="words"))
    assert "column 'train_mask' holds large_string, a mask is of booleans, or of 1 and 0" in line
    edges = "source,target,y,train_mask,val_mask,test_mask\n"
    edges += "70,5,1,1,0,0\n9,5,0,0,1,0\n5,70,1,0,0,1\n70,-8,0,0,0,0\n"
    labels = tables(edges=edges, edge_label="y").open().edge_labels
    assert split_of(labels.split) == [[0], [1], [2]]


def test_vertices_may_have_no_features(tables):
    found = [
        tables(vertices="id,label,split\n70,0,train\n5,1,val\n-8,1,TEST\n9,,\n").open(),
        tables(features=[]).open(),
    ]
    for graph in found:
        assert (graph.num_vertices, graph.num_features) == (4, 0)
        assert "columns" not in read_meta(graph.path).entries
        verify_store(graph.path)


@pytest.mark.parametrize(
    ("vertices", "edges"),
    [(VERTICES, EDGES), (PARQUET_VERTICES, EDGES), (VERTICES, PARQUET_EDGES)],
    ids=["csv", "parquet vertices", "parquet edges"],
)
def test_graph_of_tables(tables, vertices, edges):
    graph = tables(vertices, edges).open()
    assert lists(graph) == [[1], [0, 3], [0], []]
    assert graph.labels.tolist() == [0, 1, 1, -1]
    assert split_of(graph) == [[0], [1], [2]]
    assert graph.features.tolist() == [[1, 2], [3, 4.5], [5, 6], [7, 8]]
    assert (graph.feature_dtype, graph.metric, graph.num_classes) == ("float32", "accuracy", 2)
    assert read_ids(graph).to_pylist() == [70, 5, -8, 9]
    assert read_classes(graph) is None
    assert all(check.problem is None for check in verify_store(graph.path))


ID_KINDS = {
    "int8": pa.array([70, 5, -8, 9], pa.int8()),
    "int32": pa.array([70, 5, -(2**31), 9], pa.int32()),
    "uint16": pa.array([70, 5, 65535, 9], pa.uint16()),
    "uint64": pa.array([70, 5, 2**64 - 1, 9], pa.uint64()),
    "string": pa.array(["70", "", "ü ,", "a\0"]),
    "large_string": pa.array(["70", "5", "x", "y"], pa.large_string()),
    "string_view": pa.array(["70", "5", "x", "y" * 99], pa.string_view()),
    "dictionary": pa.array(["70", "5", "x", "y"]).dictionary_encode(),
}


@pytest.mark.parametrize("kind", ID_KINDS)
def test_ids_of_any_type(tables, kind):
    ids = ID_KINDS[kind]
    places = {"source": [0, 3, 1, 0], "target": [1, 1, 0, 2]}
    edges = {end: pa.array([ids[place] for place in places[end]], ids.type) for end in places}
    graph = tables(PARQUET_VERTICES | {"id": ids}, edges).open()
    assert lists(graph) == [[1], [0, 3], [0], []]
    assert read_ids(graph).to_pylist() == ids.to_pylist()
    assert [check.problem for check in verify_store(graph.path)] == [None] * 11


def test_ids_that_number_the_vertices_and_numbers_as_texts(tables):
    edges = {"source": [0, 3], "target": [1, 0]}
    graph = tables(PARQUET_VERTICES | {"id": [0, 1, 2, 3]}, edges).open()
    assert lists(graph) == [[3], [0], [], []]
    assert read_ids(graph) is None
    assert not list(graph.path.glob("ids.*"))
    vertices, edges = VERTICES.replace("70,", "070,"), EDGES.replace("70", "070")
    graph = tables(vertices, edges, id_type="string").open()
    assert lists(graph) == [[1], [0, 3], [0], []]
    assert read_ids(graph).to_pylist() == ["070", "5", "-8", "9"]
    mixed = tables(PARQUET_VERTICES, {"source": ["70"], "target": ["5"]}, id_type="string")
    assert lists(mixed.open()) == [[], [0], [], []]


def test_names_of_classes_or_no_labels(tables):
    vertices = VERTICES.replace(",0,train", ",zebra,train")
    vertices = vertices.replace(",1,val", ",ape,val").replace(",1,TEST", ",ape,TEST")
    graph = tables(vertices).open()
    assert graph.labels.tolist() == [1, 0, 0, -1]
    assert read_classes(graph) == ["ape", "zebra"]
    graph = tables("id,x\n1,2\n4,3\n", "source,target\n1,4\n", label=None).open()
    assert lists(graph) == [[], [0]]
    assert (graph.num_classes, split_of(graph)) == (0, [[], [], []])


@pytest.mark.parametrize(
    ("labels", "kind", "expected"),
    [
        ([0, 1, 1, None], "auto", [0, 1, 1, -1]),
        ([0, 1, 1, -1], "auto", [0, 1, 1, -1]),
        ([0.0, 2.0, 1.0, float("nan")], "auto", [0, 2, 1, -1]),
        ([False, True, True, None], "auto", [0, 1, 1, -1]),
        ([0.5, 2.0, -1.0, None], "auto", [0.5, 2, -1, np.nan]),
        ([0, 2, 1, None], "values", [0, 2, 1, np.nan]),
    ],
)
def test_kinds_of_labels(tables, labels, kind, expected):
    graph = tables(PARQUET_VERTICES | {"label": labels}, label_kind=kind).open()
    np.testing.assert_array_equal(graph.labels, expected)
    floating = isinstance(expected[-1], float)
    assert graph.labels.dtype == (np.float32 if floating else np.int64)
    assert graph.metric == ("rmse" if floating else "accuracy")


def test_names_of_files_and_columns(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    rows = ["who group part height age name", "b 1 train 7 8 Bob", "a 0 valid 1 2 Ann"]
    (raw / "people.tsv").write_text("\n".join([*rows, "c 0 test 3 4 Cem\n"]).replace(" ", "\t"))
    (raw / "knows.csv.gz").write_bytes(gzip.compress(b"id\tfrom\tto\tw\n1\tb\ta\t2.5\n"))
    columns = {"id": "who", "label": "group", "split_column": "part", "features": ["age", "height"]}
    of_edges = {"edges": "knows.csv.gz", "source": "from", "target": "to", "weight": "w"}
    options = {"vertices": "people.tsv", "delimiter": "tab", **columns, **of_edges}
    graph = Tables(name="mine", raw=str(raw), **options).open()
    assert lists(graph) == [[], [0], []]
    assert graph.features.tolist() == [[8, 7], [2, 1], [4, 3]]
    assert graph.edge_weights.tolist() == [2.5]
    assert read_ids(graph).to_pylist() == ["b", "a", "c"]


def test_several_files_in_a_folder(tables):
    dataset = tables()
    raw = dataset.raw_path()
    (raw / "edges.csv").unlink()
    (raw / "edges").mkdir()
    (raw / "edges" / "_SUCCESS").write_text("")
    for number, ends in enumerate([([70, 9], [5, 5]), ([5, 70], [70, -8])]):
        table = pa.table({"source": ends[0], "target": pa.array(ends[1], pa.int32())})
        parquet.write_table(table, raw / "edges" / f"part-{number}.parquet")
    assert lists(dataset.open()) == [[1], [0, 3], [0], []]
    with (raw / "edges" / "part-1.parquet").open("ab") as file:
        file.write(b" ")
    with pytest.raises(GraphError, match=r"part-1\.parquet: "):
        dataset.open()


def test_weights(tables):
    edges = "source,target,weight\n70,5,1\n9,5,0\n70,5,2.5\n"
    graph = tables(edges=edges).open()
    assert lists(graph) == [[], [0, 3], [], []]
    assert graph.edge_weights.tolist() == [3.5, 0]
    assert tables(edges=edges, weight=None).open().edge_weights is None


EDGES_WITH = "source,amount,target,note,age\n70,0.5,5,x,1\n9,2,5,,2\n5,1,70,,3\n70,4,-8,,4\n"


@pytest.mark.parametrize("form", ["csv", "parquet", "gz"])
def test_features_of_edges(tables, caplog, form):
    caplog.set_level(logging.INFO)
    edges = EDGES_WITH
    if form == "parquet":
        edges = PARQUET_EDGES | {"amount": [0.5, 2, 1, 4], "age": [1, 2, 3, 4], "note": [*"x   "]}
    dataset = tables(edges=edges, edge_features=["age", "amount"], undirected=True)
    if form == "gz":
        file = dataset.raw_path() / "edges.csv"
        file.with_suffix(".csv.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    graph = dataset.open()
    assert lists(graph) == [[1, 2], [0, 3], [0], [1]]
    assert graph.edge_features.tolist() == [[1, 0.5], [2, 2], [3, 1], [4, 4]]
    # The edges 70 -> 5 and 5 -> 70 are each other's reverses: the first row is that of both.
    assert graph.edge_rows.tolist() == [0, 3, 0, 1, 3, 1]
    names = ("age", "amount")
    assert read_edge_columns(graph) == tuple(Column(name=name, width=1) for name in names)
    assert all(check.problem is None for check in verify_store(graph.path))
    (line,) = [line for line in caplog.messages if "not read" in line]
    assert line.endswith(": not read: note; see dataset.edge_features")


def test_features_and_weights_of_edges_of_lists(tables):
    rows = pa.array([[1, 2], [3, 4], [5, 6], [7, 8]], pa.list_(pa.float16()))
    edges = PARQUET_EDGES | {"x": rows, "y": [True, False, True, True], "weight": [4, 3, 2, 1]}
    graph = tables(edges=edges, edge_features=["y", "x"]).open()
    assert graph.edge_features.tolist() == [[1, 1, 2], [0, 3, 4], [1, 5, 6], [1, 7, 8]]
    assert graph.edge_features[graph.edge_rows][:, 1].tolist() == [5, 1, 3, 7]
    assert graph.edge_weights.tolist() == [2, 4, 3, 1]


@pytest.mark.parametrize(
    ("edges", "name", "message"),
    [
        (EDGES_WITH, "size", "csv: has no column 'size' (dataset.edge_features), it has source,"),
        (
            EDGES_WITH.replace("2,5,,2", "2,5,3,2").replace("1,70,,3", "1,70,4,3"),
            "note",
            "csv: row 1: note is 'x', expected a number, as most cells of the column are; if all "
            "are categories, set dataset.edge_categories=[note]",
        ),
        (
            PARQUET_EDGES | {"x": [b"x"] * 4},
            *("x", "parquet: column 'x': expected numbers, lists of numbers, dates or"),
        ),
        (
            PARQUET_EDGES | {"x": ["1", "2", "a", None]},
            "x",
            "parquet: row 3: x is 'a', expected a number, as most cells of the column are; "
            "if all are categories, set dataset.edge_categories=[x]",
        ),
        (
            PARQUET_EDGES | {"x": pa.array([None] * 4, pa.string())},
            *("x", "parquet: cannot be features: 'x' (no value); leave them out by dataset.edge_"),
        ),
        (
            PARQUET_EDGES | {"x": [[1], [2], [3, 4], [5]]},
            *("x", "parquet: row 3: x: expected 1 numbers as in the first row, got 2"),
        ),
        (
            PARQUET_EDGES | {"x": [[1.0, 2.0], [1.0, np.inf], [5.0, 6.0], [7.0, 8.0]]},
            *("x", "parquet: row 2: number 2 of x is inf, features must be finite"),
        ),
    ],
)
def test_bad_features_of_edges(tables, edges, name, message):
    line = refusal(tables(edges=edges, edge_features=[name]))
    assert "\n" not in line
    assert f"edges.{message}" in line


def test_categories_of_edges(tables, tmp_path):
    """A feature for each, in their sorted order; an empty cell is zeros."""
    edges = "source,target,kind,w,code\n70,5,sale,4,07\n9,5,gift,3,7\n5,70,,2,07\n70,-8,sale,1,\n"
    options = {"edge_features": ["w", "kind", "code"], "edge_categories": ["code"]}
    graph = tables(edges=edges, **options).open()
    kinds = {"kind": ("gift", "sale"), "code": ("07", "7")}
    known = [Column(name=name, width=2, categories=each) for name, each in kinds.items()]
    assert read_edge_columns(graph) == (Column(name="w", width=1), *known)
    rows = [[4, 0, 1, 1, 0], [3, 1, 0, 0, 1], [2, 0, 0, 1, 0], [1, 0, 1, 0, 0]]
    assert graph.edge_features.tolist() == rows
    graph.save(tmp_path / "saved")
    assert read_edge_columns(Graph.open(tmp_path / "saved")) == read_edge_columns(graph)


LABELLED = (
    "source,target,fraud,split,w\n70,5,yes,train,1\n9,5,no,val,2\n5,70,,,3\n70,-8,no,test,4\n"
)


@pytest.mark.parametrize("features", [None, ["w"]])
def test_labels_of_edges(tables, features):
    dataset = tables(edges=LABELLED, edge_label="fraud", edge_features=features, undirected=True)
    graph = dataset.open()
    labels = graph.edge_labels
    assert labels.labels.tolist() == [1, 0, -1, 0]
    assert (labels.num_classes, labels.metric) == (2, "accuracy")
    assert read_classes(graph, edges=True) == ["no", "yes"]
    assert read_classes(graph) is None
    assert split_of(labels.split) == [[0], [1], [3]]
    assert graph.edges.ends.tolist() == [[0, 1], [3, 1], [1, 0], [0, 2]]
    assert split_of(graph) == [[0], [1], [2]]
    assert graph.num_edge_features == (0 if features is None else 1)
    assert all(check.problem is None for check in verify_store(graph.path))


def test_values_of_edges_of_vertices_without_labels(tables):
    edges = PARQUET_EDGES | {"gain": [0.5, None, 2, 3]}
    options = {"train_fraction": 0.4, "valid_fraction": 0.3, "split": "random", "label": None}
    vertices = "id,a\n70,1\n5,2\n-8,3\n9,4\n"
    options["edge_split_by"] = "edge"  # two of the three labelled ones join the same vertices
    graph = tables(vertices, edges, edge_label="gain", **options).open()
    np.testing.assert_array_equal(graph.edge_labels.labels, np.float32([0.5, np.nan, 2, 3]))
    assert (graph.edge_labels.metric, graph.num_classes, len(graph.train_idx)) == ("rmse", 0, 0)
    assert sorted(np.concatenate(split_of(graph.edge_labels.split))) == [0, 2, 3]


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (EDGES, "csv: has no column 'fraud' (dataset.edge_label), it has source, target"),
        (
            LABELLED.replace("split", "part"),
            "csv: has no column 'split' (dataset.edge_split_column), it has source, target, fraud, "
            "part, w; if there is n",
        ),
        (LABELLED.replace(",no,val", ",,val"), "csv: row 2: has no label; 1 of 2 edges"),
        (LABELLED.replace("test", "tset"), "csv: row 4: split is 'tset', allowed are train, valid"),
        (
            LABELLED.replace("yes", "1").replace("no", "1.5"),
            "csv: row 2: fraud 1.5 is not a class, allowed are 0 to 1048575 "
            "(dataset.edge_label_kind=classes)",
        ),
    ],
)
def test_bad_labels_of_edges(tables, edges, message):
    line = refusal(tables(edges=edges, edge_label="fraud", edge_label_kind="classes"))
    assert f"edges.{message}" in line


def test_labels_of_edges_are_no_weights_of_messages(tables):
    """A column named weight is read as weights by default, and may be what is predicted."""
    edges = EDGES.replace("source,target", "source,target,weight", 1)
    with pytest.raises(ConfigError, match=r"dataset.weight=null leaves edges without weights"):
        tables(edges=edges, edge_label="weight", label=None)
    with pytest.raises(ConfigError, match=r"expected another column than dataset\.weight"):
        tables(edges=edges, edge_label="rating", weight="rating", label=None)


def test_features_in_lists(tables):
    rows = [[1, 2], [3, 4], [5, 6], [7, 8]]
    columns = {name: PARQUET_VERTICES[name] for name in ("id", "label", "split")}
    for kind, stored in (
        (pa.list_(pa.float16(), 2), "float16"),
        (pa.list_(pa.uint8()), "uint8"),
        (pa.large_list(pa.float64()), "float32"),
    ):
        graph = tables(columns | {"x": pa.array(rows, kind)}, name=stored).open()
        assert (graph.feature_dtype, graph.features.tolist()) == (stored, rows)


@pytest.mark.long
def test_many_batches_of_csv(tmp_path):
    generator = np.random.Generator(np.random.Philox(0))
    ids = generator.permutation(20_000) * 1_000_003
    ends = generator.integers(len(ids), size=(2, 50_000))
    labels = generator.integers(3, size=len(ids))
    parts = np.array(["train", "valid", "test", ""])[generator.integers(4, size=len(ids))]
    rows = [f"{i},{y},{p},{i % 97}\n" for i, y, p in zip(ids, labels, parts, strict=True)]
    lines = ["source,target\n", *(f"{ids[s]},{ids[t]}\n" for s, t in ends.T)]
    raw = write(tmp_path / "raw", "id,label,split,x\n" + "".join(rows), "".join(lines))
    graph = Tables(name="mine", raw=str(raw), memory_bytes=1, drop_duplicates=False).open()
    np.testing.assert_array_equal(graph.labels, labels)
    np.testing.assert_array_equal(graph.features[:, 0], ids % 97)
    np.testing.assert_array_equal(graph.train_idx, np.flatnonzero(parts == "train"))
    np.testing.assert_array_equal(np.diff(graph.indptr), np.bincount(ends[1], minlength=len(ids)))
    np.testing.assert_array_equal(graph.indices, ends[0][np.lexsort(ends)])
    for row, line in (("12,0\n", ": source is 12"), ("12,x\n", ": source is '12'")):
        lines[33_001] = row
        (raw / "edges.csv").write_text("".join(lines))
        other = Tables(name="other", raw=str(raw), memory_bytes=1, unknown_ids="refuse")
        assert f"edges.csv: row 33001{line}" in refusal(other)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
def test_memory_is_told_beforehand(tables, caplog, packed):
    dataset = tables(PARQUET_VERTICES)
    if packed:
        (dataset.raw_path() / "vertices.parquet").unlink()
        (dataset.raw_path() / "vertices.csv.gz").write_bytes(gzip.compress(VERTICES.encode()))
    with caplog.at_level(logging.INFO, "gnnscale"):
        dataset.prepare()
    told = [line for line in caplog.messages if "memory: " in line]
    assert len(told) == 1
    assert "about 4 vertices; memory: up to 0.0 MiB for their ids" in told[0]


def columns(**changed):
    return PARQUET_VERTICES | changed


BAD_VERTICES = [
    ("name,x\n1,0\n", "csv: has no column 'id' (dataset.id), it has name, x"),
    (
        "id,class,split,x\n1,0,train,1\n",
        "csv: has no column 'label' (dataset.label), it has id, class, split, x; if there "
        "is none, set dataset.label=null",
    ),
    (
        "id,label,x\n1,0,1\n",
        "csv: has no column 'split' (dataset.split_column), it has id, label, x; if there "
        "is none, set dataset.split=random",
    ),
    (
        VERTICES.replace(",", ";"),
        "csv: has no column 'id' (dataset.id), it has id;label;split;a;b; set dataset."
        "delimiter=';'",
    ),
    ("id,label,split,x,x\n1,0,train,1,1\n", "csv: has two columns 'x'"),
    (VERTICES + "5,0,,1,1\n", "csv: row 5: id 5 is that of another vertex too ("),
    (columns(id=[*"abcb"]), "parquet: row 4: id 'b' is that of another vertex too ("),
    (VERTICES + ",0,,1,1\n", "csv: row 5: id is empty"),
    (columns(id=[0.5] * 4), "parquet: column 'id' holds double, ids are whole numbers or str"),
    (
        VERTICES + "4,0,,1,tall\n",
        "csv: row 5: b is 'tall', expected a number, as most cells of the column are; if all are "
        "categories, set dataset.categories=[b]",
    ),
    (
        "70,0,1\n5,1,3\n",
        "csv: has no column 'id' (dataset.id), it has 70, 0, 1; the first line holds numbers: add "
        "a header",
    ),
    ("0,0,1\n5,1,3\n", "csv: has two columns '0'; the first line holds numbers"),
    (
        columns(a=[[1, 2]] * 3 + [[1]]),
        "parquet: row 4: a: expected 2 numbers as in the first row, got 1",
    ),
    (columns(a=[[]] * 4), "parquet: row 1: a: expected a number, got none"),
    (
        columns(a=[[1, 2]] * 3 + [[1, None]]),
        "parquet: row 4: number 2 of a: expected a number, got an empty cell",
    ),
    (columns(label=[[1]] * 4), "parquet: column 'label': expected numbers, got list<"),
    (VERTICES + "4,-2,,1,1\n", "csv: row 5: label -2 is not a class, allowed are 0 to "),
    (
        VERTICES + "4,,train,1,1\n3,,val,1,1\n",
        "csv: row 5: has no label; 2 of 4 vertices that are to train or validate lack one; "
        "dataset.unlabelled=drop",
    ),
    (VERTICES + "4,0,devel,1,1\n", "csv: row 5: split is 'devel', allowed are train, valid ("),
    (columns(split=[0, 1, 2, 2]), "parquet: column 'split' holds int64, a split is told by wo"),
    (
        VERTICES.replace("train", "").replace("val", "test"),
        "csv: split names no vertices for train; dataset.split=random draws a split",
    ),
    (
        "id,label,val_mask,test_mask,x\n1,0,1,0,1\n2,0,0,1,1\n",
        "csv: expected a mask of the training part, got val_mask",
    ),
    (
        "id,label,train_mask,val_mask,test_mask\n1,0,1,0,0\n2,0,0,1,1\n",
        "csv: row 2: test_mask is 1, allowed are one part for each row",
    ),
    (columns(a=[1, 2, 1e300, 4]), "parquet: row 3: a is 1e+300, float32 cannot hold it"),
    (VERTICES.replace("4.5", "-1e400"), "csv: row 2: b is -1e400, float32 cannot hold it"),
    (VERTICES.replace("4.5", "-inf"), "csv: row 2: b is -inf, features must be finite"),
    (VERTICES.replace("\n", "\r"), "csv: line 1 has a CR without LF, and lines that end in CR"),
    ("", "csv: empty"),
]


@pytest.mark.parametrize(("vertices", "message"), BAD_VERTICES)
def test_bad_vertices(tables, vertices, message):
    line = refusal(tables(vertices))
    assert "\n" not in line
    assert f"vertices.{message}" in line


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (EDGES + "71,5\n", "csv: row 5: source is 71, which is the"),
        (EDGES + "5,71\n", "csv: row 5: target is 71, which is the"),
        (EDGES + ",5\n", "csv: row 5: source is empty"),
        (EDGES + "5,x7\n", "csv: row 5: target is 'x7', which is the id of none of the 4"),
        (
            {"source": ["70"], "target": ["5"]},
            "parquet: column 'source' holds large_string, the ids of the vertices are int64; set "
            "dataset.id_type=string",
        ),
        (EDGES + "5\n", "csv: row 5: '5' has 1 values, expected 2 as in the header"),
        (
            "source,target,weight\n70,5,-0.5\n",
            "csv: row 1: weight: expected a weight of at least 0 in the range of",
        ),
        (
            PARQUET_EDGES | {"weight": [1, 2, 3, np.nan]},
            "parquet: row 4: weight: expected a weight of at least 0 in the",
        ),
        (
            PARQUET_EDGES | {"weight": [*"1234"]},
            "parquet: column 'weight': expected numbers, got large_string",
        ),
        ("source,target\n", "csv: expected at least one row, got only a header"),
        (dict.fromkeys(PARQUET_EDGES, pa.array([], "int64")), "parquet: empty, it has no row"),
    ],
)
def test_bad_edges(tables, edges, message):
    line = refusal(tables(edges=edges, unknown_ids="refuse"))
    assert "\n" not in line
    assert f"edges.{message}" in line


def test_tables_lie_in_raw_and_are_there_once(tables, tmp_path):
    for option in ("vertices", "edges"):
        message = rf"^dataset\.{option}=.*expected a file or folder in "
        for name in ("/etc/passwd", "../vertices.csv", "a/../../b", "..", ""):
            with pytest.raises(ConfigError, match=message):
                Tables(name="x", raw=str(tmp_path), **{option: name})
    dataset, raw = tables(), tmp_path / "raw"
    parquet.write_table(pa.table(PARQUET_VERTICES), raw / "vertices.parquet")
    line = refusal(dataset)
    assert "raw: has vertices.parquet and vertices.csv: remove all but one, or name" in line
    assert "dataset.vertices=FILE" in line
    assert lists(replace(dataset, vertices="vertices.csv").open())[1] == [0, 3]
    (raw / "vertices.parquet").unlink()
    (raw / "edges.csv").unlink()
    dataset = replace(dataset, name="other")
    assert "has no edges with .parquet, .csv, .csv.gz: name the table by" in refusal(dataset)
    assert "is missing" in refusal(Tables(name="x", raw=str(raw), edges="e.csv"))
    line = refusal(Tables(name="x", raw=str(raw / "vertices.csv")))
    assert "expected a folder with vertices and edges" in line


def test_damaged_parquet_and_gz(tables):
    dataset = tables(edges=PARQUET_EDGES)
    file = dataset.raw_path() / "edges.parquet"
    content = file.read_bytes()
    for cut in (1, 40, 200):
        file.write_bytes(content[:-cut])
        assert "edges.parquet: no Parquet file, or cut off" in refusal(dataset)
    file.unlink()
    packed = gzip.compress(EDGES.encode())
    (dataset.raw_path() / "edges.csv.gz").write_bytes(packed[:-12])
    assert "edges.csv.gz: cannot be read" in refusal(dataset)


ONCE = "dataset.edge_features: expected each column once, got"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_kind": "x"}, "dataset.label_kind=x: allowed are auto, classes, values"),
        ({"delimiter": "::"}, "dataset.delimiter="),
        ({"features": ["label"]}, "dataset.features: expected each column once, got label twice"),
        ({"edge_features": []}, "dataset.edge_features=[]: expected a column, or null for no"),
        ({"edge_features": ["weight"]}, f"{ONCE} weight twice"),
        ({"edge_features": ["y"], "edge_label": "y"}, f"{ONCE} y twice"),
        (
            {"edge_features": ["a"], "edge_categories": ["b"]},
            "dataset.edge_categories: expected columns of edge_features, got b",
        ),
        ({"edge_label_kind": "x"}, "dataset.edge_label_kind=x: allowed are auto, classes, values"),
        ({"edge_features": ["a", "a"]}, f"{ONCE} a twice"),
        ({"categories": ["id"]}, "dataset.categories: expected columns of features, got id"),
        (
            {"categories": ["a"], "features": ["b"]},
            "dataset.categories: expected columns of features, got a",
        ),
        ({"label": None, "split": "random"}, "dataset.split=random: dataset.label=null"),
        ({"unknown_ids": "x"}, "dataset.unknown_ids=x: allowed are vertices, drop, refuse"),
        ({"missing": "x"}, "dataset.missing=x: allowed are mean, drop, refuse"),
        ({"decimal": "x"}, "dataset.decimal=x: allowed are"),
    ],
)
def test_options_that_are_refused(options, message):
    with one_line(message):
        Tables(name="mine", raw="x", **options)


CITIES = "id,label,split,age,city\n7,0,train,1,rome\n8,1,val,3,\n9,1,test,5,oslo\n6,,,7,rome\n"


@pytest.mark.parametrize("kind", ["csv", "dictionary"])
def test_a_column_of_texts_becomes_categories(tables, kind):
    vertices = CITIES
    if kind != "csv":
        city = pa.array(["rome", None, "oslo", "rome"]).dictionary_encode()
        vertices = {
            **{"id": [7, 8, 9, 6], "label": [0, 1, 1, None], "split": ["train", "val", "test", ""]},
            **{"age": [1, 3, 5, 7], "city": city},
        }
    graph = tables(vertices, "source,target\n7,8\n").open()
    # Sorted by name: oslo, rome. An empty cell is neither.
    assert graph.features.tolist() == [[1, 0, 1], [3, 0, 0], [5, 1, 0], [7, 0, 1]]
    assert read_columns(graph) == (
        Column(name="age", width=1),
        Column(name="city", width=2, categories=("oslo", "rome")),
    )


def test_a_saved_graph_keeps_what_its_store_says(tables, tmp_path):
    vertices = CITIES.replace("7,0,", "x,buyer,").replace("8,1,", "8,guest,")
    vertices = vertices.replace("9,1", "9,guest")
    graph = tables(vertices, "source,target\nx,8\n", standardize=True).open()
    graph.save(tmp_path / "saved")
    saved = Graph.open(tmp_path / "saved")
    assert read_columns(saved) == read_columns(graph)
    assert read_scaling(saved) == read_scaling(graph) is not None
    assert read_classes(saved) == read_classes(graph) == ["buyer", "guest"]
    assert read_ids(saved).to_pylist() == ["x", "8", "9", "6"]
    assert all(check.problem is None for check in verify_store(saved.path))
    replace(graph, features=np.ones((4, 3), np.float32)).save(tmp_path / "others")
    again = Graph.open(tmp_path / "others")
    assert (read_columns(again), read_scaling(again)) == (None, None)
    assert read_classes(again) == ["buyer", "guest"]
    replace(graph, labels=np.array([1, 1, 0, 0])).save(tmp_path / "relabelled")
    assert read_classes(Graph.open(tmp_path / "relabelled")) is None


def test_codes_that_are_named_become_categories(tables):
    """CSV keeps what is written, 07 is not 7; of Parquet whole numbers are."""
    vertices = "id,label,split,code,on\n7,0,train,07,true\n8,1,val,7,false\n9,1,test,12,true\n"
    options = {"categories": ["code"], "features": ["code"]}
    graph = tables(vertices, "source,target\n7,8\n", **options).open()
    assert read_columns(graph)[0].categories == ("07", "12", "7")
    assert graph.features.tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert graph.feature_dtype == "uint8"
    packed = {"id": [7, 8, 9], "label": [0, 1, 1], "split": ["train", "val", "test"]}
    table = {**packed, "code": [12, 7, 12], "on": [True, None, False]}
    names = {"categories": ["code", "on"]}
    graph = tables(table, "source,target\n7,8\n", **names).open()
    assert [each.categories for each in read_columns(graph)] == [("12", "7"), ("false", "true")]
    assert graph.features.tolist() == [[1, 0, 0, 1], [0, 1, 0, 0], [1, 0, 1, 0]]
    fractions = {**table, "code": [0.5, 1, 2]}
    line = refusal(tables(fractions, "source,target\n7,8\n", name="other", **names))
    assert "column 'code': expected texts or integers as categories, got double" in line


def test_categories_over_several_files(tables, tmp_path):
    dataset = tables(CITIES, "source,target\n7,8\n")
    (tmp_path / "raw" / "vertices").mkdir()
    (tmp_path / "raw" / "vertices.csv").rename(tmp_path / "raw" / "vertices" / "0.csv")
    more = "id,label,split,age,city\n1,0,train,2,bern\n"
    (tmp_path / "raw" / "vertices" / "1.csv").write_text(more)
    graph = dataset.open()
    assert read_columns(graph)[1].categories == ("bern", "oslo", "rome")
    assert graph.features[:, 1:].argmax(axis=1).tolist() == [2, 0, 1, 2, 0]
    change_meta(graph, lambda meta: meta["columns"][1].update(categories=["b", "a", "c"]))
    with pytest.raises(GraphError, match="3 categories of 3 features"):
        read_columns(graph)


def test_a_text_among_whole_numbers(tables):
    line = refusal(tables(f"{VERTICES}x4,0,,1,1\n", id_type="integer"))
    assert "vertices.csv: row 5: id is 'x4', expected a whole number" in line


def test_too_many_and_too_long_names_of_classes_and_categories(tables, monkeypatch):
    names = ["x" * 60_000 + str(number) for number in range(24)]
    vertices = {"id": np.arange(24), "label": names, "a": np.ones(24)}
    line = refusal(tables(vertices, {"source": [0], "target": [1]}, split="random"))
    assert "classes in column 'label' take over 1048576 bytes, number them" in line
    monkeypatch.setattr("gnnscale.data.tables.label_columns.MAX_CLASS_NAMES", 2)
    line = refusal(tables({**PARQUET_VERTICES, "label": ["a", "b", "c", "d"]}))
    assert "column 'label' holds over 2 different texts" in line
    rows = "".join(f"{i},0,train,1,note {i}\n" for i in range(257))
    notes = f"id,label,split,age,note\n{rows}", "source,target\n1,2\n"
    line = refusal(tables(*notes, features=["age", "note"]))
    assert "cannot be features: 'note' (over 256 different texts in 257 cells: free text," in line
    assert "leave them out by dataset.features=[...]" in line


def test_nothing_in_a_file_is_executed(tables):
    """Arrow's extension types may name a Python class; they are read as what they store."""
    kind = pa.field("id", pa.int64(), metadata={"ARROW:extension:name": "arrow.py_extension_type"})
    schema = pa.schema([kind, *pa.table(PARQUET_VERTICES).schema.remove(0)])
    dataset = tables(pa.table(PARQUET_VERTICES).cast(schema), PARQUET_EDGES)
    assert lists(dataset.open()) == [[1], [0, 3], [0], []]


def test_ids_that_were_changed_are_noticed(tables):
    graph = tables().open()
    path = graph.path / "ids.npy"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\1")
    problems = [check.problem for check in verify_store(graph.path)]
    assert "SHA-256" in problems[-1]
    path.write_bytes(content[:-8])
    with pytest.raises(GraphError, match=r"ids\.npy: expected .* bytes, got"):
        read_ids(graph)
    change_meta(graph, lambda meta: meta["ids"].update(file="../../ids.npy"))
    with pytest.raises(GraphError, match=r"ids.file="):
        read_ids(graph)


LONG = "x" * 20_000
_ROWS = 1 << 17


def _repeated(text, count=_ROWS):
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


_EDGE = {"source": [5], "target": [6]}
#: Tables of some kilobytes whose texts have gigabytes once they are decoded; what becomes of them.
BOMBS = {
    "ids": (
        lambda: ({"id": _repeated(LONG), "a": np.zeros(_ROWS)}, _EDGE),
        "texts of column 'id' take over",
    ),
    "ends of edges": (
        lambda: (
            columns(id=[LONG, "a", "b", "c"]),
            {"source": _repeated(LONG), "target": _repeated("a")},
        ),
        None,
    ),
}

PEAK = """
import sys
import pyarrow
from gnnscale.data import Tables
from gnnscale.core import GraphError
try:
    graph = Tables(name="mine", raw=sys.argv[1], store=sys.argv[2], label=None).open()
    print("vertices", graph.num_vertices)
except GraphError as error:
    print(error)
print(pyarrow.default_memory_pool().max_memory())
"""


@pytest.mark.long
@pytest.mark.parametrize("case", BOMBS)
def test_small_tables_take_little_memory(tmp_path, case):
    make, message = BOMBS[case]
    raw = write(tmp_path / "raw", *make())
    assert sum(file.stat().st_size for file in raw.iterdir()) < 1 << 20
    program = [sys.executable, "-c", PEAK, str(raw), str(tmp_path / "store")]
    line, peak = subprocess.check_output(program, text=True).splitlines()
    assert message in line if message else line.startswith("vertices")
    assert int(peak) < 384 << 20


@pytest.mark.long
def test_ids_and_classes_of_a_found_store(tables):
    ids, zeros = [f"u{number}" for number in range(20_000)], np.zeros(20_000, np.float32)
    vertices = {"id": ids, "label": np.zeros(20_000, np.int64), "a": zeros}
    graph = tables(vertices, {"source": ["u1"], "target": ["u2"]}, split="random").open()
    assert read_ids(graph).to_pylist() == ids
    path, most = graph.path / "ids.parquet", ["a"] * 19_999
    for column, message in (
        (_repeated(LONG, 20_000), "texts of column 'id' take over"),
        (pa.array(most), "expected 20000 rows of 'id', got 19999 of ['id']"),
        (pa.array([*most, None]), "row 20000: id is empty"),
        (pa.array(np.arange(20_000)), "expected texts as ids, got int64"),
        (pa.array(["x" * 70_000, *most]), "row 1: id has 70000 bytes, allowed"),
        (pa.array([b"\xff"] * 20_000).view(pa.string()), "row 1: id is not UTF-8"),
    ):
        parquet.write_table(pa.table({"id": column}), path)
        change_meta(graph, lambda meta: meta["ids"].update(bytes=path.stat().st_size))
        with one_line(message, str(path), error=GraphError):
            read_ids(graph)
    labels = PARQUET_VERTICES | {"label": ["b", "a", "a", "a"]}
    graph = tables(labels, PARQUET_EDGES, name="named").open()
    assert read_classes(graph) == ["a", "b"]
    change_meta(graph, lambda meta: meta.update(classes=["a", "\ud800"]))
    with pytest.raises(GraphError, match="classes: expected the names of 2 classes"):
        read_classes(graph)


def test_predictions_need_neither_labels_nor_a_split(tables, tmp_path, caplog):
    """Columns are those of the run, in its order; a model is not advised how to be trained."""
    run = tables("id,label,split,a,city\n1,0,train,1,x\n2,1,val,2,y\n3,1,test,2,y\n", THREE)
    known = read_columns(run.open())
    vertices = "id,label,extra,city,a\n1,,9,x,90000\n2,,9,y,2\n3,,9,x,1\n"
    caplog.clear()
    found = tables(vertices, THREE).to_predict(TrainedColumns(vertices=known), splits=False).open()
    assert read_columns(found) == known
    assert found.features[:, 0].tolist() == [90000, 2, 1]
    assert (found.num_classes, len(found.train_idx)) == (0, 0)
    assert "standardize" not in caplog.text
    with one_line("has no column 'split' (dataset.split_column)", error=GraphError):
        tables(vertices, THREE).to_predict(TrainedColumns(vertices=known), splits=True).open()
    # A feature may be named as labels are by default.
    known = (Column(name="label", width=1),)
    found = tables("id,label,a\n1,7,5\n2,8,5\n3,9,5\n", THREE).to_predict(
        TrainedColumns(vertices=known), splits=False
    )
    assert found.open().features.tolist() == [[7], [8], [9]]
    # A store that the user has prepared is predicted as it is.
    source = tables(store=str(tmp_path / "own"))
    path = source.prepare()
    assert (
        source.to_predict(TrainedColumns(vertices=(Column(name="a", width=1),)), splits=False)
        .open()
        .path
        == path
    )


def test_edges_to_predict_have_the_columns_of_the_run_and_no_labels(tables):
    known = (Column(name="weight", width=1), Column(name="kind", width=2, categories=("1", "2")))
    edges = "source,target,kind,weight\n1,2,2,5\n2,3,1,6\n"
    graph = tables(BARE, edges).to_predict(TrainedColumns(edges=known), splits=False).open()
    assert graph.edge_features.tolist() == [[5, 0, 1], [6, 1, 0]]
    assert read_edge_columns(graph) == known
    assert graph.edge_weights is None
    source = tables(BARE, "source,target,y\n1,2,\n2,3,\n", label=None, edge_label="y")
    graph = source.to_predict(TrainedColumns(), splits=False).open()
    assert graph.edges.ends.tolist() == [[0, 1], [1, 2]]
    assert graph.edge_labels is None


BARE = "id,a\n1,5\n2,5\n3,5\n"
THREE = "source,target\n1,2\n2,3\n"


def test_a_table_of_another_encoding(tables, tmp_path):
    source = tables("id,city\n1,a\n2,b\n3,c\n", THREE, label=None)
    latin = "id,city\n1,Zürich\n2,b\n3,c\n".encode("latin-1")
    (tmp_path / "raw" / "vertices.csv").write_bytes(latin)
    for features in (None, ["city"]):
        with one_line("row 1: city is 'Z\ufffdrich', expected UTF-8", error=GraphError):
            replace(source, features=features).prepare()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "2 of 4 edges, reverses included, have the ends of another, and are stored once; the"),
        ({"self_loops": "add"}, "2 of 4 edges"),
        ({"weight": None, "edge_features": None}, "are stored once; dataset.drop_duplicates=false"),
        ({"drop_duplicates": False}, None),
    ],
)
def test_edges_that_repeat_others_are_counted(tables, caplog, options, words):
    caplog.set_level(logging.INFO)
    edges = "source,target,weight,amount\n1,2,1,5\n1,2,1,6\n1,2,1,7\n2,3,1,8\n"
    graph = tables(BARE, edges, **{"label": None, "edge_features": ["amount"], **options}).open()
    assert (words is None) == ("ends of another" not in caplog.text)
    assert (words or "") in caplog.text
    if options == {}:
        assert "the first are kept; their weights are added up" in caplog.text
        assert graph.edge_weights.tolist() == [3, 1]


def test_a_graph_to_predict_is_read_by_the_options_of_the_run(tables):
    run = tables(id="who", source="from", delimiter=";", undirected=True, missing="drop", label="y")
    given = Tables(name="next", raw="x", target="to", split="random").with_options(run, ())
    assert (given.id, given.source, given.delimiter, given.label) == ("who", "from", ";", "y")
    assert (given.name, given.target, given.undirected, given.missing) == (
        "next",
        "to",
        True,
        "mean",
    )
    named = Tables(name="next", raw="x").with_options(run, ("id", "undirected"))
    assert (named.id, named.undirected, named.source) == ("id", False, "from")
    assert named.with_options(ExistingStore(store="y"), ()) is named
    store = tables(name="own", store=str(tables().raw_path() / "own"))
    store.prepare()
    assert store.with_options(run, ()) is store


TIMED_VERTICES = "id,label,joined,a\n70,0,1970-01-03,1\n5,1,1970-01-01,3\n-8,1,1970-01-02,5\n"
TIMED_EDGES = (
    "source,target,at,weight,fee\n"
    "70,5,1970-01-02,1,10\n70,5,1970-01-05,2,20\n-8,5,1970-01-04,3,30\n-8,5,1970-01-04,4,40\n"
    "5,70,1970-01-01 12:00:00,5,50\n"
)


def hours(times):
    return [time // 3600 for time in times.tolist()]


@pytest.mark.parametrize("more", [{}, {"edge_features": ["fee"]}, {"weight": None}])
def test_lists_ascend_by_time_and_repeated_edges_of_two_times_stay(tables, more):
    """Vertex 0 sends to 1 from its own second day on, and again on the fourth."""
    options = {"time": "joined", "edge_time": "at", "label": None} | more
    graph = tables(TIMED_VERTICES, TIMED_EDGES, **options).open()
    assert lists(graph) == [[1], [0, 2, 0], []]
    assert (graph.times.unit, hours(graph.times.edges)) == ("s", [12, 48, 72, 96])
    assert hours(graph.times.vertices) == [48, 0, 24]
    assert graph.num_features == 2  # label and a, not the times
    if "weight" not in more:
        assert graph.edge_weights.tolist() == [5, 1, 7, 2]
    if "edge_features" in more:
        assert graph.edge_features[graph.edge_rows].tolist() == [[50], [10], [30], [20]]
    assert [check.problem for check in verify_store(graph.path) if check.problem] == []
    assert graph.path.joinpath("row_times").exists() is False


def test_times_of_vertices_or_edges_alone(tables):
    options = {"label": None, "weight": None}
    known = tables(TIMED_VERTICES, TIMED_EDGES, **options, time="joined", self_loops="add").open()
    assert lists(known) == [[1, 0], [1, 2, 0], [2]]
    assert hours(known.times.edges) == [0, 48, 0, 24, 48, 24]
    of_edges = tables(
        TIMED_VERTICES, TIMED_EDGES, **options, edge_time="at", time_unit="day", undirected=True
    ).open()
    assert (of_edges.times.unit, of_edges.times.vertices) == ("day", None)
    assert lists(of_edges) == [[1, 1, 1], [0, 0, 2, 0], [1]]
    assert of_edges.times.edges.tolist() == [0, 1, 4, 0, 1, 3, 4, 3]


def test_a_store_in_little_memory_is_the_same(tables):
    rng = np.random.default_rng(0)
    ends, at = rng.integers(0, 50, (2, 4000)), rng.integers(0, 30, 4000)
    vertices = {"id": np.arange(50), "born": rng.integers(0, 30, 50)}
    edges = {"source": ends[0], "target": ends[1], "at": at, "weight": np.ones(4000)}
    options = {"label": None, "time": "born", "edge_time": "at", "time_unit": "step"}
    graph = tables(vertices, edges, **options, drop_duplicates=False).open()
    known = np.maximum(at, vertices["born"][ends[0]])
    order = np.lexsort((ends[0], known, ends[1]))
    assert graph.indices.tolist() == ends[0][order].tolist()
    assert graph.times.edges.tolist() == known[order].tolist()
    small = tables(vertices, edges, **options, drop_duplicates=False, memory_bytes=1 << 16).open()
    assert np.array_equal(small.indices, graph.indices)
    assert np.array_equal(small.times.edges, graph.times.edges)
    distinct = tables(vertices, edges, **options).open()
    triples = set(zip(ends[1].tolist(), known.tolist(), ends[0].tolist(), strict=True))
    owners = np.repeat(np.arange(50), np.diff(distinct.indptr))
    assert sorted(triples) == list(
        zip(owners.tolist(), distinct.times.edges.tolist(), distinct.indices.tolist(), strict=True)
    )
    assert distinct.edge_weights.sum() == 4000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"edge_time": "at", "self_loops": "add"},
            "dataset.self_loops=add: expected keep or remove w",
        ),
        ({"time_unit": "h"}, "dataset.time_unit=h"),
        ({"time": "a"}, "column 'a' (dataset.time) holds numbers (int64): expected their unit as"),
        ({"time": "born"}, "has no column 'born' (dataset.time), it has id, label, joined, a"),
        ({"edge_time": "fee"}, "column 'fee' (dataset.edge_time) holds numbers"),
    ],
)
def test_bad_times(tables, options, message):
    with pytest.raises((GraphError, ConfigError)) as error:
        tables(TIMED_VERTICES, TIMED_EDGES, label=None, **options).prepare()
    assert message in str(error.value)


def test_ids_of_no_vertex_have_no_time(tables):
    edges = TIMED_EDGES + "9,5,1970-01-02,1,10\n"
    options = {"label": None, "time": "joined"}
    message = refusal(tables(TIMED_VERTICES, edges, **options))
    assert "1 ids such as 9 are of no vertex, and have no dataset.time; dataset.unknown" in message
    graph = tables(TIMED_VERTICES, edges, **options, unknown_ids="drop").open()
    assert len(graph.times.vertices) == graph.num_vertices == 3
