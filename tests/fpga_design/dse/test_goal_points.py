from hypothesis import given
from hypothesis import strategies as st

from gnnscale.fpga_design.dse.goal import Point, best_of, pareto


def point(nvtps: float, fullest: float) -> Point:
    return Point(
        n=2,
        m=256,
        dies=("SLR0", "SLR1"),
        nvtps=nvtps,
        bottleneck="update",
        shares={"luts": fullest, "dsps": fullest / 2},
        limit="luts of SLR0",
    )


def test_a_card_has_what_its_dies_have_together() -> None:
    assert point(1, 0.5).card == (4, 512)
    assert point(1, 0.5).fullest == 0.5


def test_the_fastest_is_best_and_of_equals_that_which_takes_less() -> None:
    fast, small, large = point(2, 0.8), point(1, 0.3), point(2, 0.7)
    assert best_of([fast, small, large]) is large


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=30))
def test_no_point_of_the_front_is_beaten(pairs: list[tuple[int, int]]) -> None:
    points = [point(nvtps, fullest / 10) for nvtps, fullest in pairs]
    front = pareto(points)
    assert best_of(points).nvtps == max(each.nvtps for each in front)
    for one in points:
        beaten = [
            other
            for other in points
            if other.nvtps >= one.nvtps
            and other.fullest <= one.fullest
            and (other.nvtps, other.fullest) != (one.nvtps, one.fullest)
        ]
        assert any((p.nvtps, p.fullest) == (one.nvtps, one.fullest) for p in front) != bool(beaten)
