from __future__ import annotations

import numpy as np
import torch

from gnnscale.feature import HostFeatures
from gnnscale.graph import Graph
from gnnscale.stages import Traffic


def test_sizes_and_rows_by_hand(tiny_graph: Graph) -> None:
    store = HostFeatures.of(tiny_graph)
    assert (store.num_rows, store.width, store.row_bytes) == (5, 2, 8)
    rows, traffic = store.gather(np.array([3, 0, 3]), dtype=torch.float32, num_threads=1)
    assert rows.tolist() == [[3, 30], [0, 0], [3, 30]]
    # Without a cache there is neither a hit nor a miss.
    assert traffic == Traffic()
    assert traffic.rows.hit_rate is None


def test_stored_types_become_what_is_computed_in() -> None:
    half = HostFeatures(np.array([[0.5, 2.0]], np.float16), "float16")
    assert half.row_bytes == 4
    rows, _ = half.gather(np.array([0]), dtype=torch.bfloat16, num_threads=1)
    assert rows.dtype == torch.bfloat16
    assert rows.tolist() == [[0.5, 2.0]]
