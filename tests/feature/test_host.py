from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnscale.feature import HostFeatures, check_store
from gnnscale.graph import Graph, GraphError
from gnnscale.stages import Access, Traffic


def test_sizes_and_rows_by_hand(tiny_graph: Graph) -> None:
    store = HostFeatures.of(tiny_graph)
    assert (store.num_rows, store.width, store.row_bytes) == (5, 2, 8)
    rows, traffic = store.gather(np.array([3, 0, 3]), dtype=torch.float32, num_threads=1)
    assert rows.tolist() == [[3, 30], [0, 0], [3, 30]]
    # Without a cache there is neither a hit nor a miss.
    assert traffic == Traffic(rows=Access(host_bytes=3 * 8))
    assert traffic.rows.hit_rate is None


def test_some_columns_are_rows_of_their_own(tiny_graph: Graph) -> None:
    store = HostFeatures.of(tiny_graph, columns=(1, 2))
    assert (store.columns, store.num_rows, store.width, store.row_bytes) == ((1, 2), 5, 1, 4)
    rows, traffic = store.gather(np.array([3, 0]), dtype=torch.float32, num_threads=1)
    assert rows.tolist() == [[30], [0]]
    assert traffic == Traffic(rows=Access(host_bytes=2 * 4))
    check_store(store, tiny_graph)
    with pytest.raises(GraphError, match="has 5 rows of 1 features"):
        check_store(HostFeatures.of(tiny_graph, columns=(1, 3)), tiny_graph)


def test_stored_types_become_what_is_computed_in() -> None:
    half = HostFeatures(np.array([[0.5, 2.0]], np.float16), "float16")
    assert half.row_bytes == 4
    rows, _ = half.gather(np.array([0]), dtype=torch.bfloat16, num_threads=1)
    assert rows.dtype == torch.bfloat16
    assert rows.tolist() == [[0.5, 2.0]]
