"""Tables as people have them: gaps, dates, unknown ids, all problems of a file in one error."""

import datetime
import logging
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line
from pyarrow import parquet

from gnnscale.core.errors import GraphError
from gnnscale.data import Tables, read_classes, read_ids, verify_store
from gnnscale.data.tables.categories import Column
from gnnscale.data.tables.feature_columns import read_columns, read_edge_columns

EDGES = "source,target\nann,bob\nbob,cem\n"


def make(folder, vertices, edges=EDGES, **options):
    """Write the tables, CSV where they are texts, and return their dataset."""
    folder.mkdir(exist_ok=True)
    for name, table in (("vertices", vertices), ("edges", edges)):
        if isinstance(table, (str, bytes)):
            content = table.encode() if isinstance(table, str) else table
            (folder / f"{name}.csv").write_bytes(content)
        else:
            parquet.write_table(pa.table(table), folder / f"{name}.parquet")
    return Tables(**({"name": "mine", "raw": str(folder), "label": None} | options))


def in_neighbors(graph):
    return [each.tolist() for each in np.split(graph.indices, graph.indptr[1:-1])]


GAPS = "id,label,split,age\nann,0,train,10\nbob,1,train,\ncem,1,valid,40\ndee,0,test,NA\n"


def test_empty_numbers_get_the_mean_of_training_vertices_and_a_flag(tmp_path, caplog):
    graph = make(tmp_path / "raw", GAPS, label="label").open()
    assert graph.features.tolist() == [[10, 0], [10, 1], [40, 0], [10, 1]]
    assert read_columns(graph) == (Column(name="age", width=2, has_gaps=True),)
    assert read_columns(graph)[0].mean == (10,)
    told = "empty numbers get the mean of training, and a 0/1 feature that marks them: age 2 ("
    assert f"vertices: {told}dataset.missing=mean)" in caplog.messages
    assert all(check.problem is None for check in verify_store(graph.path))
    scaled = make(tmp_path / "raw", GAPS, label="label", standardize=True).open()
    assert scaled.features.tolist() == [[0, 0], [0, 1], [30, 0], [0, 1]]
    half = make(tmp_path / "raw", GAPS, label="label", feature_dtype="float16").open()
    assert half.features.dtype == np.float16
    assert half.features.tolist() == graph.features.tolist()
    with one_line("dataset.normalize_features=true:", "dataset.missing=drop"):
        make(tmp_path / "raw", GAPS, label="label", normalize_features=True).prepare()


def test_rows_with_empty_numbers_are_dropped_with_their_edges(tmp_path, caplog):
    edges = "source,target\nann,bob\nann,cem\ncem,ann\nzoe,ann\n"
    options = {"label": "label", "missing": "drop"}
    vertices = GAPS.replace("NA", "5") + "eve,,,7\n"
    graph = make(tmp_path / "raw", vertices, edges, **options).open()
    assert read_ids(graph).to_pylist() == ["ann", "cem", "dee", "eve"]
    assert graph.features.tolist() == [[10], [40], [5], [7]]
    assert graph.labels.tolist() == [0, 1, 0, -1]
    assert [graph.train_idx.tolist(), graph.test_idx.tolist()] == [[0], [2]]
    assert in_neighbors(graph) == [[1], [0], [], []]
    assert [line for line in caplog.messages if not line.startswith("split: ")] == [
        "vertices: 1 rows with an empty number left out, with their edges: age 1 "
        "(dataset.missing=drop)",
        "2 of 4 edges left out, since an end is no vertex (dataset.missing=drop)",
    ]
    refuses = make(tmp_path / "raw", vertices, edges, unknown_ids="refuse", **options)
    with one_line("edges.csv: row 4: source is 'zoe'", error=GraphError):
        refuses.prepare()
    with one_line("dataset.missing=drop leaves no row", error=GraphError):
        make(tmp_path / "raw", "id,a,b\nann,1,\nbob,,2\ncem,NA,1\n", missing="drop").prepare()


