"""Processor-accelerator training protocol (HyScale-GNN, section III-C and figure 5).

The host drives every device through ``Backend``. One step of a device is ::

    sample = backend.sample(seeds, step)
    batch = backend.transfer(sample, backend.load(sample))
    backend.propagate(batch, weight)
    backend.copy_gradients(gradients)  # the host averages them, and its optimizer steps
    backend.update_weights()
    outcome = backend.finish(batch)
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from operator import attrgetter
from typing import Any, Protocol, TypeAlias

import torch
from torch import nn

from gnnscale.backend.feature_loading import FeatureLoader, Vertices
from gnnscale.cache import CliqueCache, LookAheadReplay
from gnnscale.core import Array, ConfigError, Traffic
from gnnscale.core.config.user_code import is_of_program, load_named
from gnnscale.features.cached import CachedAdjacency
from gnnscale.graph import Graph
from gnnscale.nn import Inputs, Objective, TrainableModel
from gnnscale.planner import Accelerator, CardRates, Device, Threads, registry
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.sampling import MiniBatch, Sampler, SamplerConfig


class DeviceError(ConfigError):
    """Failure of a device. The message is one line."""


class DeviceMemoryError(DeviceError):
    """Failure of a device whose memory is too small. The message is one line."""


class DeviceMemory:
    """Thread-safe account of the bytes in use of a device's ``memory_bytes``.

    Example of a device with a budget of 100 bytes:

        memory.keep(60, "the model")  # for the whole run: ``room`` is 40
        memory.reserve(30, "a mini-batch")  # 90 in use
        memory.reserve(20, "a mini-batch")  # DeviceMemoryError
    """

    def __init__(self, device: Accelerator) -> None:
        self._device = device
        self._in_use = self._permanent = 0
        self._lock = threading.Lock()

    @property
    def room(self) -> int:
        """Bytes of the budget for mini-batches: all except those reserved by ``keep``."""
        return self._device.budget_bytes - self._permanent

    def keep(self, num_bytes: int, what: str) -> None:
        """Count ``num_bytes`` of ``what`` as in use for the whole run, so that ``room`` shrinks.

        DeviceMemoryError: fewer bytes of the budget are free.
        """
        self.reserve(num_bytes, what)
        self._permanent += num_bytes

    def reserve(self, num_bytes: int, what: str) -> None:
        """Count ``num_bytes`` of ``what`` as in use until ``free``.

        DeviceMemoryError: fewer bytes of the budget are free; the message names ``what``.
        """
        budget = self._device.budget_bytes
        with self._lock:
            if self._in_use + num_bytes > budget:
                raise DeviceMemoryError(
                    f"{self._device.label}: out of device memory: {what} needs "
                    f"{num_bytes / 1e6:,.1f} MB beside {self._in_use / 1e6:,.1f} MB in use, and "
                    f"memory_bytes is {budget / 1e6:,.1f} MB; a smaller share, fewer neighbors "
                    "or a smaller cache take less"
                )
            self._in_use += num_bytes

    def free(self, num_bytes: int) -> None:
        """Release ``num_bytes`` of an earlier ``reserve``."""
        with self._lock:
            self._in_use -= num_bytes


class ColumnExchange(Protocol):
    """Collective operations of the devices of P3, each with some columns of every feature row.

    All devices call the methods in one order, with tensors of equal shapes.
    """

    @property
    def rank(self) -> int:
        """Rank of the device, in ``[0, size)``."""

    @property
    def size(self) -> int:
        """Number of devices."""

    def all_gather_into(self, into: torch.Tensor, mine: torch.Tensor) -> None:
        """All-gather: write the tensor that device r passes as ``mine`` into ``into[r]``."""

    def all_to_all_into(self, into: torch.Tensor, parts: torch.Tensor) -> None:
        """All-to-all: send ``parts[r]`` to device r, and receive from device r into ``into[r]``."""

    def largest(self, counts: Sequence[int]) -> list[int]:
        """All-reduce: return the elementwise maximum of ``counts`` over all devices."""


@dataclass(frozen=True, kw_only=True)
class DeviceStepInputs:
    """Optimizer and collectives of device-driven steps, and first seeds to estimate batch sizes.

    In such a step the device updates its copy of the weights, in place of the host.
    """

    #: makes an optimizer of the device's copy of the model
    build_optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    #: optimizer of the host's model. Checkpoints store its state
    host_optimizer: torch.optim.Optimizer
    clip_norm: float | None  #: scale gradients down to this global L2 norm. None: no clipping
    #: the device's seeds of the first steps, from which it estimates batch sizes
    first_slices: tuple[Array, ...] = ()
    #: all-reduces a tensor of the device in place. None: the run has one device
    sum: Callable[[torch.Tensor], None] | None = None
    #: collectives of P3, whose devices have the columns of the features that are in
    #: ``BackendInputs.graph``. None: each device reads full rows
    columns: ColumnExchange | None = None


@dataclass(frozen=True, kw_only=True)
class CacheInputs:
    """Plan, made by the host, of a device's cache: bytes, contents, counters and updates."""

    num_bytes: int = 0  #: device memory of cached rows and adjacency lists
    #: adjacency lists cached on a device that samples. None: it reads all from the host
    lists: CachedAdjacency | None = None
    #: returns the cache's counters since the previous call, by name
    counters: Callable[[], Mapping[str, float]] = dict
    #: contents of a cache in the device's own memory (``Device.holds_rows``). None: the device has
    #: no cache, or the host has it on the device's behalf
    kept: CliqueCache | None = None
    #: updates of a dynamic cache, step by step. None: the cache is static
    replay: LookAheadReplay | None = None


