import numpy as np
import pytest
import torch

from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.data.tables.selection import find_kinds, find_pairs, find_vertices, open_table


def test_all_a_split_ids_or_a_file(tiny_graph, tmp_path):
    assert find_vertices(None, tiny_graph) is None
    assert find_vertices("all", tiny_graph) is None
    assert find_vertices("train", tiny_graph).tolist() == [0, 1, 2, 3, 4]
    file = tmp_path / "ids.npy"
    np.save(file, np.array([4, 0], np.uint8))
    for given in ([4, 0], (4, 0), np.array([4, 0]), torch.tensor([4, 0]), file, str(file)):
        found = find_vertices(given, tiny_graph)
        assert (found.dtype, found.tolist()) == (tiny_graph.indices.dtype, [4, 0])
    assert find_vertices(3, tiny_graph).tolist() == [3]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0, 5], "vertices: 5 is no vertex of tiny, whose ids are 0 to 4"),
        ([-1], "vertices: -1 is no vertex"),
        ([2**40], "is no vertex"),
        ([3, 1, 3], "vertices: expected each vertex once, got 3 twice"),
        ([], "at least one vertex of tiny, got none"),
        *(
            (given, "must be whole numbers")
            for given in ([1.5], [[1]], [[1], 2], ["a"], [True], {"a": 1}, [10**30])
        ),
        ("tests", "allowed are all, train, valid, test, a file"),
        ("ids.txt", "allowed are all, train, valid, test, a file"),
        ("test", "vertices=test: expected at least one vertex of tiny"),
    ],
)
def test_bad_vertices_are_refused(tiny_graph, given, message):
    with pytest.raises(ConfigError, match=message):
        find_vertices(given, tiny_graph.with_split(test_idx=np.empty(0, np.int32)))


def test_files_of_anything_else_and_arrays_that_hide_ids(tiny_graph, tmp_path):
    with pytest.raises(GraphError, match=r"none\.npy"):
        find_vertices(tmp_path / "none.npy", tiny_graph)
    np.save(tmp_path / "empty.npy", np.empty(0, np.int64))
    with pytest.raises(ConfigError, match=r"empty\.npy: expected at least one vertex of tiny"):
        find_vertices(tmp_path / "empty.npy", tiny_graph)
    np.save(tmp_path / "floats.npy", np.ones(3))
    with pytest.raises(GraphError, match=r"floats.npy.*float64"):
        find_vertices(tmp_path / "floats.npy", tiny_graph)
    message = r"^vertices: expected a number for each value, got a masked array that"
    with pytest.raises(GraphError, match=message):
        find_vertices(np.ma.masked_equal([1, 2], 2), tiny_graph)


