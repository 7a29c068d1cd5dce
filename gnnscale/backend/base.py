"""The processor-accelerator training protocol (HyScale-GNN, section III-C and figure 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from numpy.typing import NDArray

from gnnscale.config import ConfigError
from gnnscale.model import Inputs
from gnnscale.plan import Device, Threads
from gnnscale.sampler import MiniBatch

__all__ = ["Backend", "DeviceBatch", "DeviceMemoryError"]


class DeviceMemoryError(ConfigError):
    """A mini-batch does not fit into a device's memory. The message is one line."""


@dataclass(frozen=True, kw_only=True)
class DeviceBatch:
    """A mini-batch where its device can compute on it.

    Attributes:
        batch: its topology.
        inputs: the first layer's input.
        num_bytes: device memory that it takes until it is released; 0 on the host.
    """

    batch: MiniBatch
    inputs: Inputs
    num_bytes: int = 0


class Backend(Protocol):
    """A device as the runtime sees it; it knows nothing of queues and of other devices.

    ``sample``, ``load`` and ``transfer`` may run in threads of their own, each in one thread at a
    time and ahead of ``propagate``; the others are called from the thread that trains.
    """

    @property
    def device(self) -> Device:
        """The device of the plan that this is."""
        ...

    #: Bytes of the device's own memory, None where it computes in the host's.
    memory_budget: int | None
    #: Bytes moved to the device so far, None without a link.
    host_to_device_bytes: int | None
    #: Emulated devices: seconds and stages in which the host was slower than what it emulates.
    late_s: float | None
    late_steps: int | None

    def sample(self, seeds: NDArray[Any], step: int) -> MiniBatch:
        """Return the mini-batch of ``seeds`` at ``step``."""
        ...

    def load(self, batch: MiniBatch) -> Inputs:
        """Read the first layer's input from feature storage."""
        ...

    def transfer(self, batch: MiniBatch, inputs: Inputs) -> DeviceBatch:
        """Bring a mini-batch to the device.

        Raises:
            DeviceMemoryError: it does not fit beside those in flight.
        """
        ...

    def propagate(self, resident: DeviceBatch, weight: float) -> float:
        """Forward and backward propagation of the slice's mean loss times ``weight``.

        The device's memory of ``resident`` is free afterwards.

        Returns:
            The weighted loss.
        """
        ...

    def gradients_out(self, into: list[torch.Tensor]) -> None:
        """Copy the gradients to host tensors of the parameters' shapes; zeros before any step."""
        ...

    def weights_in(self) -> None:
        """Take over the weights that the host has updated."""
        ...

    def set_threads(self, threads: Threads) -> None:
        """Use so many host threads from now on."""
        ...