@dataclass(frozen=True, kw_only=True)
class BackendInputs:
    """Inputs of ``open_backend``: the run's graph, model, sampler and loader, and the cache."""

    graph: Graph  #: training graph. In P3 its features are the columns of this device
    model: TrainableModel  #: the host's model, whose weights the host's optimizer updates
    objective: Objective  #: loss of a mini-batch
    sampler: Sampler  #: sampler of the host
    sampling: SamplerConfig  #: options of ``sampler``, for devices that sample
    seed: int  #: random seed of the run
    batch_size: int  #: maximum number of seeds of the device in a step
    #: reads feature rows of the host, or of a cache that the host has for the device
    loader: FeatureLoader
    cache: CacheInputs = field(default_factory=CacheInputs)  #: cache of the device
    #: inputs of device-driven steps. None: the host averages gradients and updates the weights
    step_inputs: DeviceStepInputs | None = None

    def set_threads(self, threads: Threads) -> None:
        """Set the host threads of the sampler, of the loader, and of torch for propagation."""
        self.sampler.num_threads = threads.sample
        self.loader.num_threads = threads.load
        torch.set_num_threads(max(threads.propagate, 1))


#: Sampled mini-batch of a backend: a ``MiniBatch`` if the host samples, arrays of the device
#: otherwise. Their sizes may be unknown to the host until the step is done.
Sample: TypeAlias = Any


@dataclass(frozen=True, kw_only=True)
class DeviceBatch:
    """Mini-batch, with its input rows, in the memory of the device that computes it."""

    batch: Sample  #: topology
    inputs: Inputs  #: input of the first layer
    traffic: Traffic  #: bytes and requests of loading and transferring it
    num_bytes: int = 0  #: device memory that it occupies until ``finish``; 0 on the host


@dataclass(frozen=True, kw_only=True)
class BatchOutcome:
    """Loss, sizes, traffic, stage seconds and counters of a trained mini-batch."""

    loss: float  #: mean loss of the slice times its weight
    size: BatchSize  #: vertices and edges of each layer, inputs first
    traffic: Traffic  #: bytes and requests of the mini-batch
    #: durations of stages by the device's clock. The host times stages without one
    seconds: Mapping[str, float] = field(default_factory=dict)
    #: metrics of this kind of device, such as ``late_s``. Reports sum them over an epoch
    counters: Mapping[str, float] = field(default_factory=dict)

    @property
    def num_edges(self) -> int:
        """Number of edges over all layers."""
        return int(self.size.num_edges)

    @property
    def num_vertices(self) -> int:
        """Sum of the numbers of vertices of all layers, input vertices included."""
        return int(self.size.num_vertices)


class Backend(Protocol):
    """Training device, independent of pipeline queues and of other devices.

    ``sample``, ``load`` and ``transfer`` may run in a separate thread each, for steps later than
    the one that ``propagate`` computes. All other methods run in the training thread.

    A backend computes with the host's model or with a copy. A copy has the weights of the last
    ``load_state`` or ``update_weights``.
    """

    @property
    def device(self) -> Device:
        """Device of the plan that the backend drives."""

    def sample(self, seeds: Array, step: int) -> Sample:
        """Return the mini-batch of ``seeds`` at ``step``.

        ``seeds`` are ``[n]`` vertices, or indices of edges if the run predicts edges. The result is
        a pure function of the run's seed, ``seeds`` and ``step``.
        """

    def on_host(self, batch: Sample) -> MiniBatch:
        """Return a sample as a mini-batch in host memory.

        If the device has sampled, the host may sample the mini-batch again for this.
        """

    def load(self, batch: Sample) -> Inputs:
        """Return the first layer's input for a sample, read from feature storage."""

    def transfer(self, batch: Sample, inputs: Inputs) -> DeviceBatch:
        """Copy a mini-batch with its input rows to the device, unless they are already there.

        Raises:
            DeviceMemoryError: it exceeds the memory that batches in flight leave.
        """

    def propagate(self, batch: DeviceBatch, weight: float) -> None:
        """Start forward and backward propagation of the mini-batch's mean loss times ``weight``.

        ``weight`` is the device's fraction of the step's seeds, so that the sum of all devices'
        gradients is the gradient of the step's mean loss. May return before the device has
        finished.
        """

    def copy_gradients(self, into: list[torch.Tensor]) -> None:
        """Wait for the device, and copy the gradients of the shared parameters to ``into``.

        They are sums over all batches propagated since the previous call; zeros without seeds. A
        backend with a copy of the model then resets the copy's gradients. Gradients of the host's
        model are reset by its optimizer.

        Args:
            into: tensors shaped as the shared parameters, written. They are in device memory if
                ``Device.collective``, in host memory otherwise.
        """

    def finish(self, batch: DeviceBatch) -> BatchOutcome:
        """Wait for a propagated batch, free its memory, and return its outcome."""

    def load_state(self) -> None:
        """Copy the parameters and buffers of the host's model to the device.

        The trainer calls it before the first step, on resumption, after profiling, and after the
        devices have averaged their buffers.
        """

    def update_weights(self) -> None:
        """Copy the parameters that the host's optimizer has updated to the device."""

    def copy_buffers(self) -> None:
        """Copy the buffers, such as running statistics, from the device's to the host's model."""

    def set_threads(self, threads: Threads) -> None:
        """Set the numbers of host threads that sample, load and propagate."""

    def close(self) -> None:
        """Release the device's memory, and wake all threads that wait for the device."""