def test_ids_of_the_users_own(tiny_graph, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    numbers = pyarrow.array([50, 40, 30, 20, 10])
    np.save(tmp_path / "ids.npy", np.array([10, 50], np.uint8))
    for given in ([10, 50], tmp_path / "ids.npy"):
        assert find_vertices(given, tiny_graph, numbers).tolist() == [4, 0]
    assert find_vertices("train", tiny_graph, numbers).tolist() == [0, 1, 2, 3, 4]
    texts = pyarrow.array(["a", "b", "7", "d", "e"], pyarrow.large_string())
    assert find_vertices(["d", 7], tiny_graph, texts).tolist() == [3, 2]
    for own, given, message in (
        (numbers, [0], "vertices: 0 is no id of a vertex of tiny"),
        (numbers, ["x"], "must be whole numbers"),
        (numbers.cast(pyarrow.uint64()), [-1], "expected ids of uint64, as tiny has"),
        (texts, ["d", "x"], "vertices: x is no id of a vertex of tiny"),
        (texts, ["d", "d"], "vertices: expected each vertex once, got d twice"),
    ):
        with pytest.raises(ConfigError, match=message):
            find_vertices(given, tiny_graph, own)


def test_tables_of_ids(tiny_graph, tmp_path):
    pyarrow, parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet"))
    texts = pyarrow.array(["a", "b", "7", "d", "e"], pyarrow.large_string())
    file = tmp_path / "ids.csv"
    file.write_text("name,id\nx,d\ny,7\n")
    assert find_vertices(file, tiny_graph, texts).tolist() == [3, 2]
    file.write_text("id\n4\n0\n")
    assert find_vertices(str(file), tiny_graph).tolist() == [4, 0]
    parquet.write_table(pyarrow.table({"id": ["d"]}), tmp_path / "ids.parquet")
    assert find_vertices(tmp_path / "ids.parquet", tiny_graph, texts).tolist() == [3]
    for content, own, message in (
        ("id\nd\nx\n", texts, "x is no id of a vertex of tiny"),
        ("id\n5\n", None, "5 is no vertex of tiny, whose ids are 0 to 4"),
        ("id\nd\n", None, r"ids\.csv"),
        ("name\nd\n", texts, "has no column id, it has name"),
        ("id,name\nd,1\n,2\n", texts, "row 2"),
        ("id\n", texts, "only a header"),
    ):
        file.write_text(content)
        with pytest.raises((ConfigError, GraphError), match=message):
            find_vertices(file, tiny_graph, own)
    parquet.write_table(pyarrow.table({"id": [1.5]}), tmp_path / "ids.parquet")
    with pytest.raises(ConfigError, match="holds double, ids are whole numbers"):
        find_vertices(tmp_path / "ids.parquet", tiny_graph)


def test_pairs(tiny_graph, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    texts = pyarrow.array(["a", "b", "7", "d", "e"], pyarrow.large_string())
    np.save(tmp_path / "p.npy", np.array([[4, 0], [1, 1]], np.uint8))
    for given in (tmp_path / "p.npy", [[4, 0], [1, 1]], torch.tensor([[4, 0], [1, 1]])):
        found = find_pairs(given, tiny_graph)
        assert (found.dtype, found.tolist()) == (tiny_graph.indices.dtype, [[4, 0], [1, 1]])
    (tmp_path / "p.csv").write_text("target,source\na,d\n7,7\n")
    assert find_pairs(tmp_path / "p.csv", tiny_graph, texts).tolist() == [[3, 0], [2, 2]]
    assert find_pairs([["d", "a"], [7, 7]], tiny_graph, texts).tolist() == [[3, 0], [2, 2]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([[0, 5]], "pairs: 5 is no vertex of tiny"),
        ([], "pairs: expected at least one pair"),
        *(
            (given, r"must be whole numbers, a list of pairs such as \[\[1,2\],\[1,3\]\]")
            for given in ([1, 2], [[1]], [[1, 2, 3]], [[1, 2], [3]], 5, [["a", "b"]], [[0.5, 1]])
        ),
        ("train", "allowed are a file of pairs"),
    ],
)
def test_bad_pairs_are_refused(tiny_graph, given, message):
    with pytest.raises(ConfigError, match=message):
        find_pairs(given, tiny_graph)


def test_files_that_hold_no_pairs(tiny_graph, tmp_path):
    np.save(tmp_path / "p.npy", np.ones((3, 3), np.int64))
    with pytest.raises(ConfigError, match="has 3 columns, must be source and target"):
        find_pairs(tmp_path / "p.npy", tiny_graph)
    np.save(tmp_path / "p.npy", np.ones(3, np.int64))
    with pytest.raises(GraphError, match=r"p\.npy"):
        find_pairs(tmp_path / "p.npy", tiny_graph)


def test_kinds_by_column(tiny_graph, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    file = tmp_path / "kinds.csv"
    file.write_text("id,kind\n3,film\n0,user\n1,user\n4,film\n")
    kinds, names = find_kinds(open_table(file), ("id", "kind"), tiny_graph, None, option="here")
    assert (kinds.tolist(), names) == ([1, 1, -1, 0, 0], ["film", "user"])
    own = pyarrow.array(["a", "b", "c", "d", "e"], pyarrow.large_string())
    file.write_text("kind,who\n1,c\n2,a\n")
    kinds, names = find_kinds(open_table(file), ("who", "kind"), tiny_graph, own, option="here")
    assert (kinds.tolist(), names) == ([1, -1, 0, -1, -1], ["1", "2"])


def test_kinds_of_anything_else(tiny_graph, tmp_path):
    file = tmp_path / "kinds.csv"
    for text, error, message in (
        ("id,kind\n3,a\n3,b\n", ConfigError, "got 3 twice"),
        ("id,kind\n9,a\n", ConfigError, "9 is no vertex of tiny"),
        ("id,kind\n3,\n", GraphError, "kind"),
        ("id,type\n3,a\n", GraphError, "has no column kind, it has id, type"),
    ):
        file.write_text(text)
        with pytest.raises(error, match=message):
            find_kinds(open_table(file), ("id", "kind"), tiny_graph, None, option="here")
    with pytest.raises(ConfigError, match="expected a column of kinds other than the ids, got id"):
        find_kinds(open_table(file), ("id", "id"), tiny_graph, None, option="here")
