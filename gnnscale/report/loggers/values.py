"""What loggers are told of a run: numbers of an epoch, and options, both by flat names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gnnscale.metrics import mteps
from gnnscale.runtime.telemetry.records import EpochRecord

__all__ = ["epoch_values", "flat_options"]


def epoch_values(record: EpochRecord) -> dict[str, float]:
    """Return the numbers of an epoch; those that it has not are left out."""
    values: dict[str, float | None] = {
        "train_loss": record.train_loss,
        **{f"valid_{name}": value for name, value in record.valid_metrics.items()},
        "lr": record.lr,
        "epoch_time_s": record.epoch_time_s,
        "eval_time_s": record.eval_time_s,
        "mteps": mteps(record.num_edges, record.epoch_time_s),
        "peak_rss_bytes": record.peak_rss_bytes,
    }
    return {name: value for name, value in values.items() if value is not None}


def flat_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return resolved options as text by their dotted names; lists stay whole."""
    return dict(_flat(options, ""))


def _flat(options: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", "null" if value is None else str(value)