class HostSampledBackend(Backend, Protocol):
    """Backend that also trains mini-batches sampled by the host (``Device.takes_samples``)."""

    def sample_on_host(self, seeds: Array, step: int) -> MiniBatch:
        """Return the mini-batch that ``sample`` would return, sampled by the host in host memory.

        Another thread may run ``sample`` at the same time.
        """

    def receive_sample(self, batch: MiniBatch, seeds: Array) -> Sample:
        """Copy a mini-batch, sampled by the host from ``seeds``, to the device; return the copy."""


class PendingOutcome(Protocol):
    """Handle of a started step, from which its outcome is read once the step is done."""

    @property
    def ready(self) -> bool:
        """Whether the step is done; ``read`` then waits only if the step has to be repeated."""

    def read(self) -> BatchOutcome:
        """Wait for the step, and return its outcome with the seconds of all stages.

        Raises DeviceError if the step failed.
        """


class DeviceDrivenBackend(Backend, Protocol):
    """Backend of device-driven steps (``Device.owns_step``).

    The device has copies of the weights and of the optimizer's state. ``load_state`` copies both
    from the host, ``copy_state`` to the host.
    """

    def train(
        self, seeds: Array, step: int, *, num_seeds: int, rate: float, updates: bool
    ) -> PendingOutcome:
        """Start a step, without waiting for its end: sample, load, propagate, update the weights.

        Several devices all-reduce their gradients. Each weights its loss by its fraction of the
        seeds.

        Args:
            num_seeds: seeds of the mini-batch over all devices.
            rate: learning rate of the update.
            updates: whether the step updates the weights. Otherwise gradients accumulate for the
                next update, weighted by the number of seeds.
        """

    def copy_state(self) -> None:
        """Wait for all started steps, and copy weights, buffers and optimizer state to the host."""


class InferenceCapable(Backend, Protocol):
    """Backend whose device computes exact inference (``Device.infers``)."""

    def inferred_rows(
        self, model: TrainableModel, needed: Sequence[Vertices]
    ) -> Iterator[torch.Tensor]:
        """Yield the last layer's output rows of vertices ``needed[-1]``, in order, in chunks.

        The chunks are in host memory. ``needed`` has for each layer, the first layer first, the
        vertices whose output rows the layer computes over all neighbors.
        """


class DeviceRates(Backend, Protocol):
    """Backend of a GPU that measures its rates (``Device.gpu``)."""

    def rates(self) -> CardRates:
        """Return the rates of the card. The first call measures them and stores them on disk."""


class DeviceCacheBackend(Backend, Protocol):
    """Backend with a cache in device memory that other devices read (``Device.holds_rows``)."""

    @property
    def cache_address(self) -> str | None:
        """Address by which peers open the cache. None: the device has no cache."""

    def unused_bytes(self) -> int:
        """Return the bytes of the device's memory budget that were free at the peak of its use."""

    def open_peers(self, addresses: Sequence[str]) -> None:
        """Open the caches of all members of the clique, devices that read each other's memory.

        ``addresses``: ``cache_address`` of each member, this device included, in plan order. Raises
        DeviceError if a cache cannot be opened.
        """


def open_backend(device: Device, host: BackendInputs) -> Backend:
    """Return the backend that drives ``device`` in training.

    Raises ConfigError if the function that opens this kind of device cannot be imported;
    DeviceMemoryError if the model exceeds the device's memory.
    """
    opener = registry.device_kind(device.kind).opener
    module, _, name = opener.partition(":")
    try:
        open_device: Callable[..., Backend] = (
            load_named(opener, option=device.label)  # the launching process has sent it
            if is_of_program(opener)
            else attrgetter(name)(import_module(module))
        )
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{device.label}: {opener} cannot be imported ({error})") from error
    return open_device(device, host)
