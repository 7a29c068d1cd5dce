from gnnscale.planner.fpga_board import Resources, total


def test_sums_and_multiples() -> None:
    one = Resources(luts=3, dsps=1)
    assert one + Resources(luts=1, brams=0.5) == Resources(luts=4, dsps=1, brams=0.5)
    assert 2 * one == one * 2 == Resources(luts=6, dsps=2)
    assert total([one] * 3) == Resources(luts=9, dsps=3)
    assert total([]) == Resources()
