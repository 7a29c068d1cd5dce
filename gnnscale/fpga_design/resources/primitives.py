"""What memories, streams, multiplexers and ports take, by their widths and depths (UltraScale+)."""

from __future__ import annotations

from math import ceil

from gnnscale.planner.fpga_board import Resources

#: Bits of a word.
WORD = 512
#: Width and depth of a block of 36 Kbit, as a memory that is written and read in one place each.
_BRAM_SHAPES = ((72, 512), (36, 1024), (18, 2048), (9, 4096), (4, 8192), (2, 16384), (1, 32768))
_URAM_SHAPE = (72, 4096)
#: Depth of a memory of eight LUTs, and its bits (RAM32M16, RAM64M8).
_LUT_SHAPES = ((32, 14), (64, 7))
#: A stream counts its elements, and compares its two places.
_STREAM_CONTROL = Resources(luts=20, registers=16)


def registers(bits: int, stages: int = 1) -> Resources:
    """Return what ``stages`` registers of ``bits`` one after the other take."""
    return Resources(registers=bits * stages)


def delays(bits: int, cycles: int) -> Resources:
    """Return what a delay takes: registers, or from three cycles on a LUT for each bit."""
    if cycles < 3:
        return registers(bits, cycles)
    return Resources(luts=bits * ceil((cycles - 1) / 32), registers=bits)


def logic(bits: int, inputs: int = 2) -> Resources:
    """Return what ``bits`` functions of ``inputs`` bits each take: trees of LUTs of six inputs."""
    luts = 0
    while inputs > 1:
        inputs = ceil(inputs / 6) if inputs > 6 else 1
        luts += inputs
    return Resources(luts=bits * luts)


def selects(bits: int, inputs: int) -> Resources:
    """Return what choosing one of ``inputs`` values of ``bits`` takes: four of them a LUT."""
    luts = 0
    while inputs > 1:
        inputs = ceil(inputs / 4)
        luts += inputs
    return Resources(luts=bits * luts)


def equals(bits: int) -> Resources:
    """Return what comparing two numbers takes: three bits a LUT."""
    parts = ceil(bits / 3)
    return Resources(luts=parts) + logic(1, parts)


def counters(count: int, bits: int) -> Resources:
    """Return what counters with a limit take: an adder, a comparison and a choice for each bit."""
    return count * Resources(luts=2.5 * bits, registers=bits)


def memory_of_luts(width: int, depth: int) -> Resources:
    """Return what a memory of LUTs takes, which is read at once; a deep one is several."""
    rows, bits = next((each for each in _LUT_SHAPES if depth <= each[0]), _LUT_SHAPES[-1])
    return Resources(luts=ceil(depth / rows) * 8 * ceil(width / bits)) + selects(
        width, ceil(depth / rows)
    )


def memory_of_blocks(width: int, depth: int) -> Resources:
    """Return what a memory of BRAM takes: the least of its shapes."""
    counts = (ceil(width / bits) * ceil(depth / words) for bits, words in _BRAM_SHAPES)
    return Resources(brams=min(counts))


def memory_of_ultra_blocks(width: int, depth: int, *, folds: bool) -> Resources:
    """Return what a memory of URAM takes.

    If it ``folds``, the bits beside whole columns of blocks share a block with those of other
    depths: half a word each of twice as many, and so on down to a byte.
    """
    bits, words = _URAM_SHAPE
    columns, rest = divmod(width, bits)
    blocks = columns * ceil(depth / words)
    if rest:
        times = 1
        while folds and times < 8 and rest <= bits / (2 * times):
            times *= 2
        blocks += ceil(depth / (words * times))
    return Resources(urams=blocks)


def streams(count: int, width: int, depth: int) -> Resources:
    """Return what FIFOs of LUTs take."""
    return count * (memory_of_luts(width, depth) + _STREAM_CONTROL)


def outlet(width: int, depth: int, *, in_memory: bool) -> Resources:
    """Return what the end of a pipeline takes that holds what a stream does not take.

    Results wait in the last stages of a flushable pipeline, each of which may stop. Or they wait in
    a memory of as many places after a pipeline that never stops, and pass it by if they need not.
    """
    places = depth - 1
    if places == 1:
        return registers(width) + Resources(luts=6, registers=2)
    if not in_memory:
        return registers(width + 1, places) + Resources(luts=places)
    control = counters(4, places.bit_length()) + registers(places)
    return memory_of_luts(width, places) + selects(width, 2) + control


def port(outstanding: int, burst: int, *, directions: int) -> Resources:
    """Return what a port to device memory takes: it holds all words that are on their way.

    The logic is what Vitis HLS prints for adapters of 512 bits, about 1,000 LUTs a direction.
    """
    held = memory_of_blocks(WORD, outstanding * burst)
    return directions * (held + Resources(luts=1000, registers=2 * WORD + 1500))
