from pathlib import Path

import pytest

from gnnscale.fpga_design.resources import DesignSize, fit
from gnnscale.fpga_design.resources.processes import MAX_SHARE
from gnnscale.planner.fpga_board import NAMES, board, total

U250 = board("u250").dies[0]

README = Path(__file__).parents[3] / "fpga" / "README.md"
UNITS = {"luts": "LUTs", "registers": "registers", "dsps": "DSP slices", "brams": "BRAM blocks"}
UNITS |= {"urams": "URAM blocks"}


def test_the_design_of_a_u250_fits() -> None:
    """With the shell, dropout and the loss."""
    found = fit(DesignSize(n=2, m=256), U250)
    assert found.fits
    assert max(found.shares.values()) <= MAX_SHARE == 0.85
    taken = total(found.resources.values()) + U250.shell
    assert found.shares == {name: getattr(taken, name) / getattr(U250.has, name) for name in NAMES}


@pytest.mark.parametrize(("n", "m"), [(2, 512), (4, 256), (8, 2048)])
def test_larger_ones_do_not(n: int, m: int) -> None:
    found = fit(DesignSize(n=n, m=m), U250)
    assert not found.fits
    assert found.shares[found.limit] > MAX_SHARE


def test_the_limit_is_the_fullest() -> None:
    assert fit(DesignSize(n=2, m=512), U250).limit == "dsps"


def test_the_page_has_these_figures() -> None:
    found = fit(DesignSize(n=2, m=256), U250)
    taken = total(found.resources.values())
    lines = README.read_text().splitlines()
    for name in NAMES:
        numbers = (getattr(each, name) for each in (U250.has, U250.shell, taken))
        row = " | ".join([UNITS[name], *(f"{number:,.0f}" for number in numbers)])
        assert f"| {row} | {found.shares[name]:.1%} |".replace("%", " %") in lines
