"""An accelerator of a kind that gnnscale does not know, with a copy of the model of its own.

Its propagation runs in a thread, so that ``propagate`` returns before it is done; its own clock
says how long stages take.
"""

import copy
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray

from gnnscale.backend import BackendInputs, BatchOutcome, DeviceBatch
from gnnscale.nn import Inputs
from gnnscale.planner import Accelerator, Device, Threads, register_device
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.sampling import MiniBatch

#: What the device's clock says of every propagation: longer than a busy processor takes for a few
#: seeds.
PROPAGATE_S = 0.04


@dataclass(frozen=True, kw_only=True)
class Copying(Accelerator):
    """An accelerator whose memory the host cannot see.

    Attributes:
        busy_s: seconds that it takes for a mini-batch beside computing, whatever its clock says.
    """

    kind: ClassVar[str] = "copying"
    figures: ClassVar[str] = "pretended"
    computes_on_host: ClassVar[bool] = True
    collective: ClassVar[str | None] = "cpu:gloo"

    busy_s: float = 0.0


class CopyingBackend:
    """Owns its weights, and computes in a thread of its own."""

    def __init__(self, device: Device, host: BackendInputs) -> None:
        assert isinstance(device, Copying)
        self.device = device
        self._host = host
        self._model = copy.deepcopy(host.model)
        # Nobody has given it weights and statistics yet: what it trains with these is wrong.
        with torch.no_grad():
            for value in (*self._model.parameters(), *self._model.buffers()):
                value.fill_(float("nan") if value.is_floating_point() else 0)
        self._model.train()
        self._worker = ThreadPoolExecutor(1)
        self._running: Future[float] | None = None

    def sample(self, seeds: NDArray[Any], step: int) -> MiniBatch:
        return self._host.sampler.sample(seeds, step)

    def load(self, batch: MiniBatch) -> Inputs:
        return self._host.loader.load(batch)

    def on_host(self, batch: MiniBatch) -> MiniBatch:
        return batch

    def transfer(self, batch: MiniBatch, inputs: Inputs) -> DeviceBatch:
        traffic = inputs.traffic.with_link(
            row_bytes=inputs.x.nbytes,
            list_bytes=sum(block.indices.nbytes for block in batch.blocks),
            request_bytes=self.device.link_request_bytes,
        )
        return DeviceBatch(batch=batch, inputs=replace(inputs, x=inputs.x.clone()), traffic=traffic)

    def propagate(self, batch: DeviceBatch, weight: float) -> None:
        assert self._running is None
        self._running = self._worker.submit(self._compute, batch, weight)

    def _compute(self, batch: DeviceBatch, weight: float) -> float:
        time.sleep(self.device.busy_s)
        logits = self._model(batch.batch, batch.inputs)
        loss = self._host.objective(logits, batch.batch) * weight
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    def copy_gradients(self, into: list[torch.Tensor]) -> None:
        if self._running is not None:
            self._running.result()
        for target, parameter in zip(into, self._model.parameters(), strict=True):
            if parameter.grad is None:
                target.zero_()
            else:
                target.copy_(parameter.grad)
                parameter.grad = None

    def finish(self, batch: DeviceBatch) -> BatchOutcome:
        assert self._running is not None
        loss = self._running.result()
        self._running = None
        return BatchOutcome(
            loss=loss,
            size=BatchSize.of(batch.batch),
            traffic=batch.traffic,
            seconds={"propagate": PROPAGATE_S},
            counters={"launches": 1.0},
        )

    def load_state(self) -> None:
        self._model.load_state_dict(self._host.model.state_dict())

    @torch.no_grad()
    def update_weights(self) -> None:
        pairs = zip(self._model.parameters(), self._host.model.parameters(), strict=True)
        for mine, theirs in pairs:
            mine.copy_(theirs)

    def copy_buffers(self) -> None:
        for mine, theirs in zip(self._model.buffers(), self._host.model.buffers(), strict=True):
            theirs.copy_(mine)

    def set_threads(self, threads: Threads) -> None:
        self._host.sampler.num_threads = threads.sample
        self._host.loader.num_threads = threads.load
        torch.set_num_threads(1)

    def close(self) -> None:
        self._worker.shutdown(cancel_futures=True)


register_device(Copying, "copying_device:CopyingBackend")
