"""FPGA card, real or in C simulation, as a training device."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from gnnscale.backend import base
from gnnscale.backend.fpga import board, lowering, step_result
from gnnscale.backend.fpga.csim.build import SimulatedDesign, library, load_csim, load_pyxrt
from gnnscale.backend.fpga.layout import ChipLimits, PackedBatch, pack_batch
from gnnscale.core import Array, ConfigError, Traffic, read_memory
from gnnscale.nn import GNN, Inputs, TrainableModel, losses
from gnnscale.planner import Fpga, Threads
from gnnscale.planner.cost_model.equations import BatchSize, transfer_seconds
from gnnscale.sampling import MiniBatch

#: Maximum mini-batches in flight or on the card.
_SLOTS = 4096
_WORD = 64
#: Bits of the kernel's flags.
_TRAIN, _MULTILABEL = 1, 4
_NOTHING = BatchSize(vertices=(), edges=())


@dataclass(frozen=True, kw_only=True)
class _Sent(base.DeviceBatch):
    """Mini-batch in the card's memory, arranged in a part for each compute unit."""

    slot: int  #: slot of every compute unit
    parts: tuple[PackedBatch | None, ...]  #: part of each compute unit. None: no seeds
    seconds: dict[str, float]  #: modeled seconds of the transfer to a simulated card, or empty
    arranging_s: float  #: measured seconds in which the host arranged it


