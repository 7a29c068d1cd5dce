"""A row of the systolic array: 16 multiply-accumulate units, and two halves of their sums."""

from __future__ import annotations

from amaranth import Cat, Module, Mux, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from rtl.constants import ADD, IN, MULTIPLY, READ, WORD
from rtl.floats import operate
from rtl.memory import Memory
from rtl.streams import delay, delay_valid, lanes

#: Stages before a row's products are there, in the last of which it reads its sums.
OPERATION_STAGE = IN + MULTIPLY


def operation_layout(sum_bits: int, row_bits: int) -> data.StructLayout:
    """Return what a row does in a cycle: it adds to a sum of one half, and another one leaves."""
    fields = {"half": 1, "begins": 1, "sum": sum_bits, "drains": 1, "drained_half": 1}
    return data.StructLayout(fields | {"drained_sum": sum_bits, "drained_row": row_bits})


class ArrayRow(wiring.Component):
    """Takes a value and a word, and passes the word and the operation to the next row.

    ``leaving`` is a sum of the rows before.
    """

    def __init__(self, sum_bits: int, row_bits: int) -> None:
        self.sum_bits = sum_bits
        self.layout = operation_layout(sum_bits, row_bits)
        super().__init__(
            {
                "number": In(row_bits),
                "operation": In(self.layout),
                "adds": In(1),
                "value": In(32),
                "word": In(WORD),
                "leaving": In(WORD),
                "next_operation": Out(self.layout),
                "next_adds": Out(1),
                "next_word": Out(WORD),
                "next_leaving": Out(WORD),
            }
        )

    def elaborate(self, _: object) -> Module:
        """Return the logic."""
        m = Module()
        operation = self.operation
        takes = delay(m, operation.drains & (operation.drained_row == self.number), READ)
        leaving = Mux(takes, self._add(m), self.leaving)
        m.d.comb += [
            self.next_operation.eq(delay(m, operation.as_value(), 1)),
            self.next_adds.eq(delay_valid(m, self.adds, 1)),
            self.next_word.eq(delay(m, self.word, 1)),
            self.next_leaving.eq(delay(m, leaving, 1)),
        ]
        return m

    def _add(self, m: Module) -> Value:
        """Add products to sums; return the word of the sums that leave."""
        operation = self.operation
        halves = []
        for half in range(2):
            memory = Memory(m, WORD, 1 << self.sum_bits)
            drains = operation.drains & (operation.drained_half == half)
            m.d.comb += memory.read_address.eq(Mux(drains, operation.drained_sum, operation.sum))
            halves.append(memory)
        found = [delay(m, memory.read_data, READ) for memory in halves]
        then = data.View(self.layout, delay(m, operation.as_value(), READ))
        before = Mux(then.begins, 0, Mux(then.half, found[1], found[0]))
        products = [operate(m, "multiply", self.value, each) for each in lanes(self.word)]
        pairs = zip(lanes(before), products, strict=True)
        sums = Cat(operate(m, "add", *pair) for pair in pairs)
        late = delay(m, Cat(operation.half, operation.sum), READ + ADD)
        adds = delay_valid(m, self.adds, READ + ADD)
        for half, memory in enumerate(halves):
            m.d.comb += [
                memory.write_address.eq(late[1:]),
                memory.write_data.eq(sums),
                memory.write_enable.eq(adds & (late[0] == half)),
            ]
        return Mux(then.drained_half, found[1], found[0])
