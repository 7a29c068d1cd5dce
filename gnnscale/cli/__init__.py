"""The command line: one Hydra application per command."""

import os
import sys
from collections.abc import Sequence

from gnnscale.cli import interruption
from gnnscale.cli.stdio import UNREAD, StandardStreams
from gnnscale.core.memory import address_space_problem
from gnnscale.training.launcher.worker_handles import start_server, stop_server


def main() -> int:
    """Run ``gnnscale`` with the arguments of the process and return its exit status."""
    problem = address_space_problem()
    if problem is not None:
        print(problem, file=sys.stderr)
        return 1
    arguments = sys.argv[1:]
    streams = StandardStreams()
    try:
        interruption.interrupt_on_signals()
        trains = _trains(arguments)
        if trains:
            # Importing torch takes longest: the process that does so is started before anything
            # else, and a signal that arrives meanwhile would leave it or its folder.
            with interruption.signals_held_back():
                start_server()
        if _works(arguments):
            streams.announce(at_once=trains)
        from gnnscale.cli.command import main as run

        try:
            status = run()
        except SystemExit as leave:  # Hydra's, after its help, and that of a sweep's table
            status = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        streams.flush()
        return UNREAD if streams.unread and not status else status
    except KeyboardInterrupt:
        interruption.tell_interrupted()
        return interruption.INTERRUPTED
    finally:
        streams.said()
        stop_server()


def _works(arguments: Sequence[str]) -> bool:
    """Whether a command is, at first sight, more than a question."""
    flags = [each for each in arguments if each.startswith("-")]
    return bool(arguments) and set(flags) <= {"-m", "--multirun", "--calibrate"}


def _trains(arguments: Sequence[str]) -> bool:
    """Whether a command is, at first sight, a run with worker processes of its own."""
    # torchrun, and a launcher's processes, start workers themselves.
    elsewhere = "RANK" in os.environ or any(
        each.startswith("hydra/launcher=") for each in arguments
    )
    return arguments[:1] == ["train"] and _works(arguments) and not elsewhere
