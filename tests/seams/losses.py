"""The losses of a run, step by step, as one that watches a run sees them."""

from typing import Any

from gnnscale import Observer


class Losses(Observer):
    """Keeps what each step reports, and nothing else."""

    def __init__(self) -> None:
        self.steps: list[float] = []

    def stepped(self, record: Any) -> None:
        self.steps.append(record.loss)
