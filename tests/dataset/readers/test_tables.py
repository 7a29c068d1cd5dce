"""Tables of vertices and edges: what they become, and what is refused, by file, row and value."""

from __future__ import annotations

import gzip
import json
import logging
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet

from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.dataset import Planetoid, Tables, read_classes, read_ids, verify_store

VERTICES = "id,label,split,a,b\n70,0,train,1,2\n5,1,val,3,4.5\n-8,1,TEST,5,6\n9,,,7,8\n"
EDGES = "source,target\n70,5\n9,5\n5,70\n70,-8\n"


def write(folder, vertices=VERTICES, edges=EDGES):
    folder.mkdir(exist_ok=True)
    for name, table in (("vertices", vertices), ("edges", edges)):
        if isinstance(table, str):
            (folder / f"{name}.csv").write_text(table)
        else:
            parquet.write_table(pa.table(table), folder / f"{name}.parquet")
    return folder


@pytest.fixture
def tables(tmp_path):
    """Write the tables, CSV where they are texts, and return their dataset."""

    def make(vertices=VERTICES, edges=EDGES, **options):
        raw = write(tmp_path / "raw", vertices, edges)
        return Tables(**({"name": "mine", "raw": str(raw)} | options))

    return make


def lists(graph):
    return [
        graph.indices[a:b].tolist() for a, b in zip(graph.indptr, graph.indptr[1:], strict=False)
    ]


def split_of(graph):
    return [ids.tolist() for ids in (graph.train_idx, graph.valid_idx, graph.test_idx)]


def refusal(dataset):
    with pytest.raises((GraphError, ConfigError)) as error:
        dataset.prepare()
    assert not dataset.store_path().exists()
    return str(error.value)


PARQUET_VERTICES = {
    "id": [70, 5, -8, 9],
    "label": [0, 1, 1, None],
    "split": ["train", "val", "TEST", None],
    "a": [1, 3, 5, 7],
    "b": [2, 4.5, 6, 8],
}
PARQUET_EDGES = {"source": [70, 9, 5, 70], "target": [5, 5, 70, -8]}


@pytest.mark.parametrize("vertices", [VERTICES, PARQUET_VERTICES], ids=["csv", "parquet"])
@pytest.mark.parametrize("edges", [EDGES, PARQUET_EDGES], ids=["csv", "parquet"])
def test_what_tables_become(tables, vertices, edges):
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


def test_ids_that_number_the_vertices_are_not_kept(tables):
    edges = {"source": [0, 3], "target": [1, 0]}
    graph = tables(PARQUET_VERTICES | {"id": [0, 1, 2, 3]}, edges).open()
    assert lists(graph) == [[3], [0], [], []]
    assert read_ids(graph) is None
    assert not list(graph.path.glob("ids.*"))


def test_numbers_as_texts(tables):
    vertices, edges = VERTICES.replace("70,", "070,"), EDGES.replace("70", "070")
    graph = tables(vertices, edges, id_type="string").open()
    assert lists(graph) == [[1], [0, 3], [0], []]
    assert read_ids(graph).to_pylist() == ["070", "5", "-8", "9"]
    mixed = tables(PARQUET_VERTICES, {"source": ["70"], "target": ["5"]}, id_type="string")
    (mixed.raw_path() / "vertices.csv").unlink()
    (mixed.raw_path() / "edges.csv").unlink()
    assert lists(mixed.open()) == [[], [0], [], []]


def test_names_of_classes(tables):
    vertices = VERTICES.replace(",0,train", ",zebra,train")
    vertices = vertices.replace(",1,val", ",ape,val").replace(",1,TEST", ",ape,TEST")
    graph = tables(vertices).open()
    assert graph.labels.tolist() == [1, 0, 0, -1]
    assert read_classes(graph) == ["ape", "zebra"]


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


def test_without_labels(tables):
    graph = tables("id,x\n1,2\n4,3\n", "source,target\n1,4\n", label=None).open()
    assert lists(graph) == [[], [0]]
    assert graph.num_classes == 0
    assert split_of(graph) == [[], [], []]


