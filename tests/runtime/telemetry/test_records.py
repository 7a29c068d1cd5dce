from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from gnnscale.core.records import decode
from gnnscale.core.stages import Access, Traffic
from gnnscale.plan import Cpu, DevicePlan, DeviceShare, Threads
from gnnscale.runtime.telemetry.records import (
    DeviceEpoch,
    EpochRecord,
    RunLayout,
    TrainResult,
    best_epoch,
    waited,
)


def history(*metrics: float | None) -> tuple[EpochRecord, ...]:
    return tuple(record(number + 1, metric) for number, metric in enumerate(metrics))


def record(epoch: int, metric: float | None, **changes: Any) -> EpochRecord:
    values: dict[str, Any] = {
        "epoch": epoch,
        "train_loss": 0.5,
        "valid_metric": metric,
        "lr": 0.1,
        "epoch_time_s": 2.0,
        "eval_time_s": None,
        "num_edges": 100,
        "num_vertices": 50,
        "stage_times_s": {"sample": 1.0, "transfer": None},
        "peak_rss_bytes": 7,
    }
    return EpochRecord(**{**values, **changes})


@pytest.mark.parametrize(
    ("metrics", "best", "waiting"),
    [
        ((), None, 0),
        ((0.1,), 1, 0),
        ((0.1, 0.3, 0.3, 0.2), 2, 2),
        ((0.1, None, 0.05, None), 1, 1),
        ((None, None), 2, 0),
        ((None, 0.0), 2, 0),
        ((-1.0, -2.0), 1, 1),
    ],
)
def test_best_epoch_by_hand(metrics: tuple[float | None, ...], best: int, waiting: int) -> None:
    assert best_epoch(history(*metrics), "accuracy") == best
    assert waited(metrics, "accuracy") == waiting
    # An error is the better the lower it is.
    negative = [None if each is None else -each for each in metrics]
    assert best_epoch(history(*negative), "rmse") == best
    assert waited(negative, "rmse") == waiting


def test_result_reads_the_best_epoch() -> None:
    result = TrainResult(
        dataset="d",
        model="m",
        seed=0,
        layout=RunLayout(plan=plan_on_one_core()),
        measures=("accuracy",),
        ceiling=None,
        history=history(0.2, 0.9, 0.3),
    )
    assert (result.best_epoch, result.valid_metric) == (2, 0.9)


def plan_on_one_core() -> DevicePlan:
    threads = Threads(sample=1, load=1, propagate=1)
    share = DeviceShare(device=Cpu(), num_seeds=8, threads=threads, prefetch="none")
    return DevicePlan(shares=(share,))


@pytest.mark.parametrize("devices", [0, 2])
def test_records_survive_plain_values(devices: int) -> None:
    device = DeviceEpoch(
        name="emulated:0",
        kind="emulated",
        figures="emulated",
        batch_share=0.5,
        threads={"sample": 1, "load": 2, "propagate": 0},
        stage_times_s={"sample": 1.0, "transfer": None},
        traffic=Traffic(rows=Access(hits=3, link_bytes=17)),
        host_to_device_bytes=17,
        peak_rss_bytes=2**40,
        pss_bytes=None,
        counters={"late_s": 0.25},
    )
    before = record(1, 0.5, devices=(device,) * devices)
    assert json.loads(json.dumps(before.to_dict())) == before.to_dict() | {
        "devices": [asdict(device)] * devices
    }
    assert decode(EpochRecord, before.to_dict(), source="epoch") == before
