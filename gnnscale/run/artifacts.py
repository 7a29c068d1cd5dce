"""Artifacts of a run as its processes open them: checked to be those it was launched with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gnnscale.cache import StoredPlan, read_plan
from gnnscale.core import GraphError
from gnnscale.core.artifact.header import digest
from gnnscale.core.shared_memory import SharedMemory
from gnnscale.features import StructuralFeaturesConfig
from gnnscale.graph import Graph
from gnnscale.partition.store import Partition, read_partition
from gnnscale.run.config import RunConfig
from gnnscale.run.inputs import graph_read, with_features

if TYPE_CHECKING:
    from gnnscale.run.tasks.base import Task

T = TypeVar("T")

GRAPH_STORE = "graph store"

PARTITION = "partition"

LINKS = "divided edges"

CACHE_PLAN = "cache plan"

PREAGGREGATED = "preaggregated features"

#: Arrays of the graph that GPUs read in memory of the host, each filled once for all workers.
SHARED_ARRAYS = {name: f"{name} in shared memory" for name in ("features", "indices", "indptr")}


@dataclass(frozen=True, kw_only=True)
class RunArtifact:
    """A directory that workers read."""

    name: str  #: what errors call it
    path: Path  #: the directory
    content: str  #: hash of what it holds


def make_links(config: RunConfig, graph: Graph) -> RunArtifact | None:
    """Divide the edges of ``graph`` if the task predicts edges; None if it does not.

    Raises:
        ConfigError, GraphError: as ``TaskConfig.make``.
    """
    path = config.task.make(graph)
    if path is None:
        return None
    content = _task_of(config, graph, path).graph.content
    assert content is not None
    return RunArtifact(name=LINKS, path=path, content=content)


def open_partition(artefacts: Sequence[RunArtifact], graph: Graph) -> Partition | None:
    """Open the partition of ``graph`` among ``artefacts``; None if there is none."""
    return reopen_artifact(artefacts, PARTITION, lambda path: read_partition(path, graph))


def open_task(
    config: RunConfig, artefacts: Sequence[RunArtifact], graph: Graph, *, seed: int | None = None
) -> Task:
    """Open the task of a run, over the graph with the feature rows that the model reads.

    Rows that follow from the structure are made of the task's graph, which lacks the edges that
    ``task=links`` holds out: the model sees none of the edges that it is tested on.

    Args:
        config: options of the run.
        artefacts: of the run, the divided edges of ``task=links`` among them.
        graph: as its store has it.
        seed: of the run, which the first learned rows are drawn by; None leaves them 0.

    Raises:
        GraphError, ConfigError: as ``TaskConfig.open`` and ``with_features``.
    """
    task = reopen_artifact(
        artefacts,
        LINKS,
        lambda path: _task_of(config, graph, path),
        lambda task: task.graph.content,
    )
    if task is None:
        task = _task_of(config, graph, None)
    threads = config.num_threads
    found = with_features(config.features, task.graph, num_threads=threads, seed=seed)
    if config.task.divides_edges and isinstance(config.features, StructuralFeaturesConfig):
        found = _with_other_hash(found)
    return task.over(found)


def _with_other_hash(graph: Graph) -> Graph:
    """Return a graph of training edges, and rows made of them, with another hash.

    Weights that an earlier release trained with rows of all edges, held-out ones too, have the hash
    of the graph alone, and are refused.
    """
    content = digest({"graph": graph.content, "rows": "made of training edges"})
    return replace(graph, origin=replace(graph.origin, content=content))


def open_graph(
    config: RunConfig, artefacts: Sequence[RunArtifact], graph: Graph, *, seed: int | None = None
) -> Graph:
    """Return the graph of the task that ``open_task`` returns, which is not opened without need.

    A task imports torch and the user's metrics; the launching process needs neither for labels.
    """
    if config.task.divides_edges:
        return open_task(config, artefacts, graph, seed=seed).graph
    graph, threads = graph_read(config, graph), config.num_threads
    return with_features(config.features, graph, num_threads=threads, seed=seed)


def _task_of(config: RunConfig, graph: Graph, links: Path | None) -> Task:
    """Open the task over the graph as its store has it, whose edges ``links`` divides."""
    graph = graph_read(config, graph)
    return config.task.open(graph, links, loss=config.loss, metrics=config.metrics)


def open_cache_plan(artefacts: Sequence[RunArtifact], graph: Graph) -> StoredPlan | None:
    """Open the cache plan for ``graph`` among ``artefacts``; None if there is none."""
    return reopen_artifact(artefacts, CACHE_PLAN, lambda path: read_plan(path, graph))


def open_store(artefacts: Sequence[RunArtifact]) -> Graph:
    """Open the graph store among ``artefacts``."""
    graph = reopen_artifact(artefacts, GRAPH_STORE, Graph.open)
    assert graph is not None
    return graph


def with_shared_arrays(graph: Graph, artefacts: Sequence[RunArtifact]) -> Graph:
    """Return the graph of a task with the arrays among ``artefacts`` that processes share."""
    shared: dict[str, Any] = {}
    for name, called in SHARED_ARRAYS.items():
        for each in artefacts:
            if each.name == called:
                array = getattr(graph, name)
                shared[name] = SharedMemory.open(each.path).array(array.shape, array.dtype)
    return replace(graph, **shared)


def reopen_artifact(
    artefacts: Sequence[RunArtifact],
    name: str,
    opened: Callable[[Path], T],
    content: Callable[[T], str | None] = attrgetter("content"),
) -> T | None:
    """Open the artefact ``name``; None if there is none.

    Raises:
        GraphError: it is damaged, or another one than when the run was launched.
    """
    found = next((each for each in artefacts if each.name == name), None)
    if found is None:
        return None
    artefact = opened(found.path)
    if content(artefact) != found.content:
        raise GraphError(f"{found.path}: the {name} in it changed since the run was launched")
    return artefact
