"""Neighbour lists that exceed memory: chosen, sized and opened for one worker."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from gnnscale.cache.hotness.inclusion import inclusion
from gnnscale.core import ConfigError, find_memory, progress
from gnnscale.core.artifact.files import size
from gnnscale.distributed.process_group import Group
from gnnscale.features.disk_bandwidth import gap_of
from gnnscale.features.disk_topology import (
    ResidentAdjacency,
    hottest_lists,
    indices_file,
    open_lists,
)
from gnnscale.graph import Graph
from gnnscale.run.config import RunConfig, lists_problem
from gnnscale.sampling import NeighborSampling
from gnnscale.training.build.tiered_features import RESERVE

log = logging.getLogger(__name__)

#: The part of the memory that is left which lists take, if nothing else is asked for. Feature rows
#: and mini-batches have the other one.
_LISTS_PART = 0.5


def topology_read(config: RunConfig, graph: Graph, group: Group) -> Graph:
    """Return ``graph`` as samplers read it: with neighbour lists on the disk, or as it is.

    Lists stay on the disk if ``sampler.memory_bytes`` says what memory has of them, or if the
    topology exceeds the memory and the run need not repeat. Every worker calls this at once.

    Raises:
        ConfigError: lists are in no file.
        OSError: their file cannot be read.
    """
    sampler = config.sampler
    asked = sampler.memory_bytes if isinstance(sampler, NeighborSampling) else None
    chosen = asked is None and exceeds_memory(config, graph)
    # What is available differs between workers; they all do the same.
    if asked is None and not group.largest([int(chosen)])[0]:
        return graph
    memory = lists_memory(graph) if asked is None else asked
    held = _plan(config, graph, group, memory // group.local_size)
    if group.is_rank0:
        log.info(_describe(graph, held))
    gap = gap_of(indices_file(graph))
    return replace(graph, lists=open_lists(graph, held.vertices, max_gap_bytes=gap))


def exceeds_memory(config: RunConfig, graph: Graph) -> bool:
    """Whether the topology does not fit into memory, and this run can leave it on the disk.

    Memory decides nothing in a run that is to repeat.
    """
    if config.runtime.deterministic or not isinstance(graph.indices, np.memmap):
        return False
    if not isinstance(config.sampler, NeighborSampling) or lists_problem(config) is not None:
        return False
    memory = find_memory()
    return graph.topology_bytes > memory.available - RESERVE * memory.total


def lists_memory(graph: Graph) -> int:
    """Return the memory that lists may take, over all workers of this machine."""
    memory = find_memory()
    left = memory.available - graph.indptr.nbytes - RESERVE * memory.total
    return max(int(_LISTS_PART * left), 0)


def _plan(config: RunConfig, graph: Graph, group: Group, memory_bytes: int) -> ResidentAdjacency:
    assert isinstance(config.sampler, NeighborSampling)
    if memory_bytes == 0:
        return ResidentAdjacency(
            vertices=np.zeros(0, graph.indices.dtype), part=0.0, expected_hits=0.0
        )
    # Edges that are predicted have ends anywhere.
    seeds = np.arange(graph.num_vertices) if config.task.compares_rows else graph.train_idx
    if not len(seeds):
        raise ConfigError(
            f"sampler.memory_bytes: {graph.path or graph.name} has no vertices to train on"
        )
    with progress.track(f"choosing the neighbour lists of {graph.name} that memory holds"):
        expected = inclusion(
            graph,
            seeds,
            config.sampler.fanouts,
            batch_size=config.batch_size / group.size,
            replace=config.sampler.replace,
            num_threads=config.num_threads,
        )
        return hottest_lists(graph, expected.lists, memory_bytes=memory_bytes)


def _describe(graph: Graph, held: ResidentAdjacency) -> str:
    return (
        f"sampler: memory holds {held.part:.0%} of {size(graph.indices.nbytes)} of neighbour "
        f"lists, which are expected to answer {held.expected_hits:.0%} of reads; the disk has the "
        f"others, and {size(graph.indptr.nbytes)} of offsets stay in memory"
    )
