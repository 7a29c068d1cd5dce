"""The table and the page at the end of a sweep (``-m``)."""

import csv
import io
import json
import re
import statistics
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
from rich.measure import Measurement
from rich.table import Table

from gnnscale.core import ConfigError, write_atomically
from gnnscale.core.config.run_directory import CONFIG_FILE, SUMMARY_FILE
from gnnscale.core.config.yaml_file import load_yaml, read_regular
from gnnscale.report.formatting import MEASURED
from gnnscale.report.page.charts import Bar, bar_chart
from gnnscale.report.page.page import REPORT_FILE
from gnnscale.report.page.sweep import render, uncached_jobs
from gnnscale.report.summary import write_json

#: Figures of a job, and the headings that the table has for them.
_COLUMNS = {
    **{"status": "status", "epochs": "epochs", "best_epoch": "best epoch"},
    **{"valid_metric": "valid", "test_metric": "test"},
    **{"epoch_time_s": "s/epoch", "mteps": "MTEPS", "speed_up": "speed-up"},
    **{"edge_cut_fraction": "cut", "replication_factor": "replication", "step_mb": "MB/step"},
    **{"feature_hit_rate": "rows hit", "topology_hit_rate": "lists hit"},
    **{"link_mb": "link MB/step", "caching": "devices caching"},
}
#: What Hydra puts a backslash before, such as the colon of ``FILE.py:NAME``.
_ESCAPED = re.compile(r"\\([\\()\[\]{}:=, \t])")
#: Printed once, below the table, if they are the same in all jobs: caches and device plans change
#: no accuracy.
_ALIKE = ("status", "epochs", "best_epoch", "valid_metric", "test_metric")
#: Columns of sweeps over executions, partitions or caches alone, and the figure that decides that.
_OF_SOME = {
    "speed_up": ("speed_up",),
    "replication_factor": ("edge_cut_fraction", "replication_factor", "step_mb"),
    "feature_hit_rate": ("feature_hit_rate", "topology_hit_rate", "link_mb"),
    "uncached": ("caching",),
}
#: Times of jobs, which are compared if these ran one after the other.
_TIMES = ("epoch_time_s", "mteps", "speed_up")
#: Columns that a narrow terminal leaves out, the first ones first.
_LEFT_OUT = (
    *("topology_hit_rate", "mteps", "link_mb", "step_mb", "replication_factor", "best_epoch"),
    *(
        "edge_cut_fraction",
        "feature_hit_rate",
        "caching",
        "epochs",
        "speed_up",
        "epoch_time_s",
        "status",
    ),
)
#: The launcher of Hydra that runs one job after the other.
_ONE_BY_ONE = "basic"
#: Fields of a summary that are text, or null.
_TEXTS = ("status", "metric", "error", "figures", "started", "ended")
#: Options of ``_EXECUTION`` that change nothing in a job that caches nothing.
_CACHES = ("cache_planner", "cache_plan")
#: Larger figures are no run's.
_MAX_FIGURE = 1e15
_FILE_WIDTH = 160
_MAX_SUMMARY_BYTES = 16 << 20
#: Options of a run's execution. If all others are alike, the same work is done, and
#: times may be compared.
_EXECUTION = (
    *("device_plan", "partitioner", "cache_planner", "cache_plan", "features", "runtime"),
    *("num_threads", "seed_order", "exchange", "predictions", "resume"),
)


class SweepReport(Callback):
    """Hydra calls this when all jobs of a sweep are done, whichever launcher ran them."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Write ``report.html`` and ``results.{json,csv,svg}``, and show a table.

        Raises:
            SystemExit: with status 1, if a job failed.
        """
        directory = Path(config.hydra.sweep.dir)
        jobs = collect(directory)
        if not jobs:
            return
        seeds = over_seeds(jobs)
        alone = _ran_alone(config, jobs)
        if not alone:
            jobs = [{**job, "speed_up": None} for job in jobs]
        write_json(directory / "results.json", {"jobs": jobs, "over_seeds": seeds})
        write_atomically(directory / "results.csv", _csv(jobs))
        write_atomically(directory / "results.svg", _plot(jobs, alone=alone))
        shown, alike = _figures_shown(jobs, alone=alone)
        page = render(jobs, columns=shown, alike=alike, alone=alone)
        write_atomically(directory / REPORT_FILE, page)
        _print(jobs, seeds, shown, alike, alone=alone)
        print((directory / REPORT_FILE).resolve())
        print((directory / "results.json").resolve())
        failed = sum(job["status"] != "completed" for job in jobs)
        if failed:
            print(f"{failed} of {len(jobs)} jobs of the sweep failed", file=sys.stderr)
            raise SystemExit(1)


