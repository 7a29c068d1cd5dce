"""Ratings with times, homogeneous and by type, whose labels the past or the future tells."""

from typing import Any

import numpy as np

from gnnscale import Graph, from_arrays
from gnnscale.data.typed_arrays import from_typed_arrays

SIZE, LENGTH = 60, 1500


def parts_by_time(times: Any, valid: int, test: int) -> tuple[Any, Any, Any]:
    return (
        np.flatnonzero(times < valid),
        np.flatnonzero((times >= valid) & (times < test)),
        np.flatnonzero(times >= test),
    )


def timed_ratings(*, timed: bool = True, later: int = 0) -> Graph:
    """Return edges of 60 vertices at the times 0, 1, ... whose sign is mostly their target's.

    A target's sign is drawn, and told only by the signs of its earlier edges, the feature of each.
    ``later`` more edges follow, whose signs are the opposite.
    """
    generator = np.random.default_rng(0)
    src = generator.integers(0, SIZE, LENGTH)
    dst = (src + generator.integers(1, SIZE, LENGTH)) % SIZE
    of_target = generator.integers(0, 2, SIZE)
    labels = np.where(generator.random(LENGTH) < 0.95, of_target[dst], 1 - of_target[dst])
    if later:
        src, dst = (np.concatenate([ends, ends[:later]]) for ends in (src, dst))
        labels = np.concatenate([labels, 1 - labels[:later]])
    times = np.arange(LENGTH + later)
    return from_arrays(
        (src, dst),
        np.ones((SIZE, 1), np.float32),
        edge_features=np.eye(2, dtype=np.float32)[labels],
        edge_labels=labels,
        edge_split=parts_by_time(times, 900, 1200),
        edge_times=times if timed else None,
        time_unit="step",
        name="ratings",
    )


def future_ratings(*, by_type: bool = False, num_edges: int = 300) -> Graph:
    """Return edges whose labels, drawn at random, only later edges to the same target tell."""
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 2, num_edges)
    numbers = np.arange(num_edges)
    # Sources: 20 that show a class by their features. Targets: one for each labeled edge.
    before = generator.integers(0, 20, num_edges)
    after = 2 * generator.integers(0, 10, 3 * num_edges) + np.tile(labels, 3)
    src = np.concatenate([before, after])
    dst = np.tile(numbers, 4)
    times = np.concatenate([numbers, np.tile(numbers, 3) + num_edges])
    features = generator.standard_normal((20, 4)).astype(np.float32)
    features[np.arange(20), np.arange(20) % 2] += 3
    known = np.concatenate([labels, np.full(3 * num_edges, -1)])
    split = parts_by_time(numbers, 150, 225)
    if by_type:
        rates, rated = ("user", "rates", "item"), ("item", "rated_by", "user")
        return from_typed_arrays(
            {"user": features, "item": np.ones((num_edges, 1), np.float32)},
            {rates: (src, dst), rated: (dst, src)},
            edge_times={rates: times, rated: times},
            edge_labels=(rates, known),
            edge_split=split,
            time_unit="step",
            name="future",
        )
    rows = np.concatenate([features, np.zeros((num_edges, 4), np.float32)])
    return from_arrays(
        (src, dst + 20),
        rows,
        edge_labels=known,
        edge_split=split,
        edge_times=times,
        time_unit="step",
        name="future",
    )