def test_random_split(tables):
    vertices = "id,label,x\n" + "".join(f"v{i},{i % 2},{i}\n" for i in range(20))
    graph = tables(vertices, "source,target\nv0,v19\n", split="random").open()
    assert [len(part) for part in split_of(graph)] == [12, 4, 4]


def test_names_of_files_and_columns(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "people.tsv").write_text("who\tgroup\tpart\theight\tage\tname\nb\t1\ttrain\t7\t8\tBob\n")
    with (raw / "people.tsv").open("a") as file:
        file.write("a\t0\tvalid\t1\t2\tAnn\nc\t0\ttest\t3\t4\tCem\n")
    (raw / "knows.csv.gz").write_bytes(gzip.compress(b"id\tfrom\tto\tw\n1\tb\ta\t2.5\n"))
    graph = Tables(
        name="mine",
        raw=str(raw),
        vertices="people.tsv",
        edges="knows.csv.gz",
        id="who",
        label="group",
        split_column="part",
        features=["age", "height"],
        source="from",
        target="to",
        weight="w",
        delimiter="tab",
    ).open()
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


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (pa.list_(pa.float16(), 2), "float16"),
        (pa.list_(pa.uint8()), "uint8"),
        (pa.large_list(pa.float64()), "float32"),
    ],
)
def test_features_in_lists(tables, kind, stored):
    rows = [[1, 2], [3, 4], [5, 6], [7, 8]]
    columns = {name: PARQUET_VERTICES[name] for name in ("id", "label", "split")}
    graph = tables(columns | {"x": pa.array(rows, kind)}).open()
    assert graph.feature_dtype == stored
    assert graph.features.tolist() == rows


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_tables_in_small_batches_are_the_edges_that_were_written(tmp_path_factory, data):
    """Whatever the format, the size of batches, and the type of the ids."""
    ids = data.draw(
        st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, min_size=3, max_size=50)
        | st.lists(st.from_regex(r"[a-zé ]{1,9}", fullmatch=True), unique=True, min_size=3)
    )
    places = st.integers(0, len(ids) - 1)
    edges = data.draw(st.lists(st.tuples(places, places), min_size=1, max_size=200))
    folder = tmp_path_factory.mktemp("raw")
    parts = ["train", "valid", "test", *[None] * (len(ids) - 3)]
    vertices = pa.table(
        {"id": ids, "label": [0] * len(ids), "split": parts, "x": list(range(len(ids)))}
    )
    table = pa.table({"source": [ids[s] for s, _ in edges], "target": [ids[t] for _, t in edges]})
    write_table = data.draw(st.sampled_from([csv.write_csv, parquet.write_table]))
    form = "csv" if write_table is csv.write_csv else "parquet"
    write_table(vertices, folder / f"vertices.{form}")
    write_table(table, folder / f"edges.{form}")
    dataset = Tables(
        name="mine",
        raw=str(folder),
        store=str(folder / "store"),
        memory_bytes=data.draw(st.sampled_from([1, 1 << 30])),
        drop_duplicates=False,
    )
    graph = dataset.open()
    expected = sorted((target, source) for source, target in edges)
    found = [(v, u) for v, neighbors in enumerate(lists(graph)) for u in neighbors]
    assert found == expected
    assert graph.features[:, 0].tolist() == list(range(len(ids)))
    kept = read_ids(graph)
    assert (list(range(len(ids))) if kept is None else kept.to_pylist()) == ids


