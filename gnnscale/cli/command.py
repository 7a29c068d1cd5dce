"""Dispatch of ``gnnscale COMMAND``: help, composition of options by Hydra, task, and errors."""

import logging
import os
import re
import shlex
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from gnnscale.cli import arguments as cli_arguments
from gnnscale.cli import config_files, interruption, stdio, texts
from gnnscale.cli.arguments import explain_dataset, explain_missing_plugin
from gnnscale.cli.commands import TASKS
from gnnscale.cli.config_files import TranslatedArguments
from gnnscale.cli.help import help_text
from gnnscale.core import address_space_reason, brief, explain, suggestion, unfinished_folder
from gnnscale.core.config import check_unused, removed_on_error, unknown_option, user_code
from gnnscale.core.config.compose import CONFIGS, compose, register_resolvers, resolved_now
from gnnscale.core.config.option_names import all_entries
from gnnscale.core.errors import ConfigError, is_interrupted, one_line
from gnnscale.core.hardware import leads_machine, restarting_run, torchrun_rank
from gnnscale.core.locks import sole_writer

COMMANDS = {
    "prepare": "convert raw files to a graph store",
    "partition": "partition a graph, one part for each device",
    "plan-cache": "plan the caches in the accelerators' memory",
    "train": "train a model, by default a small one on a synthetic graph",
    "evaluate": "measure the best checkpoint of a run: run=DIR",
    "predict": "write classes or embeddings of vertices: run=DIR out=FILE",
    "export": "write weights for other programs: run=DIR format=pyg",
    "simulate": "predict training on a platform, without training",
    "generate": "explore designs of an FPGA card, and write one for Vitis",
    "doctor": "examine this machine, and list what each feature still needs",
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
gnnscale COMMAND log=json         standard error as JSON, an object a line
gnnscale train -m seed=0,1,2      a sweep, with a table of results
gnnscale doctor --calibrate       measure this machine for the performance model
gnnscale --shell-completion install=bash
gnnscale --version
"""

_JOB_LOGGING = "hydra/job_logging="


def main() -> int:
    """Run the process's arguments: help, version, completion or a command; return exit status."""
    arguments = sys.argv[1:]
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # Otherwise torch logs a C++ stack trace for each lost connection.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if arguments[:1] in (["-sc"], ["--shell-completion"]):
        return cli_arguments.complete(arguments, COMMANDS, _run)
    if not arguments or arguments[0] in ("-h", "--help"):
        commands = "\n".join(f"  {name:<12}{purpose}" for name, purpose in COMMANDS.items())
        print(_USAGE.format(commands=commands), end="")
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"gnnscale {metadata.version('gnnscale')}")
        return 0
    command = arguments[0]
    if command not in COMMANDS:
        hint = suggestion(command[:100], COMMANDS) or f"; commands are {', '.join(COMMANDS)}"
        print(f"{brief(command)}: unknown command{hint}", file=stdio.last_words())
        return 2
    status = _run(command, arguments[1:])
    if torchrun_rank() is not None:
        _leave(status)
    return status


def _leave(status: int) -> NoReturn:
    """End the process without Python's finalization, after which gloo's threads would abort."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _run(command: str, arguments: Sequence[str]) -> int:
    """Run a command and return its exit status, 130 if interrupted; print a user's error."""
    interruption.interrupt_on_signals()
    warnings.filterwarnings("ignore", module=r"hydra\.")
    try:
        if not {"-h", "--help"}.isdisjoint(arguments):
            print(_help(command, arguments), end="")
            return 0
        as_json, arguments = _log_option(arguments)
        translated = config_files.translate(command, arguments)
        if as_json:
            words = [word for word in translated.arguments if not word.startswith(_JOB_LOGGING)]
            translated = replace(translated, arguments=(*words, f"{_JOB_LOGGING}json"))
        cli_arguments.check_flags(cli_arguments.flags_first(translated.arguments))
        with _rank_folder(command, translated) as folder:
            if translated.sweep or any(
                argument.startswith("-") and argument not in ("-r", "--run")
                for argument in translated.arguments
            ):
                _run_hydra(command, translated, folder)
            else:
                _run_single(command, translated, folder)
    except (KeyboardInterrupt, Exception) as error:
        if is_interrupted(error):
            interruption.tell_interrupted()
            return interruption.INTERRUPTED
        message = explain(error)
        if message is None:
            raise
        print(one_line(message), file=stdio.last_words())
        return 1
    return 0


def _log_option(arguments: Sequence[str]) -> tuple[bool, list[str]]:
    """Return whether ``log=json`` is among the arguments, and the arguments but ``log=...``."""
    chosen = {word for word in arguments if word.startswith("log=")}
    if len(chosen) > 1 or not chosen <= {stdio.LOG_JSON, "log=text"}:
        values = ",".join(word.removeprefix("log=") for word in sorted(chosen))
        raise ConfigError(f"log={brief(values)}: expected json or text")
    return stdio.LOG_JSON in chosen, [word for word in arguments if word not in chosen]


