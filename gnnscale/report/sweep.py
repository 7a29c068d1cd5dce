"""The table at the end of a sweep (``-m``)."""

from __future__ import annotations

import csv
import io
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table

from gnnscale.report.summary import SUMMARY_FILE, write_json, write_text

__all__ = ["SweepReport", "collect", "over_seeds"]

_FIGURES = ("status", "epochs", "best_epoch", "valid_metric", "test_metric", "epoch_time_s")


class SweepReport(Callback):
    """Hydra calls this when all jobs of a sweep are done, whichever launcher ran them."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Write ``results.json`` and ``results.csv`` into the sweep directory, and show a table.

        Raises:
            SystemExit: with status 1, where a job failed.
        """
        directory = Path(config.hydra.sweep.dir)
        jobs = collect(directory)
        if not jobs:
            return
        seeds = over_seeds(jobs)
        write_json(directory / "results.json", {"jobs": jobs, "over_seeds": seeds})
        write_text(directory / "results.csv", _csv(jobs))
        _print(jobs, seeds)
        print((directory / "results.json").resolve())
        failed = sum(job["status"] != "completed" for job in jobs)
        if failed:
            print(f"{failed} of {len(jobs)} jobs of the sweep failed", file=sys.stderr)
            raise SystemExit(1)


def collect(directory: Path) -> list[dict[str, Any]]:
    """Return the jobs of the sweep in ``directory``: what varied, and what came of it.

    Each has ``job`` (its number), ``options`` (those overrides that differ between jobs),
    ``directory``, and the figures of its ``summary.json``.
    """
    found = []
    for file in directory.glob(f"*/{SUMMARY_FILE}"):
        overrides = OmegaConf.load(file.parent / ".hydra" / "overrides.yaml")
        options = dict(str(override).split("=", 1) for override in overrides)
        number = OmegaConf.load(file.parent / ".hydra" / "hydra.yaml").hydra.job.num
        found.append((int(number), options, file))
    found.sort(key=lambda job: job[0])
    varied = _varied([options for _, options, _ in found])
    jobs = []
    for number, options, file in found:
        summary = json.loads(file.read_text())
        jobs.append(
            {
                "job": number,
                "options": {name: options.get(name) for name in varied},
                "directory": str(file.parent.resolve()),
                **{name: summary.get(name) for name in (*_FIGURES, "metric", "error")},
                "epoch_time_s": (summary.get("epoch_time_s") or {}).get("median"),
            }
        )
    return jobs


def over_seeds(jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and standard deviation of the test metric over jobs that differ by seed only."""
    groups: dict[tuple[tuple[str, str | None], ...], list[float]] = {}
    for job in jobs:
        if "seed" in job["options"] and job["test_metric"] is not None:
            rest = tuple((k, v) for k, v in job["options"].items() if k != "seed")
            groups.setdefault(rest, []).append(job["test_metric"])
    return [
        {
            "options": dict(options),
            "num_seeds": len(values),
            "test_metric": {
                "mean": statistics.fmean(values),
                "std": statistics.stdev(values) if len(values) > 1 else None,
            },
        }
        for options, values in groups.items()
    ]


def _varied(options: Sequence[dict[str, str]]) -> list[str]:
    names = list(dict.fromkeys(name for each in options for name in each))
    return [name for name in names if len({each.get(name) for each in options}) > 1]


def _csv(jobs: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    options = list(jobs[0]["options"])
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["job", *options, *_FIGURES, "metric", "directory", "error"])
    for job in jobs:
        figures = [job[name] for name in (*_FIGURES, "metric", "directory", "error")]
        writer.writerow([job["job"], *job["options"].values(), *figures])
    return text.getvalue()


def _print(jobs: Sequence[dict[str, Any]], seeds: Sequence[dict[str, Any]]) -> None:
    console = Console()
    metric = next((job["metric"] for job in jobs if job["metric"]), "metric")
    table = Table(title="Results of the sweep")
    options = list(jobs[0]["options"])
    figures = ("status", "epochs", "best epoch", f"valid {metric}", f"test {metric}", "s/epoch")
    for heading in ("job", *options, *figures):
        table.add_column(heading, justify="left" if heading == "status" else "right")
    for job in jobs:
        table.add_row(*_cells([job["job"], *job["options"].values()]), *_cells(_values(job)))
    console.print(table)
    for group in seeds:
        mean, std = group["test_metric"]["mean"], group["test_metric"]["std"]
        spread = "" if std is None else f" ± {std:.4f}"
        label = " ".join(f"{name}={value}" for name, value in group["options"].items())
        console.print(
            f"{label + ': ' if label else ''}test {metric} {mean:.4f}{spread} "
            f"over {group['num_seeds']} seeds",
            highlight=False,
        )


def _values(job: dict[str, Any]) -> list[Any]:
    return [job[name] for name in _FIGURES]


def _cells(values: Iterable[Any]) -> list[str]:
    return [
        "-" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
        for value in values
    ]
