"""``steps.jsonl`` of steps that were made up."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gnnscale.report.steps import StepLog, Steps, read_steps

__all__ = ["write_steps", "written_steps"]


def write_steps(file: Path, steps: Iterable[Any]) -> None:
    """Write a line for each step, as one run does."""
    log = StepLog(file)
    for step in steps:
        log.add(step)
    log.flush()


def written_steps(directory: Path, steps: Iterable[Any], num_devices: int = 2) -> Steps:
    """Write steps, and return what is read of them."""
    write_steps(directory / "steps.jsonl", steps)
    return read_steps(directory / "steps.jsonl", num_devices=num_devices)
