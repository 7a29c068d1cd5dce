from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gnnscale.report.files.outcome import write_outcome
from gnnscale.report.terminal.live import RunReport

SECTIONS = [
    *("Devices", "Loss and metric", "Stage times", "Batch shares and threads"),
    *("Predicted and measured", "Pipeline", "Memory", "Options"),
]


def observer(directory: Path, **options: Any) -> RunReport:
    console = Console(file=io.StringIO())
    return RunReport(directory, epochs=3, options=options or {"seed": 0}, console=console)


def written(directory: Path, run: Any, **options: Any) -> tuple[str, dict[str, Any]]:
    report = observer(directory, **options)
    run.tell(report)
    summary = write_outcome(report, run.result, status="completed")
    return (directory / "report.html").read_text(), summary


class Nesting(HTMLParser):
    """Checks that what is opened is closed, and collects the headings."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def test_the_run_leaves_its_files(tmp_path: Path, hybrid_run: Any) -> None:
    page, summary = written(tmp_path, hybrid_run)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("config.yaml", "metrics.jsonl", "report.html"),
        *("steps.jsonl", "summary.json", "trace.json"),
    ]
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert summary["test_metric"] == 0.7123
    assert summary["predicted"]["num_steps"] == 9
    assert len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) > 500
    nesting = Nesting()
    nesting.feed(page)
    assert nesting.open == []
    assert nesting.headings == SECTIONS


def test_the_page_needs_no_network(tmp_path: Path, hybrid_run: Any) -> None:
    page, _ = written(tmp_path, hybrid_run)
    assert "default-src 'none'" in page
    assert re.findall(r"""(?:src|href)\s*=|url\(|@import""", page) == []


def test_emulated_devices_are_marked_wherever_they_are_named(
    tmp_path: Path, hybrid_run: Any, cpu_run: Any
) -> None:
    page, _ = written(tmp_path, hybrid_run)
    for section in ("Devices", "Stage times", "Batch shares and threads", "Memory"):
        part = page.split(f"<h2>{section}</h2>")[1].split("<h2>")[0]
        assert 'class="badge">emulated' in part
    (tmp_path / "cpu").mkdir()
    page, _ = written(tmp_path / "cpu", cpu_run)
    assert 'class="badge"' not in page


def test_names_cannot_run_code(tmp_path: Path, hybrid_run: Any) -> None:
    evil = "<script>alert(1)</script>"
    steps = tuple(replace(step, decision=evil) for step in hybrid_run.steps)
    run = replace(hybrid_run, started=replace(hybrid_run.started, dataset=evil), steps=steps)
    page, _ = written(tmp_path, run, name=evil)
    assert evil not in page
    assert page.count("<script>") == 1


def test_a_long_run_stays_a_small_page(tmp_path: Path, make_run: Any) -> None:
    page, _ = written(tmp_path, make_run(num_epochs=4, steps_per_epoch=1500))
    assert len(page) < 250_000
    assert "nothing changed after them" in page


@pytest.mark.parametrize(("num_steps", "num_epochs"), [(0, 0), (1, 0), (40, 1)])
def test_a_run_that_stops_anywhere_has_a_report(
    tmp_path: Path, hybrid_run: Any, num_steps: int, num_epochs: int
) -> None:
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
    nesting = Nesting()
    nesting.feed(page)
    assert nesting.headings == SECTIONS
    assert (tmp_path / "steps.jsonl").exists() == (num_steps > 0)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["status"], summary["epochs"]) == ("failed", num_epochs)
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_the_timeline_of_a_finished_run_outlives_its_resumption(
    tmp_path: Path, hybrid_run: Any
) -> None:
    written(tmp_path, hybrid_run)
    before = (tmp_path / "trace.json").read_text()
    report = observer(tmp_path)
    report.started(replace(hybrid_run.started, history=hybrid_run.epochs))
    write_outcome(report, hybrid_run.result, status="completed")
    assert (tmp_path / "trace.json").read_text() == before
    assert len((tmp_path / "steps.jsonl").read_text().splitlines()) == 90


def test_a_new_run_drops_what_another_has_left(tmp_path: Path, hybrid_run: Any) -> None:
    written(tmp_path, hybrid_run)
    report = observer(tmp_path)
    report.started(hybrid_run.started)
    assert not (tmp_path / "steps.jsonl").exists()
    write_outcome(report, hybrid_run.started, status="interrupted")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M"}


def test_predicted_times_are_printed_where_there_are_any(tmp_path: Path, hybrid_run: Any) -> None:
    screen = io.StringIO()
    report = observer(tmp_path)
    hybrid_run.tell(report)
    console = Console(file=screen, width=100)
    write_outcome(report, hybrid_run.result, status="completed", console=console)
    assert "Predicted and measured stage times" in screen.getvalue()
    printed = len(screen.getvalue())
    result = replace(hybrid_run.result, predicted=None)
    write_outcome(report, result, status="completed", console=console)
    assert len(screen.getvalue()) == printed


#: Moves the pointer over the plots, and leaves in the title what the page then tells.
_MOVE = """<script>
addEventListener("load", () => {
  const told = [...document.querySelectorAll("svg.chart")].map((chart) => {
    const box = chart.getBoundingClientRect();
    const at = { clientX: box.left + box.width / 2, clientY: box.top + 20, bubbles: true };
    chart.dispatchEvent(new PointerEvent("pointermove", at));
    return document.getElementById("tip").innerText.replaceAll("\\n", "; ");
  });
  document.title = told.join(" | ");
});
</script></body>"""


def test_a_browser_shows_it(tmp_path: Path, hybrid_run: Any) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium or google-chrome to look at the page with")
    page, _ = written(tmp_path, hybrid_run)
    file = tmp_path / "moved.html"
    file.write_text(page.replace("</body>", _MOVE))
    flags = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"),
    ]
    answer = subprocess.run(
        [browser, *flags, "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "CONSOLE" not in answer.stderr
    assert all(f"<h2>{section}</h2>" in answer.stdout for section in SECTIONS)
    told = re.findall("<title>(.*?)</title>", answer.stdout)[0].split(" | ")
    assert re.match(r"step 4\d; loss of a step\s+0\.\d+; mean of its epoch\s+\d\.\d+", told[0])
    assert re.match(r"epoch 2; validation accuracy\s+0\.6400", told[1])
    shares = next(each for each in told if "emulated:1" in each)
    assert re.match(r"step 4\d; cpu:0\s+28\.\d+; emulated:1\s+71\.\d+", shares)
