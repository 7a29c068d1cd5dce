import pytest

from gnnscale.plan.perf import hitgnn
from gnnscale.plan.perf.hitgnn import ComputeUnit, LayerSize

#: A word a cycle from memory, 2 words a cycle through the PEs, 512 products a cycle, 1 Hz.
UNIT = ComputeUnit(n=2, m=512, clock_hz=1, bandwidth=64)


def layer(**sizes: int) -> LayerSize:
    return LayerSize(
        **{"sources": 1, "rows": 1, "edges": 1, "width_in": 16, "width_out": 16, **sizes}
    )


@pytest.mark.parametrize(
    ("sizes", "seconds"),
    [
        ({"sources": 100}, 100),  # eq. 7
        ({"edges": 100}, 50),  # eq. 8
        ({"rows": 100}, 50),  # eq. 9: 100 * 16 * 16 / 512
        ({"rows": 100, "slots": 2}, 100),
        ({"sources": 100, "edges": 210, "rows": 100}, 105),  # the slowest of the three
    ],
)
def test_a_layer_takes_as_long_as_the_slowest_of_its_tasks(sizes, seconds) -> None:
    assert hitgnn.forward_seconds(UNIT, layer(**sizes)) == pytest.approx(seconds)


def test_backward_multiplies_twice_but_in_the_first_layer() -> None:
    wide = layer(rows=100, edges=10)
    assert hitgnn.backward_seconds(UNIT, wide, first=True) == pytest.approx(50)
    # The other way 100 rows are aggregated, one a cycle.
    assert hitgnn.backward_seconds(UNIT, wide, first=False) == pytest.approx(50 + 100)
    assert hitgnn.gnn_seconds(UNIT, [wide, wide]) == pytest.approx(50 + 50 + 50 + 150)
