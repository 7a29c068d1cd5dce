from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gnnscale.cache import CacheTask
from gnnscale.cache.hotness.training import train_vertices
from gnnscale.graph import Graph
from gnnscale.partition import Parts


def test_devices_train_the_vertices_of_their_parts(
    random_graph: Callable[..., Graph], make_task: Callable[..., CacheTask]
) -> None:
    graph = replace(random_graph(), train_idx=np.arange(0, 300, 3))
    parts = Parts(num_parts=2, owner=(np.arange(300) >= 100).astype(np.int16))
    task = make_task(graph, [0, 0], parts=parts)
    assert np.array_equal(train_vertices(task, 0), np.arange(0, 100, 3))
    assert np.array_equal(train_vertices(task, 1), np.arange(102, 300, 3))
    everywhere = Parts(num_parts=2, owner=None)
    for others in (None, everywhere):
        found = train_vertices(replace(task, parts=others), 1)
        assert np.array_equal(found, graph.train_idx)