def _help(command: str, arguments: Sequence[str]) -> str:
    """Return the help of a command, for the named groups of options or for all."""
    words = [argument for argument in arguments if argument not in ("-h", "--help")]
    topics = [word for word in words if "=" not in word and word[:1] not in "-~"]
    translated = config_files.translate(command, [word for word in words if word not in topics])
    try:
        return help_text(command, translated.config, translated.overrides, topics)
    except Exception as error:  # any error in the typed options
        raise ConfigError(explain_hydra(error)) from error


@contextmanager
def _rank_folder(command: str, translated: TranslatedArguments) -> Iterator[str | None]:
    """Yield the output folder that torchrun imposes; None: the typed folder, or the default.

    Ranks above 0 get a temporary folder. With ``--max-restarts``, local rank 0 of each machine
    writes to the run directory of ``train``, since its machine may be the only one that remains.
    Without a typed folder, the run directory is then named by torchrun's ``--rdzv-id``.
    """
    run = restarting_run() if command == "train" else None
    if run is not None and translated.sweep:
        raise ConfigError("torchrun --max-restarts: a sweep is not started again; 0 goes with -m")
    if run is not None and leads_machine():
        is_typed = translated.output is not None or any(
            argument.startswith("hydra.run.dir=") for argument in translated.arguments
        )
        yield None if is_typed else f"outputs/train/{run}"
        return
    if not torchrun_rank():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="gnnscale-") as folder, unfinished_folder(Path(folder)):
        yield folder


def _run_single(command: str, translated: TranslatedArguments, rank_folder: str | None) -> None:
    """Run the task of a command once; ``rank_folder`` replaces the output folder unless None."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.core.utils import configure_log

    folder = rank_folder or translated.output
    try:
        options, hydra = compose(translated.config, translated.overrides, directory=folder)
        configure_log(hydra.hydra.job_logging, hydra.hydra.verbose)
    except Exception as error:  # any error in the typed options
        raise ConfigError(explain_hydra(error)) from error
    HydraConfig.instance().set_config(hydra)
    name_lost_files()
    try:
        TASKS[command](options)
    except SystemExit as leave:
        raise exit_error(leave) from leave


def _run_hydra(command: str, translated: TranslatedArguments, rank_folder: str | None) -> None:
    """Let Hydra run a command that shows a configuration, completes a line, or is a sweep.

    ``rank_folder``, if any, replaces a sweep's output folder. SystemExit: a job failed.
    """
    import hydra

    arguments = list(translated.arguments)
    folder = None
    if translated.sweep:
        output = translated.output or config_files.run_directory(command, sweep=True)
        # Hydra creates the folder before it composes the jobs.
        folder = None if rank_folder else resolved_now(output)
        arguments.append(f"hydra.sweep.dir={texts.quoted(rank_folder or folder or output)}")
        if rank_folder:
            arguments.append("hydra.output_subdir=null")
    stops = cli_arguments.lets_jobs_stop(command, arguments)
    searches = cli_arguments.searches(arguments)
    job = CommandJob(command=command, stops=stops, searches=searches, code=user_code.allowed())
    arguments += cli_arguments.defaults_of_search(arguments)
    register_resolvers()
    # Makes Hydra raise its exceptions, not print them.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = ["gnnscale", *cli_arguments.flags_first(arguments)]
    failures.clear()
    try:
        with ExitStack() as stack:
            if folder is not None:
                directory = Path(os.path.abspath(folder))
                new_names = stack.enter_context(removed_on_error(directory))
                stack.enter_context(sole_writer(directory, option="output"))
                if translated.fresh:
                    check_unused(directory, jobs=True)
                new_names.add("multirun.yaml")
            path = f"pkg://{CONFIGS}"
            hydra.main(version_base="1.3", config_path=path, config_name=translated.config)(job)()
    # CommandJob handles errors of jobs; without failed jobs this is an error of Hydra.
    except Exception as error:
        if not failures:
            raise ConfigError(explain_hydra(error)) from error
    if failures:
        raise SystemExit(1)


#: Exceptions of failed jobs in this process.
failures: list[Exception] = []


@dataclass(frozen=True, kw_only=True)
class CommandJob:
    """Callable that runs a command's task on the options of one job."""

    command: str
    #: whether a failure is raised, so that the sweeper may end the sweep
    stops: bool = False
    searches: bool = False  #: whether the sweeper chooses jobs by the metrics of earlier ones
    code: tuple[str, ...] = ()  #: user code that the user has named, for a launcher's processes

    def __call__(self, options: Any) -> float | None:
        """Run the task on ``options``, and return the metric, if any, for the sweeper.

        A failure, such as a search without a metric, is printed and kept in ``failures``, and
        raised if ``stops``. None: the task has no metric, or failed.
        """
        register_resolvers()
        user_code.allow(self.code)
        name_lost_files()
        try:
            metric = TASKS[self.command](options)
            if metric is None and self.searches:
                raise ConfigError(
                    "hydra/sweeper=optuna: expected a validation metric to search by, got none; "
                    "it needs labeled validation vertices or edges, such as dataset.split=random "
                    "draws"
                )
            return metric
        except (Exception, SystemExit) as raised:
            if is_interrupted(raised):
                raise KeyboardInterrupt from raised
            error = exit_error(raised) if isinstance(raised, SystemExit) else raised
            failures.append(error)
            message = explain(error)
            print(one_line(message) if message else traceback.format_exc(), file=sys.stderr)
            if self.stops:
                raise error from raised
        return None


