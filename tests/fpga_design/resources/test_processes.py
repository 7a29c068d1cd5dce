from pathlib import Path

import pytest

from gnnscale.fpga_design.resources import DesignSize, fit
from gnnscale.fpga_design.resources.design import VITIS_HLS
from gnnscale.fpga_design.resources.processes import MAX_SHARE, Processes
from gnnscale.planner.fpga_board import NAMES, board, total

U250 = board("u250").dies[0]
README = Path(__file__).parents[3] / "fpga" / "README.md"
UNITS = {"luts": "LUTs", "registers": "registers", "dsps": "DSP slices", "brams": "BRAM blocks"}
UNITS |= {"urams": "URAM blocks"}


def of(n: int, m: int) -> Processes:
    return Processes(DesignSize(n=n, m=m), VITIS_HLS)


@pytest.mark.parametrize(("n", "m"), [(2, 256), (2, 512), (8, 2048)])
def test_slices_are_those_of_the_papers(n: int, m: int) -> None:
    """HP-GNN, from which HitGNN's constants are, has five for a multiply-accumulate unit."""
    model = of(n, m)
    assert model.array().dsps == 5 * m
    # Sixteen lanes: a product in a scatter PE, a sum in a gather PE.
    assert (model.scatter().dsps, model.gather().dsps) == (48, 32)


def test_memories_by_hand() -> None:
    model = of(2, 256)
    # Half of a gather PE's 8,192 sums is in BRAM, the other half in URAM.
    assert (model.gather().brams, model.gather().urams) == (114, 16)
    assert 4 * model.keep_rows().urams == 4 * 8 * 6  # 24,576 words in each of four banks
    assert model.read_edges().urams == 8 * 5
    taken = model.all()
    assert len(taken) == 19
    assert all(each.luts > 0 for each in taken.values())


def test_dropout_is_drawn_once_for_a_row() -> None:
    """Twelve products of 64 bits for each row that leaves the array in a cycle."""
    rest = 16 * (2 + 3)  # sums, and products with the scale
    assert of(2, 256).deal().dsps == 12 * 10 + rest
    assert of(2, 512).deal().dsps == 2 * 12 * 10 + rest + 16 * 2  # and a tree over two slices


def test_the_design_of_a_u250_fits_and_the_page_has_its_figures() -> None:
    """With the shell, dropout and the loss."""
    found = fit(DesignSize(n=2, m=256), U250)
    assert found.fits
    assert max(found.shares.values()) <= MAX_SHARE == 0.85
    made = total(found.resources.values())
    taken = made + U250.shell
    assert found.shares == {name: getattr(taken, name) / getattr(U250.has, name) for name in NAMES}
    lines = README.read_text().splitlines()
    for name in NAMES:
        numbers = (getattr(each, name) for each in (U250.has, U250.shell, made))
        row = " | ".join([UNITS[name], *(f"{number:,.0f}" for number in numbers)])
        assert f"| {row} | {found.shares[name]:.1%} |".replace("%", " %") in lines


@pytest.mark.parametrize(("n", "m"), [(2, 512), (4, 256), (8, 2048)])
def test_larger_designs_do_not_fit(n: int, m: int) -> None:
    found = fit(DesignSize(n=n, m=m), U250)
    assert not found.fits
    assert found.shares[found.limit] == max(found.shares.values()) > MAX_SHARE
