import pytest
from design_goals import goal

from gnnscale.core.errors import ConfigError
from gnnscale.fpga_design.dse import MODES, explore
from gnnscale.planner.fpga_board import board, boards


@pytest.mark.long
@pytest.mark.parametrize("name", boards())
def test_every_board_gets_a_design(name: str) -> None:
    for mode in MODES:
        found = explore(board(name), goal(("reddit", "products"), local=0.4), mode)
        assert found.best in found.pareto
        assert found.best.nvtps == max(point.nvtps for point in found.points)
        assert found.at(found.best.n, found.best.m) == found.best
        assert found.best.limit
        assert found.best.bottleneck in {"memory", "link", "aggregate", "update"}
        assert found.seconds > 0


def test_there_are_two_modes_and_a_design_that_does_not_fit_is_no_point() -> None:
    with pytest.raises(ConfigError, match="mode=theirs: allowed are ours, hitgnn"):
        explore(board("u250"), goal(), "theirs")
    assert explore(board("u250"), goal(), "ours").at(16, 2048) is None


def test_algorithm_4_is_no_slower_than_the_templates() -> None:
    found = explore(board("u250"), goal(("reddit", "products"), local=0.4), "hitgnn")
    assert list(found.sweeps) == ["SLR0", "SLR1", "SLR2", "SLR3"]
    n, m, nvtps = found.sweeps["SLR0"]
    assert 5 * m + 112 * n <= board("u250").dies[0].available.dsps
    assert nvtps >= found.best.nvtps
    assert explore(board("u250"), goal(), "ours").sweeps == {}
