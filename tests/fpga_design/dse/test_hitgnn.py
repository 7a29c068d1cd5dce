"""HitGNN's resource model and Algorithm 4, beside Table V."""

import math
import statistics
from dataclasses import replace

import pytest
from design_goals import HITGNN, goal
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.core.errors import ConfigError
from gnnscale.fpga_design.dse import hitgnn
from gnnscale.fpga_design.dse.goal import best_of
from gnnscale.planner.cost_model.hitgnn import seconds_of
from gnnscale.planner.fpga_board import Board, Die, Resources, board

U250 = board("u250")


def mixed(*dies: tuple[str, float, float]) -> Board:
    """Return a board of dies with these names, LUTs and DSP slices."""
    rest = {"shell": Resources(), "bank": "DDR[0]", "bandwidth": 19.25e9}
    others = {"registers": 1, "brams": 1, "urams": 1}
    made = [
        Die(name=name, has=Resources(luts=luts, dsps=dsps, **others), **rest)
        for name, luts, dsps in dies
    ]
    return replace(U250, name="made up", dies=made)


def card(luts: float, dsps: float, dies: int = 1) -> Board:
    return mixed(*((f"SLR{number}", luts, dsps) for number in range(dies)))


@pytest.mark.parametrize(
    ("n", "m", "dsp_share", "lut_share"), [(8, 2048, 90, 72), (16, 1024, 56, 65)]
)
def test_utilisation_is_that_of_table_v(n, m, dsp_share, lut_share) -> None:
    dies = len(U250.dies)
    dsps = dies * hitgnn.dsps(n / dies, m / dies)
    luts = dies * hitgnn.luts(n / dies, m / dies, ways=n)
    assert 100 * dsps / sum(die.has.dsps for die in U250.dies) == pytest.approx(dsp_share, abs=1)
    assert 100 * luts / sum(die.has.luts for die in U250.dies) == pytest.approx(lut_share, abs=1)


def test_the_design_of_table_v_comes_first() -> None:
    found = hitgnn.explore(U250, goal(HITGNN, fanouts=(10, 25), local=0.25, link=16e9))
    assert best_of(found).card == (8, 2048)
    by_size = {(point.n, point.m, len(point.dies)): point for point in found}
    first, second = by_size[2, 512, 4], by_size[4, 256, 4]
    assert first.nvtps / second.nvtps == pytest.approx(97.0 / 92.6, rel=0.05)
    # Four cards, million vertices per second.
    assert 4 * first.nvtps / 1e6 == pytest.approx(97.0, rel=0.05)
    assert 4 * second.nvtps / 1e6 == pytest.approx(92.6, rel=0.05)


@pytest.mark.parametrize("dies", [1, 3])
def test_the_sweep_is_algorithm_4(dies: int) -> None:
    wanted = goal(HITGNN, local=0.5)
    die = card(luts=120_000, dsps=400).dies[0]
    passes = hitgnn._passes(die, wanted, dies, 3e8)
    rates = {
        (n, m): statistics.mean(
            batch.size.num_vertices / float(seconds_of(each, n, m))
            for batch, each in zip(wanted.batches, passes, strict=True)
        )
        for n in range(1, 6)
        for m in range(1, 81)
        if 5 * m + 112 * n <= 400
        and 470 * m + 21_715 * n + 4_610 * n * math.log2(dies * n) <= 120_000
    }
    n, m, rate = hitgnn.sweep(die, wanted, dies=dies, clock_hz=3e8)
    assert rate == pytest.approx(max(rates.values()))
    assert rates[n, m] == pytest.approx(rate)


@settings(max_examples=25)
@given(luts=st.integers(40_000, 900_000), dsps=st.integers(200, 4000), dies=st.integers(1, 4))
def test_every_design_fits_and_its_dies_are_the_boards(luts: int, dsps: int, dies: int) -> None:
    made = card(luts, dsps, dies)
    for point in hitgnn.explore(made, goal()):
        assert hitgnn.dsps(point.n, point.m) <= dsps
        assert hitgnn.luts(point.n, point.m, ways=len(point.dies) * point.n) <= luts
        assert set(point.dies) <= {die.name for die in made.dies}
        assert point.fullest <= 1


def test_a_card_without_room_says_what_is_missing() -> None:
    message = "n=1, m=16 takes 192 dsps, 92 more than available on SLR0"
    with pytest.raises(ConfigError, match=f"^board made up: no design fits: {message}$"):
        hitgnn.explore(card(luts=1e6, dsps=100), goal())
    # Of several dies the one that is nearest to a design is named, and one that fits is found.
    with pytest.raises(ConfigError, match="2 more than available on LARGE"):
        hitgnn.explore(mixed(("SMALL", 1e6, 20), ("LARGE", 1e6, 190)), goal())
    found = hitgnn.explore(mixed(("LUTS", 9e5, 100), ("BOTH", 3e5, 3000)), goal())
    assert {point.dies for point in found} == {("BOTH",)}


def test_the_largest_die_is_swept_and_one_that_is_too_small_refused() -> None:
    """All designs of the largest one are tried at once, and fit in memory."""
    (die,) = card(luts=1e7, dsps=1e7).dies
    n, m, _ = hitgnn.sweep(die, goal(), dies=1, clock_hz=3e8)
    assert n > 8
    assert m > 2048
    (die,) = mixed(("SLR0", 20_000, 100)).dies
    with pytest.raises(ConfigError, match="die SLR0: no design fits, not even n=1, m=1"):
        hitgnn.sweep(die, goal(), dies=1, clock_hz=3e8)