class FpgaBackend:
    """Backend that trains on a card's compute units, each with a slice of the mini-batch.

    The card has a copy of the weights. Transfers fill one slot of its buffers while the card
    computes another.
    """

    def __init__(self, device: Fpga, host: base.BackendInputs) -> None:
        """Open the card, and allocate its memory for gradients.

        ConfigError: kernels do not support the model, its options or labels, or the bitstream file
        is missing. DeviceMemoryError: the model exceeds memory.
        """
        self.device = device
        self._host = host
        _check(device, host)
        model = _layered(host.model)
        products = lowering.lower(model, aggregated=device.host_aggregates)
        self._weights = lowering.WeightLayout(products)
        self._lock = threading.Lock()
        self._slots = list(range(_SLOTS))
        self._memory = base.DeviceMemory(device)
        self._running: _Sent | None = None
        self._result = base.BatchOutcome(loss=0.0, size=_NOTHING, traffic=Traffic())
        self._gradients: dict[torch.Tensor, torch.Tensor] = {}
        header = lowering.kernel_header(model)
        self._packer = _Packer(device, host, model, products, self._weights)
        self._memory.reserve(2 * self._weights.num_bytes * device.compute_units, "the model")
        with self._device_errors():
            self._board = _open(device, header)
            for unit in range(device.compute_units):
                self._board.allocate(unit, "gradients", self._weights.num_bytes)

    def sample(self, seeds: Array, step: int) -> MiniBatch:
        """Return the mini-batch of ``seeds`` at ``step``, sampled by the host."""
        return self._host.sampler.sample(seeds, step)

    def load(self, batch: MiniBatch) -> Inputs:
        """Return the first layer's input, read from feature storage by the host."""
        return self._host.loader.load(batch)

    def on_host(self, batch: MiniBatch) -> MiniBatch:
        """Return ``batch``, which is in host memory."""
        return batch

    def transfer(self, batch: MiniBatch, inputs: Inputs) -> base.DeviceBatch:
        """Arrange the mini-batch and its input rows for the compute units, and send each its part.

        Waits until all parts are sent. DeviceMemoryError: the card's memory is too small.
        """
        begin = time.perf_counter()
        parts = self._packer.pack(batch, inputs)
        arranging_s = time.perf_counter() - begin
        sent = [part for part in parts if part is not None]
        row_bytes = sum(part.features.nbytes for part in sent)
        list_bytes = sum(part.batch.nbytes + part.edges.nbytes for part in sent)
        num_bytes = row_bytes + list_bytes + sum(part.scratch_bytes for part in sent)
        self._memory.reserve(num_bytes, f"a mini-batch of {batch.num_seeds} seeds")
        slot = self._send(parts, num_bytes)
        link = self.device
        assert link.link_bandwidth is not None
        num_sent = row_bytes + list_bytes
        modelled = transfer_seconds(num_sent, link.link_bandwidth, link.link_latency_s)
        return _Sent(
            batch=batch,
            # The rows are on the card; those of the host are freed.
            inputs=replace(inputs, x=inputs.x[:0]),
            traffic=inputs.traffic.with_link(
                row_bytes=row_bytes, list_bytes=list_bytes, request_bytes=link.link_request_bytes
            ),
            num_bytes=num_bytes,
            slot=slot,
            parts=parts,
            seconds={"transfer": modelled} if link.simulated else {},
            arranging_s=arranging_s,
        )

    def propagate(self, batch: base.DeviceBatch, weight: float) -> None:
        """Start the compute units on the batch's mean loss times ``weight``, without waiting."""
        assert isinstance(batch, _Sent)
        assert self._running is None
        graph = self._host.graph
        terms = max(batch.batch.num_seeds, 1) * (graph.num_classes if graph.multilabel else 1)
        flags = _TRAIN | (_MULTILABEL if graph.multilabel else 0)
        with self._device_errors():
            for unit, part in self._parts(batch):
                self._board.allocate(unit, "scratch", max(part.scratch_bytes, _WORD))
                random = (*_halves(batch.batch.seed), *_halves(batch.batch.step))
                scalars = (part.num_groups, flags, *random, _bits(weight / terms))
                self._board.start(unit, batch.slot, scalars)
        self._running = batch

    def copy_gradients(self, into: list[torch.Tensor]) -> None:
        """Wait for the compute units, and copy the sums of their gradients to ``into``.

        A parameter without gradients gets zeros.
        """
        self._wait()
        for target, parameter in zip(into, self._host.model.shared_parameters, strict=True):
            if parameter in self._gradients:
                target.copy_(self._gradients[parameter])
            else:
                target.zero_()
        self._gradients = {}

    def finish(self, batch: base.DeviceBatch) -> base.BatchOutcome:
        """Wait for the compute units, free the batch's slot and memory, and return its outcome."""
        assert isinstance(batch, _Sent)
        self._wait()
        self._memory.free(batch.num_bytes)
        with self._lock:
            self._slots.append(batch.slot)
        return self._result

    def load_state(self) -> None:
        """Send the host's parameters to every compute unit."""
        self.update_weights()

    def update_weights(self) -> None:
        """Send the host's parameters to every compute unit."""
        with self._device_errors():
            self._board.send_weights(self._weights.pack())

    def copy_buffers(self) -> None:
        """Do nothing: models with FPGA kernels have no buffers."""

    def set_threads(self, threads: Threads) -> None:
        """Set the numbers of host threads that sample, load and arrange, and propagate."""
        self._host.set_threads(threads)
        self._packer.num_threads = max(threads.load, 1)

    def close(self) -> None:
        """Close the card, after at most a second for runs in flight, and free its buffers."""
        self._board.close()

    def _send(self, parts: Sequence[PackedBatch | None], num_bytes: int) -> int:
        """Take a free slot (buffer set), send each compute unit its part into it, and return it.

        If memory is too small, the slot and ``num_bytes``, reserved for the mini-batch, are freed.
        """
        with self._lock:
            slot = self._slots.pop()
        try:
            with self._device_errors():
                for unit, part in enumerate(parts):
                    if part is not None:
                        self._board.allocate(unit, "result", _WORD, slot=slot)
                        self._board.send(unit, slot, part.batch, part.edges, part.features)
        except base.DeviceMemoryError:
            self._memory.free(num_bytes)
            with self._lock:
                self._slots.append(slot)
            raise
        return slot

    @staticmethod
    def _parts(batch: _Sent) -> Iterator[tuple[int, PackedBatch]]:
        return ((unit, part) for unit, part in enumerate(batch.parts) if part is not None)

    def _wait(self) -> None:
        """Wait for the running batch, if any; keep its gradients and outcome in this object.

        Gradients are summed over the compute units. Afterwards no batch is running.
        """
        batch, self._running = self._running, None
        if batch is None:
            return
        loss, gradients, counted, kernel_seconds = 0.0, np.zeros(0, np.float32), [], []
        with self._device_errors():
            for unit, _ in self._parts(batch):
                status = self._board.wait(unit, self.device.timeout_s)
                loss += step_result.check_outcome(status, self.device)
                unit_gradients = self._board.gradients(unit)
                gradients = gradients + unit_gradients if len(gradients) else unit_gradients
                counted.append(self._board.counters(unit))
                kernel_seconds.append(self._board.kernel_seconds(unit))
        if len(gradients):
            self._gradients = self._weights.unpack(gradients)
        counters, seconds = step_result.step_counters(counted, kernel_seconds, self.device)
        counters |= {"arranging_s": batch.arranging_s, **self._host.cache.counters()}
        self._result = base.BatchOutcome(
            loss=loss,
            size=BatchSize.of(batch.batch),
            traffic=batch.traffic,
            seconds={**batch.seconds, **seconds},
            counters=counters,
        )

    @contextmanager
    def _device_errors(self) -> Iterator[None]:
        """Raise a board's errors as ``DeviceError`` or ``DeviceMemoryError`` of this device."""
        try:
            yield
        except board.BoardMemoryError as error:
            raise base.DeviceMemoryError(f"{self.device.label}: {error}") from error
        except board.BoardError as error:
            raise base.DeviceError(f"{self.device.label}: {error}") from error


