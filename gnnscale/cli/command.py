"""Which command is meant, and how its arguments reach Hydra."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gnnscale.cli import tasks
from gnnscale.cli.arguments import check_flags, flags_first
from gnnscale.cli.completion import complete
from gnnscale.cli.errors import explain_hydra
from gnnscale.cli.interruption import INTERRUPTED, interrupt_on_signals
from gnnscale.cli.leftovers import remove_leftovers
from gnnscale.cli.staging import CONFIGS, translate
from gnnscale.config import ConfigError, nearest
from gnnscale.errors import explain, one_line, shown
from gnnscale.files import unfinished_folder
from gnnscale.hardware import torchrun_rank, usable_cores
from gnnscale.runtime.processes.server import server_folder

if TYPE_CHECKING:
    from omegaconf import DictConfig

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
        print(f"{shown(command)}: unknown command{guess}", file=sys.stderr)
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
        # Where there is a server of workers, it clears up however this process ends.
        with (
            tempfile.TemporaryDirectory(prefix="gnnscale-", dir=server_folder()) as staging,
            unfinished_folder(Path(staging)),
        ):
            translated = flags_first(translate(command, arguments, Path(staging)))
            check_flags(translated)
            _hydra(command, translated, staging)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        remove_leftovers()
        message = explain(error)
        if message is None:
            raise
        print(one_line(message), file=sys.stderr)
        return 1
    return 0


def _hydra(command: str, arguments: Sequence[str], staging: str) -> None:
    """Let Hydra compose the options and run the command's task.

    Raises:
        ConfigError: Hydra does not take the options.
        Exception: what the task raises.
    """
    import hydra
    from omegaconf import OmegaConf

    failures: list[Exception] = []
    sweep = False

    def job(options: DictConfig) -> None:
        # Hydra would print a line of its own about an exception, and drop the jobs behind it.
        nonlocal sweep
        sweep = tasks.in_sweep()
        try:
            tasks.TASKS[command](options)
        except Exception as error:
            failures.append(error)
            if sweep:
                message = explain(error)
                print(one_line(message) if message else traceback.format_exc(), file=sys.stderr)

    if torchrun_rank():
        # Only the first of torchrun's processes writes; the others need no run directory.
        arguments = [*arguments, f"hydra.run.dir='{staging}'", "hydra.output_subdir=null"]
        arguments += [f"hydra.sweep.dir='{staging}'"]
    OmegaConf.register_new_resolver("usable_cores", usable_cores, replace=True)
    # Hydra then lets its own exceptions through.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = ["gnnscale", *arguments]
    warnings.filterwarnings("ignore", module=r"hydra\.")
    try:
        hydra.main(version_base="1.3", config_path=CONFIGS, config_name=command)(job)()
    # What the job raises is caught above; this is Hydra, composing whatever was typed.
    except Exception as error:
        raise ConfigError(explain_hydra(error)) from error
    if failures and sweep:
        raise SystemExit(1)
    if failures:
        raise failures[0]
