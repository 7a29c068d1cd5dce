import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gnnscale.core.progress import track
from gnnscale.distributed import heartbeat
from gnnscale.distributed.heartbeat import TRAINS, Heartbeat, ProcessStatus, Stall, StallDetector


def test_pulses_and_signs_of_progress() -> None:
    own = ProcessStatus(signs=7, steps=3, doing=TRAINS)
    pulse = own.pulse(5, left=True)
    assert len(pulse.packed()) == heartbeat.HEARTBEAT_BYTES
    assert Heartbeat.unpacked(pulse.packed()) == pulse
    assert (pulse.beat, pulse.steps, pulse.doing, pulse.left) == (5, 3, TRAINS, True)
    assert (pulse.pid, pulse.waiting) == (os.getpid(), False)
    assert Heartbeat.unpacked(bytes(heartbeat.HEARTBEAT_BYTES)) is None
    assert Heartbeat.unpacked(b"") is None
    own = ProcessStatus()
    with own.waits():
        with own.waits():
            assert own.pulse(1).waiting
        assert own.pulse(1).waiting
    assert not own.pulse(1).waiting
    with pytest.raises(RuntimeError), own.waits():
        raise RuntimeError("the peer is gone")
    assert not own.pulse(1).waiting
    own = ProcessStatus()
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


def test_heartbeats_are_published_until_the_end() -> None:
    told: list[Heartbeat] = []
    enough = threading.Event()

    def publish(pulse: Heartbeat) -> None:
        told.append(pulse)
        if len(told) == 3:
            enough.set()
        raise OSError("the disk is full")

    with heartbeat.publish_heartbeats(publish, 0.001):
        assert enough.wait(60)
    assert [each.beat for each in told[:3]] == [1, 2, 3]
    assert [each.left for each in told] == [False] * (len(told) - 1) + [True]


