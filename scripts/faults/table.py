"""The results as a Markdown table."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Sequence

from faults.outcome import Outcome


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the results, a row for each fault of each plan."""
    lines = [
        "| device plan | fault | runs | ended after, median and longest | what it tells "
        "| largest difference of resumed weights | passed |",
        "|---|---|---|---|---|---|---|",
    ]
    groups = dict.fromkeys((outcome.plan, outcome.fault) for outcome in outcomes)
    for plan, fault in groups:
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
    return (
        f"| {plan} | {fault} | {len(group)} "
        f"| {statistics.median(seconds):.2f} s, {max(seconds):.2f} s | {cause} "
        f"| {max(differences, default=float('nan')):g} "
        f"| {sum(not each.wrong for each in group)} of {len(group)} |"
    )
