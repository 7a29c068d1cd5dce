from dataclasses import replace
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.cache import CurvePoint
from gnnscale.cache.legion.cost_model import (
    CliqueCost,
    PrefixSums,
    best_num_lists,
    curve,
)

#: Lists of 16, 12 and 20 bytes, from which 10, 6 and 4 of 25 edges are traversed; rows of 20 bytes,
#: read 9, 5 and 2 of 18 times; 50 transactions of sampling, 2 for each row.
BY_HAND = CliqueCost(
    budget_bytes=100,
    list_bytes=PrefixSums.of([16, 12, 20], stride=2),
    list_hotness=PrefixSums.of([10, 6, 4], stride=2),
    total_list_hotness=25,
    row_bytes=20,
    row_hotness=PrefixSums.of([9, 5, 2], stride=2),
    total_row_hotness=18,
    n_tsum=50,
    row_transactions=2,
    list_price=64,
    row_price=128,
)


@pytest.mark.parametrize(
    ("num_bytes", "num_lists", "num_rows"),
    [(0, 0, 0), (15, 0, 0), (16, 1, 0), (27, 1, 1), (28, 2, 1), (59, 3, 2), (100, 3, 3)],
)
def test_lists_and_rows_that_fit(num_bytes: int, num_lists: int, num_rows: int) -> None:
    assert BY_HAND.num_lists(num_bytes) == num_lists  # equation 3
    assert BY_HAND.num_rows(num_bytes) == num_rows  # equation 6


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
    found = BY_HAND.point(alpha)  # equations 2, 4, 5, 7 and 8
    assert found == CurvePoint(
        alpha=alpha, n_t=pytest.approx(n_t), n_f=n_f, n_total=pytest.approx(n_t + n_f)
    )


def test_prices_and_sums_by_hand() -> None:
    assert BY_HAND.price(16, 9) == pytest.approx(64 * 18 + 128 * 9)
    none, zero = PrefixSums.of([], stride=2), PrefixSums.of([0], stride=2)
    idle = replace(BY_HAND, list_bytes=none, list_hotness=none, total_list_hotness=0, n_tsum=0)
    idle = replace(idle, row_hotness=zero, total_row_hotness=0)
    assert [idle.point(alpha).n_total for alpha in (0, 0.5, 1)] == [0, 0, 0]
    sums = PrefixSums.of([5, 3, 0, 2, 4], stride=2)  # 0, 5, 8, 8, 10, 14
    assert sums.sums.tolist() == [0, 8, 10, 14]  # of the first 0, 2, 4 and 5
    assert sums.at_least(np.arange(6)).tolist() == [0, 0, 8, 8, 10, 10]
    assert sums.at_most(np.arange(6)).tolist() == [0, 8, 8, 10, 10, 14]
    none = PrefixSums.of([], stride=3)
    assert (none.at(0), none.num_within(7), none.between(0, 0).tolist()) == (0, 0, [0])


@pytest.mark.parametrize("budget", [2**53 + 1, 2**60 - 1])
def test_all_of_a_memory_that_floats_round_up(budget: int) -> None:
    large = replace(BY_HAND, budget_bytes=budget)
    assert large.topology_bytes(1.0) <= budget
    assert large.topology_bytes(1.0) == pytest.approx(budget)
    assert large.point(1.0).n_f == 2 * 2  # all lists leave room for all rows


@st.composite
def costs(draw: st.DrawFn, *, equal: bool = False) -> CliqueCost:
    """Draw a model of lists and rows in descending order of hotness.

    With ``equal`` a byte costs the same wherever it is read, as in the paper.
    """
    hotness = st.lists(st.integers(0, 50), max_size=25)
    lists, rows = (sorted(draw(hotness), reverse=True) for _ in range(2))
    sizes = [8 + 4 * draw(st.integers(0, 20)) for _ in lists]
    transactions, every = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    return CliqueCost(
        budget_bytes=draw(st.integers(0, 1000)),
        list_bytes=PrefixSums.of(sizes, stride=every),
        list_hotness=PrefixSums.of(lists, stride=every),
        total_list_hotness=sum(lists) + draw(st.integers(0, 30)),
        row_bytes=draw(st.integers(1, 100)),
        row_hotness=PrefixSums.of(rows, stride=draw(st.integers(1, 4))),
        total_row_hotness=sum(rows) + draw(st.integers(0, 30)),
        n_tsum=draw(st.integers(0, 1000)),
        row_transactions=transactions,
        list_price=64 if equal else draw(st.integers(1, 100)),
        row_price=64 * transactions if equal else draw(st.integers(1, 300)),
    )


