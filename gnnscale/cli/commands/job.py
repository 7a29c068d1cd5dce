"""Command's task as a job that Hydra runs, in this process or in a launcher's."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnscale.cli.commands import TASKS
from gnnscale.cli.exit_status import name_lost_files
from gnnscale.core import ConfigError, explain, one_line
from gnnscale.core.config import compose, user_code

if TYPE_CHECKING:
    from omegaconf import DictConfig

#: Exceptions of failed jobs in this process.
failures: list[Exception] = []


@dataclass(frozen=True, kw_only=True)
class CommandJob:
    """Callable that runs a command's task on the options of one job."""

    command: str
    #: whether a failure is raised, so that the sweeper may end the sweep
    stops: bool = False
    code: tuple[str, ...] = ()  #: user code that the user has named, for a launcher's processes

    def __call__(self, options: DictConfig) -> float | None:
        """Run the task and return the metric for the sweeper. None: the job has no metric."""
        compose.register_resolvers()
        user_code.allow(self.code)
        name_lost_files()
        try:
            return TASKS[self.command](options)
        except (Exception, SystemExit) as raised:
            error = exit_error(raised) if isinstance(raised, SystemExit) else raised
            failures.append(error)
            message = explain(error)
            print(one_line(message) if message else traceback.format_exc(), file=sys.stderr)
            if self.stops:
                raise error from raised
        return None


def exit_error(leave: SystemExit) -> ConfigError:
    """Return the error for user code that called ``sys.exit``; no task does."""
    source = traceback.extract_tb(leave.__traceback__)[-1]
    return ConfigError(f"SystemExit: {leave} ({source.filename}:{source.lineno})")
