"""An accelerator, or a processor, that computes on the host and takes its metadata's time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from gnnscale.backend.base import BatchOutcome, DeviceBatch, DeviceMemoryError, HostParts
from gnnscale.backend.cpu import CpuBackend
from gnnscale.model import Inputs
from gnnscale.plan import Accelerator
from gnnscale.plan.perf.equations import (
    BYTES_PER_PARAMETER,
    BatchSize,
    load_seconds,
    sync_seconds,
    trainer_seconds,
    transfer_seconds,
)
from gnnscale.plan.perf.work import activation_bytes, propagation_work
from gnnscale.plan.perf.workload import unmeasured_workload
from gnnscale.sampler import MiniBatch

__all__ = ["EmulatedBackend", "link_bytes"]


class EmulatedBackend(CpuBackend):
    """Every stage ends no sooner than the performance model says for the mini-batch at hand.

    The answers are the host's own, exact; only time and memory are the emulated device's. Where the
    host is slower than that, the stage takes the host's time, and ``late_s`` and ``late_stages``
    among the counters say so.
    """

    def __init__(self, device: Accelerator, host: HostParts) -> None:
        """Open ``device`` over the parts of the host."""
        super().__init__(device, host)
        self._accelerator = device
        self._workload = unmeasured_workload(host.graph, host.model).on(device)
        self._in_use = 0
        self._late_s, self._late_stages = 0.0, 0
        # load, transfer and propagate may run in threads of their own.
        self._lock = threading.Lock()
        self._reserve(self._workload.num_weights * BYTES_PER_PARAMETER, "the model")

    def load(self, batch: MiniBatch) -> Inputs:
        """Read from feature storage, at most at the emulated host's bandwidth (eq. 7)."""
        bandwidth = self._accelerator.host_bandwidth
        seconds = load_seconds(self._loader.bytes_read(batch), bandwidth) if bandwidth else 0.0
        with self._lasting(seconds):
            return super().load(batch)

    def transfer(self, batch: MiniBatch, inputs: Inputs) -> DeviceBatch:
        """Take the link's time for the mini-batch (eq. 8), and device memory."""
        link = self._accelerator
        row_bytes, list_bytes = link_bytes(batch, inputs)
        size = BatchSize.of(batch)
        num_bytes = row_bytes + list_bytes + int(activation_bytes(self._workload, size))
        self._reserve(num_bytes, f"a mini-batch of {batch.num_seeds} seeds")
        arrived = replace(super().transfer(batch, inputs), num_bytes=num_bytes)
        if link.link_bandwidth is None:
            return arrived
        moved = row_bytes + list_bytes
        with self._lasting(transfer_seconds(moved, link.link_bandwidth, link.link_latency_s)):
            traffic = inputs.traffic.with_link(
                row_bytes=row_bytes, list_bytes=list_bytes, request_bytes=link.link_request_bytes
            )
            return replace(arrived, traffic=traffic)

    def propagate(self, batch: DeviceBatch, weight: float) -> None:
        """Compute on the host; take the device's time (eq. 10 to 12)."""
        seconds = self._accelerator.launch_s + trainer_seconds(
            propagation_work(self._workload, BatchSize.of(batch.batch)),
            memory_bandwidth=self._accelerator.memory_bandwidth,
            macs_per_s=self._accelerator.macs_per_s,
            pipelined=self._accelerator.pipelined,
        )
        with self._lasting(seconds):
            super().propagate(batch, weight)

    def finish(self, batch: DeviceBatch) -> BatchOutcome:
        """Free the batch's memory, and tell how late the host was since the last time."""
        with self._lock:
            self._in_use -= batch.num_bytes
            counters = {"late_s": self._late_s, "late_stages": float(self._late_stages)}
            self._late_s, self._late_stages = 0.0, 0
        return replace(super().finish(batch), counters=counters)

    def gradients_out(self, into: list[torch.Tensor]) -> None:
        """Half of the traffic of eq. 13."""
        with self._lasting(self._sync_seconds()):
            super().gradients_out(into)

    def update_weights(self) -> None:
        """The other half of eq. 13."""
        with self._lasting(self._sync_seconds()):
            super().update_weights()

    def _sync_seconds(self) -> float:
        link = self._accelerator
        if link.link_bandwidth is None:
            return 0.0
        weights = self._workload.weight_bytes
        return sync_seconds(weights, link.link_bandwidth, link.link_latency_s) / 2

    def _reserve(self, num_bytes: int, what: str) -> None:
        budget = self._accelerator.memory_bytes
        with self._lock:
            if self._in_use + num_bytes > budget:
                raise DeviceMemoryError(
                    f"{self.device.label}: out of device memory: {what} needs "
                    f"{num_bytes / 1e6:,.1f} MB beside {self._in_use / 1e6:,.1f} MB in use, and "
                    f"memory_bytes is {budget / 1e6:,.1f} MB; a smaller share, fewer neighbours "
                    "or a lower runtime.prefetch_depth take less"
                )
            self._in_use += num_bytes

    @contextmanager
    def _lasting(self, seconds: float) -> Iterator[None]:
        """Make the ``with`` block last ``seconds``; what is longer is counted as late."""
        start = time.perf_counter()
        yield
        left = start + seconds - time.perf_counter()
        if left > 0:
            time.sleep(left)
        elif seconds > 0:
            with self._lock:
                self._late_s -= left
                self._late_stages += 1


def link_bytes(batch: MiniBatch, inputs: Inputs) -> tuple[int, int]:
    """Return the bytes of rows and of topology that cross the link for a mini-batch.

    Where the host has aggregated the input, the first layer's block stays there.
    """
    blocks = batch.blocks[1:] if inputs.aggregated else batch.blocks
    topology = sum(block.indptr.nbytes + block.indices.nbytes for block in blocks)
    return inputs.num_bytes, topology
