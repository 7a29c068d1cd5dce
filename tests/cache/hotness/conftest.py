from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gnnscale.graph import Graph


@pytest.fixture
def graph_of(tiny_graph: Graph) -> Callable[..., Graph]:
    """Make the graph in which ``lists`` are the in-neighbours of each vertex."""

    def make(lists: list[list[int]], dtype: Any = np.int32) -> Graph:
        indices = np.array([u for each in lists for u in each], dtype)
        return replace(tiny_graph, indptr=np.cumsum([0, *map(len, lists)]), indices=indices)

    return make