def exit_error(leave: SystemExit) -> ConfigError:
    """Return the error for user code that called ``sys.exit``, with its file and line."""
    source = traceback.extract_tb(leave.__traceback__)[-1]
    return ConfigError(f"SystemExit: {leave} ({source.filename}:{source.lineno})")


def name_lost_files() -> None:
    """Install a SIGBUS handler that ends the process, naming the mapped file that became shorter.

    Under a limit on address space OpenBLAS of NumPy, which is imported, gets one thread: the stacks
    of more may not fit, and torch computes the products.
    """
    name = "OPENBLAS_NUM_THREADS"
    user_value = os.environ.get(name)
    if address_space_reason():
        os.environ.setdefault(name, "1")
    from gnnscale.ops import end_on_bus_error

    if user_value is None:
        os.environ.pop(name, None)

    reason = b": a mapped file became shorter, or its disk fails or is full\n"
    end_on_bus_error(descriptor=2, after=reason, status=1)


def explain_hydra(error: Exception) -> str:
    """Return a one-line message for any exception of Hydra while it composes options."""
    from hydra.errors import MissingConfigException
    from omegaconf.errors import (
        ConfigAttributeError,
        ConfigKeyError,
        GrammarParseError,
        OmegaConfBaseException,
    )

    from gnnscale.core.config.typed import REFERENCE

    message = explain(error)
    if message is not None:
        return message
    if isinstance(error, MissingConfigException):
        return _explain_missing(error)
    if isinstance(error, RecursionError):
        return "the options refer to each other in a circle, or are nested too deeply"
    cause = error.__cause__ or error
    if isinstance(cause, OSError):
        return explain(cause) or str(cause)
    if isinstance(cause, (ConfigAttributeError, ConfigKeyError)):
        return unknown_option(brief(cause.full_key), _options(cause))
    if isinstance(cause, OmegaConfBaseException):
        # Later lines only repeat the key and its type.
        lines = str(cause).strip().splitlines()[:1]
        if isinstance(cause, GrammarParseError):
            lines[0] += f"; {REFERENCE}"
    else:
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    reason = " ".join(lines) or type(cause).__name__
    if isinstance(cause, LookupError):
        reason = f"{type(cause).__name__}: {reason}"
    if missing := re.match(r"Could not override '([^']*)'\. No match in the defaults", reason):
        return f"{brief(missing[1])}: this command has no such group of options"
    if several := re.match(r"Ambiguous value for argument '(([^'=]*)=([^']*))'", reason):
        return (
            f"{brief(several[1])}: add -m to run a sweep over these values, or write "
            f"{brief(several[2])}=[{brief(several[3])}] for a list"
        )
    if sweep := re.match(r"Sweep parameters '([^=]*)=(.*)' requires --multirun", reason):
        argument = shlex.quote(f"{sweep[1]}={texts.quoted(sweep[2])}")
        return f"{brief(sweep[2])}: add -m to run a sweep; a text goes in quotes, {argument}"
    key = getattr(cause, "full_key", None)
    return f"{key}: {reason}" if key and not reason.startswith(str(key)) else reason


def _explain_missing(error: Any) -> str:
    config = str(error.missing_cfg_file)
    group, _, name = config.rpartition("/")
    if (missing := explain_missing_plugin(group, name)) is not None:
        return missing
    if not error.options:
        return f"{config}: no such configuration"
    if group == "dataset" and (hint := explain_dataset(name)) is not None:
        return hint
    options = sorted(error.options)
    guess = suggestion(name, options) or f"; there are {', '.join(options)}"
    return f"{group}={name}: no such {group}{guess}"


def _options(error: Any) -> list[str]:
    """Return the dotted names of all options in the configuration that OmegaConf's error is of."""
    node = error.parent_node
    while node is not None and node._get_parent() is not None:
        node = node._get_parent()
    if node is None:
        return []
    from omegaconf import OmegaConf

    plain: Any = OmegaConf.to_container(node, resolve=False)
    if not isinstance(plain, dict):
        return []
    plain.pop("hydra", None)
    return [name for name, _ in all_entries(plain) if not name.endswith("_target_")]
