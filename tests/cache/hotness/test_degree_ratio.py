from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gnnscale.cache.hotness import degree_ratio
from gnnscale.graph import Graph


def test_readers_over_what_is_read(graph_of: Callable[..., Graph]) -> None:
    # In three lists with two neighbours, in two with three, in two with none, in none with two.
    graph = graph_of([[1, 2], [0, 0, 1], [], [0, 2]])
    found = degree_ratio(graph)
    assert found.dtype == np.float32
    assert found.tolist() == [3 / 2, np.float32(2 / 3), 2, 0]
