"""Report of a sweep (``-m``): a table, ``report.html`` and ``results.{json,csv,svg}``."""

import csv
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gnnscale.core import write_atomically
from gnnscale.report.formatting import MEASURED, print_lines, wide
from gnnscale.report.page.charts import Bar, bar_chart
from gnnscale.report.page.page import REPORT_FILE
from gnnscale.report.page.remarks import remarks
from gnnscale.report.page.sweep import best_line, render
from gnnscale.report.summary import write_json
from gnnscale.report.sweep.jobs import COLUMNS, OFTEN_EQUAL, collect, over_seeds

#: Hydra's launcher that runs one job after the other.
_SEQUENTIAL = "basic"


class SweepReport(Callback):
    """Callback that reports a sweep; Hydra calls it after all jobs, with any launcher."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Write the report by ``write_sweep``, print the jobs; SystemExit(1): a job failed."""
        directory = Path(config.hydra.sweep.dir)
        choices = OmegaConf.select(config, "hydra.runtime.choices") or {}
        launcher = choices.get("hydra/launcher", _SEQUENTIAL)
        sweep = write_sweep(directory, sequential=launcher == _SEQUENTIAL)
        if sweep is None:
            return
        print_jobs(sweep)
        print((directory / REPORT_FILE).resolve())
        print((directory / "results.json").resolve())
        failed = sum(job["status"] != "completed" for job in sweep.jobs)
        if failed:
            print(f"{failed} of {len(sweep.jobs)} jobs of the sweep failed", file=sys.stderr)
            raise SystemExit(1)


@dataclass(frozen=True)
class Sweep:
    """Jobs of a sweep, and what its report has of them."""

    jobs: list[dict[str, Any]]  #: from ``collect``
    seeds: list[dict[str, Any]]  #: from ``over_seeds``
    columns: list[str]  #: names of the columns of results
    equal: list[str]  #: results that are equal in all jobs
    sequential: bool  #: whether no two jobs ran at a time


def write_sweep(directory: Path, *, sequential: bool) -> Sweep | None:
    """Write ``report.html`` and ``results.{json,csv,svg}`` of the sweep in ``directory``.

    ``sequential``: whether the jobs were launched one after the other; the times in their summaries
    count more. None: there are no jobs.
    """
    jobs = collect(directory)
    if not jobs:
        return None
    seeds = over_seeds(jobs)
    sequential = _ran_sequentially(jobs, launched=sequential)
    if not sequential:
        jobs = [{**job, "speed_up": None} for job in jobs]
    write_json(directory / "results.json", {"jobs": jobs, "over_seeds": seeds})
    write_atomically(directory / "results.csv", _csv(jobs))
    write_atomically(directory / "results.svg", _plot(jobs, sequential=sequential))
    columns, equal = choose_columns(jobs, sequential=sequential)
    page = render(jobs, columns=columns, equal=equal, sequential=sequential)
    write_atomically(directory / REPORT_FILE, page)
    return Sweep(jobs, seeds, columns, equal, sequential)


def _ran_sequentially(jobs: Sequence[Mapping[str, Any]], *, launched: bool) -> bool:
    """Whether no two jobs ran at a time, by their start and end, or else as ``launched``."""
    trained = [job for job in jobs if job["epoch_time_s"] is not None]
    spans = sorted(span for span in map(_start_and_end, trained) if span is not None)
    if len(spans) == len(trained):
        return all(previous[1] <= following[0] for previous, following in pairwise(spans))
    return launched


