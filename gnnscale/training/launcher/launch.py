"""Launching of one worker process per device, handling of their messages, and their end."""

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

from gnnscale.cache import NoCache
from gnnscale.core import ConfigError, KillCounts, address_space_reason, standard_arithmetic
from gnnscale.core.config.imports import refuse_while_importing
from gnnscale.core.config.user_code import code_for_workers
from gnnscale.planner import DevicePlanConfig, custom_kinds, process_group_backend
from gnnscale.run.checkpoint import remove_unfinished_files
from gnnscale.run.config import RunConfig
from gnnscale.run.records import DroppedProcessors, Observer, RunObserver, TrainResult
from gnnscale.training.build import gpu_cache_size
from gnnscale.training.launcher import fork_server, serialization
from gnnscale.training.launcher.failure_detection import (
    LOST_PAGE,
    OUT_OF_MEMORY,
    WorkerWatch,
    lost_page,
)
from gnnscale.training.launcher.serialization import CONTINUE, STOP, Failure, WorkerTask
from gnnscale.training.launcher.worker_handles import WorkerProcess, WorkerServer, start_server
from gnnscale.training.make_artifacts import make_artifacts, share_graph
from gnnscale.training.planning.drop_cpu import without_cpu

log = logging.getLogger(__name__)

#: Result of the workers: a run, the CPU workers to drop, or the memory that profiling left.
Outcome: TypeAlias = TrainResult | DroppedProcessors | gpu_cache_size.MemoryLeft

#: Numbers of the rendezvous and heartbeat files.
_FILE_NUMBERS = itertools.count()
#: Seconds to wait for other workers' reports after the first failure: a dying worker closes its
#: peers' connections, and their errors may arrive first.
_GRACE_S = 0.5
#: Seconds between checks for a stalled worker.
_POLL_S = 1.0
#: Exit status of the system's loader without memory for a new thread's variables, which it reports
#: on standard error.
_LOADER_FAILED = 127
#: Possible reasons for signals from the system.
_HINTS = {
    "SIGKILL": "; the system does this when memory runs out",
    "SIGBUS": "; the system does this when a mapped file, such as the graph store, became "
    "shorter, or its disk fails",
}
#: Signals that a process may get when memory for its stack or native code runs out.
_WITHOUT_MEMORY = ("SIGSEGV", "SIGABRT")
#: Kinds of failures by likelihood of being the cause, most likely first.
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
    """Train with a worker process for each device of the plan, and return the result.

    If CPU workers do not shorten the steps, the run starts again without them. No process is left
    when this returns or raises. ``options`` are ``config`` as plain values. WorkerError if a worker
    failed, died or stalled; the message names it and the reason.
    """
    result = _launch(_with_sized_caches(config, options), directory, observer, options=options)
    dropped = None
    if isinstance(result, DroppedProcessors):
        log.info(result.line)
        dropped = result
        devices = without_cpu(dropped, config.device_plan)
        config = replace(config, device_plan=DevicePlanConfig(devices=devices))
        options = options | {"device_plan": options["device_plan"] | {"devices": devices}}
        result = _launch(_with_sized_caches(config, options), directory, observer, options=options)
    assert isinstance(result, TrainResult), "a single device has no CPU workers to drop"
    return replace(result, layout=replace(result.layout, left_out=dropped))


def _with_sized_caches(config: RunConfig, options: dict[str, Any]) -> RunConfig:
    """Return ``config`` with the budget of GPU caches measured by a profiling run.

    ``config`` is unchanged if deterministic, if cache sizes are set, or if not all caches are on
    GPUs.
    """
    devices = config.device_plan.parsed()
    # Measured memory decides nothing in a deterministic run.
    if config.runtime.deterministic or not gpu_cache_size.is_profiled(
        config.cache_planner, devices
    ):
        return config
    profiled = replace(
        config,
        cache_planner=NoCache(),
        device_plan=gpu_cache_size.without_caches(config.device_plan),
        runtime=replace(config.runtime, checkpoint=False),
        resume=None,
    )
    with TemporaryDirectory(prefix="profile-", dir=start_server().folder) as folder:
        memory = _launch(profiled, Path(folder), Observer(), options=options, profiles_memory=True)
    assert isinstance(memory, gpu_cache_size.MemoryLeft)
    planner = gpu_cache_size.with_cache_budget(config.cache_planner, devices, memory)
    log.info(gpu_cache_size.describe(planner, memory))
    return replace(config, cache_planner=planner)


