"""Artefacts of a run: made by the process that launches it, before any worker starts.

An interrupted preparation thus cleans up after itself, and shows its progress where the user looks.
Workers only open what was made, and check that it is still the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gnnscale.artifact.graph_store import read_meta
from gnnscale.artifact.header import digest
from gnnscale.cache import StoredPlan, read_plan
from gnnscale.core import GraphError
from gnnscale.core.shared_memory import SharedMemory
from gnnscale.feature import LearnedFeaturesConfig, MadeFeaturesConfig, SharedFeaturesConfig
from gnnscale.graph import Graph
from gnnscale.partition.make import make_partition
from gnnscale.partition.store import Partition, read_partition
from gnnscale.plan import Cuda
from gnnscale.runtime.edge_use import graph_read
from gnnscale.runtime.settings import BatchesConfig, TrainConfig
from gnnscale.runtime.vertex_features import (
    check_copies,
    check_feature_dtype,
    check_features,
    with_features,
)

if TYPE_CHECKING:
    from gnnscale.feature import FeatureStore, PreaggregatedFeatures
    from gnnscale.runtime.task.base import Task


T = TypeVar("T")

GRAPH_STORE = "graph store"
PARTITION = "partition"
LINKS = "divided edges"
CACHE_PLAN = "cache plan"
PREAGGREGATED = "preaggregated features"
#: Arrays of the graph that GPUs read in memory of the host, each filled once for all workers.
_SHARED = {name: f"{name} in shared memory" for name in ("features", "indices", "indptr")}


@dataclass(frozen=True, kw_only=True)
class Artefact:
    """A directory that workers read."""

    name: str  #: what errors call it
    path: Path  #: the directory
    content: str  #: hash of what it holds


def make_artefacts(config: TrainConfig) -> tuple[Artefact, ...]:
    """Make what the run needs and does not have yet: the graph store, and what is made of it.

    Raises:
        GraphError: one of them cannot be made, or is damaged.
        ConfigError: the graph cannot be divided, or the caches planned, as the options say; or
            rows are divided among machines, and this process launches all workers on one.
    """
    if isinstance(config.features, SharedFeaturesConfig):
        raise config.features.refused()
    store = config.dataset.prepare()
    meta = read_meta(store)
    check_feature_dtype(config, meta.feature_dtype)
    made = [Artefact(name=GRAPH_STORE, path=store, content=meta.graph_content)]
    if isinstance(config.features, LearnedFeaturesConfig):
        num_processes = len(config.device_plan.parsed())
        check_copies(config.features, meta.num_vertices, num_processes=num_processes)
    if meta.num_features and not config.needs_more_than_graph:
        return tuple(made)
    return (*made, *make_of_graph(config, Graph.open(store)))


def make_of_graph(config: TrainConfig, graph: Graph) -> tuple[Artefact, ...]:
    """Make the partition, divided edges, cache plan and rows that a run needs, if missing.

    Args:
        config: options of the run.
        graph: as its store has it.

    Raises:
        GraphError, ConfigError: as ``make_artefacts``.
    """
    check_features(config.features, graph)
    links = make_links(config, graph)
    made = [] if links is None else [links]
    divides = config.partitioner.divides != "nothing"
    if not (divides or config.has_caches or config.features.preaggregates):
        return tuple(made)  # workers make or draw their rows
    graph = open_graph(config, made, graph)
    if divides:
        made.append(divide(config, graph))
    if config.has_caches:
        made.append(_cache(config, graph, open_partition(made, graph)))
    if config.features.preaggregates:
        from gnnscale.runtime.preaggregation import open_rows, preaggregate

        rows = preaggregate(config.model, graph, num_threads=config.num_threads)
        content = open_rows(rows, graph).content
        made.append(Artefact(name=PREAGGREGATED, path=rows, content=content))
    return tuple(made)


def make_links(config: TrainConfig, graph: Graph) -> Artefact | None:
    """Divide the edges of ``graph`` if the task predicts edges; None if it does not.

    Raises:
        ConfigError, GraphError: as ``TaskConfig.make``.
    """
    path = config.task.make(graph)
    if path is None:
        return None
    content = _task_of(config, graph, path).graph.content
    assert content is not None
    return Artefact(name=LINKS, path=path, content=content)


def _cache(config: TrainConfig, graph: Graph, partition: Partition | None) -> Artefact:
    """Return the cache plan of a run: the one that is given, or the planner's."""
    # The launching process imports no torch if nothing is cached: its start would take longer.
    from gnnscale.runtime.cache.task import check_given_plan, plan_caches

    if config.cache_plan is not None:
        path = config.cache_plan
        check_given_plan(config, graph, partition, path)
    else:
        path = plan_caches(config, graph, partition)
    return Artefact(name=CACHE_PLAN, path=path, content=read_plan(path, graph).content)