class _Packer:
    """Packer of a mini-batch's slices for the compute units of a card."""

    def __init__(
        self,
        device: Fpga,
        host: base.BackendInputs,
        model: GNN,
        products: Sequence[lowering.Product],
        weights: lowering.WeightLayout,
    ) -> None:
        self._device, self._graph = device, host.graph
        self._model, self._products, self._weights = model, products, weights
        self._limits = ChipLimits(n=device.n, row_words=device.row_words)
        self._limits.check(products)
        self.num_threads = 1

    def pack(self, batch: MiniBatch, inputs: Inputs) -> tuple[PackedBatch | None, ...]:
        """Return each compute unit's part, an equal slice of the seeds with its input rows.

        None: a unit has no seeds. DeviceMemoryError: the rows exceed the card's or the host's
        memory.
        """
        # The host has two copies of the rows, by group and as one array for the transfer. A
        # simulated card's memory is a third one.
        available = read_memory().available // (3 if self._device.simulated else 2)
        max_row_bytes = min(self._device.memory_bytes, available)
        units = self._device.compute_units
        cuts = [batch.num_seeds * unit // units for unit in range(units + 1)]
        parts: list[PackedBatch | None] = []
        for seeds in map(range, cuts, cuts[1:]):
            if not seeds:
                parts.append(None)
                continue
            part = pack_batch(
                self._graph,
                self._model,
                self._products,
                self._weights,
                self._limits,
                batch,
                inputs,
                seeds,
                max_row_bytes=max_row_bytes,
                num_threads=self.num_threads,
            )
            max_row_bytes -= part.features.nbytes
            parts.append(part)
        return tuple(parts)


def _check(device: Fpga, host: base.BackendInputs) -> None:
    """Raise ConfigError for options or labels that kernels lack, a cache, or no bitstream file.

    ``device`` without a bitstream is simulated, and needs no file.
    """
    if host.loader.compute_dtype != torch.float32:
        dtype = str(host.loader.compute_dtype).removeprefix("torch.")
        raise ConfigError(
            f"runtime.compute_dtype={dtype}: expected float32 on {device.label}, an fpga"
        )
    if losses.label_kind(host.graph.labels) == "regression":
        raise ConfigError(
            f"device_plan: {device.label} is an fpga, whose loss is of classes, and the labels of "
            f"{host.graph.name} are numbers"
        )
    if host.cache.num_bytes:
        raise ConfigError(
            f"cache_planner: {device.label} is an fpga, which has no cache of rows; "
            "cache_planner=none trains without one"
        )
    if device.bitstream is not None and not Path(device.bitstream).is_file():
        raise ConfigError(
            f"device_plan.devices: {device.label}: bitstream={device.bitstream}: no such file; "
            "fpga/README.md tells how to build one, and null simulates it"
        )


def _layered(model: TrainableModel) -> GNN:
    """Return ``model``, checked to be a ``GNN``; ConfigError: kernels support no other model."""
    if not isinstance(model, GNN):
        raise ConfigError(
            "model=custom: expected a model with fpga kernels; use model=gcn, sage or gin"
        )
    return model


def _open(device: Fpga, header: Path | None) -> board.OpenBoard:
    """Open the card, and load its bitstream; without a bitstream, open a simulated card.

    ``header`` has a user's layers in C++ for the simulation. None: built-in layers.
    """
    design = SimulatedDesign(
        n=device.n,
        m=device.m,
        row_words=device.row_words,
        compute_units=device.compute_units,
        clock_hz=device.clock_hz,
        header=header,
    )
    if device.bitstream is None:
        xrt, bitstream = load_csim(), str(library(design))
    else:
        xrt, bitstream = load_pyxrt(), device.bitstream
    return board.OpenBoard(
        xrt,
        index=device.index,
        bitstream=bitstream,
        compute_units=device.compute_units,
        slots=_SLOTS,
    )


def _halves(value: int) -> tuple[int, int]:
    """Return the low and the high 32 bits of an integer as signed integers."""
    low, high = np.array([value & (2**64 - 1)], np.uint64).view(np.int32).tolist()
    return low, high


def _bits(value: float) -> int:
    """Return the bits of a float32 as a signed integer."""
    return int(np.float32(value).view(np.int32))
