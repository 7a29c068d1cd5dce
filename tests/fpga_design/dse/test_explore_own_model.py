from dataclasses import replace

import pytest
from design_goals import goal
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.core.errors import ConfigError
from gnnscale.fpga_design.dse.explore import explore_own, groups_of, in_words, unit_bandwidth
from gnnscale.fpga_design.dse.goal import SIZES_M, SIZES_N, best_of
from gnnscale.fpga_design.resources import DesignSize, fit
from gnnscale.fpga_design.resources.processes import MAX_SHARE
from gnnscale.planner.device_spec import ROW_WORDS
from gnnscale.planner.fpga_board import Resources, board

U250 = board("u250")


def test_the_u250_gets_the_design_that_ships() -> None:
    points, refused = explore_own(U250, goal())
    best = best_of(points)
    assert (best.n, best.m, best.row_words, len(best.dies)) == (2, 256, 98304, 4)
    assert best.limit == "luts of SLR0"
    # What HitGNN's Table V has is more than there is, with what limits it.
    (papers,) = (each for each in refused if (each.n, each.m) == (2, 512))
    assert papers.limit == "dsps of SLR0"
    assert papers.shares["dsps"] == pytest.approx(1.27, abs=0.01)


def test_every_point_fits_its_dies() -> None:
    u200 = board("u200")
    points, refused = explore_own(u200, goal())
    dies = {die.name: die for die in u200.dies}
    for point in points:
        size = DesignSize(n=point.n, m=point.m, row_words=point.row_words)
        for name in point.dies:
            assert fit(size, dies[name]).fits
    sizes = {(point.n, point.m) for point in points}
    assert not sizes & {(each.n, each.m) for each in refused}
    assert len(sizes) + len(refused) == len(SIZES_N) * len(SIZES_M)
    assert all(max(each.shares.values()) > MAX_SHARE for each in refused)


ROOM = st.tuples(st.floats(0.5, 1), st.floats(0.5, 1), st.floats(1e9, 1e11))


@pytest.mark.long
@settings(max_examples=10)
@given(st.lists(ROOM, min_size=1, max_size=3))
def test_every_point_fits_dies_that_differ(room: list[tuple[float, float, float]]) -> None:
    first = U250.dies[0]
    dies = [
        replace(
            first,
            name=f"SLR{number}",
            has=replace(first.has, luts=luts * first.has.luts, urams=urams * first.has.urams),
            shell=Resources(),
            bandwidth=bandwidth,
        )
        for number, (luts, urams, bandwidth) in enumerate(room)
    ]
    by_name = {die.name: die for die in dies}
    points, refused = explore_own(replace(U250, dies=dies), goal())
    for point in points:
        size = DesignSize(n=point.n, m=point.m, row_words=point.row_words)
        assert all(fit(size, by_name[name]).fits for name in point.dies)
        assert point.fullest <= MAX_SHARE
    for each in refused:
        size = DesignSize(n=each.n, m=each.m, row_words=min(ROW_WORDS))
        assert not any(fit(size, die).fits for die in dies)


def test_a_port_takes_a_word_a_cycle_however_fast_the_memory_is() -> None:
    assert unit_bandwidth(U250, U250.dies) == pytest.approx(0.875 * 19.2e9)
    fast = board("u280")
    assert unit_bandwidth(fast, fast.dies) == pytest.approx(0.875 * 64 * 300e6)
    slow = board("f1")
    assert unit_bandwidth(slow, slow.dies) == pytest.approx(0.875 * 64 * 250e6)


def test_seeds_are_halved_until_their_rows_fit() -> None:
    wanted = goal()

    def words(parts_of_it: int) -> float:
        (batch,) = (in_words(each) for each in wanted.slices(parts_of_it))
        return sum(layer.rows * layer.width_out / 16 for layer in batch.layers)

    assert groups_of(wanted, 4, int(words(4)) + 1)[0] == 1
    # Half of the seeds take more than half of the rows.
    assert groups_of(wanted, 4, int(words(4) / 2) + 1)[0] == 4
    for row_words in (30_000, 5_000, 500):
        groups, (group,) = groups_of(wanted, 4, row_words)
        assert sum(layer.rows * layer.width_out / 16 for layer in group.layers) <= row_words
        assert words(2 * groups) > row_words
    # No group is less than a seed.
    assert groups_of(wanted, 4, 1)[0] == 256


def test_a_unit_has_as_much_memory_as_its_dies_have_room_for() -> None:
    points, _ = explore_own(board("f1"), goal())
    having = {point.dies: point.row_words for point in points if (point.n, point.m) == (1, 128)}
    # The shell is in two of the three dies.
    assert having["SLR2",] == 98304
    assert having["SLR0", "SLR1", "SLR2"] == 49152


def test_a_board_without_room_says_what_is_missing() -> None:
    small = [replace(die, shell=Resources(), has=replace(die.has, brams=200)) for die in U250.dies]
    message = "^board Alveo U250: no design fits: n=1, m=16 and the shell take .* of the brams of "
    with pytest.raises(ConfigError, match=f"{message}SLR0, .*more than the 85% that can be placed"):
        explore_own(replace(U250, dies=small), goal())
