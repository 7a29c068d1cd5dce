"""Adjacency lists that exceed memory: chosen, sized and opened for one worker."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from gnnscale.cache.hotness.degree import inclusion
from gnnscale.core import ConfigError, progress, read_memory
from gnnscale.core.artifact.files import size
from gnnscale.distributed.process_group import Group
from gnnscale.features.disk_bandwidth import max_read_gap
from gnnscale.features.disk_topology import (
    ResidentAdjacency,
    choose_resident_lists,
    indices_file,
    open_lists,
)
from gnnscale.graph import Graph
from gnnscale.run.config import RunConfig, lists_problem
from gnnscale.sampling import NeighborSampling
from gnnscale.training.build.tiered_features import RESERVE

log = logging.getLogger(__name__)

#: Default fraction of free memory for adjacency lists; feature rows and mini-batches use the rest.
_LISTS_FRACTION = 0.5


def open_topology(config: RunConfig, graph: Graph, group: Group) -> Graph:
    """Return ``graph`` for sampling: unchanged, or with adjacency lists on disk.

    Lists are read from disk in two cases: ``sampler.memory_bytes`` is set, or the topology exceeds
    the memory and the run is not deterministic. Every worker calls this at the same time.

    Raises:
        ConfigError: the lists are in no file.
        OSError: the file of the lists cannot be read.
    """
    sampler = config.sampler
    memory_bytes = sampler.memory_bytes if isinstance(sampler, NeighborSampling) else None
    chosen = memory_bytes is None and reads_from_disk(config, graph)
    # Free memory differs between workers, but all must make the same choice.
    if memory_bytes is None and not group.largest([int(chosen)])[0]:
        return graph
    memory = lists_memory(graph) if memory_bytes is None else memory_bytes
    resident = _plan(config, graph, group, memory // group.local_size)
    if group.is_rank0:
        log.info(_describe(graph, resident))
    gap = max_read_gap(indices_file(graph))
    return replace(graph, lists=open_lists(graph, resident.vertices, max_gap_bytes=gap))


def reads_from_disk(config: RunConfig, graph: Graph) -> bool:
    """Whether the topology exceeds the memory, and options allow it to stay on disk.

    Free memory decides nothing in a deterministic run.
    """
    if config.runtime.deterministic or not isinstance(graph.indices, np.memmap):
        return False
    if not isinstance(config.sampler, NeighborSampling) or lists_problem(config) is not None:
        return False
    memory = read_memory()
    return graph.topology_bytes > memory.available - RESERVE * memory.total


def lists_memory(graph: Graph) -> int:
    """Return the bytes that adjacency lists may take, over all workers of this machine."""
    memory = read_memory()
    free = memory.available - graph.indptr.nbytes - RESERVE * memory.total
    return max(int(_LISTS_FRACTION * free), 0)


def _plan(config: RunConfig, graph: Graph, group: Group, memory_bytes: int) -> ResidentAdjacency:
    assert isinstance(config.sampler, NeighborSampling)
    if memory_bytes == 0:
        return ResidentAdjacency(
            vertices=np.zeros(0, graph.indices.dtype), part=0.0, expected_hits=0.0
        )
    # Tasks on edges sample around any vertex.
    seeds = np.arange(graph.num_vertices) if config.task.compares_rows else graph.train_idx
    if not len(seeds):
        raise ConfigError(
            f"sampler.memory_bytes: {graph.path or graph.name} has no training vertices"
        )
    with progress.track(f"choosing the adjacency lists of {graph.name} that stay in memory"):
        expected = inclusion(
            graph,
            seeds,
            config.sampler.fanouts,
            batch_size=config.batch_size / group.size,
            replace=config.sampler.replace,
            num_threads=config.num_threads,
        )
        return choose_resident_lists(graph, expected.lists, memory_bytes=memory_bytes)


def _describe(graph: Graph, resident: ResidentAdjacency) -> str:
    return (
        f"sampler: memory holds {resident.part:.0%} of {size(graph.indices.nbytes)} of adjacency "
        f"lists, with an expected hit rate of {resident.expected_hits:.0%}; other lists are read "
        f"from disk, and {size(graph.indptr.nbytes)} of offsets stay in memory"
    )