def _launch(
    config: RunConfig,
    directory: Path,
    observer: Observer,
    *,
    options: dict[str, Any],
    profiles_memory: bool = False,
) -> Outcome:
    """Make artifacts, start workers, handle their messages, end all of them; return the result.

    ``profiles_memory``: workers measure unused device memory instead of training.
    """
    refuse_while_importing()
    # Raises for what workers cannot get, before anything is made.
    code = code_for_workers([*config.code_names, *(kind.opener for kind in custom_kinds())])
    serialization.dump((config, code))
    devices = config.device_plan.parsed()
    for device in devices:
        device.check()
    workers, server = list[_RunningWorker](), start_server()
    if not server.num_started:
        log.info("starting workers")
    with standard_arithmetic():
        artifacts = make_artifacts(config)
        memory, shared = share_graph(config, artifacts)
    number = next(_FILE_NUMBERS)
    rendezvous = server.folder / f"meeting-{number}"
    heartbeats = server.folder / f"pulses-{number}"
    names = [device.label for device in devices]
    task = WorkerTask(
        config=config,
        directory=directory,
        options=options,
        rank=0,
        size=len(names),
        rendezvous=rendezvous if len(devices) > 1 else None,
        heartbeats=heartbeats,
        artifacts=(*artifacts, *shared),
        kinds=custom_kinds(),
        code=code,
        backend=process_group_backend(devices),
        profiles_memory=profiles_memory,
        may_stop=isinstance(observer, RunObserver) and observer.may_stop,
    )
    environment = pickle.dumps(fork_server.Environment.from_this_process())
    try:
        with WorkerWatch(heartbeats, names, limit_s=config.runtime.stall_limit_s) as watch:
            for rank, name in enumerate(names):
                process = server.start_worker()
                workers.append(_RunningWorker(name=name, rank=rank, process=process))
                # A worker that has ended is detected in _listen.
                with suppress(BrokenPipeError):
                    process.connection.send_bytes(environment)
                    process.connection.send_bytes(serialization.dump(replace(task, rank=rank)))
            return _listen(workers, observer, directory, watch)
    finally:
        _end_workers(workers, server)
        memory.clear()
        rendezvous.unlink(missing_ok=True)
        remove_unfinished_files(directory)


def _listen(
    workers: Sequence[_RunningWorker], observer: Observer, directory: Path, watch: WorkerWatch
) -> Outcome:
    """Handle workers' messages, and return the result; raise if a worker fails or stalls."""
    result: Outcome | None = None
    kills = KillCounts()
    deadline: float | None = None
    while not all(worker.done for worker in workers):
        connected = {w.process.connection: w for w in workers if not w.done and w.failure is None}
        left_s = _POLL_S if deadline is None else deadline - time.monotonic()
        ready = wait(list(connected), min(max(left_s, 0), _POLL_S)) if connected else []
        for connection in ready:
            assert isinstance(connection, Connection)
            worker = connected[connection]
            try:
                message = worker.process.connection.recv()
            except (EOFError, OSError):  # its process has ended
                worker.failure = _failure_of_ended(
                    worker.process, kills, lost_page(watch.file, worker.rank)
                )
            else:
                result = _handle_message(worker, message, observer) or result
        if watch.verdict is not None:
            raise WorkerError(watch.verdict)
        failed = [(w.name, w.failure) for w in workers if w.failure is not None]
        if failed and deadline is None:
            deadline = time.monotonic() + _GRACE_S
        # A killed process is never the consequence of another worker's failure.
        if failed and (not ready or any(failure.kind == "killed" for _, failure in failed)):
            raise _worker_error(failed, directory)
    assert result is not None
    return result


def _handle_message(
    worker: _RunningWorker, message: tuple[str, Any], observer: Observer
) -> Outcome | None:
    """Pass a message to observer or log, or set the worker done or failed.

    After an epoch the worker is told whether to stop, if the observer may stop training. The
    result is the content of ``done``, or None.
    """
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
            # A worker that has ended is detected later.
            with suppress(OSError):
                answer = STOP if observer.stop_requested else CONTINUE
                worker.process.connection.send_bytes(answer)
    return None


def _failure_of_ended(process: WorkerProcess, kills: KillCounts, lost_page: str | None) -> Failure:
    """Return why a process ended without a result.

    ``kills`` tells whether a memory limit killed it; ``lost_page`` is a line on a shortened file.
    """
    code = process.exit_code(timeout=1)
    if code == LOST_PAGE and lost_page is not None:
        message = f"process {process.pid} has lost a page of a mapped file: {lost_page}"
        return Failure(kind="killed", message=message)
    if code in (OUT_OF_MEMORY, _LOADER_FAILED):
        return Failure(kind="memory", message=f"out of memory{address_space_reason()}")
    limit = kills.reason()
    killed = "" if limit is None else f", killed by {limit}"
    if process.pid is None:
        message = f"the process that starts workers is gone{killed}"
        return Failure(kind="killed", message=message)
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
    return Failure(kind="killed", message=f"process {process.pid} {message}")


def _worker_error(failed: Sequence[tuple[str, Failure]], directory: Path) -> Exception:
    """Return an error about the likeliest cause among ``failed``; write its traceback to a file."""
    name, failure = min(failed, key=lambda pair: _CAUSES.index(pair[1].kind))
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


def _end_workers(workers: Sequence[_RunningWorker], server: WorkerServer) -> None:
    """Kill all workers; a worker that is done first gets a second to exit.

    The server is stopped if it has yet to fork one of the workers.
    """
    for worker in workers:
        if worker.done:
            worker.process.exit_code(timeout=1)
    if any(worker.process.pid is None for worker in workers):
        # The server has not forked them yet, and must not do so any more.
        server.stop()
    for worker in workers:
        worker.process.end()