@pytest.mark.long
def test_many_batches_of_csv(tmp_path):
    """Rows keep their order and numbers over the borders of blocks and files."""
    generator = np.random.Generator(np.random.Philox(0))
    ids = generator.permutation(40_000) * 1_000_003
    ends = generator.integers(len(ids), size=(2, 100_000))
    labels = generator.integers(3, size=len(ids))
    parts = np.array(["train", "valid", "test", ""])[generator.integers(4, size=len(ids))]
    raw = tmp_path / "raw"
    raw.mkdir()
    rows = [f"{i},{y},{p},{i % 97}\n" for i, y, p in zip(ids, labels, parts, strict=True)]
    (raw / "vertices.csv").write_text("id,label,split,x\n" + "".join(rows))
    lines = [f"{ids[s]},{ids[t]}\n" for s, t in ends.T]
    (raw / "edges.csv").write_text("source,target\n" + "".join(lines))
    dataset = Tables(name="mine", raw=str(raw), memory_bytes=1, drop_duplicates=False)
    graph = dataset.open()
    np.testing.assert_array_equal(graph.labels, labels)
    np.testing.assert_array_equal(graph.features[:, 0], ids % 97)
    np.testing.assert_array_equal(graph.train_idx, np.flatnonzero(parts == "train"))
    np.testing.assert_array_equal(np.diff(graph.indptr), np.bincount(ends[1], minlength=len(ids)))
    order = np.lexsort((ends[0], ends[1]))
    np.testing.assert_array_equal(graph.indices, ends[0][order])
    lines[77_000] = "12,0\n"
    (raw / "edges.csv").write_text("source,target\n" + "".join(lines))
    assert "edges.csv: row 77001: source is 12" in refusal(
        Tables(name="other", raw=str(raw), memory_bytes=1)
    )
    lines[77_000] = "12,x\n"
    (raw / "edges.csv").write_text("source,target\n" + "".join(lines))
    assert "edges.csv: row 77001 is '12,x" in refusal(
        Tables(name="other", raw=str(raw), memory_bytes=1)
    )


@pytest.fixture
def cora(data):
    return Planetoid(name="cora", raw=str(data / "planetoid")).open()


def test_cora_as_tables_is_cora(cora, tmp_path):
    """A published graph, taken through tables with names for vertices, is the same graph."""
    names = [f"paper {vertex * 7919 % 10007}" for vertex in range(cora.num_vertices)]
    words = np.full(cora.num_vertices, None, object)
    for word in ("train", "valid", "test"):
        words[getattr(cora, f"{word}_idx")] = word
    features = pa.FixedSizeListArray.from_arrays(
        np.asarray(cora.features, np.float32).reshape(-1), cora.num_features
    )
    raw = tmp_path / "raw"
    write(
        raw,
        {"id": names, "label": cora.labels, "split": pa.array(words), "x": features},
        {
            "source": pa.array(names).take(pa.array(np.asarray(cora.indices))),
            "target": pa.array(names).take(
                pa.array(np.repeat(np.arange(cora.num_vertices), np.diff(cora.indptr)))
            ),
        },
    )
    graph = Tables(name="cora", raw=str(raw)).open()
    for array in ("indptr", "indices", "labels", "train_idx", "valid_idx", "test_idx", "features"):
        np.testing.assert_array_equal(getattr(graph, array), getattr(cora, array))


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
def test_memory_is_told_beforehand(tables, caplog, packed):
    dataset = tables(PARQUET_VERTICES)
    (dataset.raw_path() / "vertices.csv").unlink(missing_ok=True)
    if packed:
        (dataset.raw_path() / "vertices.parquet").unlink()
        packed_rows = gzip.compress(VERTICES.encode())
        (dataset.raw_path() / "vertices.csv.gz").write_bytes(packed_rows)
    with caplog.at_level(logging.INFO, "gnnscale"):
        dataset.prepare()
    told = [line for line in caplog.messages if "memory: " in line]
    assert len(told) == 1
    assert "about 4 vertices; memory: up to 0.0 MiB for their ids" in told[0]


