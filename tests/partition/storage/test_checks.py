from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.core.errors import GraphError
from gnnscale.graph import Graph
from gnnscale.partition import UNREACHED, Parts
from gnnscale.partition.figures import Measured, Predicted, examine
from gnnscale.partition.storage.checks import check_figures, problem_of
from gnnscale.partition.storage.identity import describe

OWNER = np.array([0, 0, 1, 1, -1], np.int16)
HOPS = np.array([[0, 0, 1, 1, 255], [1, 255, 0, 0, 255]], np.uint8)


@pytest.fixture
def graph(tiny_graph: Graph) -> Graph:
    return dataclasses.replace(tiny_graph, train_idx=np.array([0, 1, 3]))


def changed(array: np.ndarray, place: Any, value: int) -> np.ndarray:
    copy = array.copy()
    copy[place] = value
    return copy


def parts(**fields: Any) -> Parts:
    return Parts(**{"num_parts": 2, "owner": OWNER, **fields})


def test_what_is_as_it_should_be(graph: Graph) -> None:
    for each in (
        parts(),
        parts(hops=HOPS, num_hops=1),
        parts(owner=None),
        parts(owner=None, columns=((0, 1), (1, 2))),
    ):
        assert problem_of(each, graph) is None


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"owner": None, "hops": HOPS}, "hops are given, and no owners"),
        ({"columns": ((0, 1), (1, 2))}, "both owners and feature columns are given"),
        ({"owner": None, "columns": ((0, 2),)}, "columns are not 2 ranges"),
        ({"owner": None, "columns": ()}, "columns are not 2 ranges"),
        ({"owner": None, "columns": ((0, 1), (0, 2))}, "columns are not 2 ranges"),
        ({"owner": None, "columns": ((0, 0), (0, 2))}, "columns are not 2 ranges"),
        ({"owner": None, "columns": ((0, 1), (1, 3))}, "columns go from 0 to 3, the graph has 2"),
        ({"owner": OWNER.astype(np.int32)}, "owner is int32[5], needed is int16[5]"),
        ({"owner": OWNER[1:]}, "owner is int16[4]"),
        ({"owner": changed(OWNER, 2, 2)}, "owner 2 is out of range, allowed are -1 to 1"),
        ({"owner": changed(OWNER, 2, -2)}, "owner -2 is out of range"),
        ({"owner": changed(OWNER, 1, -1)}, "training vertex 1 belongs to no part"),
        ({"hops": HOPS.astype(np.int8), "num_hops": 1}, "hops is int8[2, 5]"),
        ({"hops": HOPS[:1], "num_hops": 1}, "hops is uint8[1, 5], needed is uint8[2, 5]"),
        ({"hops": HOPS, "num_hops": 0}, "num_hops is 0, allowed are 1 to 254"),
        ({"hops": HOPS, "num_hops": UNREACHED}, "num_hops is 255"),
        ({"hops": changed(HOPS, (1, 2), 2), "num_hops": 1}, "part 1 has vertex 2 at 2 hops"),
        ({"hops": changed(HOPS, (1, 3), 1), "num_hops": 1}, "training vertex 3 is not at 0 hops"),
    ],
)
def test_what_is_not(
    graph: Graph, fields: Any, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnnscale.partition.storage.checks._SLICE_VERTICES", 2)
    assert problem in (problem_of(parts(**fields), graph) or "")


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"num_parts": 3}, "parts and cut need an entry for each of 3"),
        ({"cut": ((1, 1), (2,))}, "parts and cut need"),
        ({"cut": ((1, 1), (2, -1))}, "cut is -1"),
        ({"cut": ((1, 1), (2, 7))}, "cut is 7, allowed is a number from 0 to 6"),
        ({"edge_cut_fraction": 1.5}, "edge_cut_fraction is 1.5"),
        ({"vertex_balance": 3.0}, "vertex_balance is 3.0"),
        ({"seconds": -1.0}, "seconds is -1.0"),
        ({"peak_rss_bytes": -1}, "peak_rss_bytes is -1"),
        ({"predicted": Predicted(seconds=-1.0, peak_rss_bytes=None)}, "predicted.seconds is -1"),
        ({"algorithm": "a\x1b[31m"}, "is no line of up to"),
        ({"notes": ("x" * 501,)}, "is no line of up to"),
    ],
)
def test_figures_that_no_partition_can_have(graph: Graph, fields: Any, what: str) -> None:
    figures = examine(
        graph,
        parts(),
        algorithm="any",
        measured=Measured(seconds=1.0, peak_rss_bytes=1),
        predicted=Predicted(seconds=1.0, peak_rss_bytes=1),
    )
    check_figures(Path("x.json"), figures, describe(graph))
    with pytest.raises(GraphError) as refused:
        check_figures(Path("x.json"), dataclasses.replace(figures, **fields), describe(graph))
    assert str(refused.value).startswith("x.json: ")
    assert what in str(refused.value)


@pytest.mark.parametrize("field", ["num_vertices", "num_inner", "num_train", "num_edges"])
def test_sizes_that_no_part_can_have(graph: Graph, field: str) -> None:
    figures = examine(
        graph,
        parts(),
        algorithm="any",
        measured=Measured(seconds=1.0, peak_rss_bytes=1),
        predicted=Predicted(seconds=1.0, peak_rss_bytes=1),
    )
    for value in (-1, 7):
        bad = dataclasses.replace(figures.parts[1], **{field: value})
        wrong = dataclasses.replace(figures, parts=(figures.parts[0], bad))
        with pytest.raises(GraphError, match=f"{field} is {value}"):
            check_figures(Path("x"), wrong, describe(graph))