def test_empty_numbers_are_refused_all_at_once(tmp_path):
    vertices = "id,age,day\nann,,2024-01-01\nbob,NaN,\ncem,3,2024-01-02\n"
    with one_line(
        "vertices.csv: row 1: age is empty; dataset.missing=mean",
        "(and 1 more like it) | row 2: day is empty",
        error=GraphError,
    ):
        make(tmp_path / "raw", vertices, missing="refuse").prepare()
    whole = make(tmp_path / "raw", "id,age\nann,1\nbob,2\n", "source,target\nann,x\n")
    with one_line("1 ids such as 'x' are of no vertex, and have no features", error=GraphError):
        make(
            tmp_path / "raw", "id,age\nann,1\nbob,2\n", "source,target\nann,x\n", missing="refuse"
        ).prepare()
    assert whole.open().features.tolist() == [[1, 0], [2, 0], [1.5, 1]]


def test_words_for_unknown_labels_are_no_classes(tmp_path):
    vertices = "id,label,split,a\nann,0,train,1\nbob,1,valid,2\ncem,1,test,3\ndee,NA,,4\n"
    graph = make(tmp_path / "raw", vertices, label="label").open()
    assert graph.labels.tolist() == [0, 1, 1, -1]
    named = vertices.replace(",0,", ",no,").replace(",1,", ",yes,")
    graph = make(tmp_path / "raw", named, label="label").open()
    assert read_classes(graph) == ["NA", "no", "yes"]


UNKNOWN = "source,target\nann,x\nx,bob\nb,ann\nann,bob\n"


def test_ids_of_the_edges_alone_become_vertices(tmp_path, caplog):
    vertices = (
        "id,label,split,age,city\nann,no,train,1,rome\nbob,yes,valid,3,oslo\ncem,no,test,5,\n"
    )
    dataset = make(tmp_path / "raw", vertices, UNKNOWN, label="label")
    graph = dataset.open()
    assert read_ids(graph).to_pylist() == ["ann", "bob", "cem", "b", "x"]
    assert in_neighbors(graph) == [[3], [0, 4], [], [], [0]]
    assert graph.labels.tolist() == [0, 1, 0, -1, -1]
    # The only training vertex has age 1.
    assert graph.features[3:].tolist() == [[1, 1, 0, 0], [1, 1, 0, 0]]
    told = "2 ids that only the edges have, such as 'b', are vertices without a label and with "
    assert any(line.startswith(told) for line in caplog.messages)
    caplog.clear()
    dataset.open()  # from its store
    assert any(line.startswith(told) for line in caplog.messages)


@pytest.mark.parametrize("kind", ["integers", "row numbers", "targets"])
def test_unknown_ids_of_other_kinds(tmp_path, kind):
    vertices = "id,label,split,a\n0,0.5,train,1\n1,2,valid,1\n2,1,test,1\n"
    edges = "source,target\n0,7\n1,2\n-3,0\n"
    options = {"label": "label"} if kind == "targets" else {"id": None} if kind[0] == "r" else {}
    graph = make(tmp_path / "raw", vertices, edges, split_column="split", **options).open()
    assert read_ids(graph).to_pylist() == [0, 1, 2, -3, 7]
    assert in_neighbors(graph) == [[3], [], [1], [], [0]]
    if kind == "targets":
        np.testing.assert_array_equal(graph.labels, [0.5, 2, 1, np.nan, np.nan])


def test_edges_of_unknown_ids_are_dropped_or_refused(tmp_path, caplog):
    vertices = "id,a\nann,1\nbob,2\n"
    edges = (
        "source,target,fraud,f,split\nann,x,1,1,train\nx,bob,0,2,test\nbob,ann,1,3,train\n"
        "ann,bob,0,4,valid\nbob,bob,1,5,test\n"
    )
    options = {"edge_label": "fraud", "edge_features": ["f"]}
    graph = make(tmp_path / "raw", vertices, edges, unknown_ids="drop", **options).open()
    assert graph.edges.ends.tolist() == [[1, 0], [0, 1], [1, 1]]
    assert graph.edge_features.tolist() == [[3], [4], [5]]
    assert graph.edge_labels.labels.tolist() == [1, 0, 1]
    assert "2 of 5 edges left out, since an end is no vertex (dataset.unknown_ids=drop)" in (
        caplog.messages
    )
    line = "target is 'x', which is the id of none of the 2 vertices; dataset.unknown_ids=vertices"
    with one_line(line, "| row 2: source is 'x'", error=GraphError):
        make(tmp_path / "raw", vertices, edges, unknown_ids="refuse", **options).prepare()
    with one_line("no edge is left of 1", error=GraphError):
        only = "source,target\nann,x\n"
        make(tmp_path / "raw", vertices, only, unknown_ids="drop").prepare()
    line = "hold no id of the 2 vertices, such as 'ann', but ids such as 'p'"
    with one_line(line, error=GraphError):
        make(tmp_path / "raw", vertices, "source,target\np,q\n").prepare()


