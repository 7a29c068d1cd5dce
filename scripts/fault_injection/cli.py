"""What the command does: disturb runs of every plan, resume them, and print what came of it."""

import argparse
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import fault_injection
from fault_injection.cases import Outcome, check_resumed
from fault_injection.cases import faults as faults_of
from fault_injection.plan import OPTIONS, PLANS, Plan

BEGAN = time.monotonic()


def main(arguments: Sequence[str]) -> int:
    """Print a Markdown table; the exit status is 1 if a check failed."""
    description, _, rest = (fault_injection.__doc__ or "").partition("\n")
    texts = {"description": description, "epilog": rest}
    parser = argparse.ArgumentParser(prog="python scripts/fault_injection", **texts)
    parser.add_argument("--kills", type=int, default=20, help="kill -9 of workers, in all")
    parser.add_argument("--seed", type=int, default=0, help="of workers and times")
    parser.add_argument("--plans", default=",".join(PLANS), help="some of these")
    parser.add_argument("--only-kills", action="store_true", help="and no other fault")
    options = parser.parse_args(arguments)
    chosen = options.plans.split(",")
    chance = random.Random(options.seed)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="gnnscale-faults-") as temporary:
        for position, name in enumerate(chosen):
            of_plan, names = PLANS[name]
            plan = Plan(Path(temporary), name, (*OPTIONS, *of_plan), names)
            plan.measure()
            kills = (options.kills + position) // len(chosen)
            planned = faults_of(plan, kills, chance)
            outcomes += disturb_and_resume(
                plan, islice(planned, kills if options.only_kills else None)
            )
    print(table(outcomes))
    return 1 if any(outcome.wrong for outcome in outcomes) else 0


def disturb_and_resume(plan: Plan, disturb: Iterator[Callable[[], Outcome]]) -> list[Outcome]:
    outcomes = []
    for inject in disturb:
        outcome = inject()
        outcomes.append(outcome)
        at = f" at {outcome.doing}" if outcome.doing else ""
        tell(plan, outcome, f"{outcome.fault}{at}: ended after {outcome.seconds:.2f} s")
    with ThreadPoolExecutor(max_workers=2) as pool:
        for outcome in pool.map(lambda outcome: check_resumed(plan, outcome), outcomes):
            tell(plan, outcome, f"{outcome.fault}: resumed")
    return outcomes


def tell(plan: Plan, outcome: Outcome, what: str) -> None:
    wrong = "; ".join(outcome.wrong) or "as it should"
    now = time.monotonic() - BEGAN
    print(f"{now:4.0f} s  {plan.name}: {what}: {wrong}", file=sys.stderr, flush=True)


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the results, a row for each fault of each plan."""
    columns = ["device plan", "fault", "runs", "ended after, median and longest", "its last line"]
    columns += ["largest difference of resumed weights", "passed"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for plan, fault in dict.fromkeys((outcome.plan, outcome.fault) for outcome in outcomes):
        group = [each for each in outcomes if (each.plan, each.fault) == (plan, fault)]
        lines.append(row(plan, fault, group))
    met = Counter(each.doing for each in outcomes if each.doing)
    at = ", ".join(f"{stage} ({count})" for stage, count in met.most_common())
    return "\n".join([*lines, "", f"Killed workers were at: {at}"])


def row(plan: str, fault: str, group: Sequence[Outcome]) -> str:
    seconds = [each.seconds for each in group]
    differences = [each.difference for each in group if each.difference is not None]
    cause = re.sub(r"process \d+", "process N", group[0].cause)
    cause = re.split(r"; | \((?!process N)", cause)[0].strip()
    cells = [plan, fault, str(len(group))]
    cells += [f"{statistics.median(seconds):.2f} s, {max(seconds):.2f} s", cause]
    cells += [f"{max(differences, default=float('nan')):g}"]
    passed = sum(not each.wrong for each in group)
    return f"| {' | '.join([*cells, f'{passed} of {len(group)}'])} |"
