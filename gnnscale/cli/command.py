"""Which command is meant, and how its arguments reach Hydra."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from gnnscale.cli.arguments import check_flags, flags_first, quoted
from gnnscale.cli.completion import complete
from gnnscale.cli.errors import explain_hydra
from gnnscale.cli.interruption import INTERRUPTED, interrupt_on_signals, tell_interrupted
from gnnscale.cli.job import Job, failures, register_resolvers
from gnnscale.cli.output import Before, Output, resolved_now, taken_back
from gnnscale.cli.plugins import defaults_of_search, lets_jobs_stop
from gnnscale.cli.staging import CONFIGS, Translated, run_directory, translate
from gnnscale.cli.streams import last_words
from gnnscale.core.errors import ConfigError, explain, nearest, one_line, shown
from gnnscale.core.files import unfinished_folder
from gnnscale.core.hardware import torchrun_rank

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "prepare": "raw files to a graph store",
    "partition": "a graph to parts, one for each device",
    "plan-cache": "what accelerators keep of a graph in their own memory",
    "train": "train a model, by default a small one on a synthetic graph",
    "evaluate": "measure the best checkpoint of a run: run=DIR",
    "predict": "classes or embeddings of vertices in a file: run=DIR out=FILE",
    "export": "weights for other programs: run=DIR format=pyg",
    "simulate": "predict training on a platform, without training",
    "doctor": "what was found on this machine, what each feature still needs",
}

_USAGE = """\
usage: gnnscale COMMAND [OPTION=VALUE ...] [-m]

{commands}

gnnscale COMMAND --help           the options of a command
gnnscale COMMAND --cfg job        its configuration, not run
gnnscale train config=NAME        a shipped experiment, or your own: config=FILE.yaml
gnnscale train resume=DIR         continue a run
gnnscale train output=DIR         its directory, in place of one below outputs/train
gnnscale train -m seed=0,1,2      a sweep, with a table of results
gnnscale doctor --calibrate       measure this machine for the performance model
gnnscale --shell-completion install=bash
gnnscale --version
"""


def main() -> int:
    """Run ``gnnscale`` with the arguments of the process and return its exit status."""
    arguments = sys.argv[1:]
    if arguments[:1] in (["-sc"], ["--shell-completion"]):
        return complete(arguments, COMMANDS, _run)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE.format(commands=_command_list()), end="")
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"gnnscale {metadata.version('gnnscale')}")
        return 0
    command = arguments[0]
    if command not in COMMANDS:
        known = f"; commands are {', '.join(COMMANDS)}"
        guess = nearest(command[:100], COMMANDS) or known
        print(f"{shown(command)}: unknown command{guess}", file=last_words())
        return 2
    status = _run(command, arguments[1:])
    if torchrun_rank() is not None:
        _leave(status)
    return status


def _leave(status: int) -> NoReturn:
    """End the process without taking the interpreter down.

    A thread of gloo may still let go of a tensor; without an interpreter it would abort.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _command_list() -> str:
    return "\n".join(f"  {name:<12}{purpose}" for name, purpose in COMMANDS.items())


def _run(command: str, arguments: Sequence[str]) -> int:
    """Run a command, and turn what the user can mend into one line and an exit status."""
    interrupt_on_signals()
    try:
        translated = translate(command, arguments)
        check_flags(flags_first(translated.arguments))
        with _elsewhere() as more:
            _hydra(command, translated, more)
    except KeyboardInterrupt:
        tell_interrupted()
        return INTERRUPTED
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        print(one_line(message), file=last_words())
        return 1
    return 0


@contextmanager
def _elsewhere() -> Iterator[tuple[str, ...]]:
    """Yield where processes of torchrun write other than the first: nowhere that stays."""
    if not torchrun_rank():
        yield ()
        return
    with (
        tempfile.TemporaryDirectory(prefix="gnnscale-") as folder,
        unfinished_folder(Path(folder)),
    ):
        yield f"hydra.run.dir='{folder}'", "hydra.output_subdir=null", f"hydra.sweep.dir='{folder}'"


def _hydra(command: str, translated: Translated, elsewhere: Sequence[str]) -> None:
    """Let Hydra compose the options and run the command's task.

    Raises:
        ConfigError: Hydra does not take the options.
        Exception: what the task raises.
    """
    import hydra

    arguments = [*translated.arguments, *elsewhere]
    output, sweep_folder = Output(), None
    asked = translated.output or run_directory(command, sweep=translated.sweep)
    if translated.sweep and not elsewhere:
        # Hydra makes it before it composes the jobs.
        sweep_folder = resolved_now(asked)
        arguments.append(f"hydra.sweep.dir={quoted(sweep_folder or asked)}")
    elif not elsewhere and asked != ".":
        # The task makes it, once its options are accepted.
        arguments += ["hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=console"]
        log_file = "train.log" if command == "train" else None
        output = Output(folder=asked, fresh=translated.fresh, log_file=log_file)
    job = Job(command=command, output=output, stops=lets_jobs_stop(command, arguments))
    arguments += defaults_of_search(arguments)
    register_resolvers()
    # Hydra then lets its own exceptions through.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = ["gnnscale", *flags_first(arguments)]
    warnings.filterwarnings("ignore", module=r"hydra\.")
    failures.clear()
    try:
        before = Before(Path(os.path.abspath(sweep_folder or ".")))
        with taken_back(before, "multirun.yaml"):
            hydra.main(version_base="1.3", config_path=CONFIGS, config_name=command)(job)()
    # What the job raises is caught there; this is Hydra, composing whatever was typed.
    except Exception as error:
        if not failures:
            raise ConfigError(explain_hydra(error)) from error
    if failures and translated.sweep:
        raise SystemExit(1)
    if failures:
        raise failures[0]