BAD = {
    "no id column": (
        "name,label,split,x\n1,0,train,1\n",
        EDGES,
        "vertices.csv: has no column 'id' (dataset.id), it has name, label, split, x",
    ),
    "no label column": (
        "id,class,split,x\n1,0,train,1\n",
        EDGES,
        "vertices.csv: has no column 'label' (dataset.label), it has id, class, split, x; where "
        "there is none, set dataset.label=null",
    ),
    "no split column": (
        "id,label,x\n1,0,1\n",
        EDGES,
        "vertices.csv: has no column 'split' (dataset.split_column), it has id, label, x; where "
        "there is none, set dataset.split=random",
    ),
    "no source column": (
        VERTICES,
        "src,target\n1,2\n",
        "edges.csv: has no column 'source' (dataset.source), it has src, target",
    ),
    "another delimiter": (
        VERTICES.replace(",", ";"),
        EDGES,
        "vertices.csv: has no column 'id' (dataset.id), it has id;label;split;a;b; "
        "dataset.delimiter says what is between the values",
    ),
    "no features": (
        "id,label,split\n1,0,train\n",
        EDGES,
        "vertices.csv: has no column of features, only id, label, split",
    ),
    "a column twice": (
        "id,label,split,x,x\n1,0,train,1,1\n",
        EDGES,
        "vertices.csv: has two columns 'x'",
    ),
    "repeated id": (
        VERTICES + "5,0,,1,1\n",
        EDGES,
        "vertices.csv: row 5: id 5 is that of another vertex too (",
    ),
    "repeated text id": (
        {**PARQUET_VERTICES, "id": ["a", "b", "c", "b"]},
        EDGES,
        "vertices.parquet: row 4: id 'b' is that of another vertex too (",
    ),
    "null id": (VERTICES + ",0,,1,1\n", EDGES, "vertices.csv: row 5: id is empty"),
    "ids of another kind": (
        {**PARQUET_VERTICES, "id": [0.5, 1.5, 2.5, 3.5]},
        EDGES,
        "vertices.parquet: column 'id' holds double, ids are whole numbers or strings",
    ),
    "unknown source": (VERTICES, EDGES + "71,5\n", "edges.csv: row 5: source is 71, which is the"),
    "unknown target": (VERTICES, EDGES + "5,71\n", "edges.csv: row 5: target is 71, which is the"),
    "null source": (VERTICES, EDGES + ",5\n", "edges.csv: row 5: source is empty"),
    "text among the ends": (
        VERTICES,
        EDGES + "5,x7\n",
        "edges.csv: row 5 is '5,x7' and cannot be read (CSV conversion error to int64: invalid "
        "value 'x7')",
    ),
    "ends of another kind": (
        VERTICES,
        {"source": ["70"], "target": ["5"]},
        "edges.parquet: column 'source' holds large_string, the ids of the vertices are int64; set "
        "dataset.id_type=string",
    ),
    "too few cells": (
        VERTICES,
        EDGES + "5\n",
        "edges.csv: row 5 is '5' and cannot be read (CSV parse error: ",
    ),
    "null feature": (VERTICES + "4,0,,1,\n", EDGES, "vertices.csv: row 5: b is empty"),
    "text among features": (
        VERTICES + "4,0,,1,tall\n",
        EDGES,
        "vertices.csv: column 'b' holds string, features are numbers or lists of numbers",
    ),
    "infinite feature": (
        VERTICES + "4,0,,1,inf\n",
        EDGES,
        "vertices.csv: feature 1 of vertex 4 is inf",
    ),
    "lists of several lengths": (
        {**PARQUET_VERTICES, "a": [[1, 2], [1, 2], [1], [1, 2]]},
        EDGES,
        "vertices.parquet: row 3: a has 1 numbers, the first row has 2",
    ),
    "lists without numbers": (
        {**PARQUET_VERTICES, "a": [[], [], [], []]},
        EDGES,
        "vertices.parquet: row 1: a has no number, needed is one",
    ),
    "null in a list": (
        {**PARQUET_VERTICES, "a": [[1, 2], [1, None], [1, 2], [1, 2]]},
        EDGES,
        "vertices.parquet: row 2: number 2 of a is empty",
    ),
    "labels of another kind": (
        {**PARQUET_VERTICES, "label": [[1], [1], [1], [1]]},
        EDGES,
        "vertices.parquet: column 'label' holds list<",
    ),
    "negative label": (
        VERTICES.replace("70,0", "70,-2"),
        EDGES,
        "vertices.csv: row 1: label -2 is not a class, allowed are 0 to ",
    ),
    "training vertex without label": (
        VERTICES + "4,,train,1,1\n",
        EDGES,
        "vertices.csv: row 5: is in the split to train or validate, and has no label",
    ),
    "unknown word": (
        VERTICES + "4,0,dev,1,1\n",
        EDGES,
        "vertices.csv: row 5: split is 'dev', allowed are train, valid (val, validation), test",
    ),
    "split of numbers": (
        {**PARQUET_VERTICES, "split": [0, 1, 2, 2]},
        EDGES,
        "vertices.parquet: column 'split' holds int64, a split is told by words",
    ),
    "empty part": (VERTICES.replace("TEST", ""), EDGES, "vertices.csv: the test split is empty"),
    "negative weight": (
        VERTICES,
        "source,target,weight\n70,5,1\n70,9,-0.5\n",
        "edges.csv: row 2: weight is -0.5, allowed are finite numbers from 0 on",
    ),
    "NaN weight": (
        VERTICES,
        {**PARQUET_EDGES, "weight": [1, 2, 3, float("nan")]},
        "edges.parquet: row 4: weight is nan, allowed are",
    ),
    "null weight": (
        VERTICES,
        {**PARQUET_EDGES, "weight": [1, 2, None, 3]},
        "edges.parquet: row 3: weight is empty",
    ),
    "text weight": (
        VERTICES,
        {**PARQUET_EDGES, "weight": ["1", "2", "3", "4"]},
        "edges.parquet: column 'weight' holds large_string, needed are numbers",
    ),
    "empty file": ("", EDGES, "vertices.csv: empty"),
    "no rows": (VERTICES, "source,target\n", "edges.csv: empty, it has a header and no row"),
    "no rows of Parquet": (
        VERTICES,
        {"source": pa.array([], pa.int64()), "target": pa.array([], pa.int64())},
        "edges.parquet: empty, it has no row",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(tables, case):
    vertices, edges, message = BAD[case]
    said = refusal(tables(vertices, edges))
    assert "\n" not in said
    assert message in said


def test_both_formats_of_a_table(tables):
    write(tables().raw_path(), PARQUET_VERTICES)
    said = refusal(tables())
    assert "raw: has vertices.parquet and vertices.csv: remove all but one, or name" in said
    assert "dataset.vertices=FILE" in said
    graph = Tables(name="mine", raw=str(tables().raw_path()), vertices="vertices.csv").open()
    assert lists(graph)[1] == [0, 3]


@pytest.mark.parametrize("name", ["/etc/passwd", "../vertices.csv", "a/../../b", "..", ""])
@pytest.mark.parametrize("option", ["vertices", "edges"])
def test_tables_lie_in_raw(tmp_path, option, name):
    with pytest.raises(ConfigError, match=rf"^dataset\.{option}=.*must be a file or folder in "):
        Tables(name="x", raw=str(tmp_path), **{option: name})


def test_missing_tables(tables, tmp_path):
    dataset = tables()
    (dataset.raw_path() / "edges.csv").unlink()
    assert "has no edges with .parquet, .csv, .csv.gz: name the table by" in refusal(dataset)
    assert "is missing" in refusal(Tables(name="x", raw=str(tmp_path / "raw"), edges="e.csv"))
    file = tmp_path / "raw" / "vertices.csv"
    assert "no folder with vertices and edges" in refusal(Tables(name="x", raw=str(file)))


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_damaged_parquet(tables, cut):
    dataset = tables(edges=PARQUET_EDGES)
    file = dataset.raw_path() / "edges.parquet"
    file.write_bytes(file.read_bytes()[:-cut])
    assert "edges.parquet: no Parquet file, or cut off" in refusal(dataset)


def test_damaged_gz(tables):
    dataset = tables()
    file = dataset.raw_path() / "edges.csv"
    packed = gzip.compress(file.read_bytes())
    file.with_suffix(".csv.gz").write_bytes(packed[:-12])
    file.unlink()
    assert "edges.csv.gz: cannot be read" in refusal(dataset)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id_type": "int"}, "dataset.id_type=int: allowed are auto, integer, string"),
        ({"label_kind": "x"}, "dataset.label_kind=x: allowed are auto, classes, values"),
        ({"delimiter": "::"}, "dataset.delimiter="),
        ({"features": []}, "dataset.features=[]: name a column"),
        ({"features": ["a", "a"]}, "dataset.features: a is named twice"),
        ({"features": ["label"]}, "dataset.features: label is named twice"),
        ({"label": None, "split": "random"}, "dataset.split=random: dataset.label=null"),
    ],
)
def test_options_that_are_refused(options, message):
    with pytest.raises(ConfigError) as error:
        Tables(name="mine", raw="x", **options)
    assert message in str(error.value)