def _ran_alone(config: DictConfig, jobs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether no job ran while another job did.

    Start and end of the jobs decide. The launcher decides if a job that trained lacks them.
    """
    trained = [job for job in jobs if job["epoch_time_s"] is not None]
    spans = sorted(span for span in map(_span, trained) if span is not None)
    if len(spans) == len(trained):
        return all(before[1] <= after[0] for before, after in pairwise(spans))
    choices = OmegaConf.select(config, "hydra.runtime.choices") or {}
    return bool(choices.get("hydra/launcher", _ONE_BY_ONE) == _ONE_BY_ONE)


def _span(job: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return start and end of a job in seconds since 1970; None if its summary lacks one."""
    try:
        started, ended = (datetime.fromisoformat(job[name]) for name in ("started", "ended"))
        return started.timestamp(), ended.timestamp()
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def collect(directory: Path) -> list[dict[str, Any]]:
    """Return the jobs of the sweep in ``directory``: what varied, and what came of it.

    Each has ``job`` (its number), ``options`` (those overrides that differ between jobs),
    ``directory``, ``report`` (its page, relative to the sweep's folder, None without), and the
    figures of its ``summary.json``: ``epoch_time_s`` is the median.
    ``speed_up`` is the ``epoch_time_s`` of the first job that does the same work over this one's:
    the two differ in how they are executed alone. It is None if no other job does that work, if
    either has no such time, and if the two are executed the same: their options differ in caches,
    and neither caches anything. ``figures`` is the kind of a job's figures, None without figures.
    ``edge_cut_fraction`` and ``replication_factor`` are those of its partition, and ``step_mb`` is
    what a step reads in host memory, and moves over links and from other devices, in MB. The hit
    rates are those of all its devices together, and ``link_mb`` is what a step moves over links.
    ``caching`` is how many devices cache something, and ``uncached`` why devices cache nothing.
    ``started`` and ``ended`` are times in ISO 8601.
    """
    found = []
    for file in directory.glob(f"*/{SUMMARY_FILE}"):
        numbered = _job(file.parent)
        if numbered is not None:
            found.append((*numbered, file))
    found.sort(key=lambda job: job[0])
    varied = _varied([options for _, options, _ in found])
    jobs: list[dict[str, Any]] = []
    for number, options, file in found:
        summary = _summary(file)
        jobs.append(
            {
                "job": number,
                "options": {name: options.get(name) for name in varied},
                "directory": str(file.parent.resolve()),
                "report": _report(file.parent),
                **{name: summary.get(name) for name in (*_COLUMNS, "metric", "error")},
                "epoch_time_s": (summary.get("epoch_time_s") or {}).get("median"),
                **{name: summary.get(name) for name in ("figures", "started", "ended")},
                **_of_parts(summary),
                **_of_caches(summary),
            }
        )
    _compare_times(
        jobs, [_work(file.parent, job) for job, (_, _, file) in zip(jobs, found, strict=True)]
    )
    return jobs


def _report(directory: Path) -> str | None:
    file = directory / REPORT_FILE
    return f"{directory.name}/{REPORT_FILE}" if file.is_file() else None


@dataclass(frozen=True)
class _JobOptions:
    """Options of a job, as text."""

    computed: str  #: options that decide what is computed
    execution: str  #: options that decide how; those of caches only if the job caches something


def _compare_times(jobs: Sequence[dict[str, Any]], works: Sequence[_JobOptions | None]) -> None:
    """Set ``speed_up`` of those jobs whose work another job does in another way."""
    for job, work in zip(jobs, works, strict=True):
        job["speed_up"] = None
        if work is None:
            continue
        alike = [
            (other, each)
            for each, other in zip(jobs, works, strict=True)
            if other is not None and other.computed == work.computed
        ]
        first_work, first = alike[0]
        reference = job is first and len({other.execution for other, _ in alike}) > 1
        differs = work.execution != first_work.execution
        if (reference or differs) and first["epoch_time_s"] and job["epoch_time_s"]:
            job["speed_up"] = first["epoch_time_s"] / job["epoch_time_s"]


def _work(directory: Path, job: Mapping[str, Any]) -> _JobOptions | None:
    """Return the work of the job in ``directory``; None if its options cannot be read."""
    try:
        options = load_yaml(directory / CONFIG_FILE)
        computed = {name: value for name, value in options.items() if name not in _EXECUTION}
        execution = {name: value for name, value in options.items() if name in _EXECUTION}
        if not job["caching"] and job["feature_hit_rate"] is None:
            execution = {k: v for k, v in execution.items() if k not in _CACHES}
        return _JobOptions(
            json.dumps(computed, sort_keys=True), json.dumps(execution, sort_keys=True)
        )
    except (OSError, ConfigError, AttributeError, TypeError, ValueError):
        return None


def _of_parts(summary: dict[str, Any]) -> dict[str, float | None]:
    """Return a summary's figures of parts, and of the bytes that they make a step move."""
    partition, moved = summary.get("partition") or {}, summary.get("step_bytes") or {}
    parts = [moved[name] for name in ("host", "link", "peers") if name in moved]
    return {
        "edge_cut_fraction": partition.get("edge_cut_fraction"),
        "replication_factor": partition.get("replication_factor"),
        "step_mb": sum(parts) / 1e6 if parts else None,
    }


def _of_caches(summary: dict[str, Any]) -> dict[str, Any]:
    """Return a summary's figures of caches, of the bytes that cross links, and ``uncached``."""
    cache, moved = summary.get("cache") or {}, summary.get("step_bytes") or {}
    measured, uncached = cache.get("whole_run") or {}, summary.get("uncached") or {}
    caching = sum(map(len, cache["cliques"])) if "cliques" in cache else None
    if uncached:
        caching = uncached["of"] - uncached["devices"]
    return {
        "feature_hit_rate": measured.get("feature_hit_rate"),
        "topology_hit_rate": measured.get("topology_hit_rate"),
        "link_mb": moved["link"] / 1e6 if "link" in moved else None,
        "caching": caching,
        "uncached": uncached.get("reason"),
    }


def _job(directory: Path) -> tuple[int, dict[str, str]] | None:
    """Return the number and the options of the job in ``directory``; None if it is none."""
    try:
        overrides = load_yaml(directory / ".hydra" / "overrides.yaml")
        number = load_yaml(directory / ".hydra" / "hydra.yaml")["hydra"]["job"]["num"]
        pairs = (_ESCAPED.sub(r"\1", str(override)).partition("=") for override in overrides)
        return int(number), {name: value for name, _, value in pairs}
    # Whatever else lies in the folder of a sweep.
    except (OSError, ConfigError, LookupError, TypeError, ValueError):
        return None


def _summary(file: Path) -> dict[str, Any]:
    """Return what ``summary.json`` holds; a file that holds something else is a failed job's."""
    try:
        summary = json.loads(read_regular(file, limit=_MAX_SUMMARY_BYTES))
        mean = (summary.get("epoch_time_s") or {}).get("median")
        figures = [summary.get(name) for name in (*_ALIKE[1:], "mteps")]
        of_caches = _of_caches(summary)
        texts = [summary.get(name) for name in _TEXTS] + [of_caches.pop("uncached")]
        figures += [*_of_parts(summary).values(), *of_caches.values()]
        plain = all(isinstance(each, (str, type(None))) for each in texts)
        if plain and all(_is_figure(each) for each in (*figures, mean)):
            return dict(summary)
    except (
        OSError,
        ConfigError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
    ):
        pass
    return {"status": "failed", "error": f"{file}: not the summary of a run"}


def _is_figure(value: Any) -> bool:
    """Whether a value of a file may be a figure of a run: an ordinary number; None is allowed."""
    if value is None:
        return True
    ordinary = type(value) in (int, float) and (value == 0 or abs(value) > 1 / _MAX_FIGURE)
    return ordinary and abs(value) < _MAX_FIGURE


def over_seeds(jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and standard deviation of the test metric over jobs that differ by seed only.

    Also those of its difference from the first of such groups, seed by seed; None for the first
    itself, and for one that has other seeds.
    """
    groups: dict[tuple[tuple[str, str | None], ...], dict[str | None, float]] = {}
    for job in jobs:
        if "seed" in job["options"] and job["test_metric"] is not None:
            rest = tuple((k, v) for k, v in job["options"].items() if k != "seed")
            groups.setdefault(rest, {})[job["options"]["seed"]] = job["test_metric"]
    first = next(iter(groups.values()), {})
    return [
        {
            "options": dict(options),
            "num_seeds": len(values),
            "test_metric": _spread([*values.values()]),
            "difference": _spread([value - first[seed] for seed, value in values.items()])
            if values is not first and values.keys() == first.keys()
            else None,
        }
        for options, values in groups.items()
    ]


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    std = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "std": std}


def _varied(options: Sequence[dict[str, str]]) -> list[str]:
    names = list(dict.fromkeys(name for each in options for name in each))
    return [name for name in names if len({each.get(name) for each in options}) > 1]


def _plot(jobs: Sequence[dict[str, Any]], *, alone: bool) -> str:
    """Bars of the median epoch time, as an SVG file; ``alone``: no two jobs ran at a time."""
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
    unit = "less is better" if alone else "jobs ran at the same time: no comparison"
    return bar_chart("Time per epoch, median", bars, unit=f"seconds: {unit}")


def _csv(jobs: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    options = list(jobs[0]["options"])
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["job", *options, *_COLUMNS, "metric", "figures", "directory", "error"])
    for job in jobs:
        figures = [job[name] for name in (*_COLUMNS, "metric", "figures", "directory", "error")]
        writer.writerow([job["job"], *job["options"].values(), *figures])
    return text.getvalue()


def _figures_shown(jobs: Sequence[dict[str, Any]], *, alone: bool) -> tuple[list[str], list[str]]:
    """Return the figures that are columns of a table, and those that all jobs have alike.

    Args:
        alone: whether times of jobs may be compared.
    """
    names = [name for name in _COLUMNS if alone or name not in _TIMES]
    for decided_by, group in _OF_SOME.items():
        if all(job[decided_by] is None for job in jobs):
            names = [name for name in names if name not in group]
    alike = [
        name for name in _ALIKE if len(jobs) > 1 and all(job[name] == jobs[0][name] for job in jobs)
    ]
    return [name for name in names if name not in alike], alike


def _print(
    jobs: Sequence[dict[str, Any]],
    seeds: Sequence[dict[str, Any]],
    shown: Sequence[str],
    alike: Sequence[str],
    *,
    alone: bool,
) -> None:
    console = Console()
    if not console.is_terminal:
        # A file has no edge at which lines must break.
        console = Console(width=_FILE_WIDTH)
    metric = next((job["metric"] for job in jobs if job["metric"]), "metric")
    headings = _COLUMNS | {
        name: f"{_COLUMNS[name]} {metric}" for name in ("valid_metric", "test_metric")
    }
    fitting, left_out = _fitting(jobs, shown, headings, console)
    console.print(_table(jobs, fitting, headings))
    if left_out:
        words = ", ".join(headings[name] for name in left_out)
        console.print(f"not shown for lack of room: {escape(words)}", highlight=False)
    if alike:
        cells = _cells(jobs[0][name] for name in alike)
        line = ", ".join(
            f"{escape(headings[name])} {value}" for name, value in zip(alike, cells, strict=True)
        )
        console.print(f"the same in all jobs: {line}", highlight=False)
    if not alone:
        console.print("jobs ran at the same time, so that their times are not compared")
    for reason, numbers in uncached_jobs(jobs).items():
        console.print(f"jobs {numbers}: {reason}", highlight=False, markup=False, soft_wrap=True)
    for kind in dict.fromkeys(job["figures"] for job in jobs):
        if kind not in (None, MEASURED):
            numbers = ", ".join(str(job["job"]) for job in jobs if job["figures"] == kind)
            console.print(f"jobs with {kind} figures: {numbers}", highlight=False, markup=False)
    for group in seeds:
        label, line = _label(group), f"test {metric} {_with_spread(group['test_metric'], '')}"
        line = f"{label + ': ' if label else ''}{line} over {group['num_seeds']} seeds"
        if group["difference"] is not None:
            line += f"; {_with_spread(group['difference'], '+')} beside {_label(seeds[0])}"
        console.print(line, highlight=False, markup=False)


def _label(group: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in group["options"].items())


def _with_spread(found: Mapping[str, float | None], sign: str) -> str:
    spread = "" if found["std"] is None else f" ± {found['std']:.4f}"
    return f"{found['mean']:{sign}.4f}{spread}"


def _fitting(
    jobs: Sequence[dict[str, Any]],
    shown: Sequence[str],
    headings: Mapping[str, str],
    console: Console,
) -> tuple[list[str], list[str]]:
    """Return the figures that a table has room for on ``console``, and the others."""
    fitting, left_out = list(shown), []
    endless = Console(width=1 << 14)
    for name in _LEFT_OUT:
        width = Measurement.get(endless, endless.options, _table(jobs, fitting, headings)).maximum
        if width <= console.width:
            break
        if name in fitting:
            fitting.remove(name)
            left_out.append(name)
    return fitting, left_out


def _table(
    jobs: Sequence[dict[str, Any]], shown: Sequence[str], headings: Mapping[str, str]
) -> Table:
    table = Table(title="Results of the sweep")
    # A group and its option on a line each: names of options are longer than their values.
    options = [name.replace(".", "\n.") for name in jobs[0]["options"]]
    for heading in ("job", *options, *(headings[name] for name in shown)):
        table.add_column(escape(heading), justify="left" if heading == "status" else "right")
    for job in jobs:
        values = [job[name] for name in shown]
        table.add_row(*_cells([job["job"], *job["options"].values(), *values]))
    return table


def _cells(values: Iterable[Any]) -> list[str]:
    return [
        "-" if value is None else f"{value:.4f}" if isinstance(value, float) else escape(str(value))
        for value in values
    ]