def _start_and_end(job: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return start and end of a job in seconds since 1970; None: its summary lacks one."""
    try:
        started, ended = (datetime.fromisoformat(job[name]) for name in ("started", "ended"))
        return started.timestamp(), ended.timestamp()
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _plot(jobs: Sequence[dict[str, Any]], *, sequential: bool) -> str:
    """Return an SVG file with a bar per job: its median epoch time.

    Unless ``sequential``, a title says that times cannot be compared.
    """
    bars = []
    for job in jobs:
        seconds = job["epoch_time_s"]
        note = str(job["status"]) if seconds is None else f"{seconds:.3g} s"
        if job["speed_up"] is not None:
            note += f", {job['speed_up']:.2f}×"
        if job["figures"] not in (None, MEASURED):
            note += f", {job['figures']}"
        bars.append(Bar(label=_label(job) or f"job {job['job']}", value=seconds, note=note))
    unit = "less is better" if sequential else "jobs ran at the same time: no comparison"
    return bar_chart("Time per epoch, median", bars, unit=f"seconds: {unit}")


def _csv(jobs: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    options = list(jobs[0]["options"])
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["job", *options, *COLUMNS, "metric", "figures", "directory", "error"])
    for job in jobs:
        figures = [job[name] for name in (*COLUMNS, "metric", "figures", "directory", "error")]
        writer.writerow([job["job"], *job["options"].values(), *figures])
    return text.getvalue()


#: Columns that only some sweeps have: result that decides, and columns that are shown with it.
_OPTIONAL = {
    "speed_up": ("speed_up",),
    "replication_factor": ("edge_cut_fraction", "replication_factor", "step_mb"),
    "feature_hit_rate": ("feature_hit_rate", "topology_hit_rate", "link_mb"),
    "cache_mb": ("cache_mb",),
    "uncached": ("caching",),
}
#: Times of jobs, which are compared only if no two jobs ran at a time.
_TIMES = ("epoch_time_s", "mteps", "speed_up")
#: Columns in the order in which a narrow terminal drops them.
_DROPPED_FIRST = (
    *("topology_hit_rate", "mteps", "cache_mb", "link_mb", "step_mb", "replication_factor"),
    "best_epoch",
    *("edge_cut_fraction", "feature_hit_rate", "caching", "epochs", "speed_up"),
    *("epoch_time_s", "status"),
)
_FILE_WIDTH = 160


def choose_columns(
    jobs: Sequence[dict[str, Any]], *, sequential: bool
) -> tuple[list[str], list[str]]:
    """Return names of columns (times only if ``sequential``), and of results equal in all jobs."""
    names = [name for name in COLUMNS if sequential or name not in _TIMES]
    for decided_by, group in _OPTIONAL.items():
        if all(job[decided_by] is None for job in jobs):
            names = [name for name in names if name not in group]
    equal = [
        name
        for name in OFTEN_EQUAL
        if len(jobs) > 1 and all(job[name] == jobs[0][name] for job in jobs)
    ]
    return [name for name in names if name not in equal], equal


def print_jobs(sweep: Sweep) -> None:
    """Print the table of jobs, equal results in a line, and statistics over seeds."""
    jobs, equal = sweep.jobs, sweep.equal
    console = wide(Console(), _FILE_WIDTH)
    metric = next((job["metric"] for job in jobs if job["metric"]), "metric")
    headings = COLUMNS | {
        name: f"{COLUMNS[name]} {metric}" for name in ("valid_metric", "test_metric")
    }
    visible, dropped = _fit_columns(jobs, sweep.columns, headings, console)
    console.print(_table(jobs, visible, headings))
    if dropped:
        words = ", ".join(headings[name] for name in dropped)
        console.print(f"not shown for lack of room: {escape(words)}", highlight=False)
    if equal:
        cells = _cells(jobs[0][name] for name in equal)
        line = ", ".join(
            f"{escape(headings[name])} {value}" for name, value in zip(equal, cells, strict=True)
        )
        console.print(f"the same in all jobs: {line}", highlight=False)
    if not sweep.sequential:
        console.print("jobs ran at the same time, so that their times are not compared")
    print_lines(console, remarks(jobs, sequential=sweep.sequential))
    for group in sweep.seeds:
        label, line = _label(group), f"test {metric} {_format_spread(group['test_metric'], '')}"
        line = f"{label + ': ' if label else ''}{line} over {group['num_seeds']} seeds"
        if group["difference"] is not None:
            line += f"; {_format_spread(group['difference'], '+')} beside {_label(sweep.seeds[0])}"
        print_lines(console, [line])
    if best := best_line(jobs, as_html=False):
        print_lines(console, [best])


def _label(group: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in group["options"].items())


def _format_spread(statistics: Mapping[str, float | None], sign: str) -> str:
    spread = "" if statistics["std"] is None else f" ± {statistics['std']:.4f}"
    return f"{statistics['mean']:{sign}.4f}{spread}"


def _fit_columns(
    jobs: Sequence[dict[str, Any]],
    columns: Sequence[str],
    headings: Mapping[str, str],
    console: Console,
) -> tuple[list[str], list[str]]:
    """Return the columns of a table that fit on ``console``, and the dropped columns."""
    visible, dropped = list(columns), []
    unlimited = Console(width=1 << 14)
    for name in _DROPPED_FIRST:
        if unlimited.measure(_table(jobs, visible, headings)).maximum <= console.width:
            break
        if name in visible:
            visible.remove(name)
            dropped.append(name)
    return visible, dropped


def _table(
    jobs: Sequence[dict[str, Any]], columns: Sequence[str], headings: Mapping[str, str]
) -> Table:
    table = Table(title="Results of the sweep")
    # Names of options are longer than their values: group and option get a line each.
    options = [name.replace(".", "\n.") for name in jobs[0]["options"]]
    for heading in ("job", *options, *(headings[name] for name in columns)):
        table.add_column(escape(heading), justify="left" if heading == "status" else "right")
    for job in jobs:
        values = [job[name] for name in columns]
        table.add_row(*_cells([job["job"], *job["options"].values(), *values]))
    return table


def _cells(values: Iterable[Any]) -> list[str]:
    return [
        "-" if value is None else f"{value:.4f}" if isinstance(value, float) else escape(str(value))
        for value in values
    ]
