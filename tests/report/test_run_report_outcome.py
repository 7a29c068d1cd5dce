import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from printed import on_console
from rich.console import Console

from gnnscale.report.run_report import write_outcome
from gnnscale.report.terminal import RunReport


def observer(directory: Path) -> RunReport:
    console = Console(file=io.StringIO())
    return RunReport(directory, epochs=3, options={"seed": 0}, console=console)


def test_the_run_leaves_its_files(tmp_path: Path, hybrid_run: Any, write_run: Any) -> None:
    _, summary = write_run(tmp_path, hybrid_run)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("config.yaml", "metrics.jsonl", "report.html"),
        *("steps.jsonl", "summary.json", "trace.json"),
    ]
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert summary["test_metric"] == 0.7123
    assert summary["predicted"]["num_steps"] == 9
    assert len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) > 500


@pytest.mark.parametrize(("num_steps", "num_epochs"), [(0, 0), (1, 0), (40, 1)])
def test_a_run_that_stops(tmp_path: Path, hybrid_run: Any, num_steps: int, num_epochs: int) -> None:
    report = observer(tmp_path)
    report.started(hybrid_run.started)
    for step in hybrid_run.steps[:num_steps]:
        report.stepped(step)
    for epoch in hybrid_run.epochs[:num_epochs]:
        report.finished_epoch(epoch)
    assert report.run is not None
    write_outcome(report, report.run, status="failed", error="worker <1> died: out of memory")
    page = (tmp_path / "report.html").read_text()
    assert "worker &lt;1&gt; died: out of memory" in page
    assert page.count("<h2>") == page.count("</section>")
    # Each of nine parts is a section, or a line in another one that says why it is not; the run's
    # options are last.
    shown = page.count("</section>") - page.count("<h2>Not shown</h2>")
    assert shown + page.count('class="soft empty"') == 9
    assert page.rindex("<h2>Options and command</h2>") > page.rindex('class="soft empty"')
    assert (tmp_path / "steps.jsonl").exists() == (num_steps > 0)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["status"], summary["epochs"]) == ("failed", num_epochs)
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_a_resumed_run_keeps_its_timeline_and_a_new_one_none(
    tmp_path, hybrid_run, write_run
) -> None:
    write_run(tmp_path, hybrid_run)
    before = (tmp_path / "trace.json").read_text()
    report = observer(tmp_path)
    report.started(replace(hybrid_run.started, history=hybrid_run.epochs))
    write_outcome(report, hybrid_run.result, status="completed")
    assert (tmp_path / "trace.json").read_text() == before
    assert len((tmp_path / "steps.jsonl").read_text().splitlines()) == 90
    report.started(hybrid_run.started)
    assert not (tmp_path / "steps.jsonl").exists()
    write_outcome(report, hybrid_run.started, status="interrupted")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M"}


def test_predicted_times_are_printed_where_there_are_any(tmp_path: Path, hybrid_run: Any) -> None:
    report = observer(tmp_path)
    hybrid_run.tell(report)
    shown = on_console(write_outcome, report, hybrid_run.result, status="completed", width=100)
    assert "Predicted and measured stage times" in shown
    # The host was late in one step of each epoch.
    late = (
        "emulated:1: the host was slower than the device that it emulates in 3 of 90 steps, by "
        "0.003 s in all; times of this device are too long by that\n"
    )
    assert shown.endswith(late)
    unknown = hybrid_run.predicting(None)
    assert on_console(write_outcome, report, unknown, status="completed", width=100) == late


@pytest.mark.parametrize("asked", [False, True])
def test_predictions_of_one_device_are_asked_for(tmp_path: Path, cpu_run: Any, asked: bool) -> None:
    report = observer(tmp_path)
    cpu_run.tell(report)
    options = {"status": "completed", "predictions": asked}
    shown = on_console(write_outcome, report, cpu_run.result, **options)
    assert ("Predicted and measured stage times" in shown) == bool(shown) == asked


def test_what_was_simulated_needs_no_prediction(tmp_path: Path, simulated_run: Any) -> None:
    report = observer(tmp_path)
    simulated_run.tell(report)
    shown = on_console(write_outcome, report, simulated_run.predicting(None), status="completed")
    assert shown.splitlines()[-1] == "fpga:1 (csim): simulating took 6.00 s for 0.30 ms of the card"
