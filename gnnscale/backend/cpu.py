"""Cores of this machine as a training device: nothing is transferred."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray

from gnnscale.backend.base import DeviceBatch
from gnnscale.backend.loading import FeatureLoader
from gnnscale.graph import Graph
from gnnscale.model import GNN, Inputs
from gnnscale.model.loss import seed_loss
from gnnscale.plan import Device, Threads
from gnnscale.sampler import MiniBatch, Sampler

__all__ = ["CpuBackend"]


class CpuBackend:
    """Trains the host's own copy of the model, where features and weights lie."""

    memory_budget: int | None = None

    def __init__(
        self, device: Device, graph: Graph, model: GNN, sampler: Sampler, loader: FeatureLoader
    ) -> None:
        """Take hold of what the stages work on.

        Args:
            device: the device of the plan.
            graph: whose labels are predicted.
            model: the host's weights, which the optimizer updates.
            sampler: the host's sampler.
            loader: reads the host's features.
        """
        self.device = device
        self.host_to_device_bytes: int | None = None
        self.late_s: float | None = None
        self.late_steps: int | None = None
        self._graph = graph
        self._model = model
        self._sampler = sampler
        self._loader = loader

    def sample(self, seeds: NDArray[Any], step: int) -> MiniBatch:
        """Return the mini-batch of ``seeds`` at ``step``."""
        return self._sampler.sample(seeds, step)

    def load(self, batch: MiniBatch) -> Inputs:
        """Read the first layer's input from feature storage."""
        return self._loader.load(batch)

    def transfer(self, batch: MiniBatch, inputs: Inputs) -> DeviceBatch:
        """Hand the mini-batch over; it is where it is needed."""
        return DeviceBatch(batch=batch, inputs=inputs)

    def propagate(self, resident: DeviceBatch, weight: float) -> float:
        """Forward and backward propagation in torch."""
        logits = self._model(resident.batch, resident.inputs)
        loss = seed_loss(self._graph, logits, resident.batch.seeds) * weight
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    def gradients_out(self, into: list[torch.Tensor]) -> None:
        """Copy the gradients; a parameter without one counts as 0."""
        for target, parameter in zip(into, self._model.parameters(), strict=True):
            if parameter.grad is None:
                target.zero_()
            elif parameter.grad is not target:
                target.copy_(parameter.grad)

    def weights_in(self) -> None:
        """Nothing to do: the optimizer updates this very model."""

    def set_threads(self, threads: Threads) -> None:
        """Use so many host threads from now on."""
        self._sampler.num_threads = threads.sample
        self._loader.num_threads = threads.load
        torch.set_num_threads(max(threads.propagate, 1))
