"""A training step of a device that is not there, by a clock that the test winds."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from small_plans import plan_of, share
from torch import nn

from gnnscale.backend import BatchOutcome, DeviceBatch
from gnnscale.core.stages import Traffic
from gnnscale.distributed.process_group import SINGLE_PROCESS
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.training.gradient_sync import StepTotals, Synchronizer
from gnnscale.training.pipeline.slices import BatchSlice
from gnnscale.training.pipeline.step import GradientAccumulator, TrainStep

NOTHING: Any = None


class Slow:
    """A device whose gradient is all ones; each call takes as many seconds as it says."""

    def __init__(self, model: nn.Module, clock: Any, own_clock: dict[str, float]) -> None:
        self.calls: list[Any] = []
        self._model = model
        self._clock = clock
        self._own_clock = own_clock
        self.size = BatchSize(vertices=(1, 1), edges=(3,))

    def propagate(self, batch: DeviceBatch, weight: float) -> None:
        self.calls.append(("propagate", weight))
        self._clock.advance(1.0)

    def copy_gradients(self, into: list[torch.Tensor]) -> None:
        self._clock.advance(4.0)
        for target in into:
            target.fill_(1.0 if self.calls else 0.0)

    def finish(self, batch: DeviceBatch) -> BatchOutcome:
        self.calls.append("finish")
        self._clock.advance(2.0)
        return BatchOutcome(loss=0.5, size=self.size, traffic=Traffic(), seconds=self._own_clock)

    def update_weights(self) -> None:
        self.calls.append(["update_weights", *(p.tolist() for p in self._model.parameters())])
        self._clock.advance(8.0)


def a_slice(num_seeds: int) -> BatchSlice:
    counts = (num_seeds, 8 - num_seeds)
    batch = BatchSlice(step=0, plan=plan_of(share()), counts=counts, seeds=np.arange(num_seeds))
    if num_seeds:
        batch.inputs = NOTHING
        batch.device_batch = DeviceBatch(batch=NOTHING, inputs=NOTHING, traffic=Traffic())
    return batch


class Model(nn.Linear):
    """Four weights, all of them shared; propagation waits for nobody unless a test says so."""

    waited_s = 0.0
    vertex_rows = None

    def __init__(self) -> None:
        super().__init__(4, 1, bias=False)
        nn.init.zeros_(self.weight)

    @property
    def shared_parameters(self) -> list[nn.Parameter]:
        return list(self.parameters())

    def pop_waited_s(self) -> float:
        return self.waited_s


@pytest.fixture
def model() -> Any:
    return Model()


@pytest.fixture
def training(model: Any, clock: Any) -> Callable[..., tuple[TrainStep, Slow]]:
    def begin(clip_norm: float | None = None, **own_clock: float) -> tuple[TrainStep, Slow]:
        device: Any = Slow(model, clock, own_clock)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        synchronizer = Synchronizer(model, device, SINGLE_PROCESS)
        return TrainStep(model, device, synchronizer, optimizer, clip_norm=clip_norm), device

    return begin


def synchronized(step: TrainStep, batch: BatchSlice) -> StepTotals:
    step.propagate(batch)
    ((done, totals),) = step.synchronize(batch)
    assert done is batch
    return totals


def test_one_step_after_the_other(training, model) -> None:
    step, device = training()
    batch = a_slice(6)
    totals = synchronized(step, batch)
    # The host waits for the device, which is propagation; nobody knows of this synchronisation.
    assert batch.stages.propagate == 3.0
    assert totals.stages[0].propagate == 3.0
    assert totals.stages[0].sync == 0.0
    assert (totals.loss, totals.num_edges, totals.num_vertices) == (0.5, 3, 2)
    assert batch.outcome is not None
    assert batch.device_batch is None

    step.update_weights(batch)
    assert batch.stages.sync == 12.0
    # The device is given the weights that the optimizer has updated.
    assert device.calls == [("propagate", 0.75), "finish", ["update_weights", [[-1.0] * 4]]]
    assert all(each.grad is None for each in model.parameters())

    assert synchronized(step, a_slice(8)).stages[0].sync == 12.0


def test_waiting_is_no_propagation_and_the_devices_own_clock_counts(training, model) -> None:
    step, _ = training()
    model.waited_s = 0.25
    (found,) = synchronized(step, a_slice(8)).stages
    assert (found.propagate, found.exchange) == (2.75, 0.25)
    model.waited_s = 0.0
    step, _ = training(propagate=0.25, transfer=0.125)
    batch = a_slice(8)
    batch.stages.transfer = 7.0
    batch.stages.sample = 5.0
    (found,) = synchronized(step, batch).stages
    assert (found.propagate, found.transfer, found.sample) == (0.25, 0.125, 5.0)


def test_statistics_are_combined_by_the_rows_since_the_last_time(training) -> None:
    step, device = training()
    found: list[dict[int, int]] = []
    synchronizer: Any = step._synchronizer
    synchronizer.combine_statistics = lambda rows: found.append(dict(rows))
    for num_dst in ((30, 6), (20, 4), None):  # a slice without seeds writes no rows
        device.size = BatchSize(vertices=(90, *(num_dst or ())), edges=(3, 2))
        synchronized(step, a_slice(6 if num_dst else 0))
    step.combine_statistics()
    step.combine_statistics()
    assert found == [{0: 50, 1: 10}, {}]


def fed(
    accumulated: GradientAccumulator,
    model: nn.Linear,
    step: int,
    gradient: torch.Tensor,
    seeds: int = 1,
) -> bool:
    """Give a mini-batch with a gradient; tell whether an update is due."""
    model.weight.grad = gradient
    batch: Any = SimpleNamespace(step=step, num_seeds=seeds)
    return accumulated.complete(batch)


def test_an_update_is_of_the_mean_over_all_seeds() -> None:
    """Epochs of five mini-batches, three to an update: of three, then two."""
    model = nn.Linear(1, 1, bias=False)
    accumulated = GradientAccumulator(model, 3, steps_per_epoch=5)
    sizes, values = [8, 8, 8, 8, 2], [1.0, 2.0, 6.0, 4.0, 9.0]
    for epoch in range(2):
        found = []
        for place, (size, value) in enumerate(zip(sizes, values, strict=True)):
            if fed(accumulated, model, 5 * epoch + place, torch.full((1, 1), value), size):
                assert model.weight.grad is not None
                found.append((place, model.weight.grad.item()))
        assert found == [(2, pytest.approx(3.0)), (4, pytest.approx((8 * 4 + 2 * 9) / 10))]


def test_sums_do_not_share_memory_with_the_gradients() -> None:
    """Those lie in a bucket that the next mini-batch overwrites."""
    model = nn.Linear(1, 1)
    accumulated = GradientAccumulator(model, 2, steps_per_epoch=2)
    bucket = torch.ones(1, 1)
    assert not fed(accumulated, model, 0, bucket)
    assert fed(accumulated, model, 1, bucket.fill_(3.0))
    assert model.weight.grad == 2.0
    # A parameter without a gradient gets no sum of them.
    assert model.bias.grad is None
