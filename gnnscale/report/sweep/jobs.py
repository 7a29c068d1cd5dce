"""Jobs of a sweep: their options, results and speed-ups, read from their run directories."""

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnscale.core.config import CONFIG_FILE, SUMMARY_FILE, load_yaml, read_regular
from gnnscale.report.page.page import REPORT_FILE
from gnnscale.report.page.remarks import is_busy

#: Results of a job, with their headings in the table.
COLUMNS = {
    **{"status": "status", "epochs": "epochs", "best_epoch": "best epoch"},
    **{"valid_metric": "valid", "test_metric": "test"},
    **{"epoch_time_s": "s/epoch", "mteps": "MTEPS", "speed_up": "speed-up"},
    **{"edge_cut_fraction": "cut", "replication_factor": "replication", "step_mb": "MB/step"},
    **{"feature_hit_rate": "rows hit", "topology_hit_rate": "lists hit"},
    **{"link_mb": "link MB/step", "cache_mb": "cache MB", "caching": "devices caching"},
}
#: Results that are often equal in all jobs, as caches and device plans change no accuracy. If they
#: are, they are printed once below the table.
OFTEN_EQUAL = ("status", "epochs", "best_epoch", "valid_metric", "test_metric")
#: Characters that Hydra escapes with a backslash, such as the colon of ``FILE.py:NAME``.
_ESCAPED = re.compile(r"\\([\\()\[\]{}:=, \t])")
#: Fields of a summary that are text, or null.
_TEXTS = ("status", "metric", "error", "figures", "started", "ended")
#: Options of a run's execution. Jobs that differ only in them do the same work, so that their times
#: can be compared.
_EXECUTION = (
    *("device_plan", "partitioner", "cache_planner", "cache_plan", "features", "runtime"),
    *("num_threads", "seed_order", "exchange", "predictions", "resume"),
)
#: Options of ``_EXECUTION`` that have no effect in a job that caches nothing.
_CACHES = ("cache_planner", "cache_plan")
#: Upper bound of the figures of a run.
_MAX_FIGURE = 1e15
_MAX_SUMMARY_BYTES = 16 << 20


def collect(directory: Path) -> list[dict[str, Any]]:
    """Return the jobs of the sweep in ``directory``, ordered by number.

    A job is a dict of plain values, None if unknown. ``options`` are its values of the overrides
    that differ between jobs; ``report`` is the path of its page, relative to the sweep's folder;
    ``speed_up`` is the ``epoch_time_s`` of the first job with the same work, divided by this job's.
    The same work means that options differ in execution only. None: a time is missing, no other job
    has this work, the first is executed equally (caches differ, and neither job caches), or the job
    ``is_busy``.
    ``step_mb`` is MB per step read in host memory, moved over links, and from other devices.
    """
    numbered_jobs = []
    for file in directory.glob(f"*/{SUMMARY_FILE}"):
        number_and_options = _number_and_options(file.parent)
        if number_and_options is not None:
            numbered_jobs.append((*number_and_options, file))
    numbered_jobs.sort(key=lambda job: job[0])
    varied = _varied([options for _, options, _ in numbered_jobs])
    jobs: list[dict[str, Any]] = []
    for number, options, file in numbered_jobs:
        summary, page = _summary(file), file.parent / REPORT_FILE
        jobs.append(
            {
                "job": number,
                "options": {name: options.get(name) for name in varied},
                "directory": str(file.parent.resolve()),
                "report": f"{page.parent.name}/{page.name}" if page.is_file() else None,
                **{name: summary.get(name) for name in (*COLUMNS, "metric", "error")},
                "epoch_time_s": (summary.get("epoch_time_s") or {}).get("median"),
                **{name: summary.get(name) for name in ("figures", "started", "ended")},
                "other_load": summary.get("other_load"),
                **_partition_figures(summary),
                **_cache_figures(summary),
            }
        )
    folders = [file.parent for _, _, file in numbered_jobs]
    pairs = zip(folders, jobs, strict=True)
    _compare_times(jobs, [None if is_busy(job) else _work(folder, job) for folder, job in pairs])
    return jobs


@dataclass(frozen=True)
class _JobOptions:
    """Options of a job as JSON text: those that change its result, and those of its execution."""

    computed: str  #: options that change the result
    execution: str  #: options of the execution; options of caches only if the job caches


def _compare_times(jobs: Sequence[dict[str, Any]], works: Sequence[_JobOptions | None]) -> None:
    """Set each job's ``speed_up``: epoch time of the first job of the same work over its own.

    ``works`` are the jobs' options. None: a time is missing, or no execution differs.
    """
    for job, work in zip(jobs, works, strict=True):
        job["speed_up"] = None
        if work is None:
            continue
        same_work = [
            (other_work, other_job)
            for other_job, other_work in zip(jobs, works, strict=True)
            if other_work is not None and other_work.computed == work.computed
        ]
        first_work, first = same_work[0]
        reference = job is first and len({other_work.execution for other_work, _ in same_work}) > 1
        differs = work.execution != first_work.execution
        if (reference or differs) and first["epoch_time_s"] and job["epoch_time_s"]:
            job["speed_up"] = first["epoch_time_s"] / job["epoch_time_s"]


