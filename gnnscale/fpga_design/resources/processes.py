"""Resources of each process of a compute unit (``fpga/kernels``), and its fit on a die.

The model counts operators, memories, multiplexers, pipeline registers and loop counters. It omits
routing, copies by placement and the glue logic of Vitis HLS.
"""

from dataclasses import dataclass

from gnnscale.fpga_design.resources.design import (
    ADD,
    GATHER_WINDOW,
    LANES,
    MULTIPLY,
    READ,
    URAM_READ,
    VITIS_HLS,
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
from gnnscale.planner.fpga_board import NAMES, Die, Resources, total

# Bits of the tokens in streams (``messages.hpp``).
_EDGE, _NEED, _ROW, _MESSAGE, _PRODUCT = 97, 34, WORD + 32, WORD + 33, WORD + 256 + 66
_FIFO, _SWITCH_FIFO, _BANK_FIFO = 32, 8, 4  # depths, ``engines.hpp``
_OUTSTANDING, _BURST = 4, 64  # of a port, ``step.cpp``
# 64-bit products: of a row's dropout key, of its random draws, and of one draw.
_KEY_PRODUCTS, _DRAWS, _DRAW_PRODUCTS = 4, 4, 2
_LOSS_SEEDS, _BINARY_AT_ONCE = 512, 2  # ``loss.hpp``
# Task: bits read per process, and divisions by sizes that only the task contains.
_TASK_BITS, _DIVISIONS, _DIVIDING_PROCESSES = 10 * 32, 3, 8


@dataclass(frozen=True)
class Processes:
    """Hardware processes of a compute unit; a method for each returns its FPGA resources."""

    size: DesignSize
    tool: Tool

    def all(self) -> dict[str, Resources]:
        """Return the resources by process, all instances together, and by shared part."""
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
            "streams": _fifos(self.size),
            "ports": _ports(),
        }

    def _ends(self, width: int, depth: int) -> Resources:
        """Return the resources that keep ``depth`` results of ``width`` bits in a stall."""
        return outlet(width, depth, in_memory=self.tool.holds_in_memory)

    def _ultra(self, words: int) -> Resources:
        """Return the resources of a URAM memory of ``words`` of 512 bits."""
        return memory_of_ultra_blocks(WORD, words, folds=self.tool.folds_memories)

    def read_edges(self) -> Resources:
        """Return the resources of the edge reader: cache in URAM, n edges a cycle to the PEs."""
        size = self.size
        words = max(size.n // 8, 1)
        memory = words * self._ultra(size.edge_words // words)
        dealt = selects(64, max(8 // size.n, 1)) + self._ends(_EDGE, 5) + self._ends(_NEED, 5)
        counted = size.n * counters(2, 32) + counters(5, 20)
        return memory + registers(words * WORD) + size.n * dealt + counted + _loop(5)

    def read_rows(self) -> Resources:
        """Return the resources that read source rows, from device memory or banks, and scale."""
        ends = self._ends(_ROW, 6) + self._ends(WORD, 6)
        chosen = selects(WORD, self.size.banks + 1)
        return _lanes(self.tool.multiply) + chosen + ends + counters(5, 32) + _loop(6)

    def select(self) -> Resources:
        """Return the resources of a PE's filter, which passes on only rows that its edges need."""
        return registers(_ROW + _NEED) + self._ends(_ROW, 2) + 3 * equals(32) + _loop(2)

    def scatter(self) -> Resources:
        """Return the resources of a scatter PE: 16 features times an edge's weight a cycle."""
        inputs = selects(_ROW, 2) + selects(_EDGE, 2) + registers(_ROW + _EDGE)
        matching = counters(1, 32) + selects(32, 2) + equals(32) + selects(32, 2)
        ends = delays(33, MULTIPLY) + self._ends(_MESSAGE, 6) + registers(_MESSAGE)
        return _lanes(self.tool.multiply) + inputs + matching + ends + counters(2, 16) + _loop(6)

    def switch(self) -> Resources:
        """Return the resources of a routing switch with two inputs and two outputs of messages."""
        inputs = selects(_MESSAGE, 2) + registers(_MESSAGE)
        side = inputs + selects(_MESSAGE, 2) + self._ends(_MESSAGE, 2)
        return 2 * side + counters(1, 16) + _loop(2)

    def gather(self) -> Resources:
        """Return the resources of a gather PE, which sums messages, double-buffered."""
        rows = self.size.gather_rows // self.size.n
        address_bits = (rows - 1).bit_length() + 1
        sums = memory_of_blocks(WORD, rows) + self._ultra(rows)
        inputs = selects(_MESSAGE, 2) + registers(_MESSAGE)
        # Each starting operation is compared with the last cycles' operations, three times.
        recent = (GATHER_WINDOW - 1) * (3 * equals(address_bits) + 2 * registers(address_bits + 1))
        addresses = 2 * (selects(address_bits, 2) + selects(address_bits, 3))
        addresses += delays(2 * address_bits + 3, URAM_READ + ADD)
        read = 2 * (registers(WORD, URAM_READ - 1) + selects(WORD, 2)) + delays(WORD, URAM_READ)
        written = 2 * logic(WORD)  # a sum, or zero
        complete = LANES * (logic(1, 31) + logic(1))
        leaves = delays(WORD, ADD + 1) + 3 * self._ends(WORD, GATHER_WINDOW + 1)
        parts = (inputs, recent, addresses, read, written, complete, leaves)
        control = counters(4, address_bits) + _loop(GATHER_WINDOW + 1)
        return _lanes(self.tool.add) + sums + total(parts) + control

    def fill_left(self) -> Resources:
        """Return the resources that feed rows of gather PEs, banks or memory to the array."""
        size = self.size
        sources = 3 * size.banks // size.lefts + 1
        outputs = size.lefts * (selects(WORD, sources) + self._ends(WORD, 2))
        banks = selects(WORD, size.banks + 1) + (size.banks + 2) * self._ends(WORD, 2)
        return outputs + banks + counters(8, 20) + 3 * _loop(2)

    def fill_right(self) -> Resources:
        """Return the resources that feed weights, or output gradients, to the array.

        The gradients are also added up to the gradient of the bias.
        """
        size = self.size
        adders = size.slices * _lanes(self.tool.add)  # tree over the slices, and the sum
        sources = max(size.banks // size.slices, 1) + 1
        outputs = size.slices * (selects(WORD, sources) + self._ends(WORD, 9))
        memory = memory_of_luts(WORD, size.sums_of_row)
        bias = (size.banks + 1) * self._ends(WORD, 2)
        return adders + outputs + memory + bias + counters(8, 20) + 2 * _loop(10)

    def array_row(self) -> Resources:
        """Return the resources of an array row: 16 multiply-accumulate units, and their sums."""
        bits = (self.size.sums_of_row - 1).bit_length()
        units = _lanes(self.tool.multiply) + _lanes(self.tool.add)
        half = memory_of_luts(WORD, self.size.sums_of_row) + registers(WORD) + selects(bits, 2)
        initial = selects(WORD, 2)  # sum of a half, or zero
        leaves = selects(WORD, 2)  # sum of the other half, or the previous row's output
        passed = registers((1 + self.size.drain_step) * WORD + 2 * bits + 8)
        late = delays(bits + 1, READ + ADD) + registers(READ + ADD)
        return units + 2 * half + initial + leaves + passed + late + equals(4)

    def array(self) -> Resources:
        """Return the resources of the multiply-accumulate array with its operand memories."""
        size = self.size
        slice_rows = min(size.rows, LANES)
        depth = 15 + slice_rows + 1
        words_left = 2 * max(size.max_turns, LANES // size.rows)
        left_blocks = size.rows * (memory_of_luts(WORD, words_left) + registers(WORD))
        right_blocks = LANES * (memory_of_luts(WORD, 2 * size.max_words_out) + registers(WORD))
        # A value is a lane of the row's own word, or of another row's word for weights' gradients.
        value = selects(32, LANES) + selects(32, 2) + registers(32)
        value += selects(32, LANES // slice_rows)
        values = size.rows * value + size.slices * selects(WORD, slice_rows)
        skew = total(delays(32, row % LANES) for row in range(size.rows))
        # A word is a row of the weights, a lane of every row, or passes through.
        word = 2 * selects(WORD, LANES) + selects(WORD, 3) + registers(3 * WORD)
        ends = size.drains * (self._ends(WORD, depth) + delays(WORD, READ + ADD + 1))
        control = counters(20, 16) + counters(6, 32) + _loop(depth)
        blocks = left_blocks + right_blocks + values + skew + size.slices * word
        return size.rows * self.array_row() + blocks + ends + selects(WORD, 3) + control

    def deal(self) -> Resources:
        """Return the resources of the router of array outputs: products to banks, and gradients."""
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
        """Return the resources of the adder of weight gradients.

        It adds interleaved partial sums, and sums of a mini-batch's earlier groups of seeds.
        """
        totals = memory_of_blocks(WORD, min(self.size.rows, LANES) * self.size.max_words_out)
        adder = _lanes(self.tool.add)
        return adder + totals + 3 * selects(WORD, 2) + counters(8, 32) + _loop(17)

    def keep_rows(self) -> Resources:
        """Return the resources of a bank of rows, which also sums, activates and drops features."""
        words = self.size.row_words // self.size.banks
        memory = self._ultra(words)
        memory += memory_of_luts(WORD, self.size.max_words_out)
        sums = _lanes(self.tool.add) + 2 * selects(WORD, 2) + registers(WORD, URAM_READ)
        # Sixteen signs and random draws gate the lanes, forward and backward.
        open_lanes = 2 * _lanes(logic(32)) + _lanes(equals(16)) + _lanes(logic(1, 32))
        ends = selects(WORD, 4) + 5 * self._ends(WORD, 5)
        walks = counters(16, (words - 1).bit_length())
        return memory + sums + open_lanes + ends + walks + 4 * _loop(18)

    def loss(self) -> Resources:
        """Return the resources of the loss: cross-entropy and binary cross-entropy."""
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
        # One bank's word in each of the loops, and delays for the operators.
        rows = 5 * (selects(WORD, self.size.banks) + selects(WORD, 2)) + 3 * registers(WORD, 30)
        control = counters(20, 20) + 5 * _loop(60)
        return largest + classes + seed + binary + memories + rows + control

    def tasks(self) -> Resources:
        """Return the resources of all processes' FIFOs of tasks, and of divisions by task sizes."""
        number = 10 + 3 * self.size.n + self.size.routing_stages + self.size.banks
        fields = memory_of_luts(_TASK_BITS, 2) + registers(2 * _TASK_BITS)
        divisions = _DIVIDING_PROCESSES * _DIVISIONS * self.tool.divide_integers
        return number * fields + divisions


def _lanes(operator: Resources) -> Resources:
    """Return the resources of 16 operators, one for each float of a 512-bit word."""
    return LANES * operator


def _loop(depth: int) -> Resources:
    """Return the resources of a loop's control, for a pipeline of ``depth`` stages."""
    return Resources(luts=60, registers=40 + depth)


def _fifos(size: DesignSize) -> Resources:
    """Return the resources of the data FIFOs between the hardware processes (``engines.hpp``)."""
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


def _ports() -> Resources:
    """Return the resources of seven ports to device memory: four read, one writes, two do both."""
    read = port(_OUTSTANDING, _BURST, directions=1)
    return 5 * read + 2 * port(_OUTSTANDING, _BURST, directions=2)


#: Usable fraction of each resource, shell included: fuller dies seldom reach their clock.
MAX_SHARE = 0.85


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Resources of a compute unit, and the fractions of its die that the unit and the shell use."""

    resources: dict[str, Resources]  #: by process, and by shared part such as ``ports``
    shares: dict[str, float]  #: used fraction by resource, shell included

    @property
    def fits(self) -> bool:
        """Whether at most ``MAX_SHARE`` of each resource of the die is used."""
        return all(share <= MAX_SHARE for share in self.shares.values())

    @property
    def limit(self) -> str:
        """Name of the resource of the die with the largest used fraction."""
        return max(self.shares, key=lambda name: self.shares[name])


def fit(size: DesignSize, die: Die, tool: Tool = VITIS_HLS) -> Fit:
    """Return the resources of a compute unit, and the used fractions of ``die``, shell included."""
    resources = Processes(size, tool).all()
    used = total(resources.values()) + die.shell
    shares = {name: getattr(used, name) / getattr(die.has, name) for name in NAMES}
    return Fit(resources=resources, shares=shares)
