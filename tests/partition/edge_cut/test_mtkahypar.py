from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gnnscale.config import ConfigError
from gnnscale.graph import Graph
from gnnscale.partition.edge_cut import apart, multilevel
from gnnscale.partition.edge_cut.balance import balances
from gnnscale.partition.edge_cut.mtkahypar import MtKaHyPar, cut_by_mtkahypar
from gnnscale.partition.edge_cut.undirected import make_undirected

OPTIONS: dict[str, Any] = {"num_hops": 2, "num_threads": 2}


def test_the_bridge_is_cut(bridge: Graph, cut_edges: Callable[..., int]) -> None:
    pytest.importorskip("mtkahypar")
    parts = MtKaHyPar().assign(bridge, num_parts=2, **OPTIONS)
    assert parts.owner is not None
    assert parts.owner.dtype == np.int16
    assert cut_edges(bridge, parts.owner) == 2


@pytest.mark.parametrize("small", [3_000_000, 100])
def test_all_three_are_balanced_whatever_the_number_of_threads(
    small: int, communities: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mtkahypar")
    monkeypatch.setattr(multilevel, "SMALL_EDGES", small)
    weights = make_undirected(communities, "test", num_threads=1).weights
    owners = []
    for num_threads in (1, 2):
        parts = MtKaHyPar().assign(communities, num_parts=4, num_hops=2, num_threads=num_threads)
        assert parts.owner is not None
        assert max(balances(weights, parts.owner, 4)) <= 1.051
        owners.append(parts.owner.tolist())
    assert owners[0] == owners[1]


def test_parts_may_have_sizes_of_their_own(communities: Graph) -> None:
    pytest.importorskip("mtkahypar")
    parts = cut_by_mtkahypar(communities, np.array([3.0, 1.0]), num_threads=2)
    assert parts.owner is not None
    assert (np.bincount(parts.owner) <= [630, 210]).all()


def test_what_cannot_be_balanced_is_noted(
    make_graph: Callable[..., Graph],
) -> None:
    """A star: its centre has half of the edges, and each of three parts may have a third."""
    pytest.importorskip("mtkahypar")
    star = [pair for leaf in range(1, 13) for pair in ((0, leaf), (leaf, 0))]
    parts = MtKaHyPar().assign(make_graph(star, 13, [1, 2, 3]), num_parts=3, **OPTIONS)
    assert parts.notes[-1].startswith("no closer balance was found than 1.")


def test_a_missing_library_is_told_and_not_replaced(
    bridge: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"^partitioner=mtkahypar: .*; pip install mtkahypar$"):
        MtKaHyPar().assign(bridge, num_parts=2, **OPTIONS)


def test_more_parts_than_training_vertices_are_refused(bridge: Graph) -> None:
    pytest.importorskip("mtkahypar")
    with pytest.raises(ConfigError, match=r"^partitioner.num_parts=3"):
        MtKaHyPar().assign(bridge, num_parts=3, **OPTIONS)
