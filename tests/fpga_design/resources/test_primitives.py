import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.fpga_design.resources.primitives import (
    counters,
    delays,
    equals,
    logic,
    memory_of_blocks,
    memory_of_luts,
    memory_of_ultra_blocks,
    outlet,
    port,
    registers,
    selects,
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


def test_choices_take_a_lut_for_four_and_logic_for_six() -> None:
    wanted = {1: 0, 2: 1, 4: 1, 5: 3, 8: 3, 16: 5, 32: 11}
    assert {inputs: selects(1, inputs).luts for inputs in wanted} == wanted
    assert selects(512, 16).luts == 512 * 5
    assert [logic(1, inputs).luts for inputs in (1, 2, 6, 7, 31, 36, 37)] == [0, 1, 1, 3, 7, 7, 10]
    assert equals(3).luts == 1
    assert equals(14).luts == 5 + 1


def test_delays_of_three_cycles_are_shift_registers() -> None:
    assert (delays(512, 2).luts, delays(512, 2).registers) == (0, 1024)
    assert (delays(512, 3).luts, delays(512, 3).registers) == (512, 512)
    assert registers(8, 3).registers == 24
    assert counters(2, 8).registers == 16


def test_results_wait_in_stages_or_in_a_memory() -> None:
    assert outlet(512, 2, in_memory=True) == outlet(512, 2, in_memory=False)
    stages, memory = outlet(512, 12, in_memory=False), outlet(512, 12, in_memory=True)
    assert stages.registers > 11 * 512 > memory.registers
    assert memory.luts > 37 * 8 + 512 > stages.luts


def test_a_port_holds_what_is_on_its_way() -> None:
    # 256 words of 512 bits, each way.
    assert port(4, 64, directions=1).brams == 8
    assert port(4, 64, directions=2).brams == 16
    assert port(16, 64, directions=1).brams == 15


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
