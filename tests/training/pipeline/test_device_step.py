from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from owning_device import Owning
from small_plans import plan_of, share

from gnnscale.backend import BatchOutcome
from gnnscale.core.stages import Traffic
from gnnscale.distributed.process_group import SINGLE_PROCESS, Group
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.training.pipeline.device_step import MAX_LATE, DeviceDrivenStep, max_late
from gnnscale.training.pipeline.slices import BatchSlice

STEPS = 10


class Pending:
    """The outcome of a step: it is there once the device is so far."""

    def __init__(self, device: "Slow", step: int) -> None:
        self._device, self._step = device, step

    @property
    def ready(self) -> bool:
        return self._step < self._device.done

    def read(self) -> BatchOutcome:
        self._device.done = max(self._device.done, self._step + 1)
        return BatchOutcome(
            loss=float(self._step),
            size=BatchSize(vertices=(9, 3, 2), edges=(5, 4)),
            traffic=Traffic(),
            seconds={"sample": 0.25, "propagate": 0.5},
        )


class Slow:
    """A device that has done the steps below ``done``."""

    def __init__(self) -> None:
        self.done = self.states = 0
        self.started: list[tuple[int, float, bool]] = []

    def train(
        self, seeds: Any, step: int, *, num_seeds: int, rate: float, updates: bool
    ) -> Pending:
        assert num_seeds == 2
        self.started.append((step, rate, updates))
        return Pending(self, step)

    def copy_state(self) -> None:
        self.states += 1


@pytest.fixture
def device() -> Any:
    return Slow()


@pytest.fixture
def step(device: Any) -> DeviceDrivenStep:
    return a_step(device, SINGLE_PROCESS)


def a_step(device: Any, group: Group) -> DeviceDrivenStep:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    model: Any = torch.nn.Linear(1, 1)
    options = {"accumulate": 2, "steps_per_epoch": STEPS}
    return DeviceDrivenStep(model, device, optimizer, group, **options)


def a_slice(number: int) -> BatchSlice:
    return BatchSlice(step=number, plan=plan_of(share()), counts=(2,), seeds=np.arange(2))


def trained(
    step: DeviceDrivenStep, number: int, *, checkpoint: bool = False
) -> list[tuple[int, bool]]:
    """The steps that are done after one more was started, and which asks for a checkpoint."""
    batch = a_slice(number)
    step.propagate(batch)
    finished = step.synchronize(batch, checkpoint=checkpoint)
    step.update_weights(batch)
    return [(each.step, totals.checkpoint) for each, totals in finished]


def test_outcomes_of_a_device_that_is_behind_come_late(step, device) -> None:
    found = [trained(step, number) for number in range(7)]
    assert found == [[]] * MAX_LATE + [[(0, False)], [(1, False)], [(2, False)]]
    device.done = 6
    assert trained(step, 7) == [(3, False), (4, False), (5, False)]
    device.done = 9
    assert trained(step, 8) == [(6, False), (7, False), (8, False)]


def test_a_checkpoint_waits_for_all_steps(step) -> None:
    trained(step, 0)
    trained(step, 1)
    assert trained(step, 2, checkpoint=True) == [(0, False), (1, False), (2, True)]


def test_several_devices_read_the_same_outcome_at_the_same_step(device, monkeypatch) -> None:
    monkeypatch.setattr(Group, "sum", lambda self, values: None)
    step = a_step(device, replace(SINGLE_PROCESS, size=2, local_size=2))
    device.done = STEPS  # that one device is ahead changes nothing
    found = [trained(step, number) for number in range(5)]
    assert found == [[]] * MAX_LATE + [[(0, False)]]
    # The others learn of a checkpoint with the next outcome, and all read what is late then.
    assert trained(step, 5, checkpoint=True) == [
        *((number, False) for number in range(1, 5)),
        (5, True),
    ]
    assert trained(step, 6) == []


def test_only_a_device_that_overlaps_by_itself_is_late() -> None:
    figures = {"macs_per_s": 1, "memory_bandwidth": 1, "memory_bytes": 1, "link_bandwidth": 1}
    assert max_late(plan_of(share(Owning(**figures), prefetch="device"))) == MAX_LATE
    assert max_late(plan_of(share(prefetch="two_stage"))) == 0
