from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gnnscale.core.errors import ConfigError
from gnnscale.graph import Graph
from gnnscale.partition.edge_cut import libraries as best_installed
from gnnscale.partition.edge_cut import libraries as metis
from gnnscale.partition.edge_cut import multilevel
from gnnscale.partition.edge_cut import subprocess as apart
from gnnscale.partition.edge_cut.libraries import (
    EdgeCut,
    Metis,
    MtKaHyPar,
    chosen_cutter,
    cut_by_mtkahypar,
    forecast_metis,
    forecast_mtkahypar,
    one_way_share,
)
from gnnscale.partition.edge_cut.multilevel import balances, make_undirected

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


def test_the_bridge_is_cut_mtkahypar(bridge: Graph, cut_edges: Callable[..., int]) -> None:
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


def test_what_cannot_be_balanced_is_noted(make_graph: Callable[..., Graph]) -> None:
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


def test_more_parts_than_training_vertices_are_refused_mtkahypar(bridge: Graph) -> None:
    pytest.importorskip("mtkahypar")
    with pytest.raises(ConfigError, match=r"^partitioner.num_parts=3"):
        MtKaHyPar().assign(bridge, num_parts=3, **OPTIONS)


def only_best_installed(monkeypatch: pytest.MonkeyPatch, *tools: str) -> None:
    for module in (best_installed, metis):
        monkeypatch.setattr(module, "is_installed", lambda name: name in tools)


@pytest.mark.parametrize(
    ("module", "tool", "name"),
    [("mtkahypar", "mtkahypar", "Mt-KaHyPar"), ("pymetis", "metis", "METIS")],
)
def test_what_is_installed_cuts_and_the_notes_say_which(
    module: str,
    tool: str,
    name: str,
    bridge: Graph,
    cut_edges: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip(module)
    only_best_installed(monkeypatch, tool)
    parts = EdgeCut().assign(bridge, num_parts=2, **OPTIONS)
    assert cut_edges(bridge, parts.owner) == 2
    assert parts.notes[0] == f"edge cut by {name}"
    assert EdgeCut().forecast(bridge, num_parts=2, **OPTIONS).seconds > 0


def test_mtkahypar_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    only_best_installed(monkeypatch, "mtkahypar", "metis", "dgl")
    assert chosen_cutter("auto", "x") == "mtkahypar"
    assert chosen_cutter("metis", "x") == "metis"
    only_best_installed(monkeypatch, "dgl")
    assert chosen_cutter("auto", "x") == "metis"


def test_without_either_the_message_says_what_to_install(
    bridge: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_best_installed(monkeypatch)
    with pytest.raises(ConfigError, match=r"^partitioner=edge_cut: .*neither.*; pip install"):
        EdgeCut().assign(bridge, num_parts=2, **OPTIONS)


def test_more_parts_than_training_vertices_are_refused_best_installed(
    bridge: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_best_installed(monkeypatch, "mtkahypar")
    with pytest.raises(ConfigError, match=r"^partitioner.num_parts=3"):
        EdgeCut().assign(bridge, num_parts=3, **OPTIONS)


def test_one_way_edges_are_counted_in_a_sample(
    bridge: Graph, make_graph: Callable[..., Graph]
) -> None:
    assert one_way_share(bridge) == 0
    ring = [(v, (v + 1) % 5000) for v in range(5000)]
    assert one_way_share(make_graph(ring, 5000, [0])) == 1
    half = [*ring, *((v + 1, v) for v in range(2500))]
    assert one_way_share(make_graph(half, 5000, [0])) == pytest.approx(1 / 3, abs=0.05)
    assert one_way_share(make_graph([], 3, [0])) == 0


def test_a_damaged_id_does_no_harm(bridge: Graph) -> None:
    """Whoever partitions the graph says what is wrong."""
    assert one_way_share(replace(bridge, indices=np.full(42, 1 << 40))) == 1


@pytest.mark.parametrize("tool", ["dgl", "metis"])
def test_a_larger_graph_takes_more(tool: str, bridge: Graph, communities: Graph) -> None:
    small, large = forecast_metis(bridge, tool), forecast_metis(communities, tool)
    assert small.memory_bytes < large.memory_bytes
    assert small.seconds < large.seconds


def test_more_threads_take_no_longer(communities: Graph) -> None:
    one, two = (forecast_mtkahypar(communities, threads) for threads in (1, 2))
    assert two.seconds <= one.seconds
    assert one.memory_bytes == pytest.approx(two.memory_bytes, rel=0.05)
