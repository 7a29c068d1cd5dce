"""What a device does of a step as the host asks: beside devices with which it sums no gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from gnnscale.backend.base import BackendInputs
from gnnscale.backend.cuda.batch import CudaBatch, batch_from_host
from gnnscale.backend.cuda.device_model import DeviceModel
from gnnscale.backend.cuda.device_sample import DeviceSample, seeds_of
from gnnscale.backend.cuda.device_step import ReadCounts
from gnnscale.backend.cuda.engine import Engine
from gnnscale.backend.cuda.graph_reader import GraphPipeline
from gnnscale.backend.cuda.streams import DeviceStreams, Event
from gnnscale.core import Array
from gnnscale.nn import Inputs
from gnnscale.sampling import MiniBatch


class HostDrivenSteps:
    """Samples, reads and propagates mini-batches, each of which the host waits for."""

    def __init__(
        self,
        host: BackendInputs,
        reader: GraphPipeline,
        learner: DeviceModel,
        streams: DeviceStreams,
        engine: Engine,
        *,
        waits: bool,
    ) -> None:
        """Take a reader of one slot.

        Args:
            waits: whether code that may wait for the device computes the step.
        """
        self._host = host
        self._reader = reader
        self._learner = learner
        self._streams = streams
        self._engine = engine
        self._waits = waits
        #: What ``propagate`` has begun: marks before and after it, and its loss.
        self._propagated: tuple[Event, Event, list[torch.Tensor]] | None = None
        #: By step: rows found at each place, of mini-batches that were read and are not finished.
        self._read_rows: dict[int, tuple[int, ...]] = {}

    def sample(self, seeds: Array, step: int) -> CudaBatch:
        """Return the mini-batch of ``seeds`` at ``step``, and wait for it."""
        reader, given = self._reader, seeds_of(self._host, seeds, step)
        reading = self._streams.reading
        drawn: list[DeviceSample] = []
        found: list[CudaBatch] = []

        def draw() -> None:
            vertices = torch.from_numpy(np.asarray(given.vertices, np.int64))
            drawn.append(reader.sample(vertices.to(self._engine.device), step, given))

        reading.run(draw)
        reading.mark().wait()
        sizes, lists = drawn[0].sizes(), _numbers(drawn[0].found_lists)
        reading.run(lambda: found.append(reader.batch(drawn[0], given, sizes, step=step).copy()))
        reading.mark().wait()
        return replace(found[0], found_lists=lists)

    def take_sample(self, batch: MiniBatch, seeds: Array) -> CudaBatch:
        """Copy what the host has sampled of ``seeds`` to the device, and wait for it."""
        found: list[CudaBatch] = []
        kernels, device = self._engine.kernels, self._engine.device
        reading = self._streams.reading
        reading.run(lambda: found.append(batch_from_host(batch, seeds, kernels, device)))
        reading.mark().wait()
        return found[0]

    def load(self, batch: CudaBatch) -> tuple[Inputs, ReadCounts]:
        """Read the first layer's input and wait for it; return it, and reads by place."""
        found: list[Inputs] = []

        def read() -> None:
            inputs = self._reader.load(batch)
            found.append(replace(inputs, x=inputs.x.clone()))

        self._streams.reading.run(read)
        self._streams.reading.mark().wait()
        rows = self._read_rows[batch.step] = _numbers(self._reader.found_rows())
        return found[0], ReadCounts(lists=batch.found_lists, rows=rows)

    def propagate(self, batch: CudaBatch, inputs: Inputs, weight: float) -> None:
        """Begin forward and backward propagation."""
        training = self._streams.training
        loss: list[torch.Tensor] = []
        first = training.mark()
        training.run(
            lambda: loss.append(self._learner.backward(batch, inputs, weight)), waits=self._waits
        )
        self._propagated = (first, training.mark(), loss)

    def finish(self, batch: CudaBatch) -> tuple[float, float, tuple[int, ...]]:
        """Wait for what was propagated last; return its loss, its seconds, and rows by place."""
        assert self._propagated is not None
        first, last, loss = self._propagated
        self._propagated = None
        last.wait()
        rows = self._read_rows.pop(batch.step, ())
        return float(loss[0]), last.seconds_since(first), rows


def _numbers(counts: torch.Tensor | None) -> tuple[int, ...]:
    """Return numbers of the device, whose mark was waited for."""
    return () if counts is None else tuple(counts.tolist())