def test_text_among_features_that_are_named(tables):
    said = refusal(tables(VERTICES + "4,0,,1,tall\n", features=["a", "b"]))
    assert "vertices.csv: row 5 is '4,0,,1,tall' and cannot be read (CSV conversion error" in said


def test_text_among_ids_that_are_numbers(tables):
    said = refusal(tables(VERTICES + "x4,0,,1,1\n", id_type="integer"))
    assert "vertices.csv: row 5 is 'x4,0,,1,1' and cannot be read (CSV conversion error" in said


def test_too_many_names_of_classes(tables, monkeypatch):
    monkeypatch.setattr("gnnscale.dataset.tables.columns.MAX_CLASS_NAMES", 2)
    said = refusal(tables({**PARQUET_VERTICES, "label": ["a", "b", "c", "d"]}))
    assert "column 'label' holds over 2 different texts" in said


def test_nothing_in_a_file_is_executed(tables):
    """Arrow's extension types may name a Python class; they are read as what they store."""
    kind = pa.field("id", pa.int64(), metadata={"ARROW:extension:name": "arrow.py_extension_type"})
    schema = pa.schema([kind, *pa.table(PARQUET_VERTICES).schema.remove(0)])
    table = pa.table(PARQUET_VERTICES).cast(schema)
    dataset = tables(edges=PARQUET_EDGES)
    (dataset.raw_path() / "vertices.csv").unlink()
    parquet.write_table(table, dataset.raw_path() / "vertices.parquet")
    assert lists(dataset.open()) == [[1], [0, 3], [0], []]