def divide(config: BatchesConfig, graph: Graph) -> Artefact:
    """Make the partition of ``graph`` that a run needs, if missing; raise as ``make_artefacts``."""
    path = make_partition(
        config.partitioner,
        graph,
        num_parts=len(config.device_plan.parsed()),
        num_hops=config.sampler.num_layers,
        num_threads=config.num_threads,
    )
    return Artefact(name=PARTITION, path=path, content=read_partition(path, graph).content)


def open_partition(artefacts: Sequence[Artefact], graph: Graph) -> Partition | None:
    """Open the partition of ``graph`` among ``artefacts``; None if there is none."""
    return _reopened(artefacts, PARTITION, lambda path: read_partition(path, graph))


def open_task(
    config: TrainConfig, artefacts: Sequence[Artefact], graph: Graph, *, seed: int | None = None
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
    task = _reopened(
        artefacts,
        LINKS,
        lambda path: _task_of(config, graph, path),
        lambda task: task.graph.content,
    )
    if task is None:
        task = _task_of(config, graph, None)
    threads = config.num_threads
    found = with_features(config.features, task.graph, num_threads=threads, seed=seed)
    if config.task.divides_edges and isinstance(config.features, MadeFeaturesConfig):
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
    config: TrainConfig, artefacts: Sequence[Artefact], graph: Graph, *, seed: int | None = None
) -> Graph:
    """Return the graph of the task that ``open_task`` returns, which is not opened without need.

    A task imports torch and the user's metrics; the launching process needs neither for labels.
    """
    if config.task.divides_edges:
        return open_task(config, artefacts, graph, seed=seed).graph
    graph, threads = graph_read(config, graph), config.num_threads
    return with_features(config.features, graph, num_threads=threads, seed=seed)


def _task_of(config: TrainConfig, graph: Graph, links: Path | None) -> Task:
    """Open the task over the graph as its store has it, whose edges ``links`` divides."""
    graph = graph_read(config, graph)
    return config.task.open(graph, links, loss=config.loss, metrics=config.metrics)


def open_cache_plan(artefacts: Sequence[Artefact], graph: Graph) -> StoredPlan | None:
    """Open the cache plan for ``graph`` among ``artefacts``; None if there is none."""
    return _reopened(artefacts, CACHE_PLAN, lambda path: read_plan(path, graph))


def open_aggregated(
    artefacts: Sequence[Artefact], graph: Graph, host: FeatureStore
) -> PreaggregatedFeatures | None:
    """Open the preaggregated features of ``graph`` among ``artefacts``; None if there are none."""
    from gnnscale.feature import PreaggregatedFeatures
    from gnnscale.runtime.preaggregation import open_rows

    opened = _reopened(artefacts, PREAGGREGATED, lambda path: open_rows(path, graph))
    return None if opened is None else PreaggregatedFeatures(opened.rows, host)


def share_graph(
    config: TrainConfig, made: Sequence[Artefact]
) -> tuple[list[SharedMemory], list[Artefact]]:
    """Fill the memory in which GPUs read the graph; nothing if no device does.

    Returns:
        The memory, which workers can open as long as it is kept, and what they open it by.

    Raises:
        ConfigError: there is not as much memory.
    """
    gpus = [each for each in config.device_plan.parsed() if isinstance(each, Cuda)]
    if not gpus:
        return [], []
    graph = open_graph(config, made, open_store(made), seed=config.seed)
    sizes = {"topology": graph.topology_bytes, "features": graph.feature_bytes}
    held = [each.keeps(**sizes, kept=0, budget=each.budget_bytes) for each in gpus]
    topology, features = (all(each) for each in zip(*held, strict=True))
    names = [] if features else ["features"]
    names += [] if topology else ["indices", "indptr"]
    memory = [SharedMemory.filled(getattr(graph, name)) for name in names]
    assert graph.content is not None
    found = [
        Artefact(name=_SHARED[name], path=each.path, content=graph.content)
        for name, each in zip(names, memory, strict=True)
    ]
    return memory, found


def open_store(artefacts: Sequence[Artefact]) -> Graph:
    """Open the graph store among ``artefacts``."""
    graph = _reopened(artefacts, GRAPH_STORE, Graph.open)
    assert graph is not None
    return graph


def with_shared_arrays(graph: Graph, artefacts: Sequence[Artefact]) -> Graph:
    """Return the graph of a task with the arrays among ``artefacts`` that processes share."""
    shared: dict[str, Any] = {}
    for name, called in _SHARED.items():
        for each in artefacts:
            if each.name == called:
                array = getattr(graph, name)
                shared[name] = SharedMemory.open(each.path).array(array.shape, array.dtype)
    return replace(graph, **shared)


def _reopened(
    artefacts: Sequence[Artefact],
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
