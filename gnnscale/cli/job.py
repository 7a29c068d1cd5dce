"""A job of a sweep, which a launcher may send to another process."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnscale.cli import tasks
from gnnscale.config import ConfigError
from gnnscale.errors import explain, one_line
from gnnscale.options.compose import register_resolvers

if TYPE_CHECKING:
    from omegaconf import DictConfig

__all__ = ["Job", "failures", "left_by"]

#: What failed jobs of this process raised.
failures: list[Exception] = []


@dataclass(frozen=True, kw_only=True)
class Job:
    """A command's task as a job.

    Attributes:
        command: the command.
        stops: whether a job that fails is one for the sweeper to judge, which may end the sweep;
            otherwise the others go on.
    """

    command: str
    stops: bool = False

    def __call__(self, options: DictConfig) -> float | None:
        """Run the task.

        Returns:
            The figure that sweepers look at; None where there is none, or the job failed.
        """
        register_resolvers()
        try:
            return tasks.TASKS[self.command](options)
        except (Exception, SystemExit) as raised:
            error = left_by(raised) if isinstance(raised, SystemExit) else raised
            failures.append(error)
            message = explain(error)
            print(one_line(message) if message else traceback.format_exc(), file=sys.stderr)
            if self.stops:
                raise error from raised
        return None


def left_by(leave: SystemExit) -> ConfigError:
    """Return what to say if a user's code has called ``sys.exit``; no task does."""
    place = traceback.extract_tb(leave.__traceback__)[-1]
    return ConfigError(f"SystemExit: {leave} ({place.filename}:{place.lineno})")
