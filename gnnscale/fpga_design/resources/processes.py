"""What each process of a compute unit takes (``fpga/kernels``).

Counted are operators, memories, what is chosen from what, what waits in pipelines, and the counters
of loops. Routing, copies that placement makes and the glue of Vitis HLS are not.
"""

from __future__ import annotations

from dataclasses import dataclass

from gnnscale.fpga_design.resources.design import (
    ADD,
    GATHER_WINDOW,
    LANES,
    MULTIPLY,
    READ,
    URAM_READ,
    DesignSize,
    Tool,
)
from gnnscale.fpga_design.resources.primitives import (
    WORD,
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
from gnnscale.planner.fpga_board import Resources, total

# Bits of what moves through streams (``messages.hpp``).
_EDGE, _NEED, _ROW, _MESSAGE, _PRODUCT = 97, 34, WORD + 32, WORD + 33, WORD + 256 + 66
_FIFO, _SWITCH_FIFO, _BANK_FIFO = 32, 8, 4  # depths, ``engines.hpp``
_OUTSTANDING, _BURST = 4, 64  # of a port, ``step.cpp``
# Products of 64 bits: of a row's dropout key, of the number of its draws, and of a draw.
_KEY_PRODUCTS, _DRAWS, _DRAW_PRODUCTS = 4, 4, 2
_LOSS_SEEDS, _BINARY_AT_ONCE = 512, 2  # ``loss.hpp``
# Of a task: bits that a process reads, and divisions by sizes that only the task knows.
_TASK_BITS, _DIVISIONS, _DIVIDING_PROCESSES = 10 * 32, 3, 8


@dataclass(frozen=True)
class Processes:
    """The processes of a design, each a method that returns what it takes."""

    size: DesignSize
    tool: Tool

    def all(self) -> dict[str, Resources]:
        """Return what the processes take, all of a kind together, and what is beside them."""
        pes, banks = self.size.n, self.size.banks
        switches = self.size.routing_stages * pes // 2
        return {
            "read_edges": self.read_edges(),
            "read_rows": self.read_rows(),
            "duplicate": selects(_ROW, 2) + pes * self._ends(_ROW, 2),
            "select": pes * self.select(),
            "scatter": pes * self.scatter(),
            "route": switches * self.switch(),
            "gather": pes * self.gather(),
            "move_scratch": selects(WORD, self.size.step) + 2 * self._ends(WORD, 2),
            "fill_left": self.fill_left(),
            "fill_right": self.fill_right(),
            "multiply": self.array(),
            "deal": self.deal(),
            "write_gradients": self.write_gradients(),
            "keep_rows": banks * self.keep_rows(),
            "loss": self.loss(),
            "steps": registers(16 * WORD) + memory_of_luts(WORD, 16) + Resources(luts=3000),
            "tasks": self.tasks(),
            "streams": self.streams(),
            "ports": self.ports(),
        }

    def _ends(self, width: int, depth: int) -> Resources:
        """The end of a pipeline, in front of a stream."""
        return outlet(width, depth, in_memory=self.tool.holds_in_memory)

    def _ultra(self, words: int) -> Resources:
        """A memory of words in URAM."""
        return memory_of_ultra_blocks(WORD, words, folds=self.tool.folds_memories)

    def read_edges(self) -> Resources:
        """Edges are kept in URAM, and dealt n at a time with the number of their source."""
        size = self.size
        words = max(size.n // 8, 1)
        memory = words * self._ultra(size.edge_words // words)
        dealt = selects(64, max(8 // size.n, 1)) + self._ends(_EDGE, 5) + self._ends(_NEED, 5)
        counted = size.n * counters(2, 32) + counters(5, 20)
        return memory + registers(words * WORD) + size.n * dealt + counted + _loop(5)

    def read_rows(self) -> Resources:
        """A row comes from device memory or from the banks, and is scaled."""
        ends = self._ends(_ROW, 6) + self._ends(WORD, 6)
        chosen = selects(WORD, self.size.banks + 1)
        return _lanes(self.tool.multiply) + chosen + ends + counters(5, 32) + _loop(6)

    def select(self) -> Resources:
        """A row is held until a need has come to it."""
        return registers(_ROW + _NEED) + self._ends(_ROW, 2) + 3 * equals(32) + _loop(2)

    def scatter(self) -> Resources:
        """A row is held while edges leave from it, and each takes sixteen products."""
        held = selects(_ROW, 2) + selects(_EDGE, 2) + registers(_ROW + _EDGE)
        own = counters(1, 32) + selects(32, 2) + equals(32) + selects(32, 2)
        ends = delays(33, MULTIPLY) + self._ends(_MESSAGE, 6) + registers(_MESSAGE)
        return _lanes(self.tool.multiply) + held + own + ends + counters(2, 16) + _loop(6)

    def switch(self) -> Resources:
        """Two messages are held, and each output gets one of them."""
        held = selects(_MESSAGE, 2) + registers(_MESSAGE)
        side = held + selects(_MESSAGE, 2) + self._ends(_MESSAGE, 2)
        return 2 * side + counters(1, 16) + _loop(2)

    def gather(self) -> Resources:
        """A sum of each half is read, added to or cleared, and written."""
        rows = self.size.gather_rows // self.size.n
        place = (rows - 1).bit_length() + 1
        sums = memory_of_blocks(WORD, rows) + self._ultra(rows)
        held = selects(_MESSAGE, 2) + registers(_MESSAGE)
        # What begins is compared with the operations of the last cycles, three times.
        recent = (GATHER_WINDOW - 1) * (3 * equals(place) + 2 * registers(place + 1))
        addresses = 2 * (selects(place, 2) + selects(place, 3))
        addresses += delays(2 * place + 3, URAM_READ + ADD)
        read = 2 * (registers(WORD, URAM_READ - 1) + selects(WORD, 2)) + delays(WORD, URAM_READ)
        written = 2 * logic(WORD)  # a sum, or zero
        complete = LANES * (logic(1, 31) + logic(1))
        leaves = delays(WORD, ADD + 1) + 3 * self._ends(WORD, GATHER_WINDOW + 1)
        parts = (held, recent, addresses, read, written, complete, leaves, counters(4, place))
        return _lanes(self.tool.add) + sums + total(parts) + _loop(GATHER_WINDOW + 1)

    def fill_left(self) -> Resources:
        """Words come from gather PEs, from banks in two modes, or from device memory."""
        size = self.size
        sources = 3 * size.banks // size.lefts + 1
        outputs = size.lefts * (selects(WORD, sources) + self._ends(WORD, 2))
        kept = selects(WORD, size.banks + 1) + (size.banks + 2) * self._ends(WORD, 2)
        return outputs + kept + counters(8, 20) + 3 * _loop(2)

    def fill_right(self) -> Resources:
        """Words of weights or gradients; these are summed for the bias."""
        size = self.size
        adders = size.slices * _lanes(self.tool.add)  # a tree over the slices, and the sum
        sources = max(size.banks // size.slices, 1) + 1
        outputs = size.slices * (selects(WORD, sources) + self._ends(WORD, 9))
        memory = memory_of_luts(WORD, size.sums_of_row)
        bias = (size.banks + 1) * self._ends(WORD, 2)
        return adders + outputs + memory + bias + counters(8, 20) + 2 * _loop(10)

    def array_row(self) -> Resources:
        """Sixteen multiply-accumulate units, and two halves of their sums."""
        bits = (self.size.sums_of_row - 1).bit_length()
        units = _lanes(self.tool.multiply) + _lanes(self.tool.add)
        half = memory_of_luts(WORD, self.size.sums_of_row) + registers(WORD) + selects(bits, 2)
        before = selects(WORD, 2)  # a sum of one of the halves, or zero
        leaves = selects(WORD, 2)  # one of the other, or what comes from the row before
        passed = registers((1 + self.size.drain_step) * WORD + 2 * bits + 8)
        late = delays(bits + 1, READ + ADD) + registers(READ + ADD)
        return units + 2 * half + before + leaves + passed + late + equals(4)

    def array(self) -> Resources:
        """The rows, the blocks that they multiply, and what chooses their values and words."""
        size = self.size
        slice_rows = min(size.rows, LANES)
        depth = 15 + slice_rows + 1
        places = 2 * max(size.max_turns, LANES // size.rows)
        left = size.rows * (memory_of_luts(WORD, places) + registers(WORD))
        right = LANES * (memory_of_luts(WORD, 2 * size.max_words_out) + registers(WORD))
        # A value is a lane of a row's own word, or for the gradients of weights of another one's.
        value = selects(32, LANES) + selects(32, 2) + registers(32)
        value += selects(32, LANES // slice_rows)
        values = size.rows * value + size.slices * selects(WORD, slice_rows)
        skew = total(delays(32, row % LANES) for row in range(size.rows))
        # A word is a row of the weights, or a lane of each, or what passes.
        word = 2 * selects(WORD, LANES) + selects(WORD, 3) + registers(3 * WORD)
        ends = size.drains * (self._ends(WORD, depth) + delays(WORD, READ + ADD + 1))
        control = counters(20, 16) + counters(6, 32) + _loop(depth)
        blocks = left + right + values + skew + size.slices * word
        return size.rows * self.array_row() + blocks + ends + selects(WORD, 3) + control

    def deal(self) -> Resources:
        """Products to their banks, with draws for dropout; gradients to the aggregate engine."""
        size, tool = self.size, self.tool
        ids = 2 * memory_of_blocks(WORD, size.gather_rows // 16)
        draws = (_KEY_PRODUCTS + _DRAWS * _DRAW_PRODUCTS) * tool.multiply_64
        product = draws + selects(64, 8) + registers(WORD + 66, 32)
        banks = size.banks * (selects(_PRODUCT, size.drain_step) + registers(_PRODUCT))
        totals = memory_of_blocks(WORD, size.max_turns * size.rows)
        rows = _lanes(tool.add) + _lanes(tool.multiply) + totals + self._ends(_ROW, 15)
        slices = (size.slices - 1) * _lanes(tool.add) + self._ends(WORD, 9)
        control = selects(WORD, 2) + counters(12, 20) + 4 * _loop(20)
        return ids + size.drain_step * product + banks + rows + slices + control

    def write_gradients(self) -> Resources:
        """The sums of turns, and of the groups before."""
        totals = memory_of_blocks(WORD, min(self.size.rows, LANES) * self.size.max_words_out)
        adder = _lanes(self.tool.add)
        return adder + totals + 3 * selects(WORD, 2) + counters(8, 32) + _loop(17)

    def keep_rows(self) -> Resources:
        """A bank: sums, update and dropout; rows that leave, and gradients in their place."""
        words = self.size.row_words // self.size.banks
        memory = self._ultra(words)
        memory += memory_of_luts(WORD, self.size.max_words_out)
        sums = _lanes(self.tool.add) + 2 * selects(WORD, 2) + registers(WORD, URAM_READ)
        # Sixteen signs and draws open a lane or shut it, forward and backward.
        open_lanes = 2 * _lanes(logic(32)) + _lanes(equals(16)) + _lanes(logic(1, 32))
        ends = selects(WORD, 4) + 5 * self._ends(WORD, 5)
        walks = counters(16, (words - 1).bit_length())
        return memory + sums + open_lanes + ends + walks + 4 * _loop(18)

    def loss(self) -> Resources:
        """Cross-entropy of half a word of classes, or of a word; binary cross-entropy of two."""
        tool = self.tool
        largest = _lanes(tool.compare) + _lanes(selects(32, 2))
        exponential = tool.exponential + 2 * tool.add
        gradient = tool.multiply + tool.add
        at_once = LANES if self.size.rows > LANES else LANES // 2
        classes = at_once * (exponential + gradient)
        seed = tool.divide + tool.logarithm + 5 * tool.add
        binary = tool.exponential + tool.logarithm + tool.divide
        binary += 5 * tool.add + 2 * tool.multiply + 2 * tool.compare
        binary = _BINARY_AT_ONCE * (binary + selects(32, LANES // _BINARY_AT_ONCE))
        memories = 4 * memory_of_blocks(32, _LOSS_SEEDS)
        # A word of one of the banks in each of the loops, and what waits for its operators.
        rows = 5 * (selects(WORD, self.size.banks) + selects(WORD, 2)) + 3 * registers(WORD, 30)
        control = counters(20, 20) + 5 * _loop(60)
        return largest + classes + seed + binary + memories + rows + control

    def tasks(self) -> Resources:
        """A process gets its task through FIFOs of its fields, and divides by some of them."""
        number = 10 + 3 * self.size.n + self.size.routing_stages + self.size.banks
        fields = memory_of_luts(_TASK_BITS, 2) + registers(2 * _TASK_BITS)
        divisions = _DIVIDING_PROCESSES * _DIVISIONS * self.tool.divide_integers
        return number * fields + divisions

    def streams(self) -> Resources:
        """The FIFOs between the processes (``engines.hpp``)."""
        size = self.size
        pes, banks = size.n, size.banks
        return total(
            [
                streams(pes + 6 + size.drains + banks, WORD, 2),
                streams(size.step + 2 + size.lefts + size.slices + 8 * banks, WORD, _BANK_FIFO),
                streams(pes, _EDGE, _FIFO),
                streams(pes, _NEED, _FIFO),
                streams(2, _ROW, 2),
                streams(pes, _ROW, 4),
                streams(pes, _ROW, _FIFO),
                streams((size.routing_stages + 1) * pes, _MESSAGE, _SWITCH_FIFO),
                streams(banks, _PRODUCT, _BANK_FIFO),
            ]
        )

    def ports(self) -> Resources:
        """Seven ports to device memory: four read, one writes, and two do both."""
        read = port(_OUTSTANDING, _BURST, directions=1)
        return 5 * read + 2 * port(_OUTSTANDING, _BURST, directions=2)


def _lanes(operator: Resources) -> Resources:
    """One for each float of a word."""
    return LANES * operator


def _loop(depth: int) -> Resources:
    """A loop that starts, waits for streams and runs empty."""
    return Resources(luts=60, registers=40 + depth)
