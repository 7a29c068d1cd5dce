"""The systolic array (``kernels/multiply.hpp``): up to 16 rows of 16 multiply-accumulate units.

Words pass the rows one after the other, a register each, and sums leave the same way. Products of
small counters are sums here, so that none takes a DSP slice.
"""

from __future__ import annotations

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.array_row import OPERATION_STAGE, ArrayRow, operation_layout
from rtl.block_row import BlockRow
from rtl.constants import (
    ADD,
    IN,
    LANES,
    MAX_WORDS_OUT,
    MULTIPLY,
    OUT,
    READ,
    SUM_WINDOW,
    WORD,
    WRITE,
)
from rtl.selector import Selector
from rtl.shared import add_shared
from rtl.streams import Outlet, delay, delay_valid, lanes, wait

#: What a task gives, as ``Blocks`` has it, and the bits of each.
SIZES = {
    "turns": 6,
    "sets": 4,
    "words": 7,
    "words_out": 7,
    "columns": 16,
    "block_lanes": 5,
    "rows": 20,
    "group_rows": 12,
    "groups": 20,
    "steps": 20,
    "parts": 20,
    "num_lefts": 32,
    "num_rights": 20,
    "num_sums": 32,
}


class Halves:
    """Which half of a memory is filled and which one is used next, and whether they are full."""

    def __init__(self, m: Module, name: str) -> None:
        self._m = m
        self._full = [Signal(name=f"{name}_full_{half}") for half in range(2)]
        self.fills, self.uses = Signal(name=f"{name}_fills"), Signal(name=f"{name}_uses")
        self.has_room = ~Mux(self.fills, self._full[1], self._full[0])
        self.is_ready = Mux(self.uses, self._full[1], self._full[0])

    def update(self, filled: Value, used: Value) -> None:
        """Note that one half was filled, or used, in this cycle."""
        for half, full in enumerate(self._full):
            with self._m.If(filled & (self.fills == half)):
                self._m.d.sync += full.eq(1)
            with self._m.If(used & (self.uses == half)):
                self._m.d.sync += full.eq(0)
        self._m.d.sync += [self.fills.eq(self.fills ^ filled), self.uses.eq(self.uses ^ used)]


