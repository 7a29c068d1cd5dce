"""Which command is meant, and how its arguments reach Hydra."""

import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from gnnscale.cli import arguments as cli_arguments
from gnnscale.cli import config_files as staging
from gnnscale.cli import exit_status as exits
from gnnscale.cli import interruption, texts
from gnnscale.cli import stdio as streams
from gnnscale.cli.commands import TASKS, CommandJob, failures, left_by
from gnnscale.cli.help import help_text
from gnnscale.core import leads_machine, restarting_run, torchrun_rank, unfinished_folder
from gnnscale.core.config import user_code
from gnnscale.core.config.compose import CONFIGS, compose, register_resolvers, resolved_now
from gnnscale.core.config.run_directory import check_unused, taken_back
from gnnscale.core.errors import ConfigError, explain, nearest, one_line, shown
from gnnscale.core.locks import sole_writer

COMMANDS = {
    "prepare": "raw files to a graph store",
    "partition": "a graph to parts, one for each device",
    "plan-cache": "what accelerators keep of a graph in their own memory",
    "train": "train a model, by default a small one on a synthetic graph",
    "evaluate": "measure the best checkpoint of a run: run=DIR",
    "predict": "classes or embeddings of vertices in a file: run=DIR out=FILE",
    "export": "weights for other programs: run=DIR format=pyg",
    "simulate": "predict training on a platform, without training",
    "generate": "explore designs of an FPGA card, and write one for Vitis",
    "doctor": "what was found on this machine, what each feature still needs",
}

_USAGE = """\
usage: gnnscale COMMAND [OPTION=VALUE ...] [-m]

{commands}

gnnscale COMMAND --help           the options of a command, and what they mean
gnnscale COMMAND --help GROUP     those of a group, such as model
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
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # torch would warn of each lost connection, with a trace of its C++ code.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if arguments[:1] in (["-sc"], ["--shell-completion"]):
        return cli_arguments.complete(arguments, COMMANDS, _run)
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
        print(f"{shown(command)}: unknown command{guess}", file=streams.last_words())
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
    interruption.interrupt_on_signals()
    warnings.filterwarnings("ignore", module=r"hydra\.")
    try:
        if not {"-h", "--help"}.isdisjoint(arguments):
            print(_help(command, arguments), end="")
            return 0
        translated = staging.translate(command, arguments)
        cli_arguments.check_flags(cli_arguments.flags_first(translated.arguments))
        with _elsewhere(command, translated) as folder:
            if translated.sweep or any(
                each.startswith("-") and each not in ("-r", "--run")
                for each in translated.arguments
            ):
                _hydra(command, translated, folder)
            else:
                _single(command, translated, folder)
    except KeyboardInterrupt:
        interruption.tell_interrupted()
        return interruption.INTERRUPTED
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        print(one_line(message), file=streams.last_words())
        return 1
    return 0


def _help(command: str, arguments: Sequence[str]) -> str:
    """Return the help of a command: of the groups that are named, or of all.

    Raises:
        ConfigError: an argument is not allowed.
    """
    rest = [each for each in arguments if each not in ("-h", "--help")]
    topics = [each for each in rest if "=" not in each and each[:1] not in "-~"]
    translated = staging.translate(command, [each for each in rest if each not in topics])
    overrides = [each for each in translated.arguments if not each.startswith("-")]
    try:
        return help_text(command, translated.config, overrides, topics)
    except Exception as error:  # whatever was typed
        raise ConfigError(exits.explain_hydra(error)) from error


@contextmanager
def _elsewhere(command: str, translated: staging.TranslatedArguments) -> Iterator[str | None]:
    """Yield where processes of torchrun write other than the first: nowhere that stays.

    If they may be started again, the first of each machine writes into the run directory, since
    that machine may be the only one that is left.
    """
    run = restarting_run() if command == "train" else None
    if run is not None and translated.sweep:
        raise ConfigError("torchrun --max-restarts: a sweep is not started again; 0 goes with -m")
    if run is not None and leads_machine():
        typed = any(each.startswith("hydra.run.dir=") for each in translated.arguments)
        yield None if typed or translated.output is not None else f"outputs/train/{run}"
        return
    if not torchrun_rank():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="gnnscale-") as folder, unfinished_folder(Path(folder)):
        yield folder


def _single(command: str, translated: staging.TranslatedArguments, elsewhere: str | None) -> None:
    """Compose the options of a command, and run its task.

    Raises:
        ConfigError: Hydra does not take the options.
        Exception: what the task raises.
    """
    from hydra.core.hydra_config import HydraConfig
    from hydra.core.utils import configure_log

    overrides = [each for each in translated.arguments if not each.startswith("-")]
    try:
        options, hydra = compose(
            translated.config, overrides, directory=elsewhere or translated.output
        )
        configure_log(hydra.hydra.job_logging, hydra.hydra.verbose)
    except Exception as error:  # whatever was typed
        raise ConfigError(exits.explain_hydra(error)) from error
    HydraConfig.instance().set_config(hydra)
    exits.name_lost_files()
    try:
        TASKS[command](options)
    except SystemExit as leave:
        raise left_by(leave) from leave


def _hydra(command: str, translated: staging.TranslatedArguments, elsewhere: str | None) -> None:
    """Let Hydra show help or a configuration, complete a line, or run the jobs of a sweep.

    Raises:
        ConfigError: Hydra does not take the options.
        SystemExit: with status 1 if jobs have failed.
    """
    import hydra

    arguments = list(translated.arguments)
    folder = None
    if translated.sweep:
        asked = elsewhere or translated.output or staging.run_directory(command, sweep=True)
        # Hydra makes it before it composes the jobs.
        folder = None if elsewhere else resolved_now(asked)
        arguments.append(f"hydra.sweep.dir={texts.quoted(folder or asked)}")
        if elsewhere:
            arguments.append("hydra.output_subdir=null")
    job = CommandJob(
        command=command,
        stops=cli_arguments.lets_jobs_stop(command, arguments),
        code=user_code.allowed(),
    )
    arguments += cli_arguments.defaults_of_search(arguments)
    register_resolvers()
    # Hydra then lets its own exceptions through.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = ["gnnscale", *cli_arguments.flags_first(arguments)]
    failures.clear()
    try:
        with ExitStack() as stack:
            if folder is not None:
                place = Path(os.path.abspath(folder))
                mine = stack.enter_context(taken_back(place))
                stack.enter_context(sole_writer(place, option="output"))
                if translated.fresh:
                    check_unused(place, jobs=True)
                mine.add("multirun.yaml")
            path = f"pkg://{CONFIGS}"
            hydra.main(version_base="1.3", config_path=path, config_name=translated.config)(job)()
    # What a job raises is caught there; this is Hydra, composing whatever was typed.
    except Exception as error:
        if not failures:
            raise ConfigError(exits.explain_hydra(error)) from error
    if failures:
        raise SystemExit(1)