def test_whole_numbers_that_pandas_made_floats_are_ids(tmp_path):
    vertices = {"id": pa.array([7.0, 3.0]), "a": pa.array([1, 2])}
    edges = {"source": pa.array([3.0]), "target": pa.array([7])}
    graph = make(tmp_path / "raw", vertices, edges).open()
    assert (read_ids(graph).to_pylist(), in_neighbors(graph)) == ([7, 3], [[1], []])
    gaps = edges | {"source": pa.array([None], pa.float64())}
    with one_line("edges.parquet: row 1: source is empty", error=GraphError):
        make(tmp_path / "raw", vertices, gaps).prepare()


def test_ids_are_texts_if_only_the_edges_have_texts(tmp_path):
    vertices, edges = "id,a\n07,1\n8,2\n", "source,target\n07,8\nEXT,8\n"
    graph = make(tmp_path / "raw", vertices, edges).open()
    assert read_ids(graph).to_pylist() == ["07", "8", "EXT"]
    assert in_neighbors(graph) == [[], [0, 2], []]


DAYS = "id,day,at\nann,2024-03-05,2024-03-05 12:00:00\nbob,2024-03-01,\ncem,,2024-03-06 00:00:00\n"


@pytest.mark.parametrize("kind", ["csv", "parquet", "texts", "zone", "later"])
def test_dates_are_days_since_the_first(tmp_path, kind, caplog):
    caplog.set_level(logging.INFO)
    vertices = DAYS
    day = datetime.datetime(2024, 3, 5), datetime.datetime(2024, 3, 1), None
    at = day[0].replace(hour=12), None, datetime.datetime(2024, 3, 6)
    if kind == "parquet":
        types = pa.date32(), pa.timestamp("ns", "UTC")
        days = {"day": pa.array(day, types[0]), "at": pa.array(at, types[1])}
        vertices = {"id": ["ann", "bob", "cem"], **days}
    elif kind == "texts":
        texts = [
            [None if each is None else each.isoformat() for each in part] for part in (day, at)
        ]
        vertices = {"id": ["ann", "bob", "cem"], "day": texts[0], "at": texts[1]}
    elif kind == "zone":
        vertices = DAYS.replace(":00\n", ":00+00:00\n").replace("12:00:00+00", "14:00:00+02")
    elif kind == "later":  # a word of an empty cell makes texts of the column
        vertices = DAYS.replace(",,", ",NaT,")
    graph = make(tmp_path / "raw", vertices).open()
    assert graph.features.tolist() == [[4, 0, 0.5, 0], [0, 0, 0.75, 1], [2, 1, 1, 0]]
    assert [each.origin for each in read_columns(graph)] == [19783, 19787]
    listed = (
        "day: days since 2024-03-01, mean 2, and whether it is empty; at: days since 2024-03-05"
    )
    assert any(line.startswith(f"features of vertices: {listed}") for line in caplog.messages)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_days_that_do_not_exist_are_told(tmp_path, kind):
    days = ["2024-01-31", "2024-02-30", "NA", "2024-02-29", "31.1.2024", "2024-03-01"]
    vertices = "id,day\n" + "".join(f"v{i},{day}\n" for i, day in enumerate(days))
    if kind == "parquet":
        vertices = {"id": [f"v{i}" for i in range(len(days))], "day": days}
    line = "row 2: day is '2024-02-30', expected a date, as most cells of the column are; if"
    with one_line(line, "(and 1 more like it)", error=GraphError):
        make(tmp_path / "raw", vertices, "source,target\nv0,v1\n").prepare()


def test_seconds_of_a_year_are_kept_by_float32(tmp_path):
    seconds = 1_700_000_000 + np.arange(0, 365 * 86_400, 1_000_003)
    times = pa.array(seconds, pa.timestamp("s"))
    vertices = {"id": np.arange(len(seconds)), "at": times}
    edges = {"source": [0], "target": [1]}
    graph = make(tmp_path / "raw", vertices, edges, standardize=True).open()
    assert np.diff(graph.features[:, 0]).std() < 1e-5 * np.diff(graph.features[:, 0]).mean()


