"""Workers that are stopped while they train: who is told of, and how the run ends."""

import logging
import os
import signal
import threading
from typing import Any

import pytest
from forked import workers
from one_line import one_line

from gnnscale import Observer
from gnnscale.distributed import heartbeat as stalls
from gnnscale.training.launcher import failure_detection as watching
from gnnscale.training.launcher.launch import WorkerError, launch

pytestmark = [pytest.mark.integration, pytest.mark.timeout(200)]

TWO = ("device_plan=cpu_x2", "device_plan.split=[40,24]", "runtime.drm=false", "num_threads=2")


class Stopping(Observer):
    """An observer that stops a worker once it has seen some steps."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self.stopped = self.steps = 0

    def stepped(self, record: Any) -> None:
        self.steps += 1
        if self.steps == 7:
            self.stopped = workers()[self._rank]
            os.kill(self.stopped, signal.SIGSTOP)


class GoesOn(logging.Handler):
    """Lets a stopped worker go on once a line says that it is waited for."""

    def __init__(self, observer: Stopping) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.said = threading.Event()
        self._observer = observer

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if f"(process {self._observer.stopped}, stopped)" in self.lines[-1]:
            self.said.set()
            os.kill(self._observer.stopped, signal.SIGCONT)


def test_a_stopped_worker_is_told_of_and_may_go_on(settings, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(stalls, "_SAY_AFTER_S", 2.0)
    monkeypatch.setattr(watching, "_HEARTBEAT_S", 0.1)
    observer = Stopping(1)
    handler = GoesOn(observer)
    monkeypatch.setattr(watching.log, "handlers", [handler])
    config = settings(*TWO, "epochs=3", "runtime.stall_limit_s=null")
    result = launch(config, tmp_path, observer, options={})
    assert handler.said.is_set()
    line = f"waiting for worker cpu:1 (process {observer.stopped}, stopped) since "
    assert any(each.startswith(line) for each in handler.lines)
    assert result.steps_done == observer.steps == 18


def test_a_worker_that_stays_stopped_ends_the_run(settings, tmp_path) -> None:
    observer = Stopping(0)
    config = settings(*TWO, "epochs=50", "runtime.stall_limit_s=10")
    with one_line("(runtime.stall_limit_s=10; null waits without end)", error=WorkerError) as found:
        launch(config, tmp_path, observer, options={})
    begins = f"worker cpu:0 (process {observer.stopped}, stopped) has given no sign of life for 1"
    assert str(found.value).startswith(begins)
    assert not workers()
