"""Report of a sweep (``-m``): a table, ``report.html`` and ``results.{json,csv,svg}``."""

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from gnnscale.core import write_atomically
from gnnscale.report.formatting import MEASURED
from gnnscale.report.page.charts import Bar, bar_chart
from gnnscale.report.page.page import REPORT_FILE
from gnnscale.report.page.sweep import render
from gnnscale.report.summary import write_json
from gnnscale.report.sweep.jobs import COLUMNS, collect, over_seeds
from gnnscale.report.sweep.table import choose_columns, print_jobs

#: Hydra's launcher that runs one job after the other.
_SEQUENTIAL = "basic"


class SweepReport(Callback):
    """Callback that reports a sweep; Hydra calls it after all jobs, with any launcher."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Write ``report.html`` and ``results.{json,csv,svg}``, and print a table.

        Raises:
            SystemExit: with status 1, if a job failed.
        """
        directory = Path(config.hydra.sweep.dir)
        jobs = collect(directory)
        if not jobs:
            return
        seeds = over_seeds(jobs)
        sequential = _ran_sequentially(config, jobs)
        if not sequential:
            jobs = [{**job, "speed_up": None} for job in jobs]
        write_json(directory / "results.json", {"jobs": jobs, "over_seeds": seeds})
        write_atomically(directory / "results.csv", _csv(jobs))
        write_atomically(directory / "results.svg", _plot(jobs, sequential=sequential))
        columns, equal = choose_columns(jobs, sequential=sequential)
        page = render(jobs, columns=columns, equal=equal, sequential=sequential)
        write_atomically(directory / REPORT_FILE, page)
        print_jobs(jobs, seeds, columns, equal, sequential=sequential)
        print((directory / REPORT_FILE).resolve())
        print((directory / "results.json").resolve())
        failed = sum(job["status"] != "completed" for job in jobs)
        if failed:
            print(f"{failed} of {len(jobs)} jobs of the sweep failed", file=sys.stderr)
            raise SystemExit(1)


def _ran_sequentially(config: DictConfig, jobs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether no two jobs ran at a time.

    Start and end of the jobs tell. If a trained job lacks them, the launcher tells.
    """
    trained = [job for job in jobs if job["epoch_time_s"] is not None]
    spans = sorted(span for span in map(_start_and_end, trained) if span is not None)
    if len(spans) == len(trained):
        return all(previous[1] <= following[0] for previous, following in pairwise(spans))
    choices = OmegaConf.select(config, "hydra.runtime.choices") or {}
    return bool(choices.get("hydra/launcher", _SEQUENTIAL) == _SEQUENTIAL)


def _start_and_end(job: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return start and end of a job in seconds since 1970; None: its summary lacks one."""
    try:
        started, ended = (datetime.fromisoformat(job[name]) for name in ("started", "ended"))
        return started.timestamp(), ended.timestamp()
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _plot(jobs: Sequence[dict[str, Any]], *, sequential: bool) -> str:
    """Return an SVG file with bars of the median epoch time.

    Args:
        jobs: the jobs.
        sequential: whether no two jobs ran at a time, so that times can be compared.
    """
    bars = []
    for job in jobs:
        seconds = job["epoch_time_s"]
        note = str(job["status"]) if seconds is None else f"{seconds:.3g} s"
        if job["speed_up"] is not None:
            note += f", {job['speed_up']:.2f}×"
        if job["figures"] not in (None, MEASURED):
            note += f", {job['figures']}"
        label = " ".join(f"{name}={value}" for name, value in job["options"].items())
        bars.append(Bar(label=label or f"job {job['job']}", value=seconds, note=note))
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
