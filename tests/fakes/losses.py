"""The losses of a run, step by step, as one that watches a run sees them."""

from collections.abc import Callable
from typing import Any

from gnnscale import Observer


class Losses(Observer):
    """Keeps what each step reports, and nothing else."""

    def __init__(self) -> None:
        self.steps: list[float] = []

    def stepped(self, record: Any) -> None:
        self.steps.append(record.loss)


def interrupt() -> None:
    raise KeyboardInterrupt


class At(Losses):
    """Lets something happen after a step: the run breaks off, as if it crashed, or ``action``."""

    def __init__(self, step: int, action: Callable[[], object] = interrupt) -> None:
        super().__init__()
        self._step, self._action = step, action

    def stepped(self, record: Any) -> None:
        super().stepped(record)
        if len(self.steps) == self._step:
            self._action()
