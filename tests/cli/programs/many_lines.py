"""Runs many command lines, each in a process of its own that has its imports behind it.

Reads ``{"directory", "at_once", "lines": [[argument, ...], ...]}`` as JSON from each line of
standard input. The first arguments may be variables such as ``COMP_LINE=...``; ``WITH_STREAMS=1``
begins where a command does, with its standard streams. Where ``directory`` is null, each command
line is started in an empty one of its own. ``at_once`` starts all of them together. Writes a line
``[{"status", "stdout", "stderr", "left"}, ...]`` for it, ``left`` being what lies in the directory.

The server of the workers of ``train`` is forked as well: it runs what a new process would, with
torch imported.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

os.environ |= {"OPENBLAS_NUM_THREADS": "1"}
import numpy.random  # noqa: F401

del os.environ["OPENBLAS_NUM_THREADS"]
sys.path.append(str(Path(__file__).parents[2] / "fakes"))
from few_bytes import read_few_bytes
from hydra import compose, initialize_config_module

import gnnscale.cli
import gnnscale.data
import gnnscale.inference.evaluate
import gnnscale.planner.simulator
import gnnscale.report.cache_plan
import gnnscale.report.doctor
import gnnscale.report.partition
import gnnscale.report.run_report
import gnnscale.report.simulate
import gnnscale.training.launcher.launch
from gnnscale.cli.command import main
from gnnscale.training.launcher import fork_server, worker_handles


class Started:
    """A command line that runs in a process of its own."""

    def __init__(self, arguments: list[str], started_in: str | None) -> None:
        self._folder = tempfile.TemporaryDirectory()
        names = ("stdout", "stderr")
        self._streams = [(Path(self._folder.name) / name).open("w+b") for name in names]
        self._directory = Path(started_in or Path(self._folder.name) / "cwd")
        self._directory.mkdir(exist_ok=True)
        self._child = os.fork()
        if self._child == 0:
            for stream, number in zip(self._streams, (1, 2), strict=True):
                os.dup2(stream.fileno(), number)
            os.chdir(self._directory)
            sys.argv = ["gnnscale", *_with_variables(arguments)]
            if sys.argv[1:2] == ["train"]:
                worker_handles.start_server()
            _end()

    def done(self) -> dict[str, object]:
        _, status = os.waitpid(self._child, 0)
        for stream in self._streams:
            stream.seek(0)
        out, err = (stream.read().decode(errors="replace") for stream in self._streams)
        done = {"status": os.waitstatus_to_exitcode(status), "stdout": out, "stderr": err}
        done["left"] = sorted(os.listdir(self._directory))
        self._folder.cleanup()
        return done


def _with_variables(arguments: list[str]) -> list[str]:
    """Set the variables that a line begins with, as a shell does."""
    name, equals, value = (arguments or [""])[0].partition("=")
    if not (equals and name.replace("_", "").isupper()):
        return arguments
    os.environ[name] = value
    return _with_variables(arguments[1:])


class ForkedServer:
    """What the process of a ``WorkerServer`` is to it, without imports of its own."""

    def __init__(self, command: Sequence[str], *, pass_fds: Sequence[int], stdin: int) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid:
            return
        try:
            assert stdin == subprocess.DEVNULL
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            (control,) = pass_fds
            os.closerange(3, control)
            os.closerange(control + 1, 256)
            fork_server.serve(control, command[-1])
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    def poll(self) -> int | None:
        if self.returncode is None and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.returncode = 1
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        if self.poll() is None:
            os.waitpid(self.pid, 0)
            self.returncode = 1


worker_handles.subprocess = SimpleNamespace(  # type: ignore[attr-defined]
    Popen=ForkedServer, DEVNULL=subprocess.DEVNULL
)


def _end() -> None:
    status: object = 99
    try:
        status = (gnnscale.cli.main if os.environ.pop("WITH_STREAMS", "") else main)()
    except SystemExit as leave:
        status = leave.code
    except BaseException:
        traceback.print_exc()
    worker_handles.stop_server()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 0)


read_few_bytes()
# Hydra looks for plugins and makes tables for its grammar when it composes for the first time.
with initialize_config_module("gnnscale.configs", version_base="1.3"):
    compose("train", ["model.hidden=8"])
# What there is by now is shared with the processes: none of them looks through it for garbage.
gc.freeze()
for line in sys.stdin:
    request = json.loads(line)
    begun = (Started(arguments, request["directory"]) for arguments in request["lines"])
    answers = [each.done() for each in (list(begun) if request["at_once"] else begun)]
    print(json.dumps(answers), flush=True)
