"""Command line of gnnscale: one Hydra application for each command."""

import gc
import os
import sys
from collections.abc import Sequence

from gnnscale.cli import interruption
from gnnscale.cli.stdio import LOG_JSON, UNREAD, StandardStreams
from gnnscale.core.memory import address_space_problem
from gnnscale.training.launcher.worker_handles import start_server, stop_server


def main() -> int:
    """Run the process's ``gnnscale`` command, and return its exit status.

    For training, a server process that starts worker processes is launched, and stopped at the end.
    """
    problem = address_space_problem()
    if problem is not None:
        print(problem, file=sys.stderr)
        return 1
    # Importing torch leaves a million objects and no garbage: looking through all of them again and
    # again would take a seventh of the time until a command begins.
    gc.set_threshold(10_000, 20, 20)
    arguments = sys.argv[1:]
    streams = StandardStreams(json_lines=LOG_JSON in arguments)
    try:
        interruption.interrupt_on_signals()
        trains = _trains(arguments)
        if trains:
            # Importing torch takes longest, so the process that does it starts first. A signal
            # during the start would leave the process or its folder behind.
            with interruption.signals_held_back():
                start_server()
        if _runs_task(arguments):
            streams.announce(at_once=trains)
        from gnnscale.cli.command import main as run

        try:
            status = run()
        except SystemExit as leave:  # from Hydra after its help, or from a sweep's table
            status = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        streams.flush()
        return UNREAD if streams.unread and not status else status
    except KeyboardInterrupt:
        interruption.tell_interrupted()
        return interruption.INTERRUPTED
    finally:
        streams.cancel_notice()
        stop_server()


def _runs_task(arguments: Sequence[str]) -> bool:
    """Whether ``arguments``, not yet checked, run a task; otherwise they only print."""
    flags = {argument for argument in arguments if argument.startswith("-")}
    return bool(arguments) and flags <= {"-m", "--multirun", "--calibrate"}


def _trains(arguments: Sequence[str]) -> bool:
    """Whether ``arguments``, not yet checked, train with workers that this process starts."""
    # torchrun and the processes of a launcher start workers themselves.
    elsewhere = "RANK" in os.environ or any(
        argument.startswith("hydra/launcher=") for argument in arguments
    )
    return arguments[:1] == ["train"] and _runs_task(arguments) and not elsewhere
