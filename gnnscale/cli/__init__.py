"""The command line: one Hydra application per command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from gnnscale.runtime.processes.server import start_server, stop_server

__all__ = ["main"]


def main() -> int:
    """Run ``gnnscale`` with the arguments of the process and return its exit status."""
    if _trains(sys.argv[1:]):
        # Importing torch takes longest: the process that does so is started before anything else.
        start_server()
        if sys.stderr.isatty():
            # Whatever is said next is written over it.
            print("starting", end="\r", file=sys.stderr, flush=True)
    try:
        from gnnscale.cli.command import main as run

        return run()
    finally:
        stop_server()


def _trains(arguments: Sequence[str]) -> bool:
    """Whether a command is, at first sight, a run with worker processes of its own."""
    options = [each for each in arguments[1:] if each not in ("-m", "--multirun")]
    flags = any(each.startswith("-") for each in options)
    # torchrun starts processes itself.
    return arguments[:1] == ["train"] and not flags and "RANK" not in os.environ
