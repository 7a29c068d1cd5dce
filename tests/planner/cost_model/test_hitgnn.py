import numpy as np
import pytest

from gnnscale.planner.cost_model.hitgnn import (
    ComputeDesign,
    FpgaCard,
    LayerWorkload,
    Phase,
    gnn_seconds,
    limits,
    phases,
    seconds_of,
)

#: A word a cycle from memory, a quarter of one from the host, 1 Hz.
CARD = FpgaCard(clock_hz=1, bandwidth=64, link_bandwidth=16)
N, M = 2, 512
DESIGN = ComputeDesign(n=N, m=M)


def layer(**sizes: int) -> LayerWorkload:
    return LayerWorkload(
        **{"sources": 1, "rows": 1, "edges": 1, "width_in": 16, "width_out": 16, **sizes}
    )


def forward(card: FpgaCard, **sizes: int) -> Phase:
    return phases(card, [layer(**sizes)])[0]


@pytest.mark.parametrize(
    ("sizes", "seconds", "limit"),
    [
        ({"sources": 100}, 100, "memory"),  # eq. 7
        ({"edges": 100}, 50, "aggregate"),  # eq. 8
        ({"rows": 100}, 50, "update"),  # eq. 9: 100 * 16 * 16 / 512
        ({"rows": 100, "slots": 2}, 100, "update"),
        ({"sources": 100, "edges": 210, "rows": 100}, 105, "aggregate"),  # the slowest of the three
    ],
)
def test_a_layer_takes_as_long_as_the_slowest_of_its_tasks(sizes, seconds, limit) -> None:
    phase = forward(CARD, **sizes)
    assert phase.seconds(N, M) == pytest.approx(seconds)
    assert phase.limit(DESIGN) == limit


def test_rows_that_are_missing_come_over_the_link_afterwards() -> None:
    card = FpgaCard(clock_hz=1, bandwidth=64, link_bandwidth=16, local_share=0.25)
    # Equation 7: 100 rows of a word, 25 of them a cycle each, 75 of them four cycles each.
    assert forward(card, sources=100).seconds(N, M) == pytest.approx(25 + 300)
    assert forward(card, sources=100).limit(DESIGN) == "link"
    # Hidden rows are never missing.
    wide = layer(sources=100)
    second = phases(card, [wide, wide])[1]
    assert second.seconds(N, M) == pytest.approx(100)


def test_phases_by_hand() -> None:
    found = layer(width_in=100, width_out=47).in_words()
    assert (found.width_in, found.width_out) == (112, 48)
    wide = layer(rows=100, edges=10)
    first, *rest = phases(CARD, [wide, wide])
    assert first.seconds(N, M) == pytest.approx(50)
    # The other way 100 rows are aggregated, one a cycle.
    assert [each.seconds(N, M) for each in rest] == pytest.approx([50, 50, 50, 100])
    assert gnn_seconds((first, *rest), DESIGN) == pytest.approx(50 + 50 + 50 + 150)
    assert limits((first, *rest), DESIGN) == pytest.approx({"update": 200, "memory": 100})
    passes = phases(CARD, [layer(sources=10, rows=100, edges=200)])
    n, m = np.array([1, 2, 4]), np.array([256, 512, 1024])
    found = seconds_of(passes, n, m)
    each = (ComputeDesign(n=int(a), m=int(b)) for a, b in zip(n, m, strict=True))
    assert found == pytest.approx([gnn_seconds(passes, design) for design in each])
