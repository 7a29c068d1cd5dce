import json
import math
from dataclasses import asdict
from typing import Any

import pytest

from gnnscale.core.stages import Access, StageTimes, Traffic
from gnnscale.core.types import decode
from gnnscale.run.records import DeviceTotals, EpochSums
from gnnscale.training.recorder import EpochCounters

SUMS = EpochSums(
    num_batches=3,
    num_seeds=96,
    num_edges=2**40,
    num_vertices=500,
    loss=0.1 + 0.2,
    seconds=1.5,
    devices=(
        DeviceTotals(
            num_seeds=96,
            stages=StageTimes(sample=1 / 3),
            traffic=Traffic(rows=Access(hits=1, host_bytes=7)),
        ),
    ),
    counters={"late_s": 0.25},
)


def test_sums_come_back_exactly_and_are_counted_on(clock: Any) -> None:
    clock.advance(100)
    counters = EpochCounters.begin(1, SUMS)
    counters.count(num_seeds=4, num_edges=1, num_vertices=2, loss=0.5)
    clock.advance(2)
    assert counters.elapsed() == 3.5
    assert counters.mean_loss == (0.1 + 0.2 + 2.0) / 100
    assert (counters.num_batches, counters.num_edges) == (4, 2**40 + 1)
    found = decode(EpochSums, json.dumps(asdict(SUMS)).encode(), source="sums")
    assert found == SUMS


@pytest.mark.parametrize(
    "changes",
    [
        {"num_batches": 0},
        {"num_edges": -1},
        {"loss": math.nan},
        {"seconds": 0.0},
        {"devices": [{"num_seeds": -1}]},
        {"devices": [{"traffic": {"rows": {"hits": -5}}}]},
    ],
)
def test_sums_of_something_else(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="sums"):
        decode(EpochSums, asdict(SUMS) | changes, source="sums")
