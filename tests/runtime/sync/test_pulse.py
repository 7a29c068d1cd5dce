from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gnnscale.progress import track
from gnnscale.runtime.sync.pulse import PULSE_BYTES, TRAINS, Own, Pulse, beating


def test_a_pulse_is_packed_and_back() -> None:
    own = Own(signs=7, steps=3, doing=TRAINS)
    pulse = own.pulse(5, left=True)
    assert len(pulse.packed()) == PULSE_BYTES
    assert Pulse.unpacked(pulse.packed()) == pulse
    assert (pulse.beat, pulse.steps, pulse.doing, pulse.left) == (5, 3, TRAINS, True)
    assert (pulse.pid, pulse.waiting) == (os.getpid(), False)
    assert Pulse.unpacked(bytes(PULSE_BYTES)) is None
    assert Pulse.unpacked(b"") is None


def test_what_counts_as_progress() -> None:
    own = Own()
    signs = [own.pulse(1).signs]

    def took_note() -> bool:
        signs.append(own.pulse(1).signs)
        return signs[-1] > signs[-2]

    assert not took_note()
    own.begin(TRAINS)
    assert took_note()
    with own.at("reporting"):
        assert own.doing == "reporting"
        assert took_note()
    assert own.doing == TRAINS
    assert took_note()
    with track("long work", 10) as advance:
        advance(1)
    assert took_note()
    assert not took_note()


def test_a_thread_waits_until_its_outermost_block_ends() -> None:
    own = Own()
    with own.waits():
        with own.waits():
            assert own.pulse(1).waiting
        assert own.pulse(1).waiting
    assert not own.pulse(1).waiting
    with pytest.raises(RuntimeError), own.waits():
        raise RuntimeError("the peer is gone")
    assert not own.pulse(1).waiting


def test_it_is_published_again_and_again_and_once_more_at_the_end() -> None:
    told: list[Pulse] = []
    enough = threading.Event()

    def publish(pulse: Pulse) -> None:
        told.append(pulse)
        if len(told) == 3:
            enough.set()
        raise OSError("the disk is full")

    with beating(publish, 0.001):
        assert enough.wait(60)
    assert [each.beat for each in told[:3]] == [1, 2, 3]
    assert [each.left for each in told] == [False] * (len(told) - 1) + [True]


def test_the_state_of_a_process_of_this_machine() -> None:
    program = "print('there', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        mine = Own().pulse(1)
        fields = vars(mine) | {"pid": process.pid}
        # Another process has its number by now.
        assert Pulse(**fields).state == "Z"
        stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        pulse = Pulse(**fields | {"start": int(stat[19])})
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert pulse.state == "T"
        assert Pulse(**vars(pulse) | {"machine": 0}).state is None
        process.kill()
        process.wait()
        assert pulse.state == "Z"
    assert mine.state == "R"
