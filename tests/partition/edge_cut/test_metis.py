from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gnnscale.config import ConfigError
from gnnscale.graph import Graph
from gnnscale.partition.edge_cut import metis
from gnnscale.partition.edge_cut.balance import balances
from gnnscale.partition.edge_cut.metis import Metis
from gnnscale.partition.edge_cut.undirected import make_undirected

OPTIONS: dict[str, Any] = {"num_hops": 2, "num_threads": 2}


def only(monkeypatch: pytest.MonkeyPatch, tool: str | None) -> None:
    """Let only one METIS be installed."""
    monkeypatch.setattr(metis, "is_installed", lambda name: name == tool)


@pytest.mark.parametrize(("tool", "module"), [("dgl", "dgl"), ("metis", "pymetis")])
def test_the_bridge_is_cut(
    tool: str,
    module: str,
    bridge: Graph,
    cut_edges: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip(module)
    only(monkeypatch, tool)
    parts = Metis().assign(bridge, num_parts=2, **OPTIONS)
    assert parts.owner is not None
    assert parts.owner.dtype == np.int16
    assert cut_edges(bridge, parts.owner) == 2
    assert f"by {'DGL' if tool == 'dgl' else 'pymetis'}" in parts.notes[0]


@pytest.mark.parametrize(("tool", "module"), [("dgl", "dgl"), ("metis", "pymetis")])
def test_all_three_are_balanced(
    tool: str, module: str, communities: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(module)
    only(monkeypatch, tool)
    parts = Metis().assign(communities, num_parts=4, **OPTIONS)
    weights = make_undirected(communities, "test", num_threads=1).weights
    assert parts.owner is not None
    assert max(balances(weights, parts.owner, 4)) <= 1.051


def test_loops_duplicates_and_one_way_edges_do_not_reach_metis(
    make_graph: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pymetis")
    only(monkeypatch, "metis")
    ring = [(v, (v + 1) % 12) for v in range(12)]
    graph = make_graph([*ring, (3, 3)], 12, list(range(12)))
    parts = Metis().assign(graph, num_parts=3, **OPTIONS)
    assert parts.owner is not None
    assert np.bincount(parts.owner).tolist() == [4, 4, 4]
    assert parts.notes[:2] == (
        "left out for METIS: 1 self-loops, 0 repeated edges",
        "made symmetric for METIS: 12 edges had no reverse",
    )


def test_without_any_metis_the_message_says_what_to_install(
    bridge: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, None)
    for call in (Metis().assign, Metis().forecast):
        with pytest.raises(ConfigError, match=r"^partitioner=metis: needs DGL or pymetis.* pip"):
            call(bridge, num_parts=2, **OPTIONS)


def test_more_parts_than_training_vertices_are_refused(
    bridge: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "metis")
    with pytest.raises(ConfigError, match=r"^partitioner.num_parts=3"):
        Metis().assign(bridge, num_parts=3, **OPTIONS)
