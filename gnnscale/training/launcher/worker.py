"""Worker process of one device, from its start to its last message."""

import logging
import os
import sys
import threading
import traceback
from multiprocessing import current_process
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from gnnscale.core import (
    ConfigError,
    GraphError,
    StructArray,
    address_space_reason,
    standard_arithmetic,
)
from gnnscale.core.config.user_code import take_code
from gnnscale.core.errors import is_out_of_memory
from gnnscale.distributed import PeerLostError, join
from gnnscale.planner.registry import register_kinds
from gnnscale.run import records
from gnnscale.training.build.gpu_cache_size import MemoryLeft
from gnnscale.training.determinism import fix_instruction_set
from gnnscale.training.launcher.failure_detection import (
    OUT_OF_MEMORY,
    report_lost_page,
    writing_heartbeats,
)
from gnnscale.training.launcher.serialization import STOP, Failure, WorkerTask, dump
from gnnscale.training.planning.drop_cpu import ProcessorsDropped
from gnnscale.training.setup import open_run
from gnnscale.training.train import profile_memory, train

#: Seconds between messages about steps: a message per step would slow short steps.
_MESSAGE_INTERVAL_S = 0.1


class Messages:
    """Connection to the launching process on which several threads can send."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, event: str, content: Any) -> None:
        """Send ``event`` and ``content`` as one message, which no other thread interrupts."""
        # Pickled without the lock, since pickling may log a message.
        message = dump((event, content))
        with self._sending:
            self._connection.send_bytes(message)


class _Forwarder(records.RunObserver):
    """Observer that sends events to the launching process.

    If an observer there may stop training, it awaits a reply after each epoch.
    """

    def __init__(self, messages: Messages, replies: SimpleQueue[bytes], *, may_stop: bool) -> None:
        self._messages = messages
        self._replies = replies
        self.may_stop = may_stop
        self._steps: list[records.StepRecord] = []
        self._sent = 0.0

    def started(self, run: records.TrainResult) -> None:
        self._send("started", run)

    def stepped(self, record: records.StepRecord) -> None:
        self._steps.append(record)
        if record.seconds - self._sent >= _MESSAGE_INTERVAL_S or record.seconds < self._sent:
            self._flush()
            self._sent = record.seconds

    def traced(self, spans: StructArray) -> None:
        self._send("traced", spans)

    def trained(self) -> None:
        self._send("trained")

    def finished_epoch(self, record: records.EpochRecord) -> None:
        self._send("finished_epoch", record)
        if self.may_stop:
            self.stop_requested = self._replies.get() == STOP

    def _flush(self) -> None:
        if self._steps:
            self._messages.send("stepped", self._steps)
            self._steps = []

    def _send(self, event: str, *content: Any) -> None:
        self._flush()
        self._messages.send(event, content)


class _LogForwarder(logging.Handler):
    """Handler that sends log lines to the launching process, which owns the terminal."""

    def __init__(self, messages: Messages) -> None:
        super().__init__()
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage().rstrip()  # a captured warning ends with a line break
        self._messages.send("log", (record.name, record.levelno, line))


def work(task: WorkerTask, connection: Connection, replies: SimpleQueue[bytes]) -> None:
    """Train one device's part, report through ``connection``, and end the process.

    Messages are pairs of an event's name and its content: the methods of an observer (from rank 0),
    ``log``, and finally ``done`` with the result or ``failed`` with a Failure. ``replies`` to
    finished epochs tell whether training ends.
    """
    _end_without_memory()
    messages = Messages(connection)
    # Rank 0 logs for all; warnings are of the user's code in any of them.
    logger = logging.getLogger(None if task.rank == 0 else "py.warnings")
    logger.addHandler(_LogForwarder(messages))
    logger.setLevel(logging.INFO)
    logging.captureWarnings(True)
    try:
        register_kinds(task.kinds)
        take_code(task.code)
        if task.config.runtime.deterministic:
            fix_instruction_set()
        # The name of the worker in messages of its peers.
        current_process().name = task.config.device_plan.parsed()[task.rank].label
        report_lost_page(task.heartbeats, task.rank)
        with writing_heartbeats(task.heartbeats, task.rank), standard_arithmetic():
            result = _train(task, messages, replies)
            messages.send("done", result)
        status = 0
    except BaseException as error:
        status = report_error(error, messages)
    # A normal exit would wait for threads that a failed stage has left in native code.
    os._exit(status)


def _train(
    task: WorkerTask, messages: Messages, replies: SimpleQueue[bytes]
) -> records.TrainResult | records.DroppedProcessors | MemoryLeft | None:
    """Train with the other workers, or profile memory; return the result on rank 0, else None."""
    with join(task.rank, task.size, task.rendezvous, backend=task.backend) as group:
        run = open_run(
            task.config,
            task.directory,
            task.options,
            group,
            task.artifacts,
            may_drop_cpu=not task.profiles_memory,
        )
        result: records.TrainResult | records.DroppedProcessors | MemoryLeft
        if task.profiles_memory:
            result = profile_memory(run, group)
        else:
            observer = _Forwarder(messages, replies, may_stop=task.may_stop)
            try:
                result = train(run, observer, group)
            except ProcessorsDropped as signal:
                result = signal.dropped
    return result if group.is_rank0 else None


def report_error(error: BaseException, messages: Messages) -> int:
    """Send the reason of ``error``, if memory suffices; return the worker's exit status."""
    try:
        messages.send("failed", _failure(error))
    except MemoryError:
        return OUT_OF_MEMORY
    return 1


def _end_without_memory() -> None:
    """Start a thread that ends the process if another thread ends with a MemoryError.

    Other uncaught exceptions of threads are printed.
    """
    thrown: SimpleQueue[Any] = SimpleQueue()
    sys.unraisablehook = threading.excepthook = thrown.put

    def watch() -> None:
        while True:
            info = thrown.get()
            if info.exc_type is MemoryError:
                os._exit(OUT_OF_MEMORY)
            sys.__excepthook__(info.exc_type, info.exc_value, info.exc_traceback)

    threading.Thread(target=watch, daemon=True).start()


def _failure(error: BaseException) -> Failure:
    trace = "".join(traceback.format_exception(error))
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, PeerLostError):
        return Failure(kind="peer", message=line, trace=trace)
    if isinstance(error, (ConfigError, GraphError)):
        return Failure(kind="user", message=str(error), trace=trace)
    if is_out_of_memory(error):
        message = f"out of memory ({line}){address_space_reason()}"
        return Failure(kind="memory", message=message, trace=trace)
    if isinstance(error, OSError):
        line = f"{error.filename or 'output'}: {error.strerror}" if error.strerror else line
        return Failure(kind="error", message=line, trace=trace)
    return Failure(kind="error", message=f"{type(error).__name__}: {line}", trace=trace)
