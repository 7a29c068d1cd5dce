"""Tables of edges with labels and times, divided by time."""

from pathlib import Path

import numpy as np
import pytest
from one_line import one_line

from gnnscale.core import GraphError
from gnnscale.core.errors import UserError
from gnnscale.data.readers.tables import Tables
from gnnscale.graph import Graph

EDGES = """source,target,when,kind
a,b,2024-01-03,0
b,c,2024-01-01,1
a,b,2024-01-02,1
c,a,2024-01-04,
c,b,2024-01-05,1
"""


@pytest.fixture
def tables(tmp_path: Path):
    (tmp_path / "vertices.csv").write_text("id,x\na,1\nb,2\nc,3\n")
    (tmp_path / "edges.csv").write_text(EDGES)

    def make(**options) -> Tables:
        given = {
            "name": "kinds",
            "raw": str(tmp_path),
            "label": None,
            "edge_label": "kind",
            "edge_time": "when",
            "time_unit": "day",
            "split": "time",
            "valid_from": "2024-01-02",
            "test_from": "2024-01-03",
        }
        return Tables(**given | options)

    return make


def test_rows_have_times_and_parts_follow(tables, tmp_path) -> None:
    graph = tables().open()
    days = np.array(["2024-01-03", "2024-01-01", "2024-01-02", "2024-01-04", "2024-01-05"], "M8[D]")
    np.testing.assert_array_equal(graph.edges.row_times, days.astype(np.int64))
    np.testing.assert_array_equal(graph.edges.ends, [[0, 1], [1, 2], [0, 1], [2, 0], [2, 1]])
    split = graph.edge_labels.split
    parts = [split.train_idx, split.valid_idx, split.test_idx]
    assert [part.tolist() for part in parts] == [[1], [2], [0, 4]]  # edge 3 has no label
    # Copies of other times are edges of their own, ascending by time.
    assert graph.indices[graph.indptr[1] : graph.indptr[2]].tolist() == [0, 0, 2]
    graph.save(tmp_path / "saved")
    again = Graph.open(tmp_path / "saved")
    np.testing.assert_array_equal(again.edges.row_times, graph.edges.row_times)
    damaged = again.edges.row_times.copy()
    damaged[2] = np.iinfo(np.int64).min
    header = (tmp_path / "saved" / "edge_row_times.npy").read_bytes()[:128]
    (tmp_path / "saved" / "edge_row_times.npy").write_bytes(header + damaged.tobytes())
    with one_line("edge_row_times.npy: row 2 has no time", error=GraphError):
        Graph.open(tmp_path / "saved")


def test_vertices_are_divided_by_their_own_times(tables, tmp_path) -> None:
    text = "id,x,label,born\na,1,0,3\nb,2,1,1\nc,3,1,2\n"
    (tmp_path / "vertices.csv").write_text(text)
    own = {"label": "label", "edge_label": None, "edge_time": None, "time": "born"}
    graph = tables(**own, time_unit="step", valid_from="2", test_from="3").open()
    assert [ids.tolist() for ids in (graph.train_idx, graph.valid_idx, graph.test_idx)] == [
        [1],
        [2],
        [0],
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"test_from": "2024-01-02"}, ("test_from=2024-01-02: expected a time after",)),
        ({"valid_from": None}, ("dataset.valid_from: required for a split by time",)),
        ({"split": "random"}, ("dataset.valid_from=2024-01-02: expected dataset.split=time",)),
        ({"edge_time": None}, ("dataset.split=time: expected dataset.edge_time", "kind")),
        ({"valid_from": "soon"}, ("valid_from=soon: expected a date",)),
        ({"edge_label": None}, ("dataset.split=time", "nothing to split")),
        (
            {"valid_from": "2023-01-01"},
            ("expected labeled edges of kinds in each part, got 0 for train", "2024-01-01 to"),
        ),
        ({"test_from": "2025-01-01"}, ("got 1 for train, 3 for valid, 0 for test",)),
    ],
)
def test_splits_that_are_refused(tables, options, words) -> None:
    with one_line(*words, error=UserError):
        tables(**options).open()
