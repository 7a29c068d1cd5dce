"""Who trains what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from gnnscale.sampler.seed_order import labelled_vertices

if TYPE_CHECKING:
    from gnnscale.cache.task import CacheTask

__all__ = ["train_vertices"]


def train_vertices(task: CacheTask, device: int) -> NDArray[Any]:
    """Return the training vertices of a device; those of all where it may train any of them.

    A device whose part has none helps the others (HitGNN, Algorithm 3).
    """
    train_idx = labelled_vertices(task.graph, "train")
    if task.parts is None or task.parts.owner is None:
        return train_idx
    own = task.parts.train_vertices(train_idx)[device]
    return own if len(own) else train_idx
