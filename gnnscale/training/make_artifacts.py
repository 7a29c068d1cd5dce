"""Artefacts of a run: made by the process that launches it, before any worker starts.

An interrupted preparation thus cleans up after itself, and shows its progress where the user looks.
Workers only open what was made, and check that it is still the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnnscale.cache import read_plan
from gnnscale.core.shared_memory import SharedMemory
from gnnscale.features import LearnedFeaturesConfig, SharedFeaturesConfig
from gnnscale.graph import Graph
from gnnscale.graph.store_format import read_meta
from gnnscale.partition.build import make_partition
from gnnscale.partition.store import Partition, read_partition
from gnnscale.planner import Cuda
from gnnscale.run.artifacts import (
    CACHE_PLAN,
    GRAPH_STORE,
    PARTITION,
    PREAGGREGATED,
    SHARED_ARRAYS,
    RunArtifact,
    make_links,
    open_graph,
    open_partition,
    open_store,
)
from gnnscale.run.config import BatchConfig, RunConfig
from gnnscale.run.inputs import (
    check_copies,
    check_feature_dtype,
    check_features,
)

if TYPE_CHECKING:
    pass


def make_artifacts(config: RunConfig) -> tuple[RunArtifact, ...]:
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
    made = [RunArtifact(name=GRAPH_STORE, path=store, content=meta.graph_content)]
    if isinstance(config.features, LearnedFeaturesConfig):
        num_processes = len(config.device_plan.parsed())
        check_copies(config.features, meta.num_vertices, num_processes=num_processes)
    if meta.num_features and not config.needs_more_than_graph:
        return tuple(made)
    return (*made, *make_of_graph(config, Graph.open(store)))


def make_of_graph(config: RunConfig, graph: Graph) -> tuple[RunArtifact, ...]:
    """Make the partition, divided edges, cache plan and rows that a run needs, if missing.

    Args:
        config: options of the run.
        graph: as its store has it.

    Raises:
        GraphError, ConfigError: as ``make_artifacts``.
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
        from gnnscale.training.preaggregation import open_rows, preaggregate

        rows = preaggregate(config.model, graph, num_threads=config.num_threads)
        content = open_rows(rows, graph).content
        made.append(RunArtifact(name=PREAGGREGATED, path=rows, content=content))
    return tuple(made)


def _cache(config: RunConfig, graph: Graph, partition: Partition | None) -> RunArtifact:
    """Return the cache plan of a run: the one that is given, or the planner's."""
    # The launching process imports no torch if nothing is cached: its start would take longer.
    from gnnscale.training.build.cache_problem import check_given_plan, plan_caches

    if config.cache_plan is not None:
        path = config.cache_plan
        check_given_plan(config, graph, partition, path)
    else:
        path = plan_caches(config, graph, partition)
    return RunArtifact(name=CACHE_PLAN, path=path, content=read_plan(path, graph).content)


def divide(config: BatchConfig, graph: Graph) -> RunArtifact:
    """Make the partition of ``graph`` that a run needs, if missing; raise as ``make_artifacts``."""
    path = make_partition(
        config.partitioner,
        graph,
        num_parts=len(config.device_plan.parsed()),
        num_hops=config.sampler.num_layers,
        num_threads=config.num_threads,
    )
    return RunArtifact(name=PARTITION, path=path, content=read_partition(path, graph).content)


def share_graph(
    config: RunConfig, made: Sequence[RunArtifact]
) -> tuple[list[SharedMemory], list[RunArtifact]]:
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
        RunArtifact(name=SHARED_ARRAYS[name], path=each.path, content=graph.content)
        for name, each in zip(names, memory, strict=True)
    ]
    return memory, found
