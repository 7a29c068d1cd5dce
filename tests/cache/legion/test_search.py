from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.cache.legion.cost_model import CliqueCost
from gnnscale.cache.legion.prefix_sums import PrefixSums
from gnnscale.cache.legion.search import best_num_lists, curve, grid_alpha

ALPHAS = [step / 100 for step in range(101)]


@st.composite
def costs(draw: st.DrawFn, *, equal: bool = False) -> CliqueCost:
    """Draw a model; with ``equal`` a byte costs the same wherever it is read, as in the paper."""
    hotness = st.lists(st.integers(0, 30), max_size=25)
    lists, rows = (sorted(draw(hotness), reverse=True) for _ in range(2))
    sizes = [8 + 4 * draw(st.integers(0, 15)) for _ in lists]
    transactions = draw(st.integers(1, 4))

    every = draw(st.integers(1, 4))
    return CliqueCost(
        budget_bytes=draw(st.integers(0, 900)),
        list_bytes=PrefixSums.of(sizes, every=every),
        list_hotness=PrefixSums.of(lists, every=every),
        total_list_hotness=sum(lists) + draw(st.integers(0, 20)),
        row_bytes=draw(st.integers(1, 80)),
        row_hotness=PrefixSums.of(rows, every=draw(st.integers(1, 4))),
        total_row_hotness=sum(rows) + draw(st.integers(0, 20)),
        n_tsum=draw(st.integers(0, 400)),
        row_transactions=transactions,
        list_price=64 if equal else draw(st.integers(1, 100)),
        row_price=64 * transactions if equal else draw(st.integers(1, 300)),
    )


def exact_price(cost: CliqueCost, num_lists: int, row_memory: int) -> Fraction:
    """Work out the price of the first lists, and of the rows that fit, in fractions."""
    num_rows = min(row_memory // cost.row_bytes, cost.row_hotness.num_numbers)
    missed = cost.total_row_hotness - int(cost.row_hotness.at(num_rows))
    edges = cost.total_list_hotness
    uncached = (
        Fraction(edges - int(cost.list_hotness.at(num_lists)), edges) if edges else Fraction(1)
    )
    sampling = Fraction(cost.n_tsum) * uncached
    return Fraction(cost.list_price) * sampling + Fraction(cost.row_price) * missed


def price_with(cost: CliqueCost, num_lists: int) -> Fraction:
    return exact_price(cost, num_lists, cost.budget_bytes - int(cost.list_bytes.at(num_lists)))


@given(costs())
def test_no_number_of_lists_is_cheaper(cost: CliqueCost) -> None:
    allowed = [
        n
        for n, taken in enumerate(cost.list_bytes.between(0, cost.list_bytes.num_numbers))
        if taken <= cost.budget_bytes
    ]
    found = best_num_lists(cost)
    assert found in allowed
    best = min(price_with(cost, n) for n in allowed)
    assert float(price_with(cost, found)) == pytest.approx(float(best), abs=1e-9)


@given(costs())
def test_no_alpha_of_the_grid_is_cheaper(cost: CliqueCost) -> None:
    best = float(price_with(cost, best_num_lists(cost)))
    for alpha in ALPHAS:
        for_lists = int(alpha * cost.budget_bytes)
        fitting = (
            sum(
                taken <= for_lists
                for taken in cost.list_bytes.between(0, cost.list_bytes.num_numbers)
            )
            - 1
        )
        price = float(exact_price(cost, fitting, cost.budget_bytes - for_lists))
        assert best <= price * (1 + 1e-12) + 1e-9


@given(costs(equal=True))
def test_where_bytes_cost_the_same_it_has_the_fewest_transactions(cost: CliqueCost) -> None:
    transactions = float(price_with(cost, best_num_lists(cost))) / 64
    grid = min(point.n_total for point in curve(cost))
    assert transactions <= grid * (1 + 1e-12) + 1e-9
    assert cost.point(grid_alpha(cost)).n_total == grid


SOME = CliqueCost(
    budget_bytes=100,
    list_bytes=PrefixSums.of([30, 30], every=2),
    list_hotness=PrefixSums.of([5, 5], every=2),
    total_list_hotness=10,
    row_bytes=40,
    row_hotness=PrefixSums.of([8, 4, 0], every=2),
    total_row_hotness=12,
    n_tsum=20,
    row_transactions=1,
    list_price=64,
    row_price=64,
)


def test_the_best_by_hand() -> None:
    # No list: 20 + 0. One, and one row: 10 + 4. Two, and one row: 0 + 4.
    assert best_num_lists(SOME) == 2
    assert grid_alpha(SOME) == 0.6
    # Where a row costs ten times as much: 20 + 0, 10 + 40, 0 + 40.
    assert best_num_lists(replace(SOME, row_price=640)) == 0
    # Two lists and no row need 59 bytes at most: 10 + 12 without a row, 20 + 4 with one.
    assert best_num_lists(replace(SOME, budget_bytes=59)) == 1


@given(costs())
def test_it_is_the_first_of_the_cheapest(cost: CliqueCost) -> None:
    """However often sums are kept, it is what one look at all prices finds."""
    num_lists = np.arange(cost.num_lists(cost.budget_bytes) + 1)
    left = cost.budget_bytes - cost.list_bytes.between(0, cost.list_bytes.num_numbers)[num_lists]
    row_hotness = cost.row_hotness.between(0, cost.row_hotness.num_numbers)[cost.num_rows(left)]
    prices = cost.price(
        cost.list_hotness.between(0, cost.list_hotness.num_numbers)[num_lists], row_hotness
    )
    assert best_num_lists(cost) == np.argmin(prices)


def test_of_equal_prices_the_fewest_lists() -> None:
    useless = replace(
        SOME, list_hotness=PrefixSums.of([0, 0], every=2), row_hotness=PrefixSums.of([], every=2)
    )
    assert best_num_lists(useless) == 0
    assert grid_alpha(useless) == 0


def test_the_curve_has_steps_of_a_hundredth() -> None:
    points = curve(SOME)
    assert [point.alpha for point in points] == ALPHAS
    assert (points[0].n_t, points[0].n_f) == (20, 0)
    assert (points[100].n_t, points[100].n_f) == (0, 4)
    assert points[60] == SOME.point(0.6)
