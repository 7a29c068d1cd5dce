"""GNNLab's and Legion's measure of hotness: what mini-batches drawn ahead read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.config import MAX_COUNT
from gnnscale.sampler import MiniBatch

__all__ = ["Presampled", "presample"]


@dataclass(frozen=True, kw_only=True)
class Presampled:
    """What each device reads in mini-batches drawn ahead (Legion, section 4.2 S1, figure 6).

    Attributes:
        feature_hotness: H_F, of each device ``[num_vertices]`` int32: the batches of which a vertex
            is an input. Counts end at 2^31 - 1.
        topology_hotness: H_T, of each device ``[num_vertices]`` int32: the edges traversed from a
            vertex to its in-neighbours, at every hop that expands it. Counts end at 2^31 - 1.
        traversed_edges: of each device, the edges traversed in all. Their sum over a clique is
            N_TSUM: where no list is cached, each is a read over the link.
    """

    feature_hotness: tuple[NDArray[np.int32], ...]
    topology_hotness: tuple[NDArray[np.int32], ...]
    traversed_edges: tuple[int, ...]


def presample(
    draws: Iterable[tuple[int, MiniBatch]], *, num_devices: int, num_vertices: int
) -> Presampled:
    """Count what mini-batches read.

    Args:
        draws: the number of a device, from 0, and a mini-batch of its.
        num_devices: number of devices; one without a batch reads nothing.
        num_vertices: of the graph.

    Returns:
        The counts, 8 bytes a vertex and device.
    """
    features = tuple(np.zeros(num_vertices, np.int32) for _ in range(num_devices))
    topology = tuple(np.zeros(num_vertices, np.int32) for _ in range(num_devices))
    traversed = [0] * num_devices
    for device, batch in draws:
        _count(batch, features[device], topology[device])
        traversed[device] += batch.num_edges
    return Presampled(
        feature_hotness=features, topology_hotness=topology, traversed_edges=tuple(traversed)
    )


def _count(batch: MiniBatch, features: NDArray[np.int32], topology: NDArray[np.int32]) -> None:
    """Add what one mini-batch reads."""
    _add(features, batch.input_vertices, 1)
    for block in batch.blocks:
        # Every layer's vertices are a prefix of the inputs.
        _add(topology, batch.input_vertices[: block.num_dst], np.diff(block.indptr))


def _add(
    counts: NDArray[np.int32],
    vertices: NDArray[np.integer[Any]],
    amounts: NDArray[np.int64] | int,
) -> None:
    """Add to the counts of distinct vertices."""
    counts[vertices] = np.minimum(counts[vertices].astype(np.int64) + amounts, MAX_COUNT)
