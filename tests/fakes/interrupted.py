"""Runs that are interrupted."""

from typing import Any

from gnnscale.report.terminal import RunReport
from gnnscale.run.checkpoint import LAST


class StopAfterAnEpoch(RunReport):
    """Interrupts the run as Ctrl-C would, after the first epoch that finds a checkpoint written.

    A thread writes checkpoints, and on a busy machine the first epoch may end before the disk has
    one.
    """

    def finished_epoch(self, record: Any) -> None:
        super().finished_epoch(record)
        if (self.directory / LAST).exists():
            raise KeyboardInterrupt
