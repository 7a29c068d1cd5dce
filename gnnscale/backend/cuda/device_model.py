"""Device copy of the model, with its gradients and its optimizer."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch

from gnnscale.backend.base import BackendInputs, DeviceStepInputs
from gnnscale.backend.cuda.batch import CudaBatch
from gnnscale.backend.cuda.engine import Engine
from gnnscale.backend.cuda.p3_exchange import PartialSums
from gnnscale.backend.cuda.step_records import StepRecords
from gnnscale.nn import Inputs, objective_on
from gnnscale.nn.optim.update_rules import optimizer_state, restore_optimizer


@dataclass(frozen=True, kw_only=True)
class DeviceGradientAccumulator:
    """Number of mini-batches and seeds whose gradients are accumulated."""

    num_batches: int = 0
    num_seeds: int = 0

    def __add__(self, num_seeds: int) -> "DeviceGradientAccumulator":
        return DeviceGradientAccumulator(
            num_batches=self.num_batches + 1, num_seeds=self.num_seeds + num_seeds
        )


class DeviceModel:
    """Copy of the model on a device: computes gradients, and updates weights if device-driven."""

    def __init__(
        self, host: BackendInputs, engine: Engine, records: StepRecords | None = None
    ) -> None:
        """Copy the host's model to the device.

        With ``records``, of device-driven steps, it also builds an optimizer.
        """
        self._host = host
        self._engine = engine
        self._model = copy.deepcopy(host.model).to(engine.device).train()
        #: cached, since a traversal of the modules takes as long as several launches
        self._parameters = self._model.shared_parameters
        shared = set(map(id, self._parameters))
        #: parameters that only this device has (P3)
        self._unshared = [
            parameter for parameter in self._model.parameters() if id(parameter) not in shared
        ]
        step_inputs = host.step_inputs
        if step_inputs is not None and step_inputs.columns is not None:
            cast(Any, self._model).exchange_by(PartialSums(engine, step_inputs.columns))
        self._objective = objective_on(host.objective, engine.device)
        self._optimizer = None
        self._sum = None if step_inputs is None else step_inputs.sum
        if step_inputs is not None and records is not None:
            self._records = records
            self._optimizer = step_inputs.build_optimizer(self._model)
            _make_capturable(self._optimizer, records.halted)
        #: gradients since the last update, summed with the number of seeds as weight
        self._accumulated: list[torch.Tensor] = []
        #: all-reduce buffer: gradients, then the halt flag
        size = sum(parameter.numel() for parameter in self._parameters)
        self._bucket = torch.zeros(size + 1, device=engine.device)

    def backward(self, batch: CudaBatch, inputs: Inputs, weight: float) -> torch.Tensor:
        """Add the gradients of a mini-batch's mean loss times ``weight`` to the model's gradients.

        Returns the mean loss times ``weight``, on the device.
        """
        loss = self._objective(self._model(batch, inputs), batch) * weight
        torch.autograd.backward(loss)
        return loss.detach()

    def take_gradients(self) -> list[torch.Tensor]:
        """Return the gradients of the shared parameters, zeros if missing, and reset them.

        Shared parameters are on all devices; in P3 some belong to one device alone.
        """
        return _pop_gradients(self._parameters)

    @property
    def is_fused(self) -> bool:
        """Whether the optimizer is fused: updates read step and learning rate from the device."""
        assert self._optimizer is not None
        return _is_fused(self._optimizer)

    def finish(
        self, pending: DeviceGradientAccumulator, num_seeds: int, *, updates: bool, rate: float
    ) -> None:
        """All-reduce and accumulate a mini-batch's gradients; update the weights if ``updates``.

        If a device has halted (``StepRecords.halted``), accumulated gradients stay as they are, and
        a fused optimizer updates nothing.

        Args:
            pending: numbers of earlier mini-batches of the same update, and of their seeds.
            num_seeds: seeds of this mini-batch over all devices, its weight.
            updates: whether this mini-batch is the last one before the update.
            rate: learning rate of an optimizer that is not fused. A fused one reads the step's
                record.
        """
        gradients = self.take_gradients()
        if self._sum is not None:
            gradients = self._summed(gradients, self._sum)
        gradients += _pop_gradients(self._unshared)
        if pending.num_batches or not updates:
            gradients = self._accumulate(gradients, pending, num_seeds)
        if updates:
            self._update(gradients, rate)

    def _summed(
        self, gradients: list[torch.Tensor], add_up: Callable[[torch.Tensor], None]
    ) -> list[torch.Tensor]:
        """All-reduce ``gradients`` and the halt flag by ``add_up``; return the summed gradients.

        Sets the halt flag if it is set on any device, so that one halted device halts all.
        """
        halted, bucket = self._records.halted, self._bucket
        parts = [gradient.flatten() for gradient in gradients]
        torch.cat([*parts, halted.reshape(1)], out=bucket)
        self._engine.collective(lambda: add_up(bucket), bucket)
        halted.copy_(bucket[-1].clamp(max=1))
        sizes = [gradient.numel() for gradient in gradients]
        sums = torch.split(bucket[:-1], sizes)
        return [part.view_as(gradient) for part, gradient in zip(sums, gradients, strict=True)]

    def _accumulate(
        self, gradients: list[torch.Tensor], pending: DeviceGradientAccumulator, num_seeds: int
    ) -> list[torch.Tensor]:
        """Add ``gradients`` times ``num_seeds`` to the accumulated sum; return the mean over seeds.

        ``pending`` counts the update's earlier mini-batches and their seeds. A halted step adds
        nothing. The first mini-batch of an update replaces the sum.
        """
        if not self._accumulated:
            self._accumulated = [torch.zeros_like(gradient) for gradient in gradients]
        total = pending.num_seeds + num_seeds
        for total_gradient, gradient in zip(self._accumulated, gradients, strict=True):
            added = gradient * num_seeds
            if pending.num_batches:
                added = total_gradient + added
            total_gradient.copy_(torch.where(self._records.halted > 0, total_gradient, added))
        return [gradient / total for gradient in self._accumulated]

    def _update(self, gradients: list[torch.Tensor], rate: float) -> None:
        """Let the optimizer update the weights by ``gradients``, clipped if the run clips.

        ``rate`` is the learning rate of an optimizer that is not fused; a fused one reads it from
        the step's record.
        """
        step_inputs, optimizer = self._owned()
        parameters = self._parameters + self._unshared
        for parameter, grad in zip(parameters, gradients, strict=True):
            parameter.grad = grad
        if step_inputs.clip_norm is not None:
            self._clip(parameters, step_inputs.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = self._records.rate if self.is_fused else rate
        optimizer.step()
        optimizer.zero_grad()

    def _clip(self, parameters: list[torch.nn.Parameter], max_norm: float) -> None:
        """Scale gradients of ``parameters`` in place to a global L2 norm of at most ``max_norm``.

        The norm includes the unshared parameters of all devices (P3).
        """
        if not self._unshared:
            torch.nn.utils.clip_grad_norm_(parameters, max_norm)
            return
        assert self._sum is not None
        add_up, squares = self._sum, torch.zeros(2, device=self._engine.device)
        for index, group in enumerate((self._unshared, self._parameters)):
            for parameter in group:
                assert parameter.grad is not None
                squares[index] += parameter.grad.square().sum()
        unshared = squares[:1]
        self._engine.collective(lambda: add_up(unshared), unshared)
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, squares.sum().sqrt())

    def load_state(self) -> None:
        """Copy the host's weights and buffers, in device-driven steps also optimizer state."""
        self._model.load_state_dict(self._host.model.state_dict())
        if self._optimizer is not None:
            step_inputs, optimizer = self._owned()
            restore_optimizer(optimizer, copy.deepcopy(optimizer_state(step_inputs.host_optimizer)))
            _init_momentum(optimizer)

    @torch.no_grad()
    def load_weights(self) -> None:
        """Copy the host's weights to the device."""
        pairs = zip(self._model.parameters(), self._host.model.parameters(), strict=True)
        for parameter, theirs in pairs:
            parameter.copy_(theirs)

    def copy_buffers(self) -> None:
        """Copy the buffers to the host's model."""
        for buffer, theirs in zip(self._model.buffers(), self._host.model.buffers(), strict=True):
            theirs.copy_(buffer)

    def copy_state(self) -> None:
        """Copy weights, buffers and optimizer state to the host."""
        step_inputs, optimizer = self._owned()
        self._host.model.load_state_dict(self._model.state_dict())
        state = {
            number: {name: value.cpu().clone() for name, value in values.items()}
            for number, values in optimizer_state(optimizer).items()
        }
        restore_optimizer(step_inputs.host_optimizer, state)

    def _owned(self) -> tuple[DeviceStepInputs, torch.optim.Optimizer]:
        assert self._host.step_inputs is not None
        assert self._optimizer is not None
        return self._host.step_inputs, self._optimizer


