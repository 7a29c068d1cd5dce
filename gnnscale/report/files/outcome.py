"""The files of a run that ended in any way: ``summary.json``, ``trace.json``, ``report.html``."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from gnnscale.core.files import write_atomically
from gnnscale.report import figures, fpga, prediction
from gnnscale.report.files.steps import STEPS_FILE, read_steps
from gnnscale.report.files.summary import SUMMARY_FILE, summarise, write_json
from gnnscale.report.files.trace import TRACE_FILE, write_trace
from gnnscale.report.page.page import REPORT_FILE, render
from gnnscale.report.terminal import live, panel
from gnnscale.runtime.telemetry.records import TrainResult


def write_outcome(
    report: live.RunReport,
    run: TrainResult,
    *,
    status: str,
    error: str | None = None,
    console: Console | None = None,
    predictions: bool = False,
) -> dict[str, Any]:
    """Close ``report``, write the run's files, and print tables of the run.

    They are predicted next to measured stage times if there are several devices that measured
    any, which emulated ones were late, and what C simulation counted.

    ``summary.json`` comes first: a disk that is full before the report is written has it.

    Args:
        status: ``completed``, ``interrupted`` or ``failed``.
        console: where to print the tables, None for nowhere.
        predictions: print predicted stage times of a single device, too, and what is not known.

    Returns:
        The content of ``summary.json``.

    Raises:
        OSError: with the file's name; it could not be written.
    """
    report.close()
    directory = report.directory
    steps = read_steps(directory / STEPS_FILE, num_devices=len(run.plan.shares))
    predicted = prediction.compare(run, steps)
    summary = summarise(
        run, status=status, predicted=predicted, error=error, first_step_s=report.first_step_s
    )
    write_json(directory / SUMMARY_FILE, summary)
    spans = report.spans.all()
    # A run that was resumed after its last epoch has run no step; its timeline stays.
    if len(spans) or not (directory / TRACE_FILE).exists():
        write_trace(directory / TRACE_FILE, run.plan, spans)
    page = render(run, summary, steps, spans, report.options)
    write_atomically(directory / REPORT_FILE, page)
    if console is not None:
        measured = predicted is not None and predicted["measured_step_s"] is not None
        if predicted is not None and (predictions or (measured and len(run.plan.shares) > 1)):
            panel.print_prediction(predicted, console, absent=predictions)
        num_steps = len(run.history) * (run.steps_per_epoch or 0) or len(steps)
        for sentence in figures.late_sentences(summary["devices"], num_steps=num_steps):
            console.print(sentence, highlight=False, soft_wrap=True, markup=False)
        fpga.print_csim(summary["devices"], console)
    return summary
