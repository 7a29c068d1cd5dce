import gc
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from gnnscale.backend.fpga.csim import card as cards
from gnnscale.backend.fpga.csim.card import Bank, Command, ComputeUnit, Image, SimulatedCard
from gnnscale.backend.fpga.csim.library import Outcome


class Kernels:
    """Stands for a library of two compute units; a call waits until it is let go."""

    kernel, compute_units, bank_bytes, path = "step", 2, 4096, "kernels.so"

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.let_go = threading.Event()

    def call(self, values: Sequence[Any]) -> Outcome:
        self.calls.append(values[0])
        assert self.let_go.wait(20)
        return Outcome("", {}, 0.0)


@pytest.fixture
def kernels() -> Any:
    found = Kernels()
    yield found
    found.let_go.set()


def test_a_unit_runs_commands_in_order(kernels: Any) -> None:
    unit = ComputeUnit(kernels, "step_1", Bank(0, 1))
    commands = [Command([number], keep_alive=object()) for number in range(5)]
    for command in commands:
        unit.submit(command)
    assert unit.num_waiting == 5
    assert not commands[0].wait(0.01)
    assert {each.state for each in commands} == {cards.CommandState.ERT_CMD_STATE_QUEUED}
    kernels.let_go.set()
    assert all(each.wait(20) for each in commands)
    assert kernels.calls == [0, 1, 2, 3, 4]
    assert unit.num_waiting == 0
    assert all(each.keep_alive is None for each in commands)
    # It works again after it had nothing to do.
    late = Command([9])
    unit.submit(late)
    assert late.wait(20)


def test_names_of_compute_units(kernels: Any) -> None:
    image = Image(kernels, "id")
    assert [each.name for each in image.matching("step")] == ["step_1", "step_2"]
    (second,) = image.matching("step:{step_2}")
    assert (second.name, second.bank.index) == ("step_2", 1)
    assert len(image.matching("step:{step_1,step_2}")) == 2
    with pytest.raises(RuntimeError, match=r"matching 'step:\{step_3\}'.* has step_1, step_2"):
        image.matching("step:{step_3}")
    with pytest.raises(RuntimeError, match="No such kernel 'other': the bitstream has 'step'"):
        image.matching("other")


@pytest.mark.long
def test_a_card_in_use_keeps_its_bitstream(kernels: Any) -> None:
    class User:
        pass

    found, user = SimulatedCard(0), User()
    with pytest.raises(RuntimeError, match="no bitstream is loaded"):
        found.image(user)
    found.load(kernels, "first")
    image = found.image(user)
    found.load(kernels, "first")
    assert found.image(user) is image
    with pytest.raises(RuntimeError, match=r"busy with bitstream kernels\.so"):
        found.load(kernels, "second")
    del user
    gc.collect()
    found.load(kernels, "second")
    assert found.image(User()).uuid == "second"


def test_cards_are_shared_by_number_and_address() -> None:
    first = cards.find_card(0)
    assert cards.find_card("0000:01:00.1") is first
    assert cards.find_card(1) is not first
    for wrong in (cards.NUM_CARDS, -1, "0000:ff:00.1"):
        with pytest.raises(RuntimeError, match="No such device"):
            cards.find_card(wrong)
