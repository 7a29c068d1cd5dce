"""The processor-accelerator training protocol (HyScale-GNN, section III-C and figure 5)."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from operator import attrgetter
from typing import Any, Protocol, TypeAlias

import torch
from torch import nn

from gnnscale.backend.feature_loading import FeatureLoader, Vertices
from gnnscale.cache.belady import LookAheadReplay
from gnnscale.cache.plan import CliqueCache
from gnnscale.core import Array, ConfigError, errors, stages
from gnnscale.features.cached import CachedAdjacency
from gnnscale.graph import Graph
from gnnscale.nn import Inputs, TrainableModel
from gnnscale.nn import base as trainable
from gnnscale.planner import Accelerator, Device, Threads, registry
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.gpu_rates import CardRates
from gnnscale.sampling import MiniBatch, Sampler, SamplerConfig


class DeviceError(errors.ConfigError):
    """A device does not do what it should. The message is one line."""


class DeviceMemoryError(DeviceError):
    """A mini-batch does not fit into a device's memory. The message is one line."""


class ColumnExchange(Protocol):
    """What devices trade that have columns of the features each (P3); all call it alike."""

    @property
    def rank(self) -> int:
        """The device's position."""
        ...

    @property
    def size(self) -> int:
        """Number of devices."""
        ...

    def gather_into(self, into: torch.Tensor, mine: torch.Tensor) -> None:
        """Write what each device passes into ``into[rank]``; all are of one shape."""
        ...

    def swap_into(self, into: torch.Tensor, parts: torch.Tensor) -> None:
        """Give ``parts[r]`` to device r, and write what each gives into ``into[rank]``."""
        ...

    def largest(self, counts: Sequence[int]) -> list[int]:
        """Return the largest of each number over all devices."""
        ...


@dataclass(frozen=True, kw_only=True)
class DeviceStepInputs:
    """What a device needs beside the host's parts to do whole steps by itself."""

    #: makes an optimizer of the device's own copy of the weights
    build_optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    #: the host's, whose state checkpoints keep and resumptions restore
    host_optimizer: torch.optim.Optimizer
    #: scale gradients down to this global L2 norm; None leaves them
    clip_norm: float | None
    #: this device's seeds of the run's first steps, which show how large mini-batches are
    first_slices: tuple[Array, ...] = ()
    #: adds up a tensor of the device over all devices, in place; None for a device alone
    sum: Callable[[torch.Tensor], None] | None = None
    #: of devices that have columns of the features each, in ``BackendInputs.graph``; None of others
    columns: ColumnExchange | None = None


@dataclass(frozen=True, kw_only=True)
class CacheInputs:
    """A device's cache, as the host knows it."""

    num_bytes: int = 0  #: device memory that rows and lists take
    #: where a device that samples by itself finds adjacency lists; None for all of them at the host
    lists: CachedAdjacency | None = None
    #: returns figures of the cache since it was last called, by name
    counters: Callable[[], Mapping[str, float]] = dict
    #: what a device keeps that has its cache in its own memory (``Device.holds_rows``); None if the
    #: host has it for the device, or without a cache
    kept: CliqueCache | None = None
    #: what the rows of ``kept`` follow; None if they stay
    replay: LookAheadReplay | None = None


@dataclass(frozen=True, kw_only=True)
class BackendInputs:
    """What a backend is opened with."""

    #: that is trained on; its features are the device's columns if ``own_steps.columns`` is given
    graph: Graph
    model: TrainableModel  #: the host's weights, which the optimizer updates
    objective: trainable.Objective  #: the loss of a mini-batch
    sampler: Sampler  #: the host's sampler
    sampling: SamplerConfig  #: what made it, for devices that sample by themselves
    seed: int  #: of the run
    batch_size: int  #: seeds of a slice at most
    loader: FeatureLoader  #: reads the host's features, or the cache that the host has for a device
    cache: CacheInputs = field(default_factory=CacheInputs)
    own_steps: DeviceStepInputs | None = (
        None  #: None if the host sums gradients and updates weights
    )


#: A mini-batch as its backend has sampled it: a ``MiniBatch`` if the host samples. Others lie on
#: the device, and even their sizes may be known only once they are done.
Sample: TypeAlias = Any


