"""Visits with times: repeated ones of a habit, or random ones; homogeneous and by type."""

import numpy as np

from gnnscale import Graph, from_arrays
from gnnscale.data.typed_arrays import from_typed_arrays

USERS, PLACES = 40, 40


def timed_visits(
    *, habits: bool = True, by_type: bool = False, timed: bool = True, count: int = 1600
) -> Graph:
    """Return visits of users to places at the times 0, 1, ..., and their reverses.

    With ``habits``, a user has three places; else visits are random, none repeats another. The
    features of a vertex name it.
    """
    generator = np.random.default_rng(0)
    users = generator.integers(0, USERS, count)
    of_user = generator.integers(0, PLACES, (USERS, 3))
    places = of_user[users, generator.integers(0, 3, count)]
    if not habits:
        users, places = divmod(generator.permutation(USERS * PLACES)[:count], PLACES)
    times = np.arange(count) // 2
    if by_type:
        visits, visited = ("user", "visits", "place"), ("place", "visited_by", "user")
        return from_typed_arrays(
            {
                "user": np.eye(USERS, dtype=np.float32),
                "place": np.eye(PLACES, dtype=np.float32),
            },
            {visits: (users, places), visited: (places, users)},
            edge_times={visits: times, visited: times} if timed else None,
            time_unit="step",
            name="visits",
        )
    src = np.concatenate([users, places + USERS])
    dst = np.concatenate([places + USERS, users])
    return from_arrays(
        (src, dst),
        np.eye(USERS + PLACES, dtype=np.float32),
        edge_times=np.tile(times, 2) if timed else None,
        time_unit="step",
        name="visits",
    )
