from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.cache import CurvePoint
from gnnscale.cache.legion.cost_model import CliqueCost
from gnnscale.cache.legion.prefix_sums import PrefixSums

#: Lists of 16, 12 and 20 bytes, from which 10, 6 and 4 of 25 edges are traversed; rows of 20 bytes,
#: read 9, 5 and 2 of 18 times; 50 transactions of sampling, 2 for each row.
BY_HAND = CliqueCost(
    budget_bytes=100,
    list_bytes=PrefixSums.of([16, 12, 20], every=2),
    list_hotness=PrefixSums.of([10, 6, 4], every=2),
    total_list_hotness=25,
    row_bytes=20,
    row_hotness=PrefixSums.of([9, 5, 2], every=2),
    total_row_hotness=18,
    n_tsum=50,
    row_transactions=2,
    list_price=64,
    row_price=128,
)


@pytest.mark.parametrize(
    ("num_bytes", "num_lists"), [(0, 0), (15, 0), (16, 1), (27, 1), (28, 2), (48, 3), (99, 3)]
)
def test_lists_that_fit(num_bytes: int, num_lists: int) -> None:
    assert BY_HAND.num_lists(num_bytes) == num_lists  # equation 3


@pytest.mark.parametrize(("num_bytes", "num_rows"), [(0, 0), (19, 0), (20, 1), (59, 2), (100, 3)])
def test_rows_that_fit(num_bytes: int, num_rows: int) -> None:
    assert BY_HAND.num_rows(num_bytes) == num_rows  # equation 6


def test_transactions_by_hand() -> None:
    assert [float(BY_HAND.n_t(BY_HAND.list_hotness.at(each))) for each in range(4)] == [
        pytest.approx(50 * (1 - cached / 25))
        for cached in (0, 10, 16, 20)  # equations 4 and 5
    ]
    missed = [int(BY_HAND.rows_missed(BY_HAND.row_hotness.at(each))) for each in range(4)]
    assert missed == [18, 9, 4, 2]  # equation 7
    assert BY_HAND.price(16, 9) == pytest.approx(64 * 18 + 128 * 9)


@pytest.mark.parametrize(
    ("alpha", "n_t", "n_f"),
    [
        (0, 50, 2 * 2),  # 3 of 5 rows that would fit
        (0.16, 30, 2 * 2),  # 1 list, 84 bytes for rows
        (0.3, 18, 2 * 2),  # 2 lists, 70 bytes
        (0.45, 18, 2 * 2),  # 2 lists, which leave 72 bytes to rows
        (0.48, 10, 2 * 4),  # all lists, which leave 52
        (0.61, 10, 2 * 4),
        (1, 10, 2 * 4),
    ],
)
def test_points_of_the_curve_by_hand(alpha: float, n_t: float, n_f: float) -> None:
    found = BY_HAND.point(alpha)  # equations 2 and 8
    assert found == CurvePoint(
        alpha=alpha, n_t=pytest.approx(n_t), n_f=n_f, n_total=pytest.approx(n_t + n_f)
    )


def test_nothing_is_read() -> None:
    idle = replace(
        BY_HAND,
        list_bytes=PrefixSums.of([], every=2),
        list_hotness=PrefixSums.of([], every=2),
        total_list_hotness=0,
        n_tsum=0,
        row_hotness=PrefixSums.of([0], every=2),
        total_row_hotness=0,
    )
    assert [idle.point(alpha).n_total for alpha in (0, 0.5, 1)] == [0, 0, 0]


@pytest.mark.parametrize("budget", [2**53 + 1, 2**60 - 1])
def test_all_of_a_memory_that_floats_round_up(budget: int) -> None:
    large = replace(BY_HAND, budget_bytes=budget)
    assert large.topology_bytes(1.0) <= budget
    assert large.topology_bytes(1.0) == pytest.approx(budget)
    assert large.point(1.0).n_f == 2 * 2  # all lists leave room for all rows


@st.composite
def costs(draw: st.DrawFn) -> CliqueCost:
    """Draw a model of lists and rows in descending order of hotness."""
    hotness = st.lists(st.integers(0, 50), max_size=20)
    lists, rows = (sorted(draw(hotness), reverse=True) for _ in range(2))
    sizes = [8 + 4 * draw(st.integers(0, 20)) for _ in lists]

    return CliqueCost(
        budget_bytes=draw(st.integers(0, 1000)),
        list_bytes=PrefixSums.of(sizes, every=2),
        list_hotness=PrefixSums.of(lists, every=2),
        total_list_hotness=sum(lists) + draw(st.integers(0, 30)),
        row_bytes=draw(st.integers(1, 100)),
        row_hotness=PrefixSums.of(rows, every=2),
        total_row_hotness=sum(rows) + draw(st.integers(0, 30)),
        n_tsum=draw(st.integers(0, 1000)),
        row_transactions=draw(st.integers(1, 4)),
        list_price=draw(st.integers(1, 100)),
        row_price=draw(st.integers(1, 300)),
    )


@given(costs(), st.lists(st.floats(0, 1), min_size=2))
def test_more_memory_for_lists_is_less_for_rows(cost: CliqueCost, alphas: list[float]) -> None:
    points = [cost.point(alpha) for alpha in (0, *sorted(alphas), 1)]
    for before, after in pairwise(points):
        assert after.n_t <= before.n_t
        assert after.n_f >= before.n_f
        assert after.n_total == after.n_t + after.n_f
    assert points[0].n_t == cost.n_tsum
    left = cost.budget_bytes - cost.list_bytes.at(cost.num_lists(cost.budget_bytes))
    kept = cost.row_hotness.at(cost.num_rows(left))
    assert points[-1].n_f == cost.row_transactions * cost.rows_missed(kept)
