"""``summary.json`` and ``metrics.jsonl``: a run in plain values."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnscale.hardware import find_machine, installed
from gnnscale.metrics import mteps, nvtps
from gnnscale.runtime.records import EpochRecord, TrainResult

__all__ = [
    "METRICS_FILE",
    "SUMMARY_FILE",
    "append_metrics",
    "summarise",
    "write_json",
    "write_metrics",
    "write_text",
]

SUMMARY_FILE = "summary.json"
METRICS_FILE = "metrics.jsonl"

_VERSIONS = ("gnnscale", "torch", "numpy", "hydra-core")


def summarise(run: TrainResult, *, status: str, error: str | None = None) -> dict[str, Any]:
    """Return the content of ``summary.json``; a figure that a run has not is None, never 0.

    ``train_loss`` is that of the last epoch, ``valid_metric`` and ``test_metric`` those of
    ``best_epoch``; ``mteps`` and ``nvtps`` are over all epochs; ``stage_times_s`` are means of an
    epoch.

    Args:
        run: what is known of the run.
        status: ``completed``, ``interrupted`` or ``failed``.
        error: why it failed.
    """
    epochs = run.history
    seconds = sum(each.epoch_time_s for each in epochs)
    times = [each.epoch_time_s for each in epochs]
    return {
        "status": status,
        "error": error,
        "dataset": run.dataset,
        "model": run.model,
        "seed": run.seed,
        "epochs": len(epochs),
        "stopped_early": run.stopped_early,
        "best_epoch": run.best_epoch,
        "train_loss": epochs[-1].train_loss if epochs else None,
        "valid_metric": run.valid_metric,
        "test_metric": run.test_metric,
        "metric": run.metric,
        "ceiling": run.ceiling,
        "epoch_time_s": {
            "mean": statistics.fmean(times) if times else None,
            "median": statistics.median(times) if times else None,
        },
        "mteps": mteps(sum(each.num_edges for each in epochs), seconds) if epochs else None,
        "nvtps": nvtps(sum(each.num_vertices for each in epochs), seconds) if epochs else None,
        "peak_rss_bytes": max((each.peak_rss_bytes for each in epochs), default=None),
        "devices": [_cpu(epochs)],
        "predicted": None,
        "versions": {name: installed(name) for name in _VERSIONS},
    }


def _cpu(epochs: Sequence[EpochRecord]) -> dict[str, Any]:
    """The one device of a CPU run; it reads features where they lie, so there is no traffic."""
    stages = {}
    for name in ("sample", "load", "transfer", "propagate", "sync"):
        seconds = [each.stage_times_s[name] for each in epochs]
        known = [value for value in seconds if value is not None]
        stages[name] = statistics.fmean(known) if known else None
    return {
        "name": find_machine().processor,
        "kind": "cpu",
        "batch_share": 1.0,
        "stage_times_s": stages,
        "host_to_device_bytes": None,
        "feature_hit_rate": None,
        "topology_hit_rate": None,
    }


def write_text(file: Path, text: str) -> None:
    """Write ``text`` to ``file``, whole or not at all."""
    temporary = file.with_name(f".{file.name}.tmp")
    try:
        temporary.write_text(text)
        os.replace(temporary, file)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(file)) from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` to ``file`` as JSON, whole or not at all."""
    write_text(file, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_metrics(directory: Path, epochs: Sequence[EpochRecord]) -> None:
    """Write ``metrics.jsonl`` with one line for each of ``epochs``."""
    write_text(directory / METRICS_FILE, "".join(_line(each) for each in epochs))


def append_metrics(directory: Path, epoch: EpochRecord) -> None:
    """Add one line to ``metrics.jsonl``."""
    with (directory / METRICS_FILE).open("a") as file:
        file.write(_line(epoch))


def _line(epoch: EpochRecord) -> str:
    figures = {
        **epoch.to_dict(),
        "mteps": mteps(epoch.num_edges, epoch.epoch_time_s),
        "nvtps": nvtps(epoch.num_vertices, epoch.epoch_time_s),
    }
    return json.dumps(figures, allow_nan=False) + "\n"