def _work(directory: Path, job: Mapping[str, Any]) -> _JobOptions | None:
    """Return the options of the job in ``directory``; None: they cannot be read."""
    try:
        options = load_yaml(directory / CONFIG_FILE)
        computed = {name: value for name, value in options.items() if name not in _EXECUTION}
        execution = {name: value for name, value in options.items() if name in _EXECUTION}
        if not job["caching"] and job["feature_hit_rate"] is None:
            execution = {k: v for k, v in execution.items() if k not in _CACHES}
        return _JobOptions(
            json.dumps(computed, sort_keys=True), json.dumps(execution, sort_keys=True)
        )
    except (OSError, AttributeError, TypeError, ValueError):
        return None


def _partition_figures(summary: dict[str, Any]) -> dict[str, float | None]:
    """Return a summary's edge cut, replication factor, and MB that a step moves."""
    partition, moved = summary.get("partition") or {}, summary.get("step_bytes") or {}
    byte_counts = [moved[name] for name in ("host", "link", "peers") if name in moved]
    return {
        "edge_cut_fraction": partition.get("edge_cut_fraction"),
        "replication_factor": partition.get("replication_factor"),
        "step_mb": sum(byte_counts) / 1e6 if byte_counts else None,
    }


def _cache_figures(summary: dict[str, Any]) -> dict[str, Any]:
    """Return hit rates, link MB per step, number of caching devices, and why others do not."""
    cache, moved = summary.get("cache") or {}, summary.get("step_bytes") or {}
    measured, uncached = cache.get("whole_run") or {}, summary.get("uncached") or {}
    caching = sum(map(len, cache["cliques"])) if "cliques" in cache else None
    if uncached:
        caching = uncached["of"] - uncached["devices"]
    return {
        "feature_hit_rate": measured.get("feature_hit_rate"),
        "topology_hit_rate": measured.get("topology_hit_rate"),
        "link_mb": moved["link"] / 1e6 if "link" in moved else None,
        "cache_mb": cache["cache_bytes"] / 1e6 if "cache_bytes" in cache else None,
        "caching": caching,
        "uncached": uncached.get("reason"),
    }


def _number_and_options(directory: Path) -> tuple[int, dict[str, str]] | None:
    """Return number and overridden options of the job in ``directory``; None: it has no job."""
    try:
        overrides = load_yaml(directory / ".hydra" / "overrides.yaml")
        number = load_yaml(directory / ".hydra" / "hydra.yaml")["hydra"]["job"]["num"]
        pairs = (_ESCAPED.sub(r"\1", str(override)).partition("=") for override in overrides)
        return int(number), {name: value for name, _, value in pairs}
    # The folder of a sweep may have other content.
    except (OSError, LookupError, TypeError, ValueError):
        return None


def _summary(file: Path) -> dict[str, Any]:
    """Return the content of ``summary.json``; of an invalid file, that of a failed job."""
    try:
        summary = json.loads(read_regular(file, limit=_MAX_SUMMARY_BYTES))
        median = (summary.get("epoch_time_s") or {}).get("median")
        numbers = [summary.get(name) for name in (*OFTEN_EQUAL[1:], "mteps", "other_load")]
        cache_figures = _cache_figures(summary)
        texts = [summary.get(name) for name in _TEXTS] + [cache_figures.pop("uncached")]
        numbers += [*_partition_figures(summary).values(), *cache_figures.values()]
        plain = all(isinstance(value, (str, type(None))) for value in texts)
        if plain and all(_is_figure(value) for value in (*numbers, median)):
            return dict(summary)
    # Fields may be missing, or of any type.
    except (OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
        pass
    return {"status": "failed", "error": f"{file}: expected the summary of a run"}


def _is_figure(value: Any) -> bool:
    """Whether a value of a file is None, 0, or a number of a size between 1e-15 and 1e15."""
    if value is None:
        return True
    ordinary = type(value) in (int, float) and (value == 0 or abs(value) > 1 / _MAX_FIGURE)
    return ordinary and abs(value) < _MAX_FIGURE


def over_seeds(jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return statistics of the test metric over each group of jobs that differ by seed only.

    A group has ``options``, ``num_seeds``, ``test_metric`` (``mean`` and ``std``) and
    ``difference``: mean and deviation of the difference to the first group, seed by seed. None: the
    group is the first, or has other seeds.
    """
    groups: dict[tuple[tuple[str, str | None], ...], dict[str | None, float]] = {}
    for job in jobs:
        if "seed" in job["options"] and job["test_metric"] is not None:
            other_options = tuple((k, v) for k, v in job["options"].items() if k != "seed")
            groups.setdefault(other_options, {})[job["options"]["seed"]] = job["test_metric"]
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
    names = list(dict.fromkeys(name for job_options in options for name in job_options))
    return [name for name in names if len({job_options.get(name) for job_options in options}) > 1]
