from __future__ import annotations

import numpy as np
import pytest

from gnnscale.feature import Aggregation
from gnnscale.runtime.evaluation.rows import EdgeSums, Wanted
from gnnscale.sampler import Block

#: Destinations 3 and 0: the first has the rows 0, 4 and 5 as neighbours, the second has row 4.
BLOCK = Block(indptr=np.array([0, 3, 4]), indices=np.array([1, 2, 3, 2], np.int32), num_src=4)
VERTICES = np.array([3, 0, 4, 5], np.int32)
WEIGHTS = np.array([1.0, 2.0, 3.0, 0.5], np.float32)
ROWS = np.repeat(np.array([[1], [0], [0], [0], [10], [100], [0]], np.float32), 16, axis=1)


def test_an_edge_reads_the_row_of_its_source() -> None:
    wanted = Wanted(block=BLOCK, vertices=VERTICES, aggregation=Aggregation(self_term="add"))
    # The block's second source is its second destination.
    assert wanted.edge_rows.tolist() == [0, 4, 5, 4]


@pytest.mark.parametrize("stretch", [1, 2, 3, 7])
@pytest.mark.parametrize(
    ("weights", "sums"), [(None, [111.0, 10.0]), (WEIGHTS, [1 + 20 + 300.0, 5.0])]
)
def test_sums_are_complete_after_the_last_stretch(
    stretch: int, weights: np.ndarray | None, sums: list[float]
) -> None:
    aggregation = Aggregation(self_term="add", weights=weights)
    wanted = Wanted(block=BLOCK, vertices=VERTICES, aggregation=aggregation)
    found = EdgeSums(wanted, num_rows=len(ROWS), stretch=stretch, columns=16)
    assert found.destinations.tolist() == [3, 0]
    for number, first in enumerate(range(0, len(ROWS), stretch)):
        found.add(number=number, rows=ROWS[first : first + stretch].copy(), num_threads=2)
    assert found.out.tolist() == [[each] * 16 for each in sums]
