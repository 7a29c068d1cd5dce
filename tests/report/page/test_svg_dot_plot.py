from math import sqrt

import pytest

from gnnscale.report.page.svg import DotRow, Quantity, dot_plot

ONE, TWO = DotRow(label="model=gat", values=[0.5]), DotRow(label="model=gcn", values=[1.0, 3.0])
PLAIN = Quantity(form="{:.1f}".format)


def test_means_and_deviations_by_hand() -> None:
    assert (ONE.mean, ONE.deviation) == (0.5, None)
    assert (TWO.mean, TWO.deviation) == (2.0, pytest.approx(sqrt(2)))
    assert [PLAIN.words(row) for row in (ONE, TWO)] == ["0.5", "2.0 ± 1.4"]
    drawn = dot_plot("mrr <b>", [ONE, TWO], PLAIN)
    words = "mrr &lt;b&gt;: model=gat 0.5 (1 job); model=gcn 2.0 ± 1.4 (2 jobs)"
    assert f'aria-label="{words}"' in drawn
    assert drawn.count('class="point') == 3
    assert drawn.count('class="mean') == 1


def test_an_axis_has_all_ends_within_what_makes_sense() -> None:
    free, share = PLAIN.axis([ONE, TWO]), Quantity(form=str, low=0.0, high=1.0).axis([ONE])
    # From 0.5 to 2 + sqrt(2), and 4% of that at each end.
    room = 0.04 * (1.5 + sqrt(2))
    assert (free.low, free.high) == pytest.approx((0.5 - room, 2 + sqrt(2) + room))
    assert (share.low, share.high) == (0.0, 1.0)
