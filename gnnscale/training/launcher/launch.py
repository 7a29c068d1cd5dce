"""Starting one worker process per device, listening to them, and ending them all."""

import itertools
import logging
import pickle
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from gnnscale.core import ConfigError, KillCounts, address_space_reason, standard_arithmetic
from gnnscale.planner.device_spec import process_group_backend
from gnnscale.planner.registry import custom_kinds
from gnnscale.run.checkpoint import remove_parts
from gnnscale.run.config import RunConfig
from gnnscale.run.records import DroppedProcessors, Observer, RunObserver, TrainResult
from gnnscale.training.build import gpu_cache_size as sizing
from gnnscale.training.launcher import fork_server, serialization
from gnnscale.training.launcher.failure_detection import (
    CONTINUE,
    LOST_PAGE,
    OUT_OF_MEMORY,
    STOP,
    Failure,
    WorkerTask,
    WorkerWatch,
    lost_page,
)
from gnnscale.training.launcher.worker_handles import WorkerProcess, WorkerServer, start_server
from gnnscale.training.make_artifacts import make_artifacts, share_graph
from gnnscale.training.planning.drop_cpu import without

log = logging.getLogger(__name__)

#: What workers return: a run, who is left out of it, or what a rehearsal leaves of their memory.
Outcome: TypeAlias = TrainResult | DroppedProcessors | sizing.MemoryLeft

#: Numbers of the files at which the workers of a run meet, and in which they report.
_MEETINGS = itertools.count()
#: Seconds in which other workers may still report what they know, once the first has failed: one
#: that dies takes its peers' connections with it, and their complaints may arrive first.
_LAST_WORDS_S = 0.5
#: Seconds between two checks whether a worker has stalled.
_LOOK_S = 1.0
#: Exit status with which the system's loader ends a process that has no memory for the variables
#: of a new thread; it has reported that on standard error.
_LOADER_FAILED = 127
#: When the system sends a signal.
_HINTS = {
    "SIGKILL": "; the system does this when memory runs out",
    "SIGBUS": "; the system does this when a mapped file, as of the graph store, became shorter, "
    "or its disk fails",
}
#: Signals of a process whose stack, or whose native code, finds no memory.
_WITHOUT_MEMORY = ("SIGSEGV", "SIGABRT")
#: Which failure is the cause of the others, the likeliest first.
_CAUSES = ("killed", "memory", "user", "error", "peer")


class WorkerError(RuntimeError):
    """A worker process failed or died. The message is one line."""


@dataclass(kw_only=True)
class _RunningWorker:
    name: str
    rank: int
    process: WorkerProcess
    done: bool = False
    failure: Failure | None = None


def launch(
    config: RunConfig, directory: Path, observer: Observer, *, options: dict[str, Any]
) -> TrainResult:
    """Train with a worker process for each device of the plan, and return what came of it.

    If processors turn out not to shorten the steps, workers are started again without them.
    Whatever happens, no process is left when this returns or raises.

    Raises:
        ConfigError: what ``train`` raises.
        GraphError: the graph store cannot be made.
        WorkerError: a worker failed, died or stalled; the message names it and the reason.
    """
    found = _launch(_sized(config, options), directory, observer, options=options)
    left_out = None
    if isinstance(found, DroppedProcessors):
        log.info(found.line)
        left_out = found
        config, options = without(left_out, config, options)
        found = _launch(_sized(config, options), directory, observer, options=options)
    assert isinstance(found, TrainResult), "a device alone has nobody to leave out"
    return replace(found, layout=replace(found.layout, left_out=left_out))


def _sized(config: RunConfig, options: dict[str, Any]) -> RunConfig:
    """Let workers rehearse without a cache if that decides how large caches are."""
    if not sizing.is_rehearsed(config):
        return config
    with TemporaryDirectory(prefix="rehearsal-", dir=start_server().folder) as folder:
        found = _launch(
            sizing.without_caches(config),
            Path(folder),
            Observer(),
            options=options,
            rehearses_memory=True,
        )
    assert isinstance(found, sizing.MemoryLeft)
    planned = sizing.sized(config, found)
    log.info(sizing.describe(planned, found.unused_bytes))
    return planned


def _launch(
    config: RunConfig,
    directory: Path,
    observer: Observer,
    *,
    options: dict[str, Any],
    rehearses_memory: bool = False,
) -> Outcome:
    """Start workers, listen to them until they are done, and end them all."""
    serialization.refuse_while_imported()
    # What workers cannot import is found before anything is made.
    serialization.dump(config)
    devices = config.device_plan.parsed()
    for device in devices:
        device.check()
    workers: list[_RunningWorker] = []
    server = start_server()
    if not server.num_started:
        log.info("starting workers")
    with standard_arithmetic():
        artefacts = make_artifacts(config)
        memory, shared = share_graph(config, artefacts)
    number = next(_MEETINGS)
    meeting, pulses = (server.folder / f"{name}-{number}" for name in ("meeting", "pulses"))
    names = [device.label for device in devices]
    task = WorkerTask(
        config=config,
        directory=directory,
        options=options,
        rank=0,
        size=len(devices),
        meeting=meeting if len(devices) > 1 else None,
        pulses=pulses,
        artefacts=(*artefacts, *shared),
        kinds=custom_kinds(),
        backend=process_group_backend(devices),
        rehearses_memory=rehearses_memory,
        may_stop=isinstance(observer, RunObserver) and observer.may_stop,
    )
    environment = pickle.dumps(fork_server.Environment.of_this_process())
    try:
        with WorkerWatch(pulses, names, limit_s=config.runtime.stall_limit_s) as watch:
            for rank, name in enumerate(names):
                process = server.start_worker()
                workers.append(_RunningWorker(name=name, rank=rank, process=process))
                # A process that is gone already is detected below.
                with suppress(BrokenPipeError):
                    process.connection.send_bytes(environment)
                    process.connection.send_bytes(serialization.dump(replace(task, rank=rank)))
            return _listen(workers, observer, directory, watch)
    finally:
        _end(workers, server)
        memory.clear()
        meeting.unlink(missing_ok=True)
        remove_parts(directory)


