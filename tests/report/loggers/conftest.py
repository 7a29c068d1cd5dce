from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gnnscale.runtime.telemetry.records import Observer, TrainResult

#: Options of a made-up run.
OPTIONS = {"seed": 3, "model": {"hidden": 16, "dims": [4, 5]}, "cache_plan": None}


@pytest.fixture
def options() -> dict[str, Any]:
    return OPTIONS


@pytest.fixture
def measured(hybrid_run: Any) -> Any:
    """Three epochs with two metrics, the second of which was not validated."""
    values = [{"accuracy": 0.5, "macro_f1": None}, {}, {"accuracy": 0.75, "macro_f1": 0.25}]
    epochs = tuple(
        replace(each, valid_metrics=found, valid_metric=found.get("accuracy"))
        for each, found in zip(hybrid_run.epochs, values, strict=True)
    )
    started = replace(hybrid_run.started, measures=("accuracy", "macro_f1"))
    return replace(hybrid_run, started=started, epochs=epochs)


@pytest.fixture
def follow(measured: Any) -> Callable[..., TrainResult]:
    """Tell an observer of the run, the first epochs of which were done before it was resumed."""

    def tell(observer: Observer, *, known: int = 0) -> TrainResult:
        observer.started(replace(measured.started, history=measured.epochs[:known]))
        for epoch in measured.epochs[known:]:
            observer.trained()
            observer.finished_epoch(epoch)
        tested = {"accuracy": 0.7, "macro_f1": None}
        result = replace(measured.result, test_metric=0.7, test_metrics=tested)
        observer.finished(result)
        observer.close()
        return result

    return tell
