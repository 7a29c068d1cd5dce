import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.backend.fpga.board import BoardError, OpenBoard
from gnnscale.backend.fpga.csim import xrt

COMPUTE, FAIL, MEET, HOLD = range(4)
WORD = np.ones(1, np.uint32)
Open = Callable[..., OpenBoard]


def test_a_program_that_drives_a_board_needs_no_torch() -> None:
    code = "import sys, gnnscale.backend.fpga.board; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout.split() == ["False"], answer.stderr


def without_contexts() -> Any:
    """The module as it was before XRT 2.16."""
    return SimpleNamespace(**{k: v for k, v in vars(xrt).items() if k != "hw_context"})


@pytest.fixture
def opened(bitstream: Path) -> Iterator[Open]:
    """Open boards; they are closed when the test ends."""
    boards: list[OpenBoard] = []

    def open_it(path: Path = bitstream, module: Any = xrt, **options: Any) -> OpenBoard:
        sizes = {"index": 1, "compute_units": 2, "slots": 2} | options
        boards.append(OpenBoard(module, bitstream=str(path), **sizes))
        return boards[-1]

    yield open_it
    for board in boards:
        board.close()


def prepare(board: OpenBoard, unit: int, slot: int, batch: list[int], features: list[float]) -> int:
    """Send a mini-batch, with room for as many gradients; return the bytes."""
    for name in ("gradients", "scratch"):
        board.allocate(unit, name, 4 * len(batch))
    board.allocate(unit, "result", 8, slot=slot)
    edges = np.zeros(len(batch), np.uint32)
    return board.send(unit, slot, np.array(batch, np.uint32), edges, np.array(features, np.float32))


def run(board: OpenBoard, *numbers: int, unit: int = 0, slot: int = 0) -> list[int]:
    """Compute a mini-batch that was sent, and return its outcome."""
    board.start(unit, slot, [*numbers, COMPUTE])
    return board.wait(unit, 20).tolist()


@pytest.fixture
def ready(opened: Open) -> Open:
    """Open boards of one compute unit that has weights, and a mini-batch in slot 0."""

    def open_it(**options: Any) -> OpenBoard:
        board = opened(compute_units=1, **options)
        board.send_weights(np.zeros(1, np.float32))
        prepare(board, 0, 0, [1], [1])
        return board

    return open_it


@pytest.mark.long
@pytest.mark.parametrize("module", [xrt, without_contexts()])
def test_steps_by_hand(opened: Open, module: Any) -> None:
    board = opened(module=module)
    assert board.label == "board 1 (gnnscale_csim)"
    assert board.send_weights(np.array([0.5, 9], np.float32)) == 2 * 8
    assert prepare(board, 1, 0, [10, 20], [1, 2]) == 24
    assert run(board, 2, 3, unit=1) == [2, 3]
    assert board.gradients(1).tolist() == [13.5, 26.5]
    assert board.counters(1) == {"items": 2, "gradient_bytes": 4096}
    assert 0 < board.kernel_seconds(1) < 20
    # The weights of the next step count at once.
    board.send_weights(np.array([1.5], np.float32))
    run(board, 2, 3, unit=1)
    assert board.gradients(1).tolist() == [14.5, 27.5]


@pytest.mark.long
@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 2**20), min_size=1, max_size=3000), max_size=6))
def test_buffers_grow_and_are_used_again(growing: OpenBoard, batches: list[list[int]]) -> None:
    growing.send_weights(np.zeros(1, np.float32))
    for number, batch in enumerate(batches):
        slot = number % 2
        prepare(growing, 0, slot, batch, [1.0] * len(batch))
        assert run(growing, len(batch), 1, slot=slot) == [len(batch), 1]
        assert growing.gradients(0).tolist() == [each + 1 for each in batch]


@pytest.fixture(scope="module")
def growing(built: Callable[..., Path]) -> Iterator[OpenBoard]:
    board = OpenBoard(xrt, index=2, bitstream=str(built()), compute_units=1, slots=2)
    yield board
    board.close()


