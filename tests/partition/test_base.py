from dataclasses import replace
from typing import Any

import numpy as np
import own_parts
import pytest
from one_line import one_line

from gnnscale.graph import Graph
from gnnscale.partition import UNREACHED, NoPartitioner, Parts
from gnnscale.partition.base import check_num_parts, problem_of


def test_every_part_needs_a_training_vertex(make_graph: Any) -> None:
    three = make_graph([], 5, [0, 1, 4])
    check_num_parts(three, 3)
    with one_line(begins="partitioner.num_parts=4: expected at most the 3 training"):
        check_num_parts(three, 4)
    # Without a label it trains none.
    unlabelled = replace(three, labels=np.array([0, 0, 0, 0, -1]))
    check_num_parts(unlabelled, 2)
    with one_line(begins="partitioner.num_parts=3: expected at most the 2 training"):
        check_num_parts(unlabelled, 3)


def test_training_vertices_belong_to_their_owners() -> None:
    parts = Parts(num_parts=3, owner=np.array([0, 1, 0, 2, 1], np.int16))
    found = parts.train_vertices(np.array([1, 2, 4], np.int32))
    assert [each.tolist() for each in found] == [[2], [1, 4], []]
    assert all(each.dtype == np.int32 for each in found)


def test_parts_of_the_feature_dimension_have_no_training_vertices() -> None:
    parts = Parts(num_parts=2, owner=None, columns=((0, 3), (3, 5)))
    with pytest.raises(ValueError, match="no training vertices"):
        parts.train_vertices(np.arange(3))


def test_every_part_has_everything(tiny_graph: Graph) -> None:
    parts = NoPartitioner().assign(tiny_graph, num_parts=3, num_hops=2, num_threads=1)
    assert parts == Parts(num_parts=3, owner=None)
    forecast = NoPartitioner().forecast(tiny_graph, num_parts=3, num_hops=2, num_threads=1)
    assert (forecast.memory_bytes, forecast.seconds) == (0, 0)


OWNER = np.array([0, 0, 1, 1, -1], np.int16)
HOPS = np.array([[0, 0, 1, 1, 255], [1, 255, 0, 0, 255]], np.uint8)


@pytest.fixture
def graph(tiny_graph: Graph) -> Graph:
    return tiny_graph.with_split(train_idx=np.array([0, 1, 3]))


def changed(array: np.ndarray, place: Any, value: int) -> np.ndarray:
    copy = array.copy()
    copy[place] = value
    return copy


def parts(**fields: Any) -> Parts:
    return Parts(**{"num_parts": 2, "owner": OWNER, **fields})


def test_valid_parts_have_no_problem(graph: Graph) -> None:
    whole = {"owner": None}
    for fields in ({}, {"hops": HOPS, "num_hops": 1}, whole, whole | {"columns": ((0, 1), (1, 2))}):
        assert problem_of(parts(**fields), graph) is None


INVALID_PARTS = [
    ({"owner": None, "hops": HOPS}, "hops are given, and no owners"),
    ({"columns": ((0, 1), (1, 2))}, "both owners and feature columns are given"),
    ({"owner": None, "columns": ((0, 2),)}, "columns: expected 2 ranges"),
    ({"owner": None, "columns": ((0, 1), (0, 2))}, "columns: expected 2 ranges"),
    ({"owner": None, "columns": ((0, 0), (0, 2))}, "columns: expected 2 ranges"),
    ({"owner": None, "columns": ((0, 1), (1, 3))}, "columns: expected 0 to 2, got 0 to 3"),
    ({"owner": OWNER.astype(np.int32)}, "owner: expected int16[5], got int32[5]"),
    ({"owner": OWNER[1:]}, "got int16[4]"),
    ({"owner": changed(OWNER, 2, 2)}, "owner: expected -1 to 1, got 2"),
    ({"owner": changed(OWNER, 2, -2)}, "got -2"),
    ({"owner": changed(OWNER, 1, -1)}, "training vertex 1 belongs to no part"),
    ({"hops": HOPS.astype(np.int8), "num_hops": 1}, "got int8[2, 5]"),
    ({"hops": HOPS[:1], "num_hops": 1}, "hops: expected uint8[2, 5], got uint8[1, 5]"),
    ({"hops": HOPS, "num_hops": 0}, "num_hops: expected 1 to 254, got 0"),
    ({"hops": HOPS, "num_hops": UNREACHED}, "got 255"),
    ({"hops": changed(HOPS, (1, 2), 2), "num_hops": 1}, "got 2 for vertex 2 in part 1"),
    ({"hops": changed(HOPS, (1, 3), 1), "num_hops": 1}, "hops: expected 0 for training vertex 3"),
]


@pytest.mark.parametrize(("fields", "problem"), INVALID_PARTS)
def test_invalid_parts_have_a_problem(graph, fields, problem, monkeypatch) -> None:
    monkeypatch.setattr("gnnscale.partition.base._SLICE_VERTICES", 2)
    assert problem in (problem_of(parts(**fields), graph) or "")


@pytest.mark.parametrize(
    ("attribute", "value", "line"),
    [
        ("algorithm", "../up", "Dealt.algorithm=../up: expected a word of at most 63 letters"),
        ("algorithm", "", "Dealt.algorithm=: expected a word"),
        ("divides", "edges", "Dealt.divides=edges"),
    ],
)
def test_class_attributes_are_checked(attribute, value, line, monkeypatch) -> None:
    monkeypatch.setattr(own_parts.Dealt, attribute, value)
    with one_line(line):
        own_parts.Dealt()