def _pop_gradients(parameters: list[torch.nn.Parameter]) -> list[torch.Tensor]:
    """Return the gradients of ``parameters``, zeros for a missing one, and reset them."""
    gradients = []
    for parameter in parameters:
        grad = parameter.grad
        gradients.append(torch.zeros_like(parameter) if grad is None else grad)
        parameter.grad = None
    return gradients


def _is_fused(optimizer: torch.optim.Optimizer) -> bool:
    return all(group.get("fused") for group in optimizer.param_groups)


def _make_capturable(optimizer: torch.optim.Optimizer, halted: torch.Tensor) -> None:
    """Let CUDA graphs record a fused optimizer's updates, without effect if ``halted`` is not 0.

    Other optimizers stay as they are.
    """
    if not _is_fused(optimizer):
        return
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = True
    # A fused optimizer skips its update if ``found_inf``, the overflow flag of gradient scalers.
    optimizer.found_inf = halted  # type: ignore[attr-defined]


def _init_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Set missing momentum to zeros: torch would start with the gradient of a skipped update."""
    for group in optimizer.param_groups:
        if not group.get("momentum"):
            continue
        for parameter in group["params"]:
            state = optimizer.state[parameter]
            if state.get("momentum_buffer") is None:
                state["momentum_buffer"] = torch.zeros_like(parameter)