@settings(max_examples=40)
@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 25), st.data())
def test_sums_are_those_of_all(numbers: list[int], every: int, data: st.DataObject) -> None:
    found, sums = PrefixSums.of(numbers, stride=every), [*accumulate(numbers, initial=0)]
    first = data.draw(st.integers(0, len(numbers)))
    last = data.draw(st.integers(first, len(numbers)))
    assert found.between(first, last).tolist() == sums[first : last + 1]
    assert found.at(last) == sums[last]
    limit = data.draw(st.integers(0, sums[-1] + 1))
    assert found.num_within(limit) == sum(each <= limit for each in sums) - 1
    assert found.at_least(np.array([last])) <= sums[last] <= found.at_most(np.array([last]))


def price_with(cost: CliqueCost, num_lists: int) -> Fraction:
    row_memory = cost.budget_bytes - int(cost.list_bytes.at(num_lists))
    num_rows = min(row_memory // cost.row_bytes, cost.row_hotness.num_numbers)
    missed = cost.total_row_hotness - int(cost.row_hotness.at(num_rows))
    edges = cost.total_list_hotness
    uncached = Fraction(edges - int(cost.list_hotness.at(num_lists)), edges) if edges else 1
    return Fraction(cost.list_price) * cost.n_tsum * uncached + Fraction(cost.row_price) * missed


@settings(max_examples=40)
@given(costs())
def test_no_number_of_lists_is_cheaper(cost: CliqueCost) -> None:
    sizes = cost.list_bytes.between(0, cost.list_bytes.num_numbers)
    allowed = [number for number, taken in enumerate(sizes) if taken <= cost.budget_bytes]
    found = best_num_lists(cost)
    assert found in allowed
    best = min(price_with(cost, number) for number in allowed)
    assert float(price_with(cost, found)) == pytest.approx(float(best), abs=1e-9)


@pytest.mark.long
@settings(max_examples=40)
@given(costs(equal=True))
def test_where_bytes_cost_the_same_it_has_the_fewest_transactions(cost: CliqueCost) -> None:
    transactions = float(price_with(cost, best_num_lists(cost))) / 64
    grid = min(point.n_total for point in curve(cost))
    assert transactions <= grid * (1 + 1e-12) + 1e-9


SOME = CliqueCost(
    budget_bytes=100,
    list_bytes=PrefixSums.of([30, 30], stride=2),
    list_hotness=PrefixSums.of([5, 5], stride=2),
    total_list_hotness=10,
    row_bytes=40,
    row_hotness=PrefixSums.of([8, 4, 0], stride=2),
    total_row_hotness=12,
    n_tsum=20,
    row_transactions=1,
    list_price=64,
    row_price=64,
)


def test_the_best_by_hand() -> None:
    # No list: 20 + 0. One, and one row: 10 + 4. Two, and one row: 0 + 4.
    assert best_num_lists(SOME) == 2
    assert min(curve(SOME), key=lambda point: (point.n_total, point.alpha)).alpha == 0.6
    # Where a row costs ten times as much: 20 + 0, 10 + 40, 0 + 40.
    assert best_num_lists(replace(SOME, row_price=640)) == 0
    # Two lists and no row need 59 bytes at most: 10 + 12 without a row, 20 + 4 with one.
    assert best_num_lists(replace(SOME, budget_bytes=59)) == 1
    points = curve(SOME)
    assert [point.alpha for point in points] == [step / 100 for step in range(101)]
    assert (points[0].n_t, points[0].n_f) == (20, 0)
    assert (points[100].n_t, points[100].n_f) == (0, 4)
    assert points[60] == SOME.point(0.6)
