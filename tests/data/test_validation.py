import tracemalloc

import numpy as np
import pytest

from gnnscale.core.errors import GraphError
from gnnscale.data.validation import check_split, vertex_keys


def test_a_split_takes_few_bytes_a_vertex() -> None:
    ids = np.arange(2_000_000)[::-1]
    split = {"train": ids[2:], "valid": ids[:1], "test": ids[1:2]}
    labels = np.zeros(len(ids), np.int64)
    tracemalloc.start()
    try:
        check_split(split, labels, len(ids), "raw")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(ids)


def test_a_vertex_twice_among_many() -> None:
    ids = np.arange(600_000)
    ids[-1] = 5
    split = {"train": ids, "valid": np.array([599_999]), "test": np.array([600_000])}
    with pytest.raises(GraphError, match=r"^raw: the train split names a vertex twice$"):
        check_split(split, np.zeros(600_001, np.int64), 600_001, "raw")
    labels = -(np.arange(600_001) == 599_998).astype(np.int64)
    message = "raw: vertex 599998 of the train split has no label; 1 of 599999 lack one"
    with pytest.raises(GraphError, match=f"^{message}$"):
        check_split(split | {"train": ids[:-1]}, labels, 600_001, "raw")


def test_keys():
    assert vertex_keys(["3", "0", "12"], source="x").tolist() == [3, 0, 12]
    assert vertex_keys([], source="x").tolist() == []


@pytest.mark.parametrize(
    "key", ["-1", "x", "", "1.0", " 1", "1_0", "٣", "1" * 30, "9" * 19, "\x1b[2J", "\ud800"]
)
def test_keys_that_are_no_ids(key):
    with pytest.raises(GraphError, match="x: expected vertex ids as keys, got") as error:
        vertex_keys(["0", key], source="x")
    assert str(error.value).isprintable()


def test_two_spellings_are_not_two_vertices():
    with pytest.raises(GraphError, match=r"x: vertex 7 is named twice"):
        vertex_keys(["7", "07"], source="x")
