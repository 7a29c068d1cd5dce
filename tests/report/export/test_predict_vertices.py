from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.graph import Graph
from gnnscale.report.export.predict import find_vertices


def test_all_a_split_ids_or_a_file(tiny_graph: Graph, tmp_path: Path) -> None:
    assert find_vertices(None, tiny_graph) is None
    assert find_vertices("all", tiny_graph) is None
    assert find_vertices("train", tiny_graph).tolist() == [0, 1, 2, 3, 4]
    file = tmp_path / "ids.npy"
    np.save(file, np.array([4, 0], np.uint8))
    for given in ([4, 0], (4, 0), np.array([4, 0]), torch.tensor([4, 0]), file, str(file)):
        found = find_vertices(given, tiny_graph)
        assert found.dtype == tiny_graph.indices.dtype
        assert found.tolist() == [4, 0]
    assert find_vertices(3, tiny_graph).tolist() == [3]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0, 5], "vertices: 5 is no vertex of tiny, whose ids are 0 to 4"),
        ([-1], "vertices: -1 is no vertex"),
        ([2**40], "is no vertex"),
        ([3, 1, 3], "vertices: 3 is given twice"),
        ([], "nothing is to be predicted"),
        *(
            (given, "must be whole numbers")
            for given in ([1.5], [[1]], [[1], 2], ["a"], [True], {"a": 1}, [10**30])
        ),
        ("tests", "allowed are all, train, valid, test, a file"),
        ("ids.csv", "allowed are all, train, valid, test, a file"),
        ("test", "vertices=test: tiny has no such vertex"),
    ],
)
def test_what_names_no_vertices(tiny_graph: Graph, given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_vertices(given, tiny_graph.with_split(test_idx=np.empty(0, np.int32)))


def test_files_of_anything_else(tiny_graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"none\.npy"):
        find_vertices(tmp_path / "none.npy", tiny_graph)
    np.save(tmp_path / "floats.npy", np.ones(3))
    with pytest.raises(GraphError, match=r"floats.npy.*float64"):
        find_vertices(tmp_path / "floats.npy", tiny_graph)


def test_ids_of_the_users_own(tiny_graph: Graph, tmp_path: Path) -> None:
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
        (numbers.cast(pyarrow.uint64()), [-1], "ids of tiny are uint64, and not all of these are"),
        (texts, ["d", "x"], "vertices: x is no id of a vertex of tiny"),
        (texts, ["d", "d"], "vertices: d is given twice"),
    ):
        with pytest.raises(ConfigError, match=message):
            find_vertices(given, tiny_graph, own)
