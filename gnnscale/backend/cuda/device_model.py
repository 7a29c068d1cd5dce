"""The device's copy of the weights, and what a step does to them."""

from __future__ import annotations

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
from gnnscale.nn import Inputs
from gnnscale.nn.base import objective_on
from gnnscale.nn.optim.dense import optimizer_state, restore_optimizer


@dataclass(frozen=True, kw_only=True)
class DeviceGradientAccumulator:
    """Mini-batches whose gradients wait for an update."""

    num_batches: int = 0
    num_seeds: int = 0

    def __add__(self, num_seeds: int) -> DeviceGradientAccumulator:
        return DeviceGradientAccumulator(
            num_batches=self.num_batches + 1, num_seeds=self.num_seeds + num_seeds
        )


class DeviceModel:
    """Computes gradients of mini-batches, and updates weights if the device owns its steps."""

    def __init__(
        self, host: BackendInputs, engine: Engine, records: StepRecords | None = None
    ) -> None:
        """Copy the model of ``host`` to the device; ``load_state`` gives it weights.

        Args:
            records: of the steps that the device owns; None if it owns none.
        """
        self._host = host
        self._engine = engine
        self._model = copy.deepcopy(host.model).to(engine.device).train()
        #: found once: looking for them takes as long as some launches
        self._parameters = self._model.shared_parameters
        shared = set(map(id, self._parameters))
        #: those that no other device has (P3)
        self._unshared = [each for each in self._model.parameters() if id(each) not in shared]
        own = host.own_steps
        if own is not None and own.columns is not None:
            cast(Any, self._model).trade_by(PartialSums(engine, own.columns))
        self._objective = objective_on(host.objective, engine.device)
        self._optimizer = None
        self._sum = None if own is None else own.sum
        if own is not None and records is not None:
            self._records = records
            self._optimizer = own.build_optimizer(self._model)
            _ready(self._optimizer, records.halted)
        #: sums of gradients since the last update, each times its seeds
        self._accumulated: list[torch.Tensor] = []
        #: the gradients of all devices, and whether any of them has halted
        size = sum(each.numel() for each in self._parameters)
        self._bucket = torch.zeros(size + 1, device=engine.device)

    def backward(self, batch: CudaBatch, inputs: Inputs, weight: float) -> torch.Tensor:
        """Add the gradients of the mini-batch's mean loss times ``weight``; return that loss."""
        loss = self._objective(self._model(batch, inputs), batch) * weight
        torch.autograd.backward(loss)
        return loss.detach()

    def take_gradients(self) -> list[torch.Tensor]:
        """Return the gradients of the shared parameters, which are zeros from now on."""
        return _taken(self._parameters)

    @property
    def is_fused(self) -> bool:
        """Whether the device alone can do an update: its step and rate need not be on the host.

        So are torch's fused optimizers, which all of group ``optimizer`` are.
        """
        assert self._optimizer is not None
        return _is_fused(self._optimizer)

    def finish(
        self, before: DeviceGradientAccumulator, num_seeds: int, *, updates: bool, rate: float
    ) -> None:
        """Accumulate the gradients of a mini-batch, and update the weights if ``updates``.

        Nothing changes once a device has halted, if the optimizer ``is_fused``.

        Args:
            before: mini-batches whose gradients count for the same update, each by its seeds.
            num_seeds: of the mini-batch, over all devices.
            rate: learning rate of an optimizer that is not fused; others read the step's record.
        """
        gradients = self.take_gradients()
        if self._sum is not None:
            gradients = self._summed(gradients, self._sum)
        gradients += _taken(self._unshared)
        if before.num_batches or not updates:
            gradients = self._accumulate(gradients, before, num_seeds)
        if updates:
            self._update(gradients, rate)

    def _summed(
        self, gradients: list[torch.Tensor], add_up: Callable[[torch.Tensor], None]
    ) -> list[torch.Tensor]:
        """Return the sums of gradients over all devices; all halt that sum with one that has."""
        halted, bucket = self._records.halted, self._bucket
        parts = [each.flatten() for each in gradients]
        torch.cat([*parts, halted.reshape(1)], out=bucket)
        self._engine.collective(lambda: add_up(bucket), bucket)
        halted.copy_(bucket[-1].clamp(max=1))
        sizes = [each.numel() for each in gradients]
        sums = torch.split(bucket[:-1], sizes)
        return [part.view_as(each) for part, each in zip(sums, gradients, strict=True)]

    def _accumulate(
        self, gradients: list[torch.Tensor], before: DeviceGradientAccumulator, num_seeds: int
    ) -> list[torch.Tensor]:
        """Add gradients to those before; return their mean by seeds."""
        if not self._accumulated:
            self._accumulated = [torch.zeros_like(each) for each in gradients]
        total = before.num_seeds + num_seeds
        for kept, gradient in zip(self._accumulated, gradients, strict=True):
            added = gradient * num_seeds
            if before.num_batches:
                added = kept + added
            kept.copy_(torch.where(self._records.halted > 0, kept, added))
        return [kept / total for kept in self._accumulated]

    def _update(self, gradients: list[torch.Tensor], rate: float) -> None:
        """Update the weights."""
        own, optimizer = self._owned()
        parameters = self._parameters + self._unshared
        for parameter, grad in zip(parameters, gradients, strict=True):
            parameter.grad = grad
        if own.clip_norm is not None:
            self._clip(parameters, own.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = self._records.rate if self.is_fused else rate
        optimizer.step()
        optimizer.zero_grad()

    def _clip(self, parameters: list[torch.nn.Parameter], max_norm: float) -> None:
        """Scale gradients down to a global L2 norm; those that are not shared are parts of one."""
        if not self._unshared:
            torch.nn.utils.clip_grad_norm_(parameters, max_norm)
            return
        assert self._sum is not None
        add_up, squares = self._sum, torch.zeros(2, device=self._engine.device)
        for place, own in enumerate((self._unshared, self._parameters)):
            for each in own:
                assert each.grad is not None
                squares[place] += each.grad.square().sum()
        mine = squares[:1]
        self._engine.collective(lambda: add_up(mine), mine)
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, squares.sum().sqrt())

    def load_state(self) -> None:
        """Take over the host's weights and buffers, and its optimizer's state if steps are own."""
        self._model.load_state_dict(self._host.model.state_dict())
        if self._optimizer is not None:
            own, optimizer = self._owned()
            restore_optimizer(optimizer, copy.deepcopy(optimizer_state(own.host_optimizer)))
            _begin_momentum(optimizer)

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

    def _owned(self) -> tuple[DeviceStepInputs, torch.optim.Optimizer]:
        assert self._host.own_steps is not None
        assert self._optimizer is not None
        return self._host.own_steps, self._optimizer


def _taken(parameters: list[torch.nn.Parameter]) -> list[torch.Tensor]:
    """Return gradients, which are zeros from now on."""
    found = []
    for parameter in parameters:
        grad = parameter.grad
        found.append(torch.zeros_like(parameter) if grad is None else grad)
        parameter.grad = None
    return found


def _is_fused(optimizer: torch.optim.Optimizer) -> bool:
    return all(group.get("fused") for group in optimizer.param_groups)


def _ready(optimizer: torch.optim.Optimizer, halted: torch.Tensor) -> None:
    """Let updates be captured, and be left out while ``halted`` is not 0."""
    if not _is_fused(optimizer):
        return
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = True
    # torch's word for gradients that overflowed, whose updates a gradient scaler leaves out.
    optimizer.found_inf = halted  # type: ignore[attr-defined]


def _begin_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Let momentum begin with zeros: an update that is left out would leave it as it was made."""
    for group in optimizer.param_groups:
        if not group.get("momentum"):
            continue
        for parameter in group["params"]:
            state = optimizer.state[parameter]
            if state.get("momentum_buffer") is None:
                state["momentum_buffer"] = torch.zeros_like(parameter)