def test_all_problems_of_a_file_are_told_at_once(tmp_path):
    vertices = (
        "id,label,split,a,b\nann,0,train,1,1\nann,2,tarin,x,1\n,-7,valid,y,1e99\nbob,1,test,4,2\n"
        "cem,1\ndee,1,train,5,1e88\neve,1,train,5,6\n"
    )
    with one_line(
        "vertices.csv: row 2: ",
        "a is 'x', expected a number, as most cells of the column are",
        "id 'ann' is that of another vertex too (",
        "split is 'tarin', allowed are train",
        "row 3: b is 1e99, float32 cannot hold it (and 1 more like it)",
        "id is empty",
        "label -7 is not a class",
        "row 5: 'cem,1' has 2 values, expected 5",
        error=GraphError,
    ) as error:
        make(tmp_path / "raw", vertices, label="label").prepare()
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    edges = "source,target,weight,f\nann,bob,-1,1\n,bob,1,1e99\nbob,ann,x,1\nann,bob,,1\nann\n"
    with one_line(
        "edges.csv: row 1: weight: expected a weight of at least 0",
        "| row 2: f is 1e99, float32 cannot hold it | row 2: source is empty",
        "| row 3: weight is 'x', expected a number | row 4: weight is empty",
        "| row 5: 'ann' has 1 values, expected 4 as in the header",
        error=GraphError,
        shorter_than=1000,
    ) as error:
        make(tmp_path / "raw", "id,a\nann,1\nbob,2\n", edges, edge_features=["f"]).prepare()
    assert "more like it" not in str(error.value)


def test_texts_that_are_no_categories_are_left_out_or_refused(tmp_path, caplog):
    rows = [f"v{i},{i % 3},called {i + 1} times\n" for i in range(20)]
    vertices, edges = "id,a,note\n" + "".join(rows), "source,target\nv0,v1\n"
    graph = make(tmp_path / "raw", vertices, edges).open()
    assert [each.name for each in read_columns(graph)] == ["a"]
    (line,) = [line for line in caplog.messages if "left out of the features" in line]
    assert "'note' (20 different texts in 20 cells: free text, such as" in line
    kept = make(tmp_path / "raw", vertices, edges, categories=["note"]).open()
    assert kept.num_features == 21
    more = vertices + "".join(f"w{i},0,called x{i}\n" for i in range(300))
    with one_line("cannot be features: 'note' (over 256 different texts", error=GraphError):
        make(tmp_path / "raw", more, edges, features=["note"]).prepare()


def test_a_column_of_words_for_empty_cells_has_no_value(tmp_path, caplog):
    vertices = "id,a,b\nann,NA,1\nbob,nan,2\ncem,,3\n"
    assert make(tmp_path / "raw", vertices).open().features.tolist() == [[1], [2], [3]]
    assert any(line.endswith("features: 'a' (no value)") for line in caplog.messages)
    kept = make(tmp_path / "raw", vertices, categories=["a"]).open()
    assert kept.features.tolist() == [[1, 0, 1], [0, 1, 2], [0, 0, 3]]


def test_tables_of_a_spreadsheet(tmp_path, caplog):
    """Of Excel: a byte order mark, semicolons, decimal commas, an empty last column, CR LF."""
    vertices = "\ufeffid; amount ;vip;\r\nann;1,5;TRUE;\r\nbob;;FALSE;\r\ncem;2,5;TRUE;\r\n"
    edges = EDGES.replace(",", ";").replace("\n", "\r\n")
    options = {"delimiter": ";", "decimal": ","}
    graph = make(tmp_path / "raw", vertices, edges, **options).open()
    assert graph.features.tolist() == [[1.5, 0, 1], [2, 1, 0], [2.5, 0, 1]]
    with one_line(
        "has no column 'source' (dataset.source), it has source;target; set dataset.delimiter=';'",
        error=GraphError,
    ):
        make(tmp_path / "raw", vertices, edges).prepare()
    with one_line("dataset.decimal=',': expected another mark than dataset.delimiter"):
        make(tmp_path / "raw", vertices, edges, decimal=",")
    latin = "id,größe\nann,1\n".encode("latin-1")
    with one_line("the header, is not UTF-8", error=GraphError):
        make(tmp_path / "raw", latin, edges).prepare()
    for trailing, hint in (("1,\n", "the header does not"), ('1,"x\n', "seems to hold a line end")):
        with one_line("vertices.csv: row 1: 'ann,", hint, error=GraphError):
            make(tmp_path / "raw", f"id,a\nann,{trailing}", EDGES).prepare()


