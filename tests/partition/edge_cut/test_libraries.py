from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from one_line import one_line

from gnnscale.core.errors import ConfigError
from gnnscale.partition.edge_cut import libraries, multilevel
from gnnscale.partition.edge_cut import subprocess as apart
from gnnscale.partition.edge_cut.libraries import (
    EdgeCut,
    Metis,
    MtKaHyPar,
    chosen_cutter,
    cut_by_mtkahypar,
    one_way_share,
)
from gnnscale.partition.edge_cut.multilevel import balances, make_undirected

OPTIONS: dict[str, Any] = {"num_hops": 2, "num_threads": 2}
#: The package of each tool.
PACKAGES = {"mtkahypar": "mtkahypar", "metis": "pymetis", "dgl": "dgl"}


@pytest.fixture
def only(monkeypatch):
    """Let only some tools be installed."""

    def install(*tools):
        monkeypatch.setattr(libraries, "is_installed", lambda name: name in tools)

    return install


@pytest.mark.parametrize(
    ("config", "tool", "note"),
    [
        pytest.param(
            Metis(), "dgl", "METIS with several constraints, by DGL; ", marks=pytest.mark.long
        ),
        (Metis(), "metis", "METIS with one constraint, by pymetis; "),
        (MtKaHyPar(), "mtkahypar", "Mt-KaHyPar's process held "),
        pytest.param(EdgeCut(), "mtkahypar", "edge cut by Mt", marks=pytest.mark.long),
        (EdgeCut(), "metis", "edge cut by METIS"),
    ],
)
def test_the_bridge_is_cut_and_the_notes_say_by_what(config, tool, note, bridge, cut_edges, only):
    pytest.importorskip(PACKAGES[tool])
    only(tool)
    parts = config.assign(bridge, num_parts=2, **OPTIONS)
    assert parts.owner.dtype == np.int16
    assert cut_edges(bridge, parts.owner) == 2
    assert parts.notes[0].startswith(note)
    assert config.forecast(bridge, num_parts=2, **OPTIONS).seconds > 0


@pytest.mark.long
def test_loops_duplicates_and_one_way_edges_do_not_reach_metis(make_graph, only):
    pytest.importorskip("pymetis")
    only("metis")
    ring = [(v, (v + 1) % 12) for v in range(12)]
    graph = make_graph([*ring, (3, 3)], 12, list(range(12)))
    parts = Metis().assign(graph, num_parts=3, **OPTIONS)
    assert np.bincount(parts.owner).tolist() == [4, 4, 4]
    assert parts.notes[:2] == (
        "left out for METIS: 1 self-loops, 0 repeated edges",
        "made symmetric for METIS: 12 edges had no reverse",
    )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Metis(), "partitioner=metis: expected DGL or pymetis.* pip"),
        (EdgeCut(), "partitioner=edge_cut: .*neither.*; pip install"),
        (MtKaHyPar(), "partitioner=mtkahypar: .*; pip install mtkahypar$"),
    ],
)
def test_without_any_library_the_message_says_what_to_install(config, message, bridge, monkeypatch):
    monkeypatch.setattr(apart.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=f"^{message}"):
        config.assign(bridge, num_parts=2, **OPTIONS)


@pytest.mark.parametrize("config", [Metis(), EdgeCut(), MtKaHyPar()])
def test_more_parts_than_training_vertices_are_refused(config, bridge, only, monkeypatch):
    only("metis")
    monkeypatch.setattr(libraries, "require", lambda *given: None)
    with pytest.raises(ConfigError, match=r"^partitioner.num_parts=3"):
        config.assign(bridge, num_parts=3, **OPTIONS)


@pytest.mark.parametrize("small", [pytest.param(3_000_000, marks=pytest.mark.long), 100])
def test_all_three_are_balanced_whatever_the_number_of_threads(small, communities, monkeypatch):
    pytest.importorskip("mtkahypar")
    monkeypatch.setattr(multilevel, "SMALL_EDGES", small)
    weights = make_undirected(communities, "test", num_threads=1).weights
    owners = []
    for num_threads in (1, 2):
        parts = MtKaHyPar().assign(communities, num_parts=4, num_hops=2, num_threads=num_threads)
        assert max(balances(weights, parts.owner, 4)) <= 1.051
        owners.append(parts.owner.tolist())
    assert owners[0] == owners[1]


@pytest.mark.long
def test_parts_may_have_sizes_of_their_own(communities):
    pytest.importorskip("mtkahypar")
    parts = cut_by_mtkahypar(communities, np.array([3.0, 1.0]), num_threads=2)
    assert (np.bincount(parts.owner) <= [630, 210]).all()


@pytest.mark.long
def test_missed_balance_is_noted(make_graph):
    """A star: its center has half of the edges, and each of three parts may have a third."""
    pytest.importorskip("mtkahypar")
    star = [pair for leaf in range(1, 13) for pair in ((0, leaf), (leaf, 0))]
    parts = MtKaHyPar().assign(make_graph(star, 13, [1, 2, 3]), num_parts=3, **OPTIONS)
    assert parts.notes[-1].startswith("no closer balance was found than 1.")


def test_mtkahypar_goes_first(only):
    only("mtkahypar", "metis", "dgl")
    assert chosen_cutter("auto", "x") == "mtkahypar"
    assert chosen_cutter("metis", "x") == "metis"
    only("dgl")
    assert chosen_cutter("auto", "x") == "metis"
    only()
    for cutter in ("auto", "metis"):
        with one_line(begins="partitioner.edge_cut=x: "):
            chosen_cutter(cutter, "partitioner.edge_cut=x")


def test_one_way_edges_are_counted_in_a_sample(bridge, make_graph):
    assert one_way_share(bridge) == 0
    ring = [(v, (v + 1) % 5000) for v in range(5000)]
    assert one_way_share(make_graph(ring, 5000, [0])) == 1
    half = [*ring, *((v + 1, v) for v in range(2500))]
    assert one_way_share(make_graph(half, 5000, [0])) == pytest.approx(1 / 3, abs=0.05)
    assert one_way_share(make_graph([], 3, [0])) == 0
    # A damaged id does no harm: the partitioner says what is wrong.
    assert one_way_share(replace(bridge, indices=np.full(42, 1 << 40))) == 1