class SystolicArray(wiring.Component):
    """``num_rows`` rows, which take ``lefts`` words in a cycle and give one."""

    def __init__(self, num_rows: int, lefts: int, max_turns: int) -> None:
        self.num_rows, self.lefts = num_rows, lefts
        self.row_bits = (num_rows - 1).bit_length()
        self.place_bits = (max(max_turns, LANES // num_rows) - 1).bit_length()
        self.word_bits = (MAX_WORDS_OUT - 1).bit_length()
        self.sum_bits = (max(MAX_WORDS_OUT, 2 * max_turns) - 1).bit_length()
        word = stream.Signature(WORD)
        ports: dict[str, In | Out] = {name: In(bits) for name, bits in SIZES.items()}
        ports |= {"forward": In(1), "transposes": In(1), "done": Out(1)}
        ports |= {f"left_{i}": In(word) for i in range(lefts)}
        super().__init__(ports | {"right": In(word), "drained": Out(word)})
        #: The modules that it has several of.
        self.shared: dict[str, wiring.Component] = {
            "left_row": BlockRow(2 << self.place_bits),
            "right_row": BlockRow(2 * MAX_WORDS_OUT),
            "array_row": ArrayRow(self.sum_bits, self.row_bits),
            "left_selector": Selector(num_rows),
            "right_selector": Selector(LANES),
        }

    def elaborate(self, _: object) -> Module:
        """Return the logic."""
        m = Module()
        depth = IN + READ + self.num_rows + MULTIPLY + READ + ADD + WRITE + OUT
        m.submodules.outlet = outlet = Outlet(
            WORD, depth, stage=IN + READ + MULTIPLY + self.num_rows
        )
        wiring.connect(m, outlet.out, wiring.flipped(self.drained))
        self.backward = ~self.forward & ~self.transposes
        self.lane, self.part, self.turn = Signal(4), Signal(20), Signal(6)
        self.word, self.column = Signal(7), Signal(16)
        lefts, rights, sums = (Halves(m, each) for each in ("lefts", "rights", "sums"))
        rows, left_filled = self._left(m, lefts)
        weights, right_filled = self._right(m, rights)
        operation = Signal(operation_layout(self.sum_bits, self.row_bits))
        adds = Signal()
        done, used = self._step(m, adds, operation)
        m.d.comb += adds.eq(
            ~done
            & lefts.is_ready
            & sums.has_room
            & Mux(self.transposes, self.right.valid, rights.is_ready)
        )
        with m.If(self.transposes):
            m.d.comb += self.right.ready.eq(adds)
        running, drained = self._drain(m, sums.is_ready, outlet.room, operation)
        m.d.comb += [
            operation.half.eq(sums.fills),
            operation.drained_half.eq(sums.uses),
            outlet.launch.eq(operation.drains),
        ]
        lefts.update(left_filled, used["left"])
        rights.update(right_filled, used["right"])
        sums.update(used["sums"], drained)
        values, word = self._operands(m, rows, weights)
        m.d.comb += outlet.value.eq(self._rows(m, operation, adds, values, word))
        m.d.comb += self.done.eq(wait(m, ~running, depth) & outlet.empty)
        return m

    def _group_rows(self, m: Module, begin: Signal, ends: Value) -> Value:
        """Return the rows of the group from ``begin`` on; when it ends, the next one begins."""
        rest = Signal(20)
        m.d.comb += rest.eq(self.rows - begin)
        is_last = rest <= self.group_rows
        with m.If(ends):
            m.d.sync += begin.eq(Mux(is_last, 0, begin + self.group_rows))
        return Mux(is_last, rest, self.group_rows)

    def _left(self, m: Module, halves: Halves) -> tuple[list[dict[str, Signal]], Value]:
        """Take words of a left block; return its rows, and whether one is full."""
        group = self.num_rows // self.lefts  # words of each stream before the next place
        streams = [getattr(self, f"left_{i}") for i in range(self.lefts)]
        begin = Signal(20)
        column, left = Signal(16), Signal(32)
        turn, place, at = Signal(range(max(group, 2))), Signal(self.place_bits), Signal(12)
        takes, fills, ends_column = Signal(), Signal(), Signal()
        valid = Cat(each.valid for each in streams).all()
        rows = self._group_rows(m, begin, fills & ends_column)
        m.d.comb += [
            takes.eq((left != self.num_lefts) & halves.has_room & valid),
            fills.eq(takes & (at + self.lefts >= rows)),
            ends_column.eq(column + 1 == self.columns),
        ]
        for each in streams:
            m.d.comb += each.ready.eq(takes)
        with m.If(takes):
            next_place = turn == group - 1
            m.d.sync += [
                at.eq(Mux(fills, 0, at + self.lefts)),
                turn.eq(Mux(fills | next_place, 0, turn + 1)),
                place.eq(Mux(fills, 0, place + next_place)),
            ]
        with m.If(fills):
            m.d.sync += [left.eq(left + 1), column.eq(Mux(ends_column, 0, column + 1))]
        # For the gradients of weights, `num_rows` words lie side by side in a place.
        read = Mux(self.transposes, self.lane >> self.row_bits, self.turn)[: self.place_bits]
        row = self.shared["left_row"]
        found = []
        for number in range(self.num_rows):
            inputs = {
                "read_address": Cat(read, halves.uses),
                "write_address": Cat(place, halves.fills),
                "write_data": streams[number % self.lefts].payload,
                "write_enable": takes & (turn == number // self.lefts),
                "lane": delay(m, self.lane, READ),
            }
            found.append(add_shared(m, "left_row", row, inputs))
        return found, fills

    def _right(self, m: Module, halves: Halves) -> tuple[list[dict[str, Signal]], Value]:
        """Take a word of a right block in a cycle; return its rows, and whether one is full."""
        word, number, left = Signal(self.word_bits), Signal(range(LANES)), Signal(20)
        takes, ends_row, fills = Signal(), Signal(), Signal()
        m.d.comb += [
            takes.eq((left != self.num_rights) & halves.has_room & self.right.valid),
            ends_row.eq(takes & (word + 1 == self.words_out)),
            fills.eq(ends_row & (number == LANES - 1)),
        ]
        with m.If(~self.transposes):
            m.d.comb += self.right.ready.eq(takes)
        with m.If(takes):
            m.d.sync += word.eq(Mux(ends_row, 0, word + 1))
        m.d.sync += [number.eq(number + ends_row), left.eq(left + fills)]
        read = Mux(self.backward, self.column, self.word)[: self.word_bits]
        row = self.shared["right_row"]
        found = []
        for each in range(LANES):
            inputs = {
                "read_address": Cat(read, halves.uses),
                "write_address": Cat(word, halves.fills),
                "write_data": self.right.payload,
                "write_enable": takes & (number == each),
                "lane": delay(m, self.lane, READ),
            }
            found.append(add_shared(m, "right_row", row, inputs))
        return found, fills

    def _step(
        self, m: Module, adds: Signal, operation: data.View
    ) -> tuple[Value, dict[str, Value]]:
        """Count the steps; return whether all are done, and which halves this one uses up."""
        set_, group, before, cycle = Signal(4), Signal(20), Signal(20), Signal(6)
        # The place of the step's sums: turn times sets and words, set times words, and word.
        of_turn, of_set = Signal(self.sum_bits), Signal(self.sum_bits)
        turn_words = Mux(self.sets == 1, self.words, self.sets)  # one of them is 1
        m.d.comb += [
            operation.sum.eq(of_turn + of_set + self.word),
            operation.begins.eq(
                Mux(
                    self.transposes,
                    before + self.lane < self.turns,
                    (self.column == 0) & (self.lane < self.sets),
                )
            ),
        ]
        ends_word, ends_turn, ends_left = Signal(), Signal(), Signal()
        ends_sums, ends_right = Signal(), Signal()
        last_left = Mux(
            self.transposes,
            before + self.block_lanes >= self.steps,
            self.column + 1 == self.columns,
        )
        m.d.comb += [
            ends_word.eq(adds & (self.word + 1 == self.words)),
            ends_turn.eq(ends_word & (self.transposes | (self.turn + 1 == self.turns))),
            ends_left.eq(ends_turn & (self.lane + 1 == self.block_lanes)),
            ends_sums.eq(ends_left & last_left),
            ends_right.eq(ends_sums & (self.transposes | (group + 1 == self.groups))),
        ]
        last_set, last_cycle = set_ + 1 == self.sets, cycle + 1 == self.turns
        with m.If(adds):
            m.d.sync += self.word.eq(Mux(ends_word, 0, self.word + 1))
        with m.If(ends_word & ~self.transposes):
            m.d.sync += self.turn.eq(Mux(ends_turn, 0, self.turn + 1))
            m.d.sync += of_turn.eq(Mux(ends_turn, 0, of_turn + turn_words))
        with m.If(ends_turn):
            m.d.sync += [
                self.lane.eq(Mux(ends_left, 0, self.lane + 1)),
                set_.eq(Mux(last_set | ends_sums, 0, set_ + 1)),
                of_set.eq(Mux(last_set | ends_sums, 0, of_set + self.words)),
                cycle.eq(Mux(last_cycle | ends_sums, 0, cycle + 1)),
            ]
            with m.If(self.transposes):
                m.d.sync += of_turn.eq(Mux(last_cycle | ends_sums, 0, of_turn + turn_words))
        with m.If(ends_left):
            m.d.sync += [
                before.eq(Mux(ends_sums, 0, before + self.block_lanes)),
                self.column.eq(Mux(ends_sums | self.transposes, 0, self.column + 1)),
            ]
        with m.If(ends_sums & ~self.transposes):
            m.d.sync += group.eq(Mux(ends_right, 0, group + 1))
        m.d.sync += self.part.eq(self.part + ends_right)
        used = {"left": ends_left, "sums": ends_sums, "right": ends_right & ~self.transposes}
        return self.part == self.parts, used

    def _drain(
        self, m: Module, ready: Value, room: Value, operation: data.View
    ) -> tuple[Value, Value]:
        """Count the sums that leave; return whether some are left, and whether a block is over."""
        begin, left = Signal(20), Signal(32)
        turn, row, word, set_ = Signal(6), Signal(12), Signal(7), Signal(4)
        of_turn, settles = Signal(self.sum_bits), Signal(range(SUM_WINDOW + 1))
        begun, settled, over, drains = Signal(), Signal(), Signal(), Signal()
        running = left != self.num_sums
        # The last sums of a block are complete after a window, forward the first ones long before.
        waits = ready & running & ~settled
        m.d.comb += settled.eq(self.forward | (begun & (settles == 0)))
        m.d.sync += begun.eq(begun | waits)
        with m.If(waits):
            m.d.sync += settles.eq(Mux(begun, settles - 1, SUM_WINDOW - 1))
        rows = self._group_rows(m, begin, over)
        m.d.comb += [
            drains.eq(ready & running & settled & room),
            operation.drains.eq(drains),
            operation.drained_sum.eq(of_turn + Mux(self.backward, set_, word)),
            operation.drained_row.eq(row),
        ]
        with m.If(self.forward):
            # Turn by turn, word by word, the rows of the turn.
            done_rows = Signal(12)  # of the turns before
            rest = rows - done_rows
            ends_row = drains & (row + 1 == Mux(rest < self.num_rows, rest, self.num_rows))
            ends_word = ends_row & (word + 1 == self.words)
            m.d.comb += over.eq(ends_word & (done_rows + self.num_rows >= rows))
            with m.If(drains):
                m.d.sync += row.eq(Mux(ends_row, 0, row + 1))
            with m.If(ends_row):
                m.d.sync += word.eq(Mux(ends_word, 0, word + 1))
            with m.If(ends_word):
                m.d.sync += done_rows.eq(Mux(over, 0, done_rows + self.num_rows))
                m.d.sync += of_turn.eq(Mux(over, 0, of_turn + self.words))
        with m.Elif(self.transposes):
            ends_word = drains & (word + 1 == self.words)
            ends_row = ends_word & (row == self.num_rows - 1)
            m.d.comb += over.eq(ends_row & (turn + 1 == self.turns))
            with m.If(drains):
                m.d.sync += word.eq(Mux(ends_word, 0, word + 1))
            with m.If(ends_word):
                m.d.sync += row.eq(Mux(ends_row, 0, row + 1))
            with m.If(ends_row):
                m.d.sync += turn.eq(Mux(over, 0, turn + 1))
                m.d.sync += of_turn.eq(Mux(over, 0, of_turn + self.words))
        with m.Else():
            ends_row = drains & (row + 1 == rows)
            ends_turn = row[: self.row_bits] == self.num_rows - 1
            m.d.comb += over.eq(ends_row & (set_ + 1 == self.sets))
            with m.If(drains):
                m.d.sync += row.eq(Mux(ends_row, 0, row + 1))
                m.d.sync += of_turn.eq(Mux(ends_row, 0, of_turn + Mux(ends_turn, self.sets, 0)))
            with m.If(ends_row):
                m.d.sync += set_.eq(Mux(over, 0, set_ + 1))
        with m.If(over):
            m.d.sync += [left.eq(left + 1), begun.eq(0)]
        return running, over

    def _operands(
        self, m: Module, rows: list[dict[str, Signal]], weights: list[dict[str, Signal]]
    ) -> tuple[list[Value], Value]:
        """Choose the values of all rows, and the word: they are there IN + READ cycles later."""
        lane, part, passing = (
            delay(m, each, READ) for each in (self.lane, self.part, self.right.payload)
        )
        # Of the left block, lane `lane` of each row; for the gradients of weights, lane
        # `lane_of(part) + row` of row `lane`.
        one = self._select(m, "left_selector", [row["word"] for row in rows], lane)
        first = part[: (LANES // self.num_rows - 1).bit_length()]
        values = []
        for number, row in enumerate(rows):
            transposed = one.word_select(Cat(Const(number, self.row_bits), first), 32)
            values.append(Mux(self.transposes, transposed, row["value"]))
        # Of the right block, row `lane`; backward, lane `lane` of each row.
        of_row = self._select(m, "right_selector", [each["word"] for each in weights], lane)
        of_lane = Cat(weight["value"] for weight in weights)
        word = Mux(self.transposes, passing, Mux(self.forward, of_row, of_lane))
        return [delay(m, each, IN) for each in values], delay(m, word, IN)

    def _select(self, m: Module, name: str, words: list[Signal], number: Value) -> Value:
        """Return one of the words, a lane after the other."""
        selector = self.shared[name]
        chosen = []
        for lane in zip(*(lanes(word) for word in words), strict=True):
            inputs = {"floats": Cat(*lane), "number": number[: (len(words) - 1).bit_length()]}
            chosen.append(add_shared(m, name, selector, inputs, clocked=False)["chosen"])
        return Cat(*chosen)

    def _rows(
        self, m: Module, operation: data.View, adds: Value, values: list[Value], word: Value
    ) -> Value:
        """Pass words and operations from row to row; return the sums that leave the last one."""
        component = self.shared["array_row"]
        row: dict[str, Value] = {
            "next_operation": delay(m, operation.as_value(), OPERATION_STAGE),
            "next_adds": delay_valid(m, adds, OPERATION_STAGE),
            "next_word": word,
            "next_leaving": Const(0, WORD),
        }
        for number in range(self.num_rows):
            inputs = {name.removeprefix("next_"): value for name, value in row.items()}
            inputs["number"] = Const(number, self.row_bits)
            inputs["value"] = delay(m, values[number], number)
            row = dict(add_shared(m, "array_row", component, inputs))
        return row["next_leaving"]
