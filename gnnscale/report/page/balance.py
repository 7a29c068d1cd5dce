"""The section of ``report.html`` about who does how much: shares, threads, decisions."""

from __future__ import annotations

from html import escape

import numpy as np

from gnnscale.plan import DevicePlan
from gnnscale.report.files.steps import Steps
from gnnscale.report.page.cards import card, device_css, device_title, grid, nothing
from gnnscale.report.page.charts import Mark, legend, stacked_chart
from gnnscale.report.page.svg import Axis

__all__ = ["decision_marks", "shares_and_threads", "steps_axis"]

#: Decisions listed; a run that settles has far fewer.
_MAX_DECISIONS = 300
_THREAD_STAGES = ("sample", "load", "propagate")
#: Which threads work at the same time.
_TURNS = {
    "none": "Prefetch none: stages take turns, and so do their threads.",
    "one_stage": "Prefetch one_stage: sample and load take turns, beside propagate.",
    "two_stage": "Prefetch two_stage: all stages run side by side.",
}


def shares_and_threads(plan: DevicePlan, steps: Steps) -> str:
    """Shares of the mini-batch and threads over the steps, and what was decided about them."""
    if not len(steps):
        return nothing("No step was finished.")
    shown = _until_settled(steps)
    cards = [_shares(plan, shown)] if len(plan.shares) > 1 else []
    highest = float(shown.threads.sum(axis=2).max()) + 0.5
    for rank, share in enumerate(plan.shares):
        used = [i for i in range(3) if shown.threads[:, rank, i].any()]
        tasks = [(f"s-{_THREAD_STAGES[i]}", _THREAD_STAGES[i]) for i in used]
        chart = stacked_chart(
            tasks,
            shown.number,
            shown.threads[:, rank, used].astype(np.float64),
            x=steps_axis(shown),
            y=Axis(title="host threads", low=0, high=highest, integer=True),
            marks=decision_marks(shown),
        )
        note = f'<p class="soft">{_TURNS[share.prefetch]}</p>'
        cards.append(card(f"Threads of {device_title(plan, rank)}", legend(tasks) + chart + note))
    decisions = _decisions(steps)
    # Beside the last plot where there is room.
    plots = grid([*cards, decisions]) if len(cards) % 2 else grid(cards) + decisions
    if len(shown) == len(steps):
        return plots
    return f'<p class="soft">The first {len(shown):,} steps; nothing changed after them.</p>{plots}'


def _shares(plan: DevicePlan, steps: Steps) -> str:
    labels = [(device_css(i), s.device.label) for i, s in enumerate(plan.shares)]
    batch = np.maximum(steps.num_seeds.sum(axis=1, keepdims=True), 1)
    marks = decision_marks(steps)
    chart = stacked_chart(
        labels,
        steps.number,
        steps.num_seeds / batch * 100,
        x=steps_axis(steps),
        y=Axis(title="% of the mini-batch", low=0, high=100),
        marks=marks,
    )
    key = [*labels, ("mark", "a decision")] if marks else labels
    return card("Share of the mini-batch", legend(key) + chart)


def _until_settled(steps: Steps) -> Steps:
    """The first steps alone, where a long run has decided nothing after them."""
    if not steps.decisions:
        return steps
    settled = int(np.searchsorted(steps.number, steps.decisions[-1][0])) + 1
    shown = max(2 * settled, 30)
    return steps.first(shown) if 4 * shown < len(steps) else steps


def _decisions(steps: Steps) -> str:
    title = "Decisions of dynamic resource management"
    if not steps.decisions:
        return card(title, nothing("None: it was off, or found nothing worth a move."))
    shown = steps.decisions[:_MAX_DECISIONS]
    rows = "".join(
        f'<tr><td>{number:,}</td><td class="text">{escape(what)}</td></tr>'
        for number, what in shown
    )
    more = len(steps.decisions) - len(shown)
    note = f'<p class="soft">and {more:,} more in steps.jsonl</p>' if more else ""
    table = f'<table><tr><th>step</th><th class="left">decision</th></tr>{rows}</table>'
    return card(title, f'<div class="scroll">{table}</div>{note}')


def steps_axis(steps: Steps) -> Axis:
    """Return the axis of a plot over steps."""
    low, high = float(steps.number[0]), float(steps.number[-1])
    return Axis(title="step", low=low, high=high + 1, integer=True)


def decision_marks(steps: Steps) -> list[Mark]:
    """Return a line at each step that is the first after a decision."""
    return [
        Mark(x=number + 1, label=f"step {number}: {what}")
        for number, what in steps.decisions[:_MAX_DECISIONS]
    ]
