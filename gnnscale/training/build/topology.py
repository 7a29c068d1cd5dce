"""Adjacency lists that exceed memory: chosen, sized and opened for one worker."""

import logging
from dataclasses import replace

import numpy as np

from gnnscale.cache.hotness.degree import inclusion
from gnnscale.core import Array, ConfigError, IntArray, progress, read_memory
from gnnscale.core.artifact.files import size
from gnnscale.core.sorted_sets import distinct
from gnnscale.distributed.process_group import Group
from gnnscale.features import disk
from gnnscale.graph import Graph
from gnnscale.sampling import NeighborSampling, SamplerConfig
from gnnscale.sampling.typed import fanouts_by_type
from gnnscale.training.build.tiered_features import RESERVE

log = logging.getLogger(__name__)

#: Default fraction of free memory for adjacency lists; feature rows and mini-batches use the rest.
_LISTS_FRACTION = 0.5


def open_topology(
    graph: Graph,
    group: Group,
    sampler: SamplerConfig,
    *,
    batch_size: int,
    num_threads: int,
    samples_any: bool,
    may_choose: bool,
) -> Graph:
    """Return ``graph``, or a copy that reads adjacency lists from disk.

    The copy keeps the lists that are read most in memory. Neighbor sampling reads lists from disk
    if its ``memory_bytes`` is set, or if the topology exceeds the memory and ``may_choose`` allows
    it. Every worker calls this at the same time. ``samples_any``: any vertex may be a seed, and not
    only training vertices.
    """
    if not isinstance(sampler, NeighborSampling):
        return graph
    memory_bytes = sampler.memory_bytes
    chosen = memory_bytes is None and may_choose and exceeds_memory(graph)
    # Free memory differs between workers, but all must make the same choice.
    if memory_bytes is None and not group.largest([int(chosen)])[0]:
        return graph
    memory = lists_memory(graph) if memory_bytes is None else memory_bytes
    memory //= group.local_size
    if memory:
        seeds = np.arange(graph.num_vertices) if samples_any else _training_vertices(graph)
        size_of_batch = batch_size / group.size
        resident = _resident_lists(
            graph, sampler, seeds, size_of_batch, memory, num_threads=num_threads
        )
    else:
        no_lists = np.zeros(0, graph.indices.dtype)
        resident = disk.ResidentAdjacency(rows=no_lists, part=0.0, expected_hits=0.0)
    if group.is_rank0:
        log.info(_describe(graph, resident))
    gap = disk.max_read_gap(disk.indices_file(graph))
    return replace(graph, lists=disk.open_lists(graph, resident.rows, max_gap_bytes=gap))


def _training_vertices(graph: Graph) -> IntArray:
    """Return the vertices that training starts from, those of task rows once."""
    rows = graph.rows
    return graph.train_idx if rows is None else distinct(rows.vertices[rows.split.train_idx])


def exceeds_memory(graph: Graph) -> bool:
    """Whether the topology is mapped from disk, and exceeds available memory minus a reserve."""
    if not isinstance(graph.indices, np.memmap):
        return False
    memory = read_memory()
    return graph.topology_bytes > memory.available - RESERVE * memory.total


def lists_memory(graph: Graph) -> int:
    """Return half the free memory, in bytes: the part for this machine's adjacency lists."""
    memory = read_memory()
    free = memory.available - graph.indptr.nbytes - RESERVE * memory.total
    return max(int(_LISTS_FRACTION * free), 0)


def _resident_lists(
    graph: Graph,
    sampler: NeighborSampling,
    seeds: Array,
    batch_size: float,
    memory_bytes: int,
    *,
    num_threads: int,
) -> disk.ResidentAdjacency:
    """Choose adjacency lists to keep in memory: those read most, sampling from ``seeds``."""
    if not len(seeds):
        raise ConfigError(
            f"sampler.memory_bytes: {graph.path or graph.name} has no training vertices"
        )
    with progress.track(f"choosing the adjacency lists of {graph.name} that stay in memory"):
        expected = inclusion(
            graph,
            seeds,
            fanouts_by_type(graph.schema, sampler.fanouts_for(graph)),
            batch_size=batch_size,
            replace=sampler.replace,
            num_threads=num_threads,
        )
        return disk.choose_resident_lists(graph, expected.lists, memory_bytes=memory_bytes)


def _describe(graph: Graph, resident: disk.ResidentAdjacency) -> str:
    return (
        f"sampler: memory holds {resident.part:.0%} of {size(graph.indices.nbytes)} of adjacency "
        f"lists, with an expected hit rate of {resident.expected_hits:.0%}; other lists are read "
        f"from disk, and {size(graph.indptr.nbytes)} of offsets stay in memory"
    )
