from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gnnscale.cache.hotness import out_degree, slices
from gnnscale.graph import Graph, GraphError


def test_lists_that_a_vertex_is_in_are_counted(
    graph_of: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of([[1, 2, 2], [1, 3], [3, 1], []])
    for num_entries in (1, 3, 100):
        monkeypatch.setattr(slices, "_SLICE_ENTRIES", num_entries)
        found = out_degree(graph)
        assert found.dtype == np.int32
        assert found.tolist() == [0, 3, 2, 2]


@pytest.mark.parametrize("bad", [-1, 4])
def test_a_damaged_graph_is_named(graph_of: Callable[..., Graph], bad: int) -> None:
    with pytest.raises(GraphError, match=f"tiny: damaged, indices hold {bad}, allowed are 0 to 3"):
        out_degree(graph_of([[1], [bad], [], []]))