def test_the_state_of_a_process_of_this_machine() -> None:
    line = [sys.executable, "-c", "print('there', flush=True); input()"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(line, **pipes) as process:
        assert process.stdout.readline() == "there\n"
        mine = ProcessStatus().pulse(1)
        fields = vars(mine) | {"pid": process.pid}
        # Another process has its number by now.
        assert Heartbeat(**fields).state == "Z"
        stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        pulse = Heartbeat(**fields | {"start": int(stat[19])})
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert pulse.state == "T"
        assert Heartbeat(**vars(pulse) | {"machine": 0}).state is None
        process.kill()
        process.wait()
        assert pulse.state == "Z"
    assert mine.state == "R"


NAMES = ("cpu:0", "cpu:1", "gpu:0")


class Process:
    def __init__(self) -> None:
        self.fields: dict[str, Any] = vars(ProcessStatus(doing=TRAINS).pulse(1)) | {"pid": 7}

    def beats(self) -> None:
        self.fields["beat"] += 1

    def goes_on(self) -> None:
        self.beats()
        self.fields["signs"] += 1

    @property
    def pulse(self) -> Heartbeat:
        return Heartbeat(**self.fields)


#: What three processes do of which none, or the second, gets on.
BEAT, SECOND_IS_SILENT = ("beats",) * 3, ("beats", "nothing", "beats")


class Run:
    def __init__(self, limit_s: float | None = 600.0) -> None:
        self.processes = [Process() for _ in NAMES]
        self.watch = StallDetector(NAMES, limit_s=limit_s)
        self.pulses: list[Heartbeat | None] = []
        self.pass_by(1)

    def pass_by(self, seconds: int, *actions: str) -> Any:
        """Let time pass, in which each process does what ``actions`` say, else ``goes_on``.

        Return the stall after that, if there is one.
        """
        stall = None
        for _ in range(seconds):
            for each, action in zip(self.processes, actions or ("goes_on",) * 3, strict=True):
                if action != "nothing":
                    getattr(each, action)()
            self.pulses = [each.pulse for each in self.processes]
            stall = self.watch.look(self.pulses, 1.0)
        return stall

    def say(self, *processes: int, **fields: Any) -> None:
        for each in processes:
            self.processes[each].fields |= fields


def test_who_is_waited_for() -> None:
    for actions, done in (
        ((), ()),  # all get on
        (BEAT, ()),  # all are at their steps, which may take as long as they like
        (("beats", "nothing", "nothing"), (1, 2)),
    ):
        run = Run()
        run.say(*done, left=True)
        assert run.pass_by(1000, *actions) is None
    # Time in which nobody watched does not count, as where Ctrl-Z has stopped all of them.
    run = Run()
    assert run.watch.look(run.pulses, 3600.0) is None
    assert run.pass_by(1) is None
    run = Run()
    run.pass_by(5)
    run.say(0, 2, waiting=True)
    assert run.pass_by(29, *SECOND_IS_SILENT) is None
    stall = run.pass_by(1, *SECOND_IS_SILENT)
    assert stall == Stall(ranks=(1,), seconds=30, silent=True, limited=True)
    assert not run.watch.is_over(stall)
    assert not run.watch.is_over(run.pass_by(569, *SECOND_IS_SILENT))
    assert run.watch.is_over(run.pass_by(1, *SECOND_IS_SILENT))
    # It was only slow.
    assert run.pass_by(1) is None
    # One that gets nowhere is to blame, and not those that wait for it.
    assert run.pass_by(29, *BEAT) is None
    assert run.pass_by(1, *BEAT) == Stall(ranks=(1,), seconds=30, silent=False, limited=True)


@pytest.mark.parametrize("doing", ["opening the run", "reporting"])
def test_work_outside_steps_has_no_limit_while_the_process_answers(doing: str) -> None:
    run = Run()
    run.say(0, doing=doing)
    run.say(1, 2, waiting=True)
    stall = run.pass_by(1000, *BEAT)
    assert stall.ranks == (0,)
    assert not run.watch.is_over(stall)
    assert run.pass_by(100, "goes_on", "beats", "beats") is None
    assert run.watch.is_over(run.pass_by(600, "nothing", "beats", "beats"))


def test_lines_about_stalls() -> None:
    run = Run()
    run.say(0, 2, waiting=True, steps=5)
    run.say(1, waiting=True, steps=4)
    assert run.pass_by(30, *BEAT).ranks == (1,)
    run.say(1, steps=5)
    stall = run.pass_by(1, *BEAT)
    assert (stall.ranks, stall.limited) == ((0, 1, 2), True)
    line = "workers cpu:0, cpu:1, gpu:0 wait for each other since 31 s"
    assert run.watch.waiting_line(stall, run.pulses) == line
    watch = StallDetector(NAMES[:2], limit_s=600)
    process = Process()
    stall = None
    for _ in range(2000):
        process.beats()
        stall = watch.look([process.pulse, None], 1.0)
    assert stall.ranks == (1,)
    assert not watch.is_over(stall)
    line = "waiting for worker cpu:1 (starting) since 2000 s"
    assert watch.waiting_line(stall, [process.pulse, None]) == line
    # No process has this number: where it is of this machine, it is gone.
    far = Process()
    far.fields |= {"machine": 0}
    pulses = [far.pulse] * 3
    silent = Stall(ranks=(1,), seconds=30, silent=True, limited=True)
    line = "waiting for worker cpu:1 (process 7, training) since 30 s"
    watch = StallDetector(NAMES, limit_s=600)
    assert watch.waiting_line(silent, pulses) == line
    stuck = Stall(ranks=(2,), seconds=600, silent=False, limited=True)
    assert watch.ended_by(stuck, pulses) == (
        "worker gpu:0 (process 7, training) has made no progress for 600 s "
        "(runtime.stall_limit_s=600; null waits without end)"
    )
    assert not heartbeat.has_process_ended(far.pulse)
    assert not heartbeat.has_process_ended(None)
    far.fields |= {"machine": ProcessStatus().pulse(1).machine, "pid": 2**22 + 1}
    assert heartbeat.has_process_ended(far.pulse)
