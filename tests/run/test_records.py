import json
from dataclasses import asdict

import pytest
from epochs import epoch

from gnnscale.core.stages import Access, Traffic
from gnnscale.core.types import decode
from gnnscale.run.records import DeviceEpoch, EpochRecord, best_epoch, num_validations_since_best


def history(*metrics: float | None) -> tuple[EpochRecord, ...]:
    return tuple(epoch(number, metric) for number, metric in enumerate(metrics, 1))


@pytest.mark.parametrize(
    ("metrics", "best", "waiting"),
    [
        ((), None, 0),
        ((0.1, 0.3, 0.3, 0.2), 2, 2),
        ((0.1, None, 0.05, None), 1, 1),
        ((None, None), 2, 0),
        ((None, 0.0), 2, 0),
        ((-1.0, -2.0), 1, 1),
    ],
)
def test_best_epoch_by_hand(metrics: tuple[float | None, ...], best: int, waiting: int) -> None:
    assert best_epoch(history(*metrics), "accuracy") == best
    assert num_validations_since_best(metrics, "accuracy") == waiting
    # An error is the better the lower it is.
    negative = [None if each is None else -each for each in metrics]
    assert best_epoch(history(*negative), "rmse") == best
    assert num_validations_since_best(negative, "rmse") == waiting


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
    before = epoch(1, 0.5, devices=(device,) * devices)
    told = [asdict(device)] * devices
    assert json.loads(json.dumps(before.to_dict())) == before.to_dict() | {"devices": told}
    assert decode(EpochRecord, before.to_dict(), source="epoch") == before
