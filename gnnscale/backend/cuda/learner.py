"""The device's copy of the weights, and what a step does to them."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch

from gnnscale.backend.base import HostParts, OwnSteps
from gnnscale.backend.cuda.batch import CudaBatch
from gnnscale.model import Inputs
from gnnscale.model.trainable import objective_on
from gnnscale.optimizer.plain import optimizer_state, restore_optimizer


class Learner:
    """Computes gradients of mini-batches, and updates weights if the device owns its steps."""

    def __init__(self, host: HostParts, device: torch.device) -> None:
        """Copy the model of ``host`` to ``device``; ``load_state`` gives it weights."""
        self._host = host
        self._model = copy.deepcopy(host.model).to(device).train()
        #: found once: looking for them takes as long as some launches
        self._parameters = self._model.shared_parameters
        self._objective = objective_on(host.objective, device)
        own = host.own_steps
        self._optimizer = None if own is None else own.build_optimizer(self._model)
        #: gradients since the last update, each with the seeds that they are the mean of
        self._accumulated: list[tuple[int, list[torch.Tensor]]] = []

    def backward(self, batch: CudaBatch, inputs: Inputs, weight: float) -> torch.Tensor:
        """Add the gradients of the mini-batch's mean loss times ``weight``; return that loss."""
        loss = self._objective(self._model(batch, inputs), batch) * weight
        torch.autograd.backward(loss)
        return loss.detach()

    def take_gradients(self) -> list[torch.Tensor]:
        """Return the gradients of the shared parameters, which are zeros from now on."""
        found = []
        for parameter in self._parameters:
            grad = parameter.grad
            found.append(torch.zeros_like(parameter) if grad is None else grad)
            parameter.grad = None
        return found

    def accumulate(self, num_seeds: int) -> None:
        """Keep the gradients of a mini-batch for the next update."""
        self._accumulated.append((num_seeds, self.take_gradients()))

    def update(self, rate: float) -> None:
        """Update the weights by the mean of what was accumulated, each mini-batch by its seeds."""
        own, optimizer = self._owned()
        for parameter, grad in zip(self._parameters, _mean(self._accumulated), strict=True):
            parameter.grad = grad
        self._accumulated.clear()
        if own.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._parameters, own.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()

    def load_state(self) -> None:
        """Take over the host's weights and buffers, and its optimizer's state if steps are own."""
        self._model.load_state_dict(self._host.model.state_dict())
        self._accumulated.clear()
        if self._optimizer is not None:
            own, optimizer = self._owned()
            restore_optimizer(optimizer, copy.deepcopy(optimizer_state(own.host_optimizer)))

    @torch.no_grad()
    def load_weights(self) -> None:
        """Take over the host's weights."""
        pairs = zip(self._model.parameters(), self._host.model.parameters(), strict=True)
        for mine, theirs in pairs:
            mine.copy_(theirs)

    def buffers_out(self) -> None:
        """Copy the buffers to the host's model."""
        for mine, theirs in zip(self._model.buffers(), self._host.model.buffers(), strict=True):
            theirs.copy_(mine)

    def state_out(self) -> None:
        """Copy weights, buffers and the state of the optimizer to the host's."""
        own, optimizer = self._owned()
        self._host.model.load_state_dict(self._model.state_dict())
        state = {
            number: {name: each.cpu().clone() for name, each in kept.items()}
            for number, kept in optimizer_state(optimizer).items()
        }
        restore_optimizer(own.host_optimizer, state)

    def _owned(self) -> tuple[OwnSteps, torch.optim.Optimizer]:
        assert self._host.own_steps is not None
        assert self._optimizer is not None
        return self._host.own_steps, self._optimizer


def _mean(accumulated: Sequence[tuple[int, list[torch.Tensor]]]) -> list[torch.Tensor]:
    """Return the mean of gradients, each mini-batch by its seeds."""
    counts, gradients = zip(*accumulated, strict=True)
    if len(counts) == 1:
        return list(gradients[0])
    by_parameter = zip(*gradients, strict=True)
    return [sum(map(torch.mul, parts, counts)) / sum(counts) for parts in by_parameter]
