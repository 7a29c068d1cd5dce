"""What Hydra is given to run: a command's task, which a launcher may send to another process."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gnnscale.cli import tasks
from gnnscale.cli.output import Output
from gnnscale.core.errors import ConfigError, explain, one_line
from gnnscale.core.hardware import usable_cores

if TYPE_CHECKING:
    from omegaconf import DictConfig

__all__ = ["Job", "register_resolvers"]

#: What a single run raised, which Hydra would tell in lines of its own; and failed jobs of a sweep.
failures: list[Exception] = []


def register_resolvers() -> None:
    """Let options refer to ``${usable_cores:}``."""
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("usable_cores", usable_cores, replace=True)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A command's task.

    Attributes:
        command: the command.
        output: where it writes.
        stops: whether a job that fails is one for the sweeper to judge, which may end the sweep;
            otherwise the others go on.
    """

    command: str
    output: Output = field(default_factory=Output)
    stops: bool = False

    def __call__(self, options: DictConfig) -> float | None:
        """Run the task.

        Returns:
            The figure that sweepers look at; None where there is none, or the job failed.
        """
        register_resolvers()
        try:
            return tasks.TASKS[self.command](options, self.output)
        except (Exception, SystemExit) as raised:
            error = _left_by(raised) if isinstance(raised, SystemExit) else raised
            failures.append(error)
            if tasks.in_sweep():
                message = explain(error)
                print(one_line(message) if message else traceback.format_exc(), file=sys.stderr)
            if self.stops:
                raise error from raised
        return None


def _left_by(leave: SystemExit) -> ConfigError:
    """Return what to say where a user's own code has called ``sys.exit``; no task does."""
    place = traceback.extract_tb(leave.__traceback__)[-1]
    return ConfigError(f"SystemExit: {leave} ({place.filename}:{place.lineno})")