def _listen(
    workers: Sequence[_RunningWorker], observer: Observer, directory: Path, watch: WorkerWatch
) -> Outcome:
    """Pass on the workers' messages until all are done, or one has failed or stalled."""
    result: Outcome | None = None
    kills = KillCounts()
    deadline: float | None = None
    while not all(worker.done for worker in workers):
        open_ones = {w.process.connection: w for w in workers if not w.done and w.failure is None}
        left_s = _LOOK_S if deadline is None else deadline - time.monotonic()
        ready = wait(list(open_ones), min(max(left_s, 0), _LOOK_S)) if open_ones else []
        for connection in ready:
            assert isinstance(connection, Connection)
            worker = open_ones[connection]
            try:
                message = worker.process.connection.recv()
            except (EOFError, OSError):  # its process has ended
                worker.failure = _death(worker.process, kills, lost_page(watch.file, worker.rank))
            else:
                result = _hear(worker, message, observer) or result
        if watch.verdict is not None:
            raise WorkerError(watch.verdict)
        failed = [(w.name, w.failure) for w in workers if w.failure is not None]
        if failed and deadline is None:
            deadline = time.monotonic() + _LAST_WORDS_S
        # A process that was killed is no consequence of another's failure.
        if failed and (not ready or any(failure.kind == "killed" for _, failure in failed)):
            raise _error(failed, directory)
    assert result is not None
    return result


def _hear(worker: _RunningWorker, message: tuple[str, Any], observer: Observer) -> Outcome | None:
    """Pass on a message of a worker, and return the run's result if it holds that."""
    event, content = message
    if event == "done":
        worker.done = True
        return content  # type: ignore[no-any-return]
    if event == "failed":
        worker.failure = content
    elif event == "log":
        name, level, message = content
        logging.getLogger(name).log(level, "%s", message)
    elif event == "stepped":
        for record in content:
            observer.stepped(record)
    else:
        getattr(observer, event)(*content)
        if event == "finished_epoch" and isinstance(observer, RunObserver) and observer.may_stop:
            # A process that is gone already is detected later.
            with suppress(OSError):
                answer = STOP if observer.stop_requested else CONTINUE
                worker.process.connection.send_bytes(answer)
    return None


def _death(process: WorkerProcess, kills: KillCounts, lost_page: str | None) -> Failure:
    """Return why a process has ended that sent no result.

    Args:
        kills: counted when the run began.
        lost_page: the line about a mapped file that the process has left.
    """
    code = process.exit_code(timeout=1)
    if code == LOST_PAGE and lost_page is not None:
        message = f"process {process.pid} has lost a page of a mapped file: {lost_page}"
        return Failure(kind="killed", message=message, trace="")
    if code in (OUT_OF_MEMORY, _LOADER_FAILED):
        return Failure(kind="memory", message=f"out of memory{address_space_reason()}", trace="")
    limit = kills.reason()
    killed = "" if limit is None else f", killed by {limit}"
    if process.pid is None:
        message = f"the process that starts workers is gone{killed}"
        return Failure(kind="killed", message=message, trace="")
    if code is None:
        message = (
            f"ended without a word, and the process that starts workers is gone as well{killed}"
        )
    elif code == -signal.SIGKILL and limit is not None:
        message = f"killed by {limit}"
    elif code < 0:
        name = signal.Signals(-code).name
        reason = address_space_reason() if name in _WITHOUT_MEMORY else ""
        message = f"killed by {name}{_HINTS.get(name, '')}{reason}"
    else:
        message = f"ended without a word, exit status {code}{address_space_reason()}"
    return Failure(kind="killed", message=f"process {process.pid} {message}", trace="")


def _error(failed: Sequence[tuple[str, Failure]], directory: Path) -> Exception:
    """The exception with the cause in one line; tracebacks go to files."""
    name, failure = min(failed, key=lambda each: _CAUSES.index(each[1].kind))
    if failure.kind == "user":
        return ConfigError(failure.message)
    note = ""
    if failure.trace:
        file = directory / f"worker-{name.replace(':', '-')}.log"
        try:
            file.unlink(missing_ok=True)
            file.write_text(failure.trace)
            note = f"; traceback in {file}"
        except OSError:
            log.error(failure.trace)
    return WorkerError(f"worker {name}: {failure.message}{note}")


def _end(workers: Sequence[_RunningWorker], server: WorkerServer) -> None:
    """End all processes. Those that are done get a moment to go by themselves."""
    for worker in workers:
        if worker.done:
            worker.process.exit_code(timeout=1)
    if any(worker.process.pid is None for worker in workers):
        # It has not come to fork them yet, and is not to do so any more.
        server.stop()
    for worker in workers:
        worker.process.end()