@dataclass(frozen=True, kw_only=True)
class DeviceBatch:
    """A mini-batch in the memory in which its device computes."""

    batch: Sample  #: its topology
    inputs: Inputs  #: the first layer's input
    traffic: stages.Traffic  #: what bringing it here moved
    num_bytes: int = 0  #: device memory that it takes until it is finished; 0 on the host


@dataclass(frozen=True, kw_only=True)
class BatchOutcome:
    """What a device reports of a mini-batch that is done."""

    loss: float  #: the slice's weighted loss
    size: BatchSize  #: vertices and edges of each layer, which may be known no sooner
    traffic: stages.Traffic  #: what the mini-batch moved
    #: seconds of stages, by the device's own clock; the host times the others
    seconds: Mapping[str, float] = field(default_factory=dict)
    #: figures that only this kind of device has, such as ``late_s``; reports add them up over an
    #: epoch
    counters: Mapping[str, float] = field(default_factory=dict)

    @property
    def num_edges(self) -> int:
        """Edges over all layers."""
        return int(self.size.num_edges)

    @property
    def num_vertices(self) -> int:
        """Vertices over all layers."""
        return int(self.size.num_vertices)


class Backend(Protocol):
    """A device as the runtime sees it; it knows nothing of queues and of other devices.

    ``sample``, ``load`` and ``transfer`` may run in separate threads, each in one thread at a
    time and ahead of ``propagate``; the others are called from the thread that trains.

    A backend may own a copy of the model. It computes with the weights of the last ``load_state``
    or ``update_weights``.
    """

    @property
    def device(self) -> Device:
        """The device of the plan that this is."""
        ...

    def sample(self, seeds: Array, step: int) -> Sample:
        """Return the mini-batch of ``seeds`` at ``step``."""
        ...

    def on_host(self, batch: Sample) -> MiniBatch:
        """Return the host's form of a sample, for those who read its arrays.

        A device that samples by itself may have it drawn again: sampling is a pure function.
        """
        ...

    def load(self, batch: Sample) -> Inputs:
        """Read the first layer's input from feature storage."""
        ...

    def transfer(self, batch: Sample, inputs: Inputs) -> DeviceBatch:
        """Bring a mini-batch to the device.

        Raises:
            DeviceMemoryError: it does not fit beside those in flight.
        """
        ...

    def propagate(self, batch: DeviceBatch, weight: float) -> None:
        """Forward and backward propagation of the slice's mean loss times ``weight``.

        It may return before the device is done.
        """
        ...

    def gradients_out(self, into: list[torch.Tensor]) -> None:
        """Copy the gradients of the shared parameters since this was called last.

        Waits for the device. The gradients of a step without seeds are zeros. A backend with a
        copy of the model forgets its own here; those of the host's model are the optimizer's.

        Args:
            into: tensors of those parameters' shapes, in host memory, or on the device if
                ``Device.collective`` says so.
        """
        ...

    def finish(self, batch: DeviceBatch) -> BatchOutcome:
        """Wait for a batch that was propagated, free its memory, and return its outcome."""
        ...

    def load_state(self) -> None:
        """Take over the host's parameters and buffers: at the start, and whenever these change.

        Called before the first step, after a resumption, after a rehearsal, and when the devices
        have combined their buffers.
        """
        ...

    def update_weights(self) -> None:
        """Take over the parameters that the host's optimizer has just updated."""
        ...

    def buffers_out(self) -> None:
        """Copy the buffers, such as running statistics, to the host's model."""
        ...

    def set_threads(self, threads: Threads) -> None:
        """Use so many host threads from now on."""
        ...

    def close(self) -> None:
        """Release the device's memory, and wake all that wait for it."""
        ...


class SampleTaker(Backend, Protocol):
    """A backend of a device that takes what the host has sampled (``Device.takes_samples``)."""

    def sample_on_host(self, seeds: Array, step: int) -> MiniBatch:
        """Return the mini-batch that ``sample`` would, sampled by the host.

        It runs in another thread than ``sample``, at the same time.
        """
        ...

    def take_sample(self, batch: MiniBatch, seeds: Array) -> Sample:
        """Bring the host's sample of ``seeds`` to the device."""
        ...


class PendingOutcome(Protocol):
    """The outcome of a step that a device may still be at."""

    @property
    def ready(self) -> bool:
        """Whether ``read`` would return at once."""
        ...

    def read(self) -> BatchOutcome:
        """Wait for the step, and return its outcome, with the seconds of all stages.

        Raises:
            DeviceError: the step failed.
        """
        ...


