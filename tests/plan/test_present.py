from __future__ import annotations

from dataclasses import replace

import pytest

from gnnscale.plan.calibrate import estimate
from gnnscale.plan.platform import Platform
from gnnscale.plan.predict import Host
from gnnscale.plan.present import at_present, time_probes
from gnnscale.plan.probes import StepTimes


@pytest.fixture(scope="module")
def platform() -> Platform:
    return estimate()


@pytest.fixture(scope="module")
def as_predicted(platform: Platform) -> tuple[StepTimes, ...]:
    """Probes that took just as long as the platform's rates say."""
    host = platform.processor
    found = []
    for step in time_probes(1):
        alone = Host(workload=step.workload, processor=host, num_workers=1, emulates=False)
        found.append(
            replace(
                step,
                propagate_s=alone.propagate(step.size, 1, 1),
                load_s=alone.load(step.size, 1, 1),
            )
        )
    return tuple(found)


def _slower(steps: tuple[StepTimes, ...], times: float) -> list[StepTimes]:
    return [
        replace(step, propagate_s=times * step.propagate_s, load_s=times * step.load_s)
        for step in steps
    ]


def test_rates_that_hold_stay(platform: Platform, as_predicted: tuple[StepTimes, ...]) -> None:
    now = at_present(platform, as_predicted, threads=1, workers=1)
    assert now.processor.macs_per_s == pytest.approx(platform.processor.macs_per_s)


def test_alone_a_slower_host_has_lower_rates(
    platform: Platform, as_predicted: tuple[StepTimes, ...]
) -> None:
    now = at_present(platform, _slower(as_predicted, 2), threads=1, workers=1)
    assert now.processor.macs_per_s == pytest.approx(
        [rate / 2 for rate in platform.processor.macs_per_s]
    )
    assert now.processor.layer_s == pytest.approx([2 * s for s in platform.processor.layer_s])


def test_together_workers_slow_each_other_down(
    platform: Platform, as_predicted: tuple[StepTimes, ...]
) -> None:
    cores = platform.processor.cores
    now = at_present(platform, _slower(as_predicted, 1.5), threads=1, workers=max(cores, 2))
    waits = max(cores, 2) / cores
    assert now.processor.compute_contention == pytest.approx(max(1.5 / waits, 1.0))
    assert now.processor.macs_per_s == platform.processor.macs_per_s
