from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from gnnscale.graph import Graph
from gnnscale.partition import P3, UNREACHED, PartitionFigures, Parts, Random
from gnnscale.partition.figures.examine import (
    Measured,
    PartFigures,
    Predicted,
    examine,
    examine_bytes,
)

MEASURED = Measured(seconds=2.0, peak_rss_bytes=None)
PREDICTED = Predicted(seconds=1.0, peak_rss_bytes=7)


def looked_at(graph: Graph, parts: Parts) -> PartitionFigures:
    return examine(graph, parts, algorithm="any", measured=MEASURED, predicted=PREDICTED)


def part(num_vertices: int, num_inner: int, num_train: int, num_edges: int) -> PartFigures:
    return PartFigures(
        num_vertices=num_vertices, num_inner=num_inner, num_train=num_train, num_edges=num_edges
    )


def test_parts_with_a_halo_of_one_hop(tiny_graph: Graph) -> None:
    # 0 <- 1, 2; 1 <- 3; 2 <- 0, 3; 4 <- 4
    graph = dataclasses.replace(tiny_graph, train_idx=np.array([0, 1, 3]))
    parts = Parts(num_parts=2, owner=np.array([0, 0, 1, 1, -1], np.int16), notes=("so it is",))
    assert looked_at(graph, parts) == PartitionFigures(
        algorithm="any",
        num_parts=2,
        seconds=2.0,
        peak_rss_bytes=None,
        edge_cut_fraction=3 / 5,
        vertex_balance=1.0,
        edge_balance=3 / 2.5,
        train_balance=2 / 1.5,
        replication_factor=(4 + 3) / 4,
        parts=(part(4, 2, 2, 3), part(3, 2, 1, 2)),
        cut=((1, 1), (2, 1)),
        predicted=PREDICTED,
        notes=("so it is",),
    )


def test_parts_that_say_what_they_reach(tiny_graph: Graph) -> None:
    graph = dataclasses.replace(tiny_graph, train_idx=np.array([0, 4]))
    far = UNREACHED
    hops = np.array([[0, 1, 1, 2, far], [far, far, far, far, 0]], np.uint8)
    parts = Parts(num_parts=2, owner=np.array([0, 0, 0, 0, 1], np.int16), hops=hops, num_hops=2)
    found = looked_at(graph, parts)
    assert found.parts == (part(4, 4, 1, 5), part(1, 1, 1, 1))
    assert found.replication_factor == 1.0
    assert found.edge_cut_fraction == 0.0
    hops[1, 3] = 1
    assert looked_at(graph, dataclasses.replace(parts, hops=hops)).replication_factor == 6 / 5


def test_slices_change_nothing(
    random_graph: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = random_graph()
    parts = Random().assign(graph, num_parts=3, num_hops=1, num_threads=1)
    reached = Parts(
        num_parts=3,
        owner=parts.owner,
        hops=np.random.default_rng(0).choice(np.array([0, 1, UNREACHED], np.uint8), (3, 300)),
        num_hops=1,
    )
    whole = [looked_at(graph, each) for each in (parts, reached)]
    monkeypatch.setattr("gnnscale.partition.figures.examine._SLICE_VERTICES", 7)
    assert [looked_at(graph, each) for each in (parts, reached)] == whole


def test_parts_of_the_feature_dimension_have_no_cut(tiny_graph: Graph) -> None:
    found = looked_at(tiny_graph, P3().assign(tiny_graph, num_parts=2, num_hops=1, num_threads=1))
    assert found.cut is found.edge_cut_fraction is found.vertex_balance is None
    assert found.train_balance is None
    assert found.edge_balance == 1.0
    assert found.replication_factor == 2.0
    assert found.parts == 2 * (
        PartFigures(num_vertices=5, num_inner=None, num_train=None, num_edges=6),
    )


def test_a_graph_without_edges_has_no_share_of_them(tiny_graph: Graph) -> None:
    graph = dataclasses.replace(
        tiny_graph, indptr=np.zeros(6, np.int64), indices=np.empty(0, np.int32)
    )
    found = looked_at(graph, Parts(num_parts=2, owner=np.array([0, 1, 0, 1, 0], np.int16)))
    assert found.edge_cut_fraction is found.edge_balance is None
    assert found.replication_factor == 1.0


def test_what_looking_takes_grows_with_the_graph(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    assert examine_bytes(graph, 4) > graph.topology_bytes
    assert examine_bytes(graph, 64) > examine_bytes(graph, 4)


@pytest.mark.parametrize(
    ("owner", "note"),
    [
        ([0, 0, 1, 1, 1], "part 2 has no training vertex; its device trains those"),
        ([0, 0, 0, 0, 0], "parts 1, 2 have no training vertex; their devices train those"),
    ],
)
def test_parts_that_have_nothing_to_train(tiny_graph: Graph, owner: list[int], note: str) -> None:
    found = looked_at(tiny_graph, Parts(num_parts=3, owner=np.array(owner, np.int16)))
    assert found.notes == (f"{note} of other parts",)