def test_a_slot_is_filled_while_another_one_runs(ready: Open, gate: Callable[[], None]) -> None:
    board = ready()
    board.start(0, 0, [1, 5, HOLD])
    results: list[list[int]] = []
    waiting = threading.Thread(target=lambda: results.append(board.wait(0, 20).tolist()))
    waiting.start()
    # Larger, so that buffers that are in flight are replaced.
    prepare(board, 0, 1, [1] * 2000, [1.0] * 2000)
    board.start(0, 1, [2000, 6, COMPUTE])
    with pytest.raises(BoardError, match="slot 0 of compute unit 0 is in flight"):
        board.send(0, 0, WORD, WORD, WORD)
    with pytest.raises(BoardError, match="weights change while compute unit 0 computes"):
        board.send_weights(WORD)
    assert results == []
    gate()
    waiting.join()
    assert results == [[1, 5]]
    assert board.gradients(0).tolist() == [6.0]
    assert board.wait(0, 20).tolist() == [2000, 6]
    assert board.gradients(0).tolist() == [7.0] * 2000


def test_compute_units_run_at_the_same_time(opened: Open) -> None:
    board = opened()
    board.send_weights(np.zeros(1, np.float32))
    for unit in range(2):
        prepare(board, unit, 0, [1], [1])
        # Each waits in the kernel for the other.
        board.start(unit, 0, [1, unit, MEET])
    assert [board.wait(unit, 30).tolist() for unit in range(2)] == [[1, 0], [1, 1]]


def test_a_run_that_takes_too_long_and_one_that_fails(ready: Open, gate: Callable) -> None:
    board = ready()
    board.start(0, 0, [1, 1, HOLD])
    with pytest.raises(BoardError, match=r"compute unit 0 is not done after 0.02 s; `xrt-smi"):
        board.wait(0, 0.02)
    gate()
    assert board.wait(0, 20).tolist() == [1, 1]
    board.start(0, 0, [1, 1, FAIL])
    with pytest.raises(BoardError, match="unit 0 failed: vertex 7 of layer 1 is none of the batch"):
        board.wait(0, 20)
    assert board.counters(0)["items"] == 1
    # The slot is free again.
    prepare(board, 0, 0, [1], [1])
    run(board, 1, 1)


@pytest.mark.long
def test_a_card_tells_only_its_state(ready: Open, clock: Any) -> None:
    class State(IntEnum):
        running = 3
        aborted = int(xrt.ert_cmd_state.ERT_CMD_STATE_ABORT)
        completed = int(xrt.ert_cmd_state.ERT_CMD_STATE_COMPLETED)

    class Run:
        """Ends as it is told after 3 s, and lacks what the simulated card adds."""

        end = State.completed

        def __init__(self, kernel: Any) -> None:
            self.until = clock.now + 3
            self.set_arg = lambda index, value: None
            self.start = lambda: None
            self.wait = self.state

        def state(self) -> State:
            return self.end if clock.now >= self.until else State.running

    board = ready(module=SimpleNamespace(**(vars(xrt) | {"run": Run})))
    run(board, 1, 1)
    # An upper bound, by a millisecond at most.
    assert 3 <= board.kernel_seconds(0) <= 3.0011
    assert board.counters(0) == {}
    Run.end = State.aborted
    with pytest.raises(BoardError, match="compute unit 0 failed: its state is ABORT; `xrt-smi"):
        run(board, 1, 1)


def test_what_cannot_be_opened(opened: Open, tmp_path: Path) -> None:
    text = tmp_path / "text.xclbin"
    text.write_text("hello")
    for options, message in (
        ({"index": 99}, "board 99: opening the card: No such device 99.*xrt-smi"),
        ({"path": text}, r"board 1 \(gnnscale_csim\): loading .*text\.xclbin: "),
        ({"kernel": "other"}, "it has no kernel other, but gnnscale_step; is it built"),
        ({"compute_units": 5}, r"matching 'gnnscale_step:\{gnnscale_step_5\}'"),
    ):
        with pytest.raises(BoardError, match=message):
            opened(**options)


@pytest.mark.long
def test_a_closed_board_frees_its_memory(opened: Open) -> None:
    board = opened(index=3)
    board.allocate(0, "gradients", 1 << 20)
    for _ in range(2):
        board.close()
    with pytest.raises(BoardError, match="no compute unit 0: 0 are open"):
        board.allocate(0, "gradients", 1)
    opened(index=3).allocate(0, "gradients", 1 << 20)


@pytest.mark.long
def test_closing_waits_for_runs(ready: Open, gate: Callable[[], None]) -> None:
    board = ready()
    board.start(0, 0, [1, 1, HOLD])
    closing = threading.Thread(target=board.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    gate()
    closing.join(20)
    assert not closing.is_alive()
