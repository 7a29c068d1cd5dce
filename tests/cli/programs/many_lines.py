"""Runs many command lines, each in a process of its own that has its imports behind it.

Reads ``[[argument, ...], ...]`` as JSON from each line of standard input, where the first argument
may be a variable such as ``COMP_LINE=...``. Writes a line
``[{"status", "stdout", "stderr", "left"}, ...]`` for it, ``left`` being what lies in the empty
directory that each is started in.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

import gnnscale.dataset
import gnnscale.plan.simulator
import gnnscale.report.doctor
import gnnscale.runtime.processes.launch  # noqa: F401
from gnnscale.cli.command import main


def run(arguments: list[str]) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        streams = [(Path(folder) / name).open("w+b") for name in ("stdout", "stderr")]
        directory = Path(folder) / "cwd"
        directory.mkdir()
        child = os.fork()
        if child == 0:
            for stream, number in zip(streams, (1, 2), strict=True):
                os.dup2(stream.fileno(), number)
            os.chdir(directory)
            sys.argv = ["gnnscale", *_with_variables(arguments)]
            _end()
        _, status = os.waitpid(child, 0)
        texts = []
        for stream in streams:
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
        left = sorted(path.name for path in directory.iterdir())
        return {
            "status": os.waitstatus_to_exitcode(status),
            "stdout": texts[0],
            "stderr": texts[1],
            "left": left,
        }


def _with_variables(arguments: list[str]) -> list[str]:
    """Set the variable that a line begins with, as a shell does."""
    name, equals, value = arguments[0].partition("=")
    if not (equals and name.isupper()):
        return arguments
    os.environ[name] = value
    return arguments[1:]


def _end() -> None:
    status: object = 99
    try:
        status = main()
    except SystemExit as leave:
        status = leave.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 0)


for line in sys.stdin:
    print(json.dumps([run(arguments) for arguments in json.loads(line)]), flush=True)
