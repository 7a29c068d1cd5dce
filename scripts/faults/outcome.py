"""What a fault led to: how the run ended, what it left, and to which weights it was resumed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from faults.plan import Plan
from faults.training import Training

#: Seconds in which a run has to end.
LIMIT_S = 5.0


@dataclass(kw_only=True)
class Outcome:
    """What a fault led to; ``wrong`` names every check that failed."""

    plan: str
    fault: str
    directory: Path
    doing: str = ""
    seconds: float = 0.0
    cause: str = ""
    difference: float | None = None
    wrong: list[str] = field(default_factory=list)


def check_end(
    run: Training, outcome: Outcome, *, cause: str, status: int, limit_s: float = LIMIT_S
) -> None:
    """Wait for the end of a run that a fault has met, and look at what is left."""
    outcome.seconds = run.wait_until_gone()
    outcome.cause = run.last_line()
    errors = run.errors.read_text()
    wrong = [f"left behind: {each}" for each in run.left_behind()]
    if outcome.seconds > limit_s:
        wrong.append(f"ended after {outcome.seconds:.1f} s")
    if run.process.poll() != status:
        wrong.append(f"exit status {run.process.poll()}, not {status}")
    if not re.search(cause, outcome.cause):
        wrong.append(f"its last line is {outcome.cause!r}")
    if "Traceback" in errors:
        wrong.append("a traceback on stderr")
    outcome.wrong += wrong
    run.end()


def check_resumed(plan: Plan, outcome: Outcome) -> Outcome:
    """Resume a run, and compare its weights with those of the one that nobody disturbed."""
    if not (outcome.directory / "config.yaml").exists():
        plan.finish(outcome.directory, *plan.options)  # it had not begun: nothing to resume
    else:
        plan.finish(outcome.directory, "resume")
    outcome.difference = difference(plan.whole, outcome.directory)
    if outcome.difference != 0:
        outcome.wrong.append(f"weights differ by {outcome.difference:.1e}")
    return outcome


def difference(left: Path, right: Path) -> float:
    """Return the largest absolute difference between the last weights of two runs."""
    from gnnscale.runtime.checkpoint.file import LAST, load_checkpoint

    weights = [load_checkpoint(run / LAST)["model"] for run in (left, right)]
    return max(float((weights[0][key] - other).abs().max()) for key, other in weights[1].items())
