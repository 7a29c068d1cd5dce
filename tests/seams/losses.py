"""The losses of a run, step by step, as one that watches a run sees them."""

from __future__ import annotations

from typing import Any


class Losses:
    """An observer that keeps what each step reports, and nothing else."""

    def __init__(self) -> None:
        self.steps: list[float] = []

    def started(self, run: Any) -> None: ...

    def stepped(self, record: Any) -> None:
        self.steps.append(record.loss)

    def traced(self, spans: Any) -> None: ...

    def trained(self) -> None: ...

    def finished_epoch(self, record: Any) -> None: ...