class StepOwner(Backend, Protocol):
    """A backend whose device does whole steps by itself (``Device.owns_step``).

    It has copies of the weights and of the optimizer's state, which ``load_state`` overwrites with
    the host's and ``state_out`` copies to the host's.
    """

    def train(
        self, seeds: Array, step: int, *, num_seeds: int, rate: float, updates: bool
    ) -> PendingOutcome:
        """Start the step of ``seeds``: sample, load, propagate, and update the weights.

        It does not wait for the device. Of several devices, each sums its gradients with those of
        the others, and counts its loss by its part of the seeds.

        Args:
            num_seeds: of the mini-batch over all devices.
            rate: learning rate of the update.
            updates: whether the weights are updated; gradients count for the next update otherwise,
                each mini-batch by its seeds.
        """
        ...

    def state_out(self) -> None:
        """Copy weights, buffers and the optimizer's state to the host's, after all steps so far."""
        ...


class InferenceCapable(Backend, Protocol):
    """A backend whose device computes exact rows for evaluation (``Device.infers``)."""

    def inferred_rows(
        self, model: TrainableModel, needed: Sequence[Vertices]
    ) -> Iterator[torch.Tensor]:
        """Yield the last layer's rows of ``needed[-1]``, some after the other, in host memory.

        Args:
            model: the host's, in evaluation mode; its weights are copied.
            needed: vertices whose rows each layer computes over all neighbours, inputs first.
        """
        ...


class DeviceRates(Backend, Protocol):
    """A backend of a GPU, whose rates are measured (``Device.gpu``)."""

    def rates(self) -> CardRates:
        """Return the rates of the card, measured once and kept."""
        ...


class DeviceCacheBackend(Backend, Protocol):
    """A backend that has its cache in its device's memory (``Device.holds_rows``)."""

    @property
    def cache_address(self) -> str | None:
        """What peers open its cache by; None without one."""
        ...

    def unused_bytes(self) -> int:
        """Return the bytes of the device's memory that were never in use so far."""
        ...

    def open_peers(self, addresses: Sequence[str]) -> None:
        """Read the caches of peers from now on.

        Args:
            addresses: of all members of the clique, in the order of the plan, its own among them.

        Raises:
            DeviceError: the device cannot reach one.
        """
        ...


class DeviceMemory:
    """Counts bytes against ``memory_bytes``; several threads may take and free them."""

    def __init__(self, device: Accelerator) -> None:
        """Count the memory of ``device``, of which nothing is in use."""
        self._device = device
        self._in_use = self._kept = 0
        self._lock = threading.Lock()

    @property
    def room(self) -> int:
        """Bytes that what comes and goes may take, all together."""
        return self._device.budget_bytes - self._kept

    def keep(self, num_bytes: int, what: str) -> None:
        """Take ``num_bytes`` for ``what``, which stays.

        Raises:
            DeviceMemoryError: they do not fit beside what is in use.
        """
        self.reserve(num_bytes, what)
        self._kept += num_bytes

    def reserve(self, num_bytes: int, what: str) -> None:
        """Take ``num_bytes`` for ``what``, until they are freed.

        Raises:
            DeviceMemoryError: they do not fit beside what is in use.
        """
        budget = self._device.budget_bytes
        with self._lock:
            if self._in_use + num_bytes > budget:
                raise DeviceMemoryError(
                    f"{self._device.label}: out of device memory: {what} needs "
                    f"{num_bytes / 1e6:,.1f} MB beside {self._in_use / 1e6:,.1f} MB in use, and "
                    f"memory_bytes is {budget / 1e6:,.1f} MB; a smaller share, fewer neighbours "
                    "or a smaller cache take less"
                )
            self._in_use += num_bytes

    def free(self, num_bytes: int) -> None:
        """Give back ``num_bytes`` that were reserved."""
        with self._lock:
            self._in_use -= num_bytes


def open_backend(device: Device, host: BackendInputs) -> Backend:
    """Open a device for training.

    Raises:
        ConfigError: its opener cannot be imported.
        DeviceMemoryError: the model alone does not fit.
    """
    opener = registry.device_kind(device.kind).opener
    module, _, name = opener.partition(":")
    try:
        open_it = attrgetter(name)(import_module(module))
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{device.label}: {opener} cannot be imported ({error})") from error
    opened: Backend = open_it(device, host)
    return opened
