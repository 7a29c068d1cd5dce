from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gnnscale.config import ConfigError
from gnnscale.graph import Graph
from gnnscale.partition.edge_cut import best_installed, metis
from gnnscale.partition.edge_cut.best_installed import EdgeCut, chosen_cutter

OPTIONS: dict[str, Any] = {"num_hops": 2, "num_threads": 2}


def only(monkeypatch: pytest.MonkeyPatch, *tools: str) -> None:
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
    only(monkeypatch, tool)
    parts = EdgeCut().assign(bridge, num_parts=2, **OPTIONS)
    assert cut_edges(bridge, parts.owner) == 2
    assert parts.notes[0] == f"edge cut by {name}"
    assert EdgeCut().forecast(bridge, num_parts=2, **OPTIONS).seconds > 0


def test_mtkahypar_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "mtkahypar", "metis", "dgl")
    assert chosen_cutter("auto", "x") == "mtkahypar"
    assert chosen_cutter("metis", "x") == "metis"
    only(monkeypatch, "dgl")
    assert chosen_cutter("auto", "x") == "metis"


def test_without_either_the_message_says_what_to_install(
    bridge: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch)
    with pytest.raises(ConfigError, match=r"^partitioner=edge_cut: .*neither.*; pip install"):
        EdgeCut().assign(bridge, num_parts=2, **OPTIONS)


def test_more_parts_than_training_vertices_are_refused(
    bridge: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "mtkahypar")
    with pytest.raises(ConfigError, match=r"^partitioner.num_parts=3"):
        EdgeCut().assign(bridge, num_parts=3, **OPTIONS)
