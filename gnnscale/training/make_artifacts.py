"""Artifacts of a run, made by the launching process in sight of the user, before workers."""

from collections.abc import Sequence

from gnnscale.cache import read_plan
from gnnscale.core.shared_memory import SharedMemory
from gnnscale.features import LearnedFeaturesConfig, SharedFeaturesConfig
from gnnscale.graph import Graph, read_meta
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
from gnnscale.run.batch_config import BatchConfig
from gnnscale.run.config import RunConfig, check_types
from gnnscale.run.inputs import check_copies, check_feature_dtype, check_features


def make_artifacts(config: RunConfig) -> tuple[RunArtifact, ...]:
    """Return the graph store of a run and the artifacts derived from it, made if missing.

    GraphError if an artifact cannot be made, or is damaged. ConfigError if the graph cannot be
    partitioned or the caches planned, or if ``features=shared``, which needs torchrun.
    """
    if isinstance(config.features, SharedFeaturesConfig):
        raise config.features.refused()
    store = config.dataset.prepare()
    meta = read_meta(store)
    check_feature_dtype(config.task_inputs, config.partitioner, meta.feature_dtype)
    types = () if meta.types is None else meta.types.vertices
    check_types(config, meta.name, [vertices.name for vertices in types])
    artifacts = [RunArtifact(name=GRAPH_STORE, path=store, content=meta.graph_content)]
    if isinstance(config.features, LearnedFeaturesConfig):
        num_processes = len(config.device_plan.parsed())
        check_copies(config.features, meta.num_vertices, num_processes=num_processes)
    if (meta.num_features or types) and not config.needs_more_than_graph:
        return tuple(artifacts)
    return (*artifacts, *make_graph_artifacts(config, Graph.open(store)))


def make_graph_artifacts(config: RunConfig, graph: Graph) -> tuple[RunArtifact, ...]:
    """Return the edge split, partition, cache plan and aggregated rows that a run uses.

    Those that are missing are made.
    """
    check_features(config.features, graph)
    links = make_links(config.task_inputs, graph)
    artifacts = [] if links is None else [links]
    divides = config.partitioner.divides != "nothing"
    if not (divides or config.has_caches or config.features.preaggregates):
        return tuple(artifacts)
    graph = open_graph(config.task_inputs, artifacts, graph)
    if divides:
        artifacts.append(divide(config, graph))
    if config.has_caches:
        artifacts.append(_cache_artifact(config, graph, open_partition(artifacts, graph)))
    if config.features.preaggregates:
        from gnnscale.training.preaggregation import open_rows, preaggregate

        rows = preaggregate(config.model, graph, num_threads=config.num_threads)
        content = open_rows(rows, graph).content
        artifacts.append(RunArtifact(name=PREAGGREGATED, path=rows, content=content))
    return tuple(artifacts)


def _cache_artifact(config: RunConfig, graph: Graph, partition: Partition | None) -> RunArtifact:
    """Return the cache plan of a run: the file of ``cache_plan``, or the planner's result."""
    # Imported late: it imports torch, which slows the start of runs without caches.
    from gnnscale.training.build.cache_problem import check_cache_plan, plan_caches

    if config.cache_plan is not None:
        path = config.cache_plan
        check_cache_plan(config.device_plan.parsed(), graph, partition, path)
    else:
        path = plan_caches(config, graph, partition)
    return RunArtifact(name=CACHE_PLAN, path=path, content=read_plan(path, graph).content)


def divide(config: BatchConfig, graph: Graph) -> RunArtifact:
    """Return the partition of ``graph`` for a run's devices, made if missing."""
    path = make_partition(
        config.partitioner,
        graph,
        num_parts=len(config.device_plan.parsed()),
        num_hops=config.sampler.num_layers,
        num_threads=config.num_threads,
    )
    return RunArtifact(name=PARTITION, path=path, content=read_partition(path, graph).content)


def share_graph(
    config: RunConfig, artifacts: Sequence[RunArtifact]
) -> tuple[list[SharedMemory], list[RunArtifact]]:
    """Copy the arrays that GPUs read from the host into shared memory, or raise ConfigError.

    The result is the shared memory, which workers can open while these objects exist, and artifacts
    that name it. Both are empty without GPUs, or if all GPUs hold the graph in their memory.
    """
    gpus = [device for device in config.device_plan.parsed() if isinstance(device, Cuda)]
    if not gpus:
        return [], []
    graph = open_graph(config.task_inputs, artifacts, open_store(artifacts), seed=config.seed)
    sizes = {"topology": graph.topology_bytes, "features": graph.feature_bytes}
    resident = [gpu.stores(**sizes, reserved=0) for gpu in gpus]
    topology, features = (all(flags) for flags in zip(*resident, strict=True))
    names = [] if features else ["features"]
    names += [] if topology else ["indices", "indptr"]
    memory = [SharedMemory.filled(getattr(graph, name)) for name in names]
    assert graph.content is not None
    shared = [
        RunArtifact(name=SHARED_ARRAYS[name], path=array.path, content=graph.content)
        for name, array in zip(names, memory, strict=True)
    ]
    return memory, shared
