"""Devices of a plan: capabilities, rates and memory, which the performance model reads.

``Cpu`` stands for the host's cores. Every other device is an ``Accelerator``. The module
``registry`` maps each kind to its class and its backend.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import ClassVar

from gnnscale.core import ConfigError, brief, check_choice, check_range
from gnnscale.core.config.untrusted import names
from gnnscale.sampling import SamplerConfig

#: Maximum number of devices of a plan or a platform.
MAX_DEVICES = 1024

#: Maximum number of compute units of an FPGA card.
MAX_COMPUTE_UNITS = 16

#: Bytes per second of one DDR channel of an Alveo U250 (HitGNN, Listing 1).
_CHANNEL_BANDWIDTH = 19.25e9
#: Allowed sizes of a compute unit's row memory, in words of 64 bytes.
ROW_WORDS = (32768, 49152, 65536, 98304)

#: File names contain device names, which therefore contain no path separator.
_NAME = re.compile(r"[\w.:+()-][\w.:+() -]{0,62}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Device:
    """Trainer: one worker process of a run.

    Attributes:
        name: name in reports. None: kind and position, such as ``emulated:1``.
        host_aggregates: whether the host aggregates the first layer while it loads features for
            this device (fused load-aggregate). Otherwise the device receives the feature rows
            themselves.
    """

    kind: ClassVar[str]  #: Value of the option ``kind``
    #: Origin of the device's times in reports: ``measured``, ``emulated`` or ``csim``.
    figures: ClassVar[str] = "measured"
    #: Whether the device computes in host memory, without a link or transfers.
    on_host: ClassVar[bool] = False
    #: Whether the device samples its mini-batches. Otherwise the host samples them.
    samples: ClassVar[bool] = False
    #: Whether a device that samples also accepts mini-batches sampled by the host.
    takes_samples: ClassVar[bool] = False
    #: Options classes of the samplers that the device implements, subclasses included.
    samplers: ClassVar[tuple[type[SamplerConfig], ...]] = (SamplerConfig,)
    #: Whether the device reads feature rows in host memory. Otherwise the host loads them.
    loads: ClassVar[bool] = False
    #: Whether forward and backward propagation run on the host's cores.
    computes_on_host: ClassVar[bool] = False
    #: Whether a cycle simulation stands for the device: a step takes longer than its clock says.
    simulated: ClassVar[bool] = False
    #: Whether the device updates the weights in host memory. Otherwise it has a copy of them.
    trains_host_weights: ClassVar[bool] = False
    takes_loss: ClassVar[bool] = True  #: Whether the device accepts a user-defined loss function
    #: Whether the device supports link prediction, with negatives sampled by the host.
    takes_links: ClassVar[bool] = False
    #: Whether the device supports layers with edge features.
    takes_edge_features: ClassVar[bool] = False
    takes_edge_labels: ClassVar[bool] = False  #: Whether the device supports edge labels
    #: Whether the device trains models of graphs with types
    takes_types: ClassVar[bool] = False
    #: Whether the device can run and overlap whole steps, weight update included; see
    #: ``owns_steps``.
    owns_step: ClassVar[bool] = False
    #: Whether the device runs layer-wise exact inference. Otherwise the host does.
    infers: ClassVar[bool] = False
    #: Whether the device stores its cache in its own memory. Otherwise the host stores it.
    holds_rows: ClassVar[bool] = False
    #: Whether device-driven steps exchange feature columns between devices (P3).
    trades_columns: ClassVar[bool] = False
    #: Common backend of torch.distributed for gradients, such as ``cuda:nccl``. None: summed by the
    #: host.
    collective: ClassVar[str | None] = None

    name: str | None = None
    host_aggregates: bool = True

    def __post_init__(self) -> None:
        if self.name is not None and (not _NAME.fullmatch(self.name) or set(self.name) == {"."}):
            raise ConfigError(
                f"name={brief(self.name)}: expected at most 63 letters, digits, spaces and .:+()-_"
            )

    def check(self) -> None:
        """Raise ConfigError, naming an alternative, if this machine lacks the device.

        The base class checks nothing.
        """

    @property
    def card_index(self) -> int | None:
        """Index of the physical card. None: no other device can share the card."""
        return None

    @property
    def gpu(self) -> int | None:
        """Index of the NVIDIA GPU, for NVML. None: the device is no GPU."""
        return None

    @property
    def holds_cache(self) -> bool:
        """Whether the device can cache rows or adjacency lists; by default, if not ``on_host``."""
        return not self.on_host

    def stores(self, *, topology: int, features: int, reserved: int) -> tuple[bool, bool]:
        """Return whether the device's memory holds the full topology, and all feature rows.

        Arguments are bytes (0: unknown), ``reserved`` those of other data, such as a cache. The
        base class returns False for both.
        """
        return False, False

    @property
    def takes_aggregated(self) -> bool:
        """Whether the host aggregates the first layer: ``host_aggregates``, and not ``loads``."""
        return self.host_aggregates and not self.loads

    @property
    def label(self) -> str:
        """Name in reports: ``name``, or the kind without a name."""
        return self.name or self.kind


@dataclass(frozen=True, kw_only=True)
class Cpu(Device):
    """Cores of this machine; the platform's processor has their rates."""

    kind: ClassVar[str] = "cpu"
    on_host: ClassVar[bool] = True
    computes_on_host: ClassVar[bool] = True
    trains_host_weights: ClassVar[bool] = True
    takes_links: ClassVar[bool] = True
    takes_edge_features: ClassVar[bool] = True
    takes_edge_labels: ClassVar[bool] = True
    takes_types: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Accelerator(Device):
    """Device with its own memory and rates.

    Attributes:
        macs_per_s: multiply-accumulates per second, N·freq of eq. 12.
        memory_bandwidth: bytes per second of device memory, eq. 11.
        memory_bytes: bytes of device memory; weights and mini-batches in flight must fit.
        link_bandwidth: bytes per second between host and device, eq. 8 and 13. None: the device has
            no link and computes in host memory.
        link_latency_s: seconds per transfer in addition to its bytes.
        link_request_bytes: bytes of one request over the link.
        link_overhead_bytes: overhead of each separate read over the link, in bytes: a payload p
            reaches p / (p + overhead) of the bandwidth (Legion, figure 4a).
        peer_bandwidth: bytes per second of reads from the caches of other devices. None: such reads
            are not supported.
        host_bandwidth: bytes per second of host memory for this device's loader, eq. 7. None: the
            rates of the platform's processor.
        launch_s: seconds per propagation in addition to its work.
        pipelined: whether aggregation and update overlap, eq. 10: maximum instead of sum.
        sampled_edges_per_s: edges per second of the device's sampler. Required for a device that
            samples, forbidden for any other. An emulated device samples if the rate is set.
    """

    macs_per_s: float
    memory_bandwidth: float
    memory_bytes: int
    link_bandwidth: float | None = None
    link_latency_s: float = 0.0
    link_request_bytes: int = 64
    link_overhead_bytes: int = 0
    peer_bandwidth: float | None = None
    host_bandwidth: float | None = None
    launch_s: float = 0.0
    pipelined: bool = False
    sampled_edges_per_s: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("macs_per_s", "memory_bandwidth", "memory_bytes"):
            _check_positive(option, getattr(self, option))
        for option in ("link_bandwidth", "peer_bandwidth", "host_bandwidth", "sampled_edges_per_s"):
            _check_positive(option, getattr(self, option), hint=", or null")
        for option in ("link_latency_s", "launch_s"):
            if not getattr(self, option) >= 0:
                raise ConfigError(f"{option}={getattr(self, option)}: expected a number from 0 on")
        check_range("link_request_bytes", self.link_request_bytes, 1)
        check_range("link_overhead_bytes", self.link_overhead_bytes, 0)
        if self.samples != (self.sampled_edges_per_s is not None):
            expected = "expected a rate" if self.samples else "expected null; the host samples"
            raise ConfigError(f"sampled_edges_per_s={self.sampled_edges_per_s}: {expected}")
        if self.loads and self.link_bandwidth is None:
            raise ConfigError("link_bandwidth=null: expected a rate; the device reads host memory")

    @property
    def on_host(self) -> bool:  # type: ignore[override]
        """Whether the device has no link."""
        return self.link_bandwidth is None

    @property
    def budget_bytes(self) -> int:
        """Bytes of device memory that a run may use."""
        return self.memory_bytes

    @property
    def reads_lists(self) -> bool:
        """Whether the device reads adjacency lists over its link. Otherwise the host samples."""
        return self.samples

    def read_requests(self, num_bytes: int) -> int:
        """Return the number of link requests of one read of ``num_bytes``."""
        return -(-num_bytes // self.link_request_bytes)

    def read_seconds(self, num_reads: float, num_bytes: int) -> float:
        """Return the seconds of ``num_reads`` separate link reads of ``num_bytes`` each."""
        assert self.link_bandwidth is not None
        payload = self.read_requests(num_bytes) * self.link_request_bytes
        return num_reads * (payload + self.link_overhead_bytes) / self.link_bandwidth

    def cache_seconds(self, own_bytes: float, peer_bytes: float) -> float:
        """Return the seconds of reading rows from the device's own cache and from peer caches."""
        peers = peer_bytes / self.peer_bandwidth if self.peer_bandwidth else 0.0
        return own_bytes / self.memory_bandwidth + peers


@dataclass(frozen=True, kw_only=True)
class Emulated(Accelerator):
    """Accelerator emulated by torch on the host, in the time that its rates imply.

    A stage takes as long as the performance model predicts (HyScale-GNN eq. 7, 8, 10 to 13), or as
    long as the host needs; reports state how often the host was too slow. A device without a link
    stands for a processor. A device with ``sampled_edges_per_s`` samples its mini-batches.

    Attributes:
        reads_host_memory: whether it reads feature rows in host memory; otherwise the host packs
            them.
    """

    kind: ClassVar[str] = "emulated"
    figures: ClassVar[str] = "emulated"
    computes_on_host: ClassVar[bool] = True
    trains_host_weights: ClassVar[bool] = True
    takes_links: ClassVar[bool] = True
    takes_edge_features: ClassVar[bool] = True
    takes_edge_labels: ClassVar[bool] = True
    takes_types: ClassVar[bool] = True

    reads_host_memory: bool = False

    @property
    def samples(self) -> bool:  # type: ignore[override]
        """Whether the device samples: ``sampled_edges_per_s`` is set."""
        return self.sampled_edges_per_s is not None

    @property
    def takes_samples(self) -> bool:  # type: ignore[override]
        """Whether the device also takes mini-batches that the host samples: true if it samples."""
        return self.samples

    @property
    def loads(self) -> bool:  # type: ignore[override]
        """Whether the device reads feature rows in host memory itself."""
        return self.reads_host_memory


@dataclass(frozen=True, kw_only=True)
class Fpga(Accelerator):
    """FPGA card with the kernels in ``fpga/``; the defaults are an Alveo U250.

    Without a bitstream the kernels run in C simulation, cycle by cycle. Times are then cycles over
    ``clock_hz``, and the model predicts the times of the link.

    Attributes:
        bitstream: path of an ``.xclbin`` file. None: C simulation.
        index: number of the card in ``xrt-smi examine``; 0 in C simulation.
        n: scatter-gather PEs of a compute unit (HitGNN, section V-C): 1, 2, 4, 8 or 16.
        m: multiply-accumulate units of a compute unit: a power of two from 16 to 2048.
        row_words: row memory of a compute unit in words of 64 bytes: one of ``ROW_WORDS``.
        compute_units: number of compute units, each with a memory bank and a slice of every
            mini-batch.
        clock_hz: clock of the kernels in Hz.
        timeout_s: seconds until an unfinished step counts as failed.
    """

    kind: ClassVar[str] = "fpga"
    takes_loss: ClassVar[bool] = False

    bitstream: str | None = field(default=None, metadata=names("program"))
    index: int = 0
    n: int = 2
    m: int = 256
    row_words: int = 98304
    compute_units: int = 4
    clock_hz: int = 300_000_000
    timeout_s: float = 600.0
    macs_per_s: float = field(init=False)
    memory_bandwidth: float = field(init=False)
    memory_bytes: int = 64 << 30
    link_bandwidth: float | None = 16e9
    link_latency_s: float = 1e-5
    host_aggregates: bool = False
    pipelined: bool = True

    def __post_init__(self) -> None:
        check_choice("n", str(self.n), [str(2**power) for power in range(5)])
        check_choice("m", str(self.m), [str(2**power) for power in range(4, 12)])
        check_choice("row_words", str(self.row_words), [str(words) for words in ROW_WORDS])
        check_range("compute_units", self.compute_units, 1, MAX_COMPUTE_UNITS)
        check_range("clock_hz", self.clock_hz, 1, 1_000_000_000)
        check_range("index", self.index, 0)
        _check_positive("timeout_s", self.timeout_s)
        macs = float(self.compute_units * self.m * self.clock_hz)
        object.__setattr__(self, "macs_per_s", macs)
        object.__setattr__(self, "memory_bandwidth", self.compute_units * _CHANNEL_BANDWIDTH)
        super().__post_init__()
        if self.link_bandwidth is None:
            raise ConfigError("link_bandwidth=null: expected a rate; an fpga has a link")

    @property
    def figures(self) -> str:  # type: ignore[override]
        """Origin of times: ``csim`` (C simulation) without a bitstream, else ``measured``."""
        return "csim" if self.bitstream is None else "measured"

    @property
    def holds_cache(self) -> bool:
        """False: the kernels read rows in the order of the host's transfers."""
        return False

    @property
    def simulated(self) -> bool:  # type: ignore[override]
        """Whether the device has no bitstream."""
        return self.bitstream is None

    def check(self) -> None:
        """Raise ConfigError if a card in C simulation has an index other than 0."""
        if self.simulated and self.index != 0:
            raise ConfigError(
                f"device_plan.devices: {self.name}: index={self.index}: expected 0 in C "
                "simulation; bitstream=FILE selects a board"
            )


def shared_collective(devices: Sequence[Device]) -> str | None:
    """Return the ``collective`` of the devices, if all have the same and no two share a card.

    None: the host sums the gradients.
    """
    collectives = {device.collective for device in devices}
    cards = [device.card_index for device in devices if device.card_index is not None]
    if len(collectives) > 1 or len(set(cards)) < len(cards):
        return None
    return collectives.pop()


def owns_steps(devices: Sequence[Device]) -> bool:
    """Whether every device runs whole steps itself, weight update included (``owns_step``).

    Several devices also need a ``shared_collective``, which sums their gradients.
    """
    independent = len(devices) == 1 or shared_collective(devices) is not None
    return independent and all(device.owns_step for device in devices)


def process_group_backend(devices: Sequence[Device]) -> str:
    """Return torch.distributed's backend: gloo for host memory, plus the shared collective."""
    collective = shared_collective(devices)
    return "cpu:gloo" if collective in (None, "cpu:gloo") else f"cpu:gloo,{collective}"


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """Reached fractions of peak rates, above 0 and up to 1; the platform files state the sources.

    Attributes:
        processor: fraction of the processor's arithmetic and aggregation rates (eq. 11 and 12).
        memory: fraction of host memory bandwidth for feature loading (eq. 7).
        accelerator: fraction of an accelerator's arithmetic and memory rates (eq. 11 and 12).
        link: fraction of the link's bandwidth (eq. 8 and 13).
    """

    processor: float
    memory: float
    accelerator: float
    link: float

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if not 0 < value <= 1:
                raise ConfigError(
                    f"efficiency.{option.name}={value}: expected a number above 0, at most 1"
                )


def _check_positive(option: str, value: float | None, hint: str = "") -> None:
    if value is not None and not value > 0:
        raise ConfigError(f"{option}={value}: expected a number above 0{hint}")
