import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.fpga_design.resources.primitives import (
    memory_of_blocks,
    memory_of_luts,
    memory_of_ultra_blocks,
    streams,
)
from gnnscale.planner.fpga_board import NAMES


@pytest.mark.parametrize(
    ("width", "depth", "blocks"),
    [
        (72, 512, 1),
        (36, 1024, 1),
        (512, 512, 8),  # 72 bits side by side
        (512, 1024, 15),  # 36 bits
        (512, 8192, 114),  # 57 columns of 9 bits, two of 4,096 words each
        (1, 32768, 1),
    ],
)
def test_bram(width: int, depth: int, blocks: int) -> None:
    assert memory_of_blocks(width, depth).brams == blocks


@pytest.mark.parametrize(
    ("width", "depth", "blocks", "folded"),
    [
        (72, 4096, 1, 1),
        (512, 4096, 8, 8),
        # Seven columns of 72 bits, and 8 bits: a block has 32,768 words of so few.
        (512, 8192, 16, 15),
        (512, 28672, 56, 50),
        (512, 32768, 64, 57),
        (73, 8192, 4, 3),
    ],
)
def test_uram(width: int, depth: int, blocks: int, folded: int) -> None:
    assert memory_of_ultra_blocks(width, depth, folds=False).urams == blocks
    assert memory_of_ultra_blocks(width, depth, folds=True).urams == folded


def test_memories_of_luts() -> None:
    # RAM32M16 has 14 bits of 32 words, RAM64M8 7 bits of 64; both take eight LUTs.
    assert memory_of_luts(14, 32).luts == 8
    assert memory_of_luts(512, 32).luts == 37 * 8
    assert memory_of_luts(512, 64).luts == 74 * 8
    assert memory_of_luts(512, 128).luts == 2 * 74 * 8 + 512


@settings(max_examples=20)
@given(st.integers(1, 600), st.integers(1, 40000), st.integers(1, 600), st.integers(1, 40000))
def test_a_larger_memory_takes_no_less(width: int, depth: int, more: int, deeper: int) -> None:
    for kind in (
        memory_of_blocks,
        memory_of_luts,
        lambda width, depth: memory_of_ultra_blocks(width, depth, folds=False),
        lambda width, depth: streams(2, width, depth),
    ):
        small, large = kind(width, depth), kind(width + more, depth + deeper)
        assert all(getattr(small, name) <= getattr(large, name) for name in NAMES)
