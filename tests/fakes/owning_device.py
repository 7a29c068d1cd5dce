"""An accelerator that samples by itself and owns its steps; outcomes come late, in their order.

A thread is the device: it does one step after the other, with pauses fixed by the step's number.
What it samples has a form that nobody else can read.
"""

import copy
import random
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from copying_device import Copying, CopyingBackend
from numpy.typing import NDArray

from gnnscale.backend import BackendInputs, BatchOutcome, DeviceBatch
from gnnscale.nn import Inputs
from gnnscale.nn.optim.update_rules import optimizer_state, restore_optimizer
from gnnscale.planner import Device, register_device
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.sampling import MiniBatch

#: What the device's clock says of its stages.
SECONDS = {"sample": 0.001, "load": 0.002, "transfer": 0.0005, "propagate": 0.004, "sync": 0.0001}


@dataclass(frozen=True, kw_only=True)
class Owning(Copying):
    """An accelerator that does whole steps by itself if it is alone.

    Attributes:
        pause_s: seconds of its longest pause in a step that it does by itself.
        asked_s: seconds of its pause in a step of which the host asks for the gradients.
        fails_at: the step at which its memory is too small; None for no step.
    """

    kind: ClassVar[str] = "owning"
    owns_step: ClassVar[bool] = True
    samples: ClassVar[bool] = True
    loads: ClassVar[bool] = True

    sampled_edges_per_s: float | None = 1e9
    pause_s: float = 0.0
    asked_s: float = 0.0
    fails_at: int | None = None


@dataclass(frozen=True)
class OnDevice:
    """A sample that lies on the device: of its seeds, which the host may know."""

    seeds: NDArray[Any]
    step: int
    hidden: MiniBatch


@dataclass(frozen=True)
class Pending:
    """The outcome of a step that the thread does, or will do."""

    future: Future[BatchOutcome]

    @property
    def ready(self) -> bool:
        return self.future.done()

    def read(self) -> BatchOutcome:
        return self.future.result()


class OwningBackend(CopyingBackend):
    """Alone, it trains by itself; beside other devices it does what the host asks."""

    device: Owning

    def __init__(self, device: Device, host: BackendInputs) -> None:
        super().__init__(device, host)
        self.started: list[int] = []
        if host.step_inputs is not None:
            self._optimizer = host.step_inputs.build_optimizer(self._model)
        self._accumulated: list[tuple[int, list[Any]]] = []

    def sample(self, seeds: NDArray[Any], step: int) -> Any:
        return OnDevice(seeds, step, self._host.sampler.sample(seeds, step))

    def on_host(self, batch: Any) -> MiniBatch:
        return self._host.sampler.sample(batch.seeds, batch.step)

    def copy_gradients(self, into: list[torch.Tensor]) -> None:
        time.sleep(self.device.asked_s)
        super().copy_gradients(into)

    def load(self, batch: Any) -> Inputs:
        return self._host.loader.load(batch.hidden)

    def transfer(self, batch: Any, inputs: Inputs) -> DeviceBatch:
        return super().transfer(batch.hidden, inputs)

    def train(
        self, seeds: NDArray[Any], step: int, *, num_seeds: int, rate: float, updates: bool
    ) -> Pending:
        assert num_seeds == len(seeds), "it trains alone"
        self.started.append(step)
        return Pending(self._worker.submit(self._step, seeds.copy(), step, rate, updates))

    def copy_state(self) -> None:
        self._worker.submit(self._copy_out).result()

    def load_state(self) -> None:
        if self._host.step_inputs is None:
            return super().load_state()
        return self._worker.submit(self._copy_in).result()

    def _step(self, seeds: NDArray[Any], step: int, rate: float, updates: bool) -> BatchOutcome:
        time.sleep(random.Random(step).random() * self.device.pause_s)
        if step == self.device.fails_at:
            raise RuntimeError(f"out of memory in step {step}")
        sampled = self.sample(seeds, step)
        batch = self.transfer(sampled, self.load(sampled))
        loss = self._compute(batch, 1.0)
        self._accumulated.append((len(seeds), [each.grad for each in self._model.parameters()]))
        self._optimizer.zero_grad()
        if updates:
            self._update(rate)
        return BatchOutcome(
            loss=loss,
            size=BatchSize.of(batch.batch),
            traffic=batch.traffic,
            seconds=SECONDS,
            counters={"launches": 1.0},
        )

    def _update(self, rate: float) -> None:
        own = self._host.step_inputs
        assert own is not None
        counts, gradients = zip(*self._accumulated, strict=True)
        for parameter, parts in zip(
            self._model.parameters(), zip(*gradients, strict=True), strict=True
        ):
            parameter.grad = parts[0]
            if len(counts) > 1:  # mini-batches count by their seeds
                parameter.grad = sum(map(torch.mul, parts, counts)) / sum(counts)
        self._accumulated.clear()
        if own.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), own.clip_norm)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        self._optimizer.zero_grad()

    def _copy_in(self) -> None:
        own = self._host.step_inputs
        assert own is not None
        self._model.load_state_dict(self._host.model.state_dict())
        self._accumulated.clear()
        restore_optimizer(self._optimizer, copy.deepcopy(optimizer_state(own.host_optimizer)))

    def _copy_out(self) -> None:
        own = self._host.step_inputs
        assert own is not None
        self._host.model.load_state_dict(self._model.state_dict())
        restore_optimizer(own.host_optimizer, copy.deepcopy(optimizer_state(self._optimizer)))


register_device(Owning, "owning_device:OwningBackend")
