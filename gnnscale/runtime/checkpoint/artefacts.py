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
from gnnscale.partition.make import make_partition
from gnnscale.partition.storage.store import Partition, read_partition
from gnnscale.runtime.settings import TrainConfig

__all__ = [
    "GRAPH_STORE",
    "PARTITION",
    "Artefact",
    "divide",
    "make_artefacts",
    "open_graph",
    "open_partition",
]

GRAPH_STORE = "graph store"
PARTITION = "partition"


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
    """Make what the run needs and does not have yet: the graph store, and its partition.

    Raises:
        GraphError: one of them cannot be made, or is damaged.
        ConfigError: the graph cannot be divided as the options say.
    """
    store = config.dataset.prepare()
    graph = Artefact(name=GRAPH_STORE, path=store, content=read_meta(store).content)
    if config.partitioner.divides == "nothing":
        return (graph,)
    return graph, divide(config, Graph.open(store))


def divide(config: TrainConfig, graph: Graph) -> Artefact:
    """Make the partition of ``graph`` that a run needs, where there is none yet.

    Raises:
        GraphError: it cannot be made, or is damaged.
        ConfigError: the graph cannot be divided as the options say.
    """
    path = make_partition(
        config.partitioner,
        graph,
        num_parts=len(config.device_plan.devices),
        num_hops=config.sampler.num_layers,
        num_threads=config.num_threads,
    )
    return Artefact(name=PARTITION, path=path, content=read_partition(path, graph).content)


def open_partition(artefacts: Sequence[Artefact], graph: Graph) -> Partition | None:
    """Open the partition of ``graph`` among ``artefacts``; None where there is none.

    Raises:
        GraphError: it is damaged, or another one than when the run was launched.
    """
    found = next((each for each in artefacts if each.name == PARTITION), None)
    if found is None:
        return None
    partition = read_partition(found.path, graph)
    if partition.content != found.content:
        raise GraphError(f"{found.path}: holds another partition than when the run was launched")
    return partition


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
