"""Artefacts of a run: made by the process that launches it, before any worker starts.

An interrupted preparation so cleans up after itself, and shows its progress where the user looks.
Workers only open what was made, and make sure that it is the same still.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gnnscale.graph import Graph, GraphError
from gnnscale.graph_files import read_meta
from gnnscale.runtime.settings import TrainConfig

__all__ = ["GRAPH_STORE", "Artefact", "make_artefacts", "open_graph"]

GRAPH_STORE = "graph store"


@dataclass(frozen=True, kw_only=True)
class Artefact:
    """A directory that workers read.

    Attributes:
        name: what errors call it.
        path: the directory.
        content: hash of what it holds.
    """

    name: str
    path: Path
    content: str


def make_artefacts(config: TrainConfig) -> tuple[Artefact, ...]:
    """Make what the run needs and does not have yet.

    Raises:
        GraphError: the graph store cannot be made, or is damaged.
    """
    store = config.dataset.prepare()
    return (Artefact(name=GRAPH_STORE, path=store, content=read_meta(store).content),)


def open_graph(artefacts: Sequence[Artefact]) -> Graph:
    """Open the graph store among ``artefacts``.

    Raises:
        GraphError: it is damaged, or holds another graph than when the run was launched.
    """
    (store,) = (each for each in artefacts if each.name == GRAPH_STORE)
    graph = Graph.open(store.path)
    if graph.content != store.content:
        raise GraphError(f"{store.path}: holds another graph than when the run was launched")
    return graph
