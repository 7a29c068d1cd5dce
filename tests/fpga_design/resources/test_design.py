import re
from pathlib import Path

import pytest

from gnnscale.fpga_design.resources import design
from gnnscale.fpga_design.resources.design import DesignSize

HEADERS = Path(__file__).parents[3] / "fpga" / "include" / "gnnscale_fpga"


def constants(header: str) -> dict[str, int]:
    text = (HEADERS / header).read_text()
    return {name: int(value) for name, value in re.findall(r"constexpr int (k\w+) = (\d+);", text)}


def test_memories_are_those_of_the_kernels() -> None:
    sizes, ours = constants("design.hpp"), DesignSize(n=2, m=256)
    (row_words,) = re.findall(
        r"#define GNNSCALE_ROW_WORDS (\d+)", (HEADERS / "design.hpp").read_text()
    )
    assert ours.row_words == int(row_words)
    assert ours.gather_rows == sizes["kGatherRows"]
    assert ours.edge_words == sizes["kEdgeWords"]
    assert ours.max_words_out == sizes["kMaxWordsOut"]


def test_cycles_are_those_of_the_kernels() -> None:
    cycles = constants("operators.hpp")
    ours = (design.ADD, design.MULTIPLY, design.READ, design.URAM_READ)
    assert ours == tuple(cycles[name] for name in ("kAdd", "kMultiply", "kRead", "kUramRead"))
    assert (design.SUM_WINDOW, design.GATHER_WINDOW) == (9, 11)


@pytest.mark.parametrize(
    ("n", "m", "rows", "slices", "lefts", "step", "drains", "turns"),
    [
        (2, 256, 16, 1, 4, 2, 1, 9),
        (2, 512, 32, 2, 4, 2, 2, 9),
        (8, 2048, 128, 8, 16, 8, 8, 9),
        (16, 16, 1, 1, 1, 1, 1, 32),
    ],
)
def test_what_follows(n, m, rows, slices, lefts, step, drains, turns) -> None:
    size = DesignSize(n=n, m=m)
    assert (size.rows, size.slices, size.banks, size.lefts) == (rows, slices, 2 * n, lefts)
    assert (size.step, size.drains, size.max_turns) == (step, drains, turns)
