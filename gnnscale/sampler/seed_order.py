"""Which vertices a training run predicts in which step."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.graph import Graph, GraphError

__all__ = ["labelled", "num_batches", "seed_batches"]

log = logging.getLogger(__name__)


def labelled(graph: Graph, split: str) -> NDArray[np.integer[Any]]:
    """Return the vertices of ``split`` (train, valid, test) whose label is known.

    Raises:
        GraphError: there is none.
    """
    vertices: NDArray[np.integer[Any]] = getattr(graph, f"{split}_idx")
    if graph.multilabel:
        return vertices
    known: NDArray[np.integer[Any]] = vertices[graph.labels[vertices] >= 0]
    if not len(known):
        raise GraphError(f"{graph.name}: none of the {len(vertices)} {split} vertices has a label")
    if len(known) < len(vertices):
        left_out = len(vertices) - len(known)
        log.info(
            f"{graph.name}: {left_out} of {len(vertices)} {split} vertices have no label "
            "and are left out"
        )
    return known


def num_batches(num_vertices: int, batch_size: int) -> int:
    """Return how many mini-batches an epoch has; the last may be smaller."""
    return -(-num_vertices // batch_size)


def seed_batches(
    vertices: NDArray[np.integer[Any]], batch_size: int, *, seed: int, epoch: int
) -> Iterator[NDArray[np.integer[Any]]]:
    """Yield the mini-batches of ``epoch``: slices of a permutation fixed by ``(seed, epoch)``.

    Args:
        vertices: ``[n]`` training vertices.
        batch_size: seeds of a mini-batch, over all devices.
        seed: the run's seed.
        epoch: counted from 0.
    """
    order = np.random.Generator(np.random.Philox(key=[seed, epoch])).permutation(vertices)
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]
