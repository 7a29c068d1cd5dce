"""Resources of memories, streams, multiplexers and ports by width and depth (UltraScale+)."""

from math import ceil

from gnnscale.planner.fpga_board import Resources

#: Bits of a word.
WORD = 512
#: Width and depth of a 36 Kbit block with one write and one read port.
_BRAM_SHAPES = ((72, 512), (36, 1024), (18, 2048), (9, 4096), (4, 8192), (2, 16384), (1, 32768))
_URAM_SHAPE = (72, 4096)
#: Depth and width of a memory of eight LUTs (RAM32M16, RAM64M8).
_LUT_SHAPES = ((32, 14), (64, 7))
#: Element counter and pointer comparison of a stream.
_STREAM_CONTROL = Resources(luts=20, registers=16)


def registers(bits: int, stages: int = 1) -> Resources:
    """Return the resources of ``stages`` consecutive registers of ``bits``."""
    return Resources(registers=bits * stages)


def delays(bits: int, cycles: int) -> Resources:
    """Return the resources of a delay of ``bits``: registers; from three cycles on also LUTs.

    Each bit then takes one register, and a LUT for every 32 cycles.
    """
    if cycles < 3:
        return registers(bits, cycles)
    return Resources(luts=bits * ceil((cycles - 1) / 32), registers=bits)


def logic(bits: int, inputs: int = 2) -> Resources:
    """Return the resources of ``bits`` functions, each of ``inputs`` bits: six-input LUT trees."""
    luts = 0
    while inputs > 1:
        inputs = ceil(inputs / 6) if inputs > 6 else 1
        luts += inputs
    return Resources(luts=bits * luts)


def selects(bits: int, inputs: int) -> Resources:
    """Return the resources of a multiplexer of ``inputs`` values: four values per LUT and bit."""
    luts = 0
    while inputs > 1:
        inputs = ceil(inputs / 4)
        luts += inputs
    return Resources(luts=bits * luts)


def equals(bits: int) -> Resources:
    """Return the resources of comparing two ``bits``-wide numbers: a LUT per 3 bits, and a tree."""
    parts = ceil(bits / 3)
    return Resources(luts=parts) + logic(1, parts)


def counters(count: int, bits: int) -> Resources:
    """Return the resources of ``count`` counters with a limit: 2.5 LUTs and a register per bit."""
    return count * Resources(luts=2.5 * bits, registers=bits)


def memory_of_luts(width: int, depth: int) -> Resources:
    """Return the resources of ``depth`` words of ``width`` bits in LUTs, without read latency.

    LUTs form blocks of at most 64 words.
    """
    rows, bits = next((shape for shape in _LUT_SHAPES if depth <= shape[0]), _LUT_SHAPES[-1])
    return Resources(luts=ceil(depth / rows) * 8 * ceil(width / bits)) + selects(
        width, ceil(depth / rows)
    )


def memory_of_blocks(width: int, depth: int) -> Resources:
    """Return the BRAM blocks of a memory, in the block shape that needs the fewest."""
    counts = (ceil(width / bits) * ceil(depth / words) for bits, words in _BRAM_SHAPES)
    return Resources(brams=min(counts))


def memory_of_ultra_blocks(width: int, depth: int, *, folds: bool) -> Resources:
    """Return the URAM blocks, each of 72 bits and 4096 words, of a memory.

    ``folds``: bits beyond whole columns of 72 use each block as a memory of 2, 4 or 8 times the
    depth and a half, a quarter or an eighth of the width.
    """
    bits, words = _URAM_SHAPE
    columns, remaining = divmod(width, bits)
    blocks = columns * ceil(depth / words)
    if remaining:
        times = 1
        while folds and times < 8 and remaining <= bits / (2 * times):
            times *= 2
        blocks += ceil(depth / (words * times))
    return Resources(urams=blocks)


def streams(count: int, width: int, depth: int) -> Resources:
    """Return the resources of ``count`` FIFOs of LUTs, of ``depth`` words of ``width`` bits."""
    return count * (memory_of_luts(width, depth) + _STREAM_CONTROL)


def outlet(width: int, depth: int, *, in_memory: bool) -> Resources:
    """Return the resources that keep a pipeline's results while its output stream stalls.

    The pipeline has ``depth`` stages and results of ``width`` bits. Its last stages stop one by one
    and keep the results. With ``in_memory`` the pipeline never stops, and a memory behind it keeps
    results, which bypass an empty memory.
    """
    entries = depth - 1
    if entries == 1:
        return registers(width) + Resources(luts=6, registers=2)
    if not in_memory:
        return registers(width + 1, entries) + Resources(luts=entries)
    control = counters(4, entries.bit_length()) + registers(entries)
    return memory_of_luts(width, entries) + selects(width, 2) + control


def port(outstanding: int, burst: int, *, directions: int) -> Resources:
    """Return the resources of a device-memory port, with a buffer of bursts per direction."""
    buffer = memory_of_blocks(WORD, outstanding * burst)
    return directions * (buffer + Resources(luts=1000, registers=2 * WORD + 1500))
