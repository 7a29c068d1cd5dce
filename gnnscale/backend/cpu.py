"""CPU cores of this machine as a training device, without transfers."""

import torch

from gnnscale.backend.base import BackendInputs, BatchOutcome, DeviceBatch
from gnnscale.core import Array
from gnnscale.nn import Inputs
from gnnscale.planner import Device, Threads
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.sampling import MiniBatch


class CpuBackend:
    """Backend that trains the host's own model on features in host memory."""

    def __init__(self, device: Device, host: BackendInputs) -> None:
        self.device = device
        self._host = host
        self._model = host.model
        self._loader = host.loader
        self._loss = 0.0

    def sample(self, seeds: Array, step: int) -> MiniBatch:
        """Return the mini-batch of ``seeds`` at ``step``."""
        return self._host.sampler.sample(seeds, step)

    def load(self, batch: MiniBatch) -> Inputs:
        """Read the first layer's input; learned embeddings are read by ``propagate``."""
        if self._model.vertex_rows is None:
            return self._loader.load(batch)
        return self._loader.without_rows(batch)

    def on_host(self, batch: MiniBatch) -> MiniBatch:
        """Return ``batch``, which is in host memory."""
        return batch

    def transfer(self, batch: MiniBatch, inputs: Inputs) -> DeviceBatch:
        """Wrap the mini-batch without a copy."""
        return DeviceBatch(batch=batch, inputs=inputs, traffic=inputs.traffic)

    def propagate(self, batch: DeviceBatch, weight: float) -> None:
        """Run forward and backward propagation in torch."""
        inputs = batch.inputs
        if self._model.vertex_rows is not None:
            inputs = self._loader.read(batch.batch, inputs.degrees)
        logits = self._model(batch.batch, inputs)
        loss = self._host.objective(logits, batch.batch) * weight
        loss.backward()  # type: ignore[no-untyped-call]
        self._loss = loss.item()

    def copy_gradients(self, into: list[torch.Tensor]) -> None:
        """Copy the gradients of shared parameters; a missing gradient is zeros."""
        for target, parameter in zip(into, self._model.shared_parameters, strict=True):
            if parameter.grad is None:
                target.zero_()
            elif parameter.grad is not target:
                target.copy_(parameter.grad)

    def finish(self, batch: DeviceBatch) -> BatchOutcome:
        """Return the outcome of the last propagated batch."""
        return BatchOutcome(loss=self._loss, size=BatchSize.of(batch.batch), traffic=batch.traffic)

    def load_state(self) -> None:
        """Do nothing: the device computes with the host's model."""

    def update_weights(self) -> None:
        """Do nothing: the optimizer has updated the device's model."""

    def copy_buffers(self) -> None:
        """Do nothing: the buffers are in the host's model."""

    def set_threads(self, threads: Threads) -> None:
        """Set the number of host threads of each stage."""
        self._host.set_threads(threads)

    def close(self) -> None:
        """Do nothing: the backend has no resources of its own."""
