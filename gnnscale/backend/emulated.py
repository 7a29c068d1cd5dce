"""An accelerator, or a processor, that computes on the host and takes its metadata's time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gnnscale.backend.base import DeviceBatch, DeviceMemoryError
from gnnscale.backend.cpu import CpuBackend
from gnnscale.backend.loading import FeatureLoader
from gnnscale.graph import Graph
from gnnscale.model import GNN, Inputs
from gnnscale.plan import Emulated
from gnnscale.plan.perf.equations import (
    ACTIVATION_BYTES,
    BYTES_PER_PARAMETER,
    BatchSize,
    load_seconds,
    sync_seconds,
    trainer_seconds,
    transfer_seconds,
)
from gnnscale.sampler import MiniBatch, Sampler

__all__ = ["EmulatedBackend", "activation_bytes", "batch_bytes"]


class EmulatedBackend(CpuBackend):
    """Every stage ends no sooner than the performance model says for the mini-batch at hand.

    The answers are the host's own, exact; only time and memory are the emulated device's. Where the
    host is slower than that, the stage takes the host's time, and ``late_s`` says so.
    """

    def __init__(
        self, device: Emulated, graph: Graph, model: GNN, sampler: Sampler, loader: FeatureLoader
    ) -> None:
        """As ``CpuBackend``."""
        super().__init__(device, graph, model, sampler, loader)
        self.device: Emulated = device
        self.memory_budget = device.memory_bytes
        self.host_to_device_bytes = None if device.on_host else 0
        self.late_s, self.late_steps = 0.0, 0
        self._weights = sum(parameter.numel() for parameter in model.parameters())
        self._in_use = 0
        # transfer and propagate may run in two threads.
        self._lock = threading.Lock()
        self._reserve(self._weights * BYTES_PER_PARAMETER, "the model")

    def load(self, batch: MiniBatch) -> Inputs:
        """Read from feature storage, at most at the emulated host's bandwidth (eq. 7)."""
        if self.device.host_bandwidth is None:
            return super().load(batch)
        start = time.perf_counter()
        inputs = super().load(batch)
        self._wait(start, load_seconds(self._loader.bytes_read(batch), self.device.host_bandwidth))
        return inputs

    def transfer(self, batch: MiniBatch, inputs: Inputs) -> DeviceBatch:
        """Take the link's time for the mini-batch (eq. 8), and device memory."""
        moved = batch_bytes(batch, inputs, aggregated=self._aggregated(inputs))
        num_bytes = moved + activation_bytes(batch, self._model)
        self._reserve(num_bytes, f"a mini-batch of {batch.num_seeds} seeds")
        if self.device.link_bandwidth is not None:
            with self._lasting(
                transfer_seconds(moved, self.device.link_bandwidth, self.device.link_latency_s)
            ):
                assert self.host_to_device_bytes is not None
                self.host_to_device_bytes += moved
        return DeviceBatch(batch=batch, inputs=inputs, num_bytes=num_bytes)

    def propagate(self, resident: DeviceBatch, weight: float) -> float:
        """Compute on the host; take the device's time (eq. 10 to 12)."""
        seconds = self.device.launch_s + trainer_seconds(
            BatchSize.of(resident.batch),
            self._model.widths,
            memory_bandwidth=self.device.memory_bandwidth,
            macs_per_s=self.device.macs_per_s,
            pipelined=self.device.pipelined,
            aggregated=self._aggregated(resident.inputs),
        )
        with self._lasting(seconds):
            loss = super().propagate(resident, weight)
        self._release(resident.num_bytes)
        return loss

    def gradients_out(self, into: list[torch.Tensor]) -> None:
        """Half of the traffic of eq. 13."""
        with self._lasting(self._sync_seconds()):
            super().gradients_out(into)

    def weights_in(self) -> None:
        """The other half of eq. 13."""
        with self._lasting(self._sync_seconds()):
            super().weights_in()

    def _aggregated(self, inputs: Inputs) -> bool:
        return inputs.aggregated and self._model.layer(0).aggregates_on_load

    def _sync_seconds(self) -> float:
        if self.device.link_bandwidth is None:
            return 0.0
        both = sync_seconds(
            self._weights * 4, self.device.link_bandwidth, self.device.link_latency_s
        )
        return both / 2

    def _reserve(self, num_bytes: int, what: str) -> None:
        with self._lock:
            if self._in_use + num_bytes > self.device.memory_bytes:
                raise DeviceMemoryError(
                    f"{self.device.name}: out of device memory: {what} needs "
                    f"{num_bytes / 1e6:,.1f} MB beside {self._in_use / 1e6:,.1f} MB in use, and "
                    f"memory_bytes is {self.device.memory_bytes / 1e6:,.1f} MB; a smaller share, "
                    "fewer neighbours or a lower runtime.prefetch_depth take less"
                )
            self._in_use += num_bytes

    def _release(self, num_bytes: int) -> None:
        with self._lock:
            self._in_use -= num_bytes

    @contextmanager
    def _lasting(self, seconds: float) -> Iterator[None]:
        """Make the ``with`` block last ``seconds``; what is longer is counted as late."""
        start = time.perf_counter()
        yield
        self._wait(start, seconds)

    def _wait(self, start: float, seconds: float) -> None:
        left = start + seconds - time.perf_counter()
        if left > 0:
            time.sleep(left)
        elif seconds > 0:
            with self._lock:
                assert self.late_s is not None
                assert self.late_steps is not None
                self.late_s -= left
                self.late_steps += 1


def batch_bytes(batch: MiniBatch, inputs: Inputs, *, aggregated: bool) -> int:
    """Bytes that cross the link for a mini-batch: the first layer's input, and the topology.

    Where the input is ``aggregated`` already, the first layer's block stays on the host.
    """
    blocks = batch.blocks[1:] if aggregated else batch.blocks
    topology = sum(block.indptr.nbytes + block.indices.nbytes for block in blocks)
    return inputs.x.nbytes + topology


def activation_bytes(batch: MiniBatch, model: GNN) -> int:
    """Bytes of hidden rows and their gradients while a mini-batch is propagated."""
    rows = [block.num_dst for block in batch.blocks]
    return sum(
        ACTIVATION_BYTES * n * width for n, width in zip(rows, model.widths[1:], strict=True)
    )
