"""Host-driven steps: the host waits for each stage, and sums gradients over all devices."""

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
    """Stages of a host-driven step, for runs that combine a GPU with other kinds of devices."""

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
        """Prepare the stages; ``waits``: the step runs user code that may wait for the device."""
        self._host = host
        self._reader = reader
        self._learner = learner
        self._streams = streams
        self._engine = engine
        self._waits = waits
        #: marks before and after the propagation in flight, and its loss
        self._propagated: tuple[Event, Event, list[torch.Tensor]] | None = None
        #: rows read from each location, by step, of loaded mini-batches that are not finished
        self._read_rows: dict[int, tuple[int, ...]] = {}

    def sample(self, seeds: Array, step: int) -> CudaBatch:
        """Return the mini-batch of ``seeds`` at ``step``; waits for the device."""
        reader, step_seeds = self._reader, seeds_of(self._host, seeds, step)
        reading = self._streams.reading
        samples: list[DeviceSample] = []
        batches: list[CudaBatch] = []

        def draw() -> None:
            vertices = torch.from_numpy(np.asarray(step_seeds.vertices, np.int64))
            samples.append(reader.sample(vertices.to(self._engine.device), step, step_seeds))

        reading.run(draw)
        reading.mark().wait()
        sizes, lists = samples[0].sizes(), _numbers(samples[0].list_reads)
        reading.run(
            lambda: batches.append(reader.batch(samples[0], step_seeds, sizes, step=step).copy())
        )
        reading.mark().wait()
        return replace(batches[0], list_reads=lists)

    def receive_sample(self, batch: MiniBatch, seeds: Array) -> CudaBatch:
        """Copy the host's sample of ``seeds`` to the device; waits for the copy."""
        batches: list[CudaBatch] = []
        kernels, device = self._engine.kernels, self._engine.device
        reading = self._streams.reading
        reading.run(lambda: batches.append(batch_from_host(batch, seeds, kernels, device)))
        reading.mark().wait()
        return batches[0]

    def load(self, batch: CudaBatch) -> tuple[Inputs, ReadCounts]:
        """Read the first layer's input, wait, and return it with the reads by location."""
        results: list[Inputs] = []

        def read() -> None:
            inputs = self._reader.load(batch)
            results.append(replace(inputs, x=inputs.x.clone()))

        self._streams.reading.run(read)
        self._streams.reading.mark().wait()
        rows = self._read_rows[batch.step] = _numbers(self._reader.row_reads())
        return results[0], ReadCounts(lists=batch.list_reads, rows=rows)

    def propagate(self, batch: CudaBatch, inputs: Inputs, weight: float) -> None:
        """Start forward and backward propagation."""
        training = self._streams.training
        loss: list[torch.Tensor] = []
        first = training.mark()
        training.run(
            lambda: loss.append(self._learner.backward(batch, inputs, weight)), waits=self._waits
        )
        self._propagated = (first, training.mark(), loss)

    def finish(self, batch: CudaBatch) -> tuple[float, float, tuple[int, ...]]:
        """Wait for the last propagation; return its loss, seconds, and row reads by location."""
        assert self._propagated is not None
        first, last, loss = self._propagated
        self._propagated = None
        last.wait()
        rows = self._read_rows.pop(batch.step, ())
        return float(loss[0]), last.seconds_since(first), rows


def _numbers(counts: torch.Tensor | None) -> tuple[int, ...]:
    """Return counts of the device as integers, after a wait for their mark."""
    return () if counts is None else tuple(counts.tolist())