def test_gaps_dates_and_categories_of_edges(tmp_path, caplog):
    edges = (
        "source,target,amount,at,kind\nann,bob,2,2024-01-01,x\nbob,cem,,2024-01-03,\n"
        "cem,ann,4,NaT,y\nann,zed,4,2024-01-02,x\n"
    )
    options = {"edge_features": ["amount", "at", "kind"]}
    vertices = "id,a\nann,1\nbob,2\ncem,3\n"
    graph = make(tmp_path / "raw", vertices, edges, unknown_ids="drop", **options).open()
    assert graph.edge_features.tolist() == [
        [2, 0, 0, 0, 1, 0],
        [3, 1, 2, 0, 0, 0],
        [4, 0, 1, 1, 0, 1],
    ]
    amount, at, kind = read_edge_columns(graph)
    assert (amount.mean, at.mean, at.origin, kind.has_gaps) == ((3,), (1,), 19723, False)
    assert "edges: empty cells have no category: kind 1" in caplog.messages
    dropped = make(tmp_path / "raw", vertices, edges, missing="drop", **options).open()
    assert dropped.edge_features.tolist() == [[2, 0, 1, 0]]
    assert "2 of 4 edges left out, since a number is empty (dataset.missing=drop)" in (
        caplog.messages
    )


def test_lists_with_gaps(tmp_path):
    vertices = {"id": ["ann", "bob", "cem"], "x": [[1.0, 2.0], None, [3.0, 6.0]]}
    graph = make(tmp_path / "raw", vertices).open()
    assert graph.features.tolist() == [[1, 2, 0], [2, 4, 1], [3, 6, 0]]


CELLS = {
    "number": st.none() | st.integers(-1000, 1000).map(lambda n: n / 4),
    "date": st.none() | st.dates(datetime.date(1900, 1, 1), datetime.date(2200, 1, 1)),
    "text": st.none() | st.sampled_from(["red", "green", "blue ü"]),
}


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_table_is_read_as_it_is_written(tmp_path_factory, data):
    """Numbers, days and categories with gaps, and unknown ids, by CSV and by Parquet."""
    count = data.draw(st.integers(2, 12))
    rows = {
        name: data.draw(st.lists(cell, min_size=count, max_size=count))
        for name, cell in CELLS.items()
    }
    names = [f"v{number}" for number in range(count)]
    others = [f"w{number}" for number in range(data.draw(st.integers(0, 3)))]
    ends = st.sampled_from(names + others)
    edges = [("v0", "v1"), *data.draw(st.lists(st.tuples(ends, ends), max_size=20))]
    unknown = sorted({end for edge in edges for end in edge if end in others})
    lines = [
        ",".join("" if rows[name][i] is None else str(rows[name][i]) for name in CELLS)
        for i in range(count)
    ]
    csv = "id,number,date,text\n" + "".join(f"v{i},{line}\n" for i, line in enumerate(lines))
    comma = data.draw(st.sampled_from([",", ", ", " ,\t"]))
    columns = {"number": pa.float64(), "date": pa.date32(), "text": pa.string()}
    table = {name: pa.array(rows[name], kind) for name, kind in columns.items()}
    expected = [
        [] if all(cell is None for cell in rows[name]) else expand(rows[name], name, len(unknown))
        for name in CELLS
    ]
    wanted = np.concatenate([part for part in expected if len(part)] or [[[]] * count], axis=1)
    for vertices in (csv.replace(",", comma), {"id": names, **table}):
        text = "source,target\n" + "".join(f"{a}{comma}{b}\n" for a, b in edges)
        graph = make(tmp_path_factory.mktemp("any") / "raw", vertices, text).open()
        assert read_ids(graph).to_pylist() == names + unknown
        if wanted.size:
            np.testing.assert_allclose(graph.features, wanted, rtol=1e-6)


def expand(cells, name, num_unknown):
    """Return the features of a column, by its definition."""
    cells = [*cells, *[None] * num_unknown]
    if name == "text":
        known = sorted({cell for cell in cells if cell is not None})
        return np.array([[cell == each for each in known] for cell in cells], np.float32)
    if name == "date":
        first = min(cell for cell in cells if cell is not None)
        cells = [None if cell is None else (cell - first).days for cell in cells]
    mean = np.mean([cell for cell in cells if cell is not None])
    values = [[mean if cell is None else cell, cell is None] for cell in cells]
    return np.array(values, np.float32)[:, : 1 + (None in cells)]
