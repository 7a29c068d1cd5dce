from __future__ import annotations

import numpy as np
import torch

from gnnscale.feature import Aggregation
from gnnscale.runtime.evaluation.memory_rows import MemoryRows
from gnnscale.sampler import Block

#: One destination, row 2, with the rows 0, 1 and 1 as its neighbours.
BLOCK = Block(indptr=np.array([0, 3]), indices=np.array([1, 2, 2], np.int32), num_src=3)
VERTICES = np.array([2, 0, 1], np.int32)


def aggregated(rows: MemoryRows, aggregation: Aggregation) -> list[list[float]]:
    found, _ = rows.aggregate(VERTICES, BLOCK, aggregation, dtype=torch.float32, num_threads=1)
    return found.tolist()  # type: ignore[no-any-return]


def test_rows_are_aggregated_where_they_were_written() -> None:
    rows = MemoryRows(3, 2)
    rows.write(1, torch.tensor([[10.0, 20.0], [100.0, 200.0]]))
    rows.write(0, torch.tensor([[1.0, 2.0]]))
    assert rows.own is None
    assert aggregated(rows, Aggregation(self_term="add")) == [[121.0, 242.0]]
    assert aggregated(rows, Aggregation(self_term="concat")) == [[100.0, 200.0, 21.0, 42.0]]


def test_a_destination_adds_its_row_of_the_second_part() -> None:
    rows = MemoryRows(3, 2, num_parts=2)
    rows.write(0, torch.tensor([[1.0, 2.0, 7.0, 8.0], [10.0, 20.0, 7.0, 8.0]]))
    rows.write(2, torch.tensor([[100.0, 200.0, 0.5, 0.25]]))
    assert rows.own is not None
    assert rows.own[2].tolist() == [0.5, 0.25]
    assert aggregated(rows, Aggregation(self_term="add")) == [[21.5, 42.25]]