def test_changed_tables_are_read_anew(tables):
    assert lists(tables().open())[3] == []
    assert lists(tables(edges=EDGES + "5,9\n").open())[3] == [1]


def test_ids_that_were_changed_are_noticed(tables):
    graph = tables().open()
    path = graph.path / "ids.npy"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\1")
    problems = [check.problem for check in verify_store(graph.path)]
    assert "SHA-256" in problems[-1]
    path.write_bytes(content[:-8])
    with pytest.raises(GraphError, match=r"ids\.npy: .* bytes, meta\.json says"):
        read_ids(graph)
    meta = json.loads((graph.path / "meta.json").read_text())
    meta["ids"]["file"] = "../../ids.npy"
    (graph.path / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(GraphError, match=r"ids.file is "):
        read_ids(graph)


LONG = "x" * 20_000
_ROWS = 1 << 17


def _repeated(text, count=_ROWS):
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def _big_vertices(**columns):
    return {
        "id": np.arange(_ROWS) + 5,
        "label": np.zeros(_ROWS, np.int64),
        "split": pa.array(["train", "val", "test", None] * (_ROWS // 4)),
        "a": np.ones(_ROWS, np.float32),
    } | columns


#: Tables of some kilobytes whose texts have gigabytes once they are decoded; what becomes of them.
BOMBS = {
    "ids": (
        lambda: (_big_vertices(id=_repeated(LONG)), PARQUET_EDGES),
        "texts of column 'id' take over",
    ),
    "ends of edges": (
        lambda: (
            PARQUET_VERTICES | {"id": [LONG, "a", "b", "c"]},
            {"source": _repeated(LONG), "target": _repeated("a")},
        ),
        None,
    ),
    "labels": (
        lambda: (_big_vertices(label=_repeated(LONG)), {"source": [5], "target": [6]}),
        None,
    ),
    "split": (
        lambda: (_big_vertices(split=_repeated(LONG)), {"source": [5], "target": [6]}),
        "row 1: split is 'xxx",
    ),
}

PEAK = """
import sys
import pyarrow
from gnnscale.dataset import Tables
from gnnscale.graph import GraphError
try:
    graph = Tables(name="mine", raw=sys.argv[1], store=sys.argv[2]).open()
    print("vertices", graph.num_vertices)
except GraphError as error:
    print(error)
print(pyarrow.default_memory_pool().max_memory())
"""


@pytest.mark.parametrize("case", BOMBS)
def test_small_tables_take_little_memory(tmp_path, case):
    make, message = BOMBS[case]
    raw = write(tmp_path / "raw", *make())
    assert sum(file.stat().st_size for file in raw.iterdir()) < 1 << 20
    program = [sys.executable, "-c", PEAK, str(raw), str(tmp_path / "store")]
    said, peak = subprocess.check_output(program, text=True).splitlines()
    assert message in said if message else said.startswith("vertices")
    assert int(peak) < 384 << 20


def _not_utf8(column, row):
    texts = [b"a", b"b", b"c", b"train"]
    texts[row] = b"\xff"
    return {column: pa.array(texts, pa.binary()).view(pa.string())}


@pytest.mark.parametrize("column", ["id", "label", "split", "source"])
def test_texts_that_are_not_utf8(tables, column):
    bad = _not_utf8(column, 2)
    ids = {"id": ["a", "b", "c", "train"], "split": ["train", "val", "test", None]}
    ends = {"source": ["a", "b", "a", "b"], "target": ["b", "a", "b", "a"]}
    vertices, edges = PARQUET_VERTICES | ids, ends
    if column == "source":
        edges = ends | bad
    else:
        vertices = vertices | bad
    said = refusal(tables(vertices, edges))
    name = "edges" if column == "source" else "vertices"
    assert said.endswith(f"raw/{name}.parquet: row 3: {column} is not UTF-8")


def test_long_names_of_classes(tables):
    names = ["x" * 60_000 + str(number) for number in range(24)]
    vertices = {"id": np.arange(24), "label": names, "a": np.ones(24)}
    edges = {"source": [0], "target": [1]}
    said = refusal(tables(vertices, edges, split="random"))
    assert "classes in column 'label' take over 1048576 bytes, number them" in said


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (lambda: _repeated(LONG, 20_000), "texts of column 'id' take over"),
        (lambda: pa.array(["a"] * 19_999), "19999 rows of ['id'], needed are 20000 of 'id'"),
        (lambda: pa.array(["a"] * 19_999 + [None]), "row 20000: id is empty"),
        (lambda: pa.array(np.arange(20_000)), "ids are int64, needed are texts"),
        (
            lambda: pa.array(["x" * 70_000] + ["a"] * 19_999),
            "row 1: id has 70000 bytes, allowed are",
        ),
        (
            lambda: pa.array([b"\xff"] * 20_000, pa.binary()).view(pa.string()),
            "row 1: id is not UTF-8",
        ),
    ],
)
def test_ids_of_a_found_store(tables, column, message):
    count = 20_000
    vertices = {
        "id": [f"u{number}" for number in range(count)],
        "label": np.zeros(count, np.int64),
        "a": np.ones(count, np.float32),
    }
    graph = tables(vertices, {"source": ["u1"], "target": ["u2"]}, split="random").open()
    assert read_ids(graph).to_pylist() == vertices["id"]
    path = graph.path / "ids.parquet"
    parquet.write_table(pa.table({"id": column()}), path)
    meta = json.loads((graph.path / "meta.json").read_text())
    meta["ids"]["bytes"] = path.stat().st_size
    (graph.path / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(GraphError) as error:
        read_ids(graph)
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_names_of_classes_of_a_found_store(tables):
    graph = tables(PARQUET_VERTICES | {"label": ["b", "a", "a", "a"]}, PARQUET_EDGES).open()
    assert read_classes(graph) == ["a", "b"]
    meta = json.loads((graph.path / "meta.json").read_text())
    meta["classes"] = ["a", "\ud800"]
    (graph.path / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(GraphError, match="classes are not the names of 2 classes"):
        read_classes(graph)
