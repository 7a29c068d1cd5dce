"""Devices that a plan can name: their metadata, which the performance model reads.

``Cpu`` is the host's cores. Everything else is an ``Accelerator``. Which kinds there are, and what
opens each of them, is in ``registry``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import ClassVar

from gnnscale.core import ConfigError, check_choice, check_range, shown
from gnnscale.core.config.untrusted import names
from gnnscale.sampling import SamplerConfig

#: Devices of a plan or a platform.
MAX_DEVICES = 1024

#: Compute units of an FPGA card.
MAX_COMPUTE_UNITS = 16

#: Bytes per second of one DDR channel of an Alveo U250 (HitGNN, listing 1).
_CHANNEL_BANDWIDTH = 19.25e9
#: Words of the memory of rows that a compute unit can have.
ROW_WORDS = (32768, 49152, 65536, 98304)

#: Files are called after devices, so that a name holds no folder.
_NAME = re.compile(r"[\w.:+()-][\w.:+() -]{0,62}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Device:
    """A trainer: one worker process of a run.

    Attributes:
        name: what reports call it; None for its kind and number, as in ``emulated:1``.
        host_aggregates: whether the host aggregates the first layer while it loads features for
            this device (fused load-aggregate). Otherwise the device gets the rows themselves.
    """

    #: The value of the option ``kind``.
    kind: ClassVar[str]
    #: What the figures of its runs are called in reports: ``measured``, ``emulated``, ``csim``.
    figures: ClassVar[str] = "measured"
    #: Whether it computes where the features lie: it has no link, and nothing is transferred.
    on_host: ClassVar[bool] = False
    #: Whether it samples by itself; the host samples for it otherwise.
    samples: ClassVar[bool] = False
    #: Whether it samples by itself, and takes mini-batches that the host has sampled as well.
    takes_samples: ClassVar[bool] = False
    #: The options of samplers, and those derived from them, as which it can sample.
    samplers: ClassVar[tuple[type[SamplerConfig], ...]] = (SamplerConfig,)
    #: Whether it reads host memory by itself; the host loads for it otherwise.
    loads: ClassVar[bool] = False
    #: Whether its propagation occupies cores of the host.
    computes_on_host: ClassVar[bool] = False
    #: Whether it is simulated step by step: it then takes longer here than by its clock.
    simulated: ClassVar[bool] = False
    #: Whether it trains the host's own copy of the weights, and not one of the device's.
    trains_host_weights: ClassVar[bool] = False
    #: Whether it minimises the loss that it is given, and not a built-in one.
    takes_loss: ClassVar[bool] = True
    #: Whether it trains on edges, of which the host draws negatives.
    takes_links: ClassVar[bool] = False
    #: Whether it computes layers that read features of edges.
    takes_edge_features: ClassVar[bool] = False
    #: Whether it trains on labels of edges.
    takes_edge_labels: ClassVar[bool] = False
    #: Whether it can do whole steps by itself, from sampling to the update of the weights, and
    #: overlap them; see ``owns_steps``.
    owns_step: ClassVar[bool] = False
    #: Whether it computes exact rows layer by layer for evaluation; the host does otherwise.
    infers: ClassVar[bool] = False
    #: Whether its cache lies in its own memory; the host has it for the device otherwise.
    holds_rows: ClassVar[bool] = False
    #: Whether devices of its kind that own their steps trade columns of the features by themselves
    #: (P3).
    trades_columns: ClassVar[bool] = False
    #: What torch.distributed sums its gradients with when all devices of a run have the same, as
    #: in ``cuda:nccl``; None when gradients are summed in host memory.
    collective: ClassVar[str | None] = None

    name: str | None = None
    host_aggregates: bool = True

    def __post_init__(self) -> None:
        if self.name is not None and (not _NAME.fullmatch(self.name) or set(self.name) == {"."}):
            raise ConfigError(
                f"name={shown(self.name)}: must be at most 63 letters, digits, spaces and .:+()-_"
            )

    def check(self) -> None:
        """Refuse a device that this machine does not have, before anything is made for it.

        Raises:
            ConfigError: with the reason, and what goes instead.
        """

    @property
    def place(self) -> int | None:
        """The number of the card that it is; None if no other device can be the same one."""
        return None

    @property
    def gpu(self) -> int | None:
        """The number of the NVIDIA GPU that it is, of which NVML reports; None if it is none."""
        return None

    @property
    def holds_cache(self) -> bool:
        """Whether a part of the graph can be kept in its memory: usually over a link."""
        return not self.on_host

    def places(self, *, topology: int, features: int, kept: int) -> tuple[bool, bool]:
        """Return whether its memory has the whole topology, and all feature rows.

        Args:
            topology, features: their bytes.
            kept: bytes that other things take, a cache among them; 0 if not known.
        """
        return False, False

    @property
    def takes_aggregated(self) -> bool:
        """Whether it gets rows that the host has aggregated; what it loads itself is as stored."""
        return self.host_aggregates and not self.loads

    @property
    def label(self) -> str:
        """What reports call it."""
        return self.name or self.kind


@dataclass(frozen=True, kw_only=True)
class Cpu(Device):
    """Cores of this machine. Its rates are those of the platform's processor."""

    kind: ClassVar[str] = "cpu"
    on_host: ClassVar[bool] = True
    computes_on_host: ClassVar[bool] = True
    trains_host_weights: ClassVar[bool] = True
    takes_links: ClassVar[bool] = True
    takes_edge_features: ClassVar[bool] = True
    takes_edge_labels: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Accelerator(Device):
    """A device with its own memory and rates.

    Attributes:
        macs_per_s: multiply-accumulates per second, N·freq of eq. 12.
        memory_bandwidth: bytes per second of the device's own memory, eq. 11.
        memory_bytes: the device's memory; weights and batches in flight must fit.
        link_bandwidth: bytes per second between host and device, eq. 8 and 13; None for a device
            without a link, which computes where the features lie.
        link_latency_s: seconds that every transfer takes beside its bytes.
        link_request_bytes: bytes of one request over the link.
        link_overhead_bytes: what every separate read of a device that reads host memory by itself
            costs beside its requests, as bytes of the link: a payload p reaches
            p / (p + overhead) of the bandwidth (Legion, figure 4a).
        peer_bandwidth: bytes per second at which it reads the caches of other devices; None for
            a device that cannot.
        host_bandwidth: bytes per second at which the host's memory feeds this device's loader,
            eq. 7; None for the host's own rates.
        launch_s: seconds that every propagation takes beside its work.
        pipelined: whether aggregation and update overlap, eq. 10: maximum instead of sum.
        sampled_edges_per_s: edges per second of its sampler; required of a device that samples by
            itself, and of no other. An emulated device samples by itself if it is given.
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
            value = getattr(self, option)
            if value is not None and not value > 0:
                raise ConfigError(f"{option}={value}: must be above 0")
        for option in ("link_bandwidth", "peer_bandwidth", "host_bandwidth", "sampled_edges_per_s"):
            value = getattr(self, option)
            if value is not None and not value > 0:
                raise ConfigError(f"{option}={value}: must be above 0, or null")
        for option in ("link_latency_s", "launch_s"):
            if not getattr(self, option) >= 0:
                raise ConfigError(f"{option}={getattr(self, option)}: must be at least 0")
        check_range("link_request_bytes", self.link_request_bytes, 1)
        check_range("link_overhead_bytes", self.link_overhead_bytes, 0)
        if self.samples != (self.sampled_edges_per_s is not None):
            needed = "required, it samples" if self.samples else "not allowed, the host samples"
            raise ConfigError(f"sampled_edges_per_s={self.sampled_edges_per_s}: {needed}")
        if self.loads and self.link_bandwidth is None:
            raise ConfigError("link_bandwidth=null: required, it reads host memory over its link")

    @property
    def on_host(self) -> bool:  # type: ignore[override]
        """Whether it has no link."""
        return self.link_bandwidth is None

    @property
    def budget_bytes(self) -> int:
        """Bytes of its memory that a run may take."""
        return self.memory_bytes

    @property
    def reads_lists(self) -> bool:
        """Whether it reads adjacency lists over its link; the host samples otherwise."""
        return self.samples

    def read_requests(self, num_bytes: int) -> int:
        """Return the requests over the link of one read of ``num_bytes``."""
        return -(-num_bytes // self.link_request_bytes)

    def read_seconds(self, num_reads: float, num_bytes: int) -> float:
        """Return how long the link takes for separate reads of ``num_bytes`` each."""
        assert self.link_bandwidth is not None
        payload = self.read_requests(num_bytes) * self.link_request_bytes
        return num_reads * (payload + self.link_overhead_bytes) / self.link_bandwidth

    def cache_seconds(self, own_bytes: float, peer_bytes: float) -> float:
        """Return how long rows take from the device's own cache, and from those of peers."""
        peers = peer_bytes / self.peer_bandwidth if self.peer_bandwidth else 0.0
        return own_bytes / self.memory_bandwidth + peers


@dataclass(frozen=True, kw_only=True)
class Emulated(Accelerator):
    """An accelerator that computes with torch on the host, in the time that its metadata give.

    Stages last as long as the performance model predicts (HyScale-GNN eq. 7, 8, 10 to 13), or as
    the host needs, if that is longer; reports state how often the host was too slow.
    Without a link it stands for a processor. With ``sampled_edges_per_s`` it stands for a device
    that samples by itself.

    Attributes:
        reads_host_memory: whether it stands for a device that reads rows in the host's memory by
            itself; otherwise the host packs them.
    """

    kind: ClassVar[str] = "emulated"
    figures: ClassVar[str] = "emulated"
    computes_on_host: ClassVar[bool] = True
    trains_host_weights: ClassVar[bool] = True
    takes_links: ClassVar[bool] = True
    takes_edge_features: ClassVar[bool] = True
    takes_edge_labels: ClassVar[bool] = True

    reads_host_memory: bool = False

    @property
    def samples(self) -> bool:  # type: ignore[override]
        """Whether it has a rate of sampling."""
        return self.sampled_edges_per_s is not None

    @property
    def takes_samples(self) -> bool:  # type: ignore[override]
        """Whether it samples by itself."""
        return self.samples

    @property
    def loads(self) -> bool:  # type: ignore[override]
        """Whether it reads host memory by itself."""
        return self.reads_host_memory


@dataclass(frozen=True, kw_only=True)
class Fpga(Accelerator):
    """An FPGA card with the kernels of ``fpga/``; the defaults are those of an Alveo U250.

    Without a bitstream the kernels are simulated in C, cycle by cycle: its times are then cycles
    over ``clock_hz``, and its link's are modelled.

    Attributes:
        bitstream: path of an ``.xclbin``; None for C simulation.
        index: number of the card, as ``xrt-smi examine`` counts; 0 in C simulation.
        n: scatter-gather PEs of a compute unit (HitGNN, section V-C): 1, 2, 4, 8 or 16.
        m: multiply-accumulate units of a compute unit: a power of two from 16 to 2048.
        row_words: words of 64 bytes of a compute unit's memory of rows: one of ``ROW_WORDS``.
        compute_units: of the card, each with a bank of memory and a slice of every mini-batch.
        clock_hz: the kernels' clock.
        timeout_s: seconds after which a step that is not done counts as failed.
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
        check_choice("row_words", str(self.row_words), [str(each) for each in ROW_WORDS])
        check_range("compute_units", self.compute_units, 1, MAX_COMPUTE_UNITS)
        check_range("clock_hz", self.clock_hz, 1, 1_000_000_000)
        check_range("index", self.index, 0)
        if not self.timeout_s > 0:
            raise ConfigError(f"timeout_s={self.timeout_s}: must be above 0")
        macs = float(self.compute_units * self.m * self.clock_hz)
        object.__setattr__(self, "macs_per_s", macs)
        object.__setattr__(self, "memory_bandwidth", self.compute_units * _CHANNEL_BANDWIDTH)
        super().__post_init__()
        if self.link_bandwidth is None:
            raise ConfigError("link_bandwidth=null: required, an fpga needs a link")

    @property
    def figures(self) -> str:  # type: ignore[override]
        """``csim`` without a bitstream."""
        return "csim" if self.bitstream is None else "measured"

    @property
    def holds_cache(self) -> bool:
        """No: its kernels read rows in the order in which the host sends them."""
        return False

    @property
    def simulated(self) -> bool:  # type: ignore[override]
        """Whether it has no bitstream."""
        return self.bitstream is None

    def check(self) -> None:
        """Refuse a number for a simulated card: each is another one."""
        if self.simulated and self.index != 0:
            raise ConfigError(
                f"device_plan.devices: {self.name}: index={self.index}: simulated cards are not "
                "numbered; a board has a number, and bitstream=FILE"
            )


def shared_collective(devices: Sequence[Device]) -> str | None:
    """Return the ``collective`` that all devices have, None if they have none in common.

    Gradients are then summed on the devices, and in host memory otherwise: so are those of two
    workers on one card, whom NCCL refuses.
    """
    found = {device.collective for device in devices}
    places = [device.place for device in devices if device.place is not None]
    if len(found) > 1 or len(set(places)) < len(places):
        return None
    return found.pop()


def owns_steps(devices: Sequence[Device]) -> bool:
    """Whether the devices of a run do their steps by themselves.

    Several do if they sum their gradients by themselves, too. Otherwise the host sums them, and
    updates the weights.
    """
    alone = len(devices) == 1 or shared_collective(devices) is not None
    return alone and all(each.owns_step for each in devices)


def process_group_backend(devices: Sequence[Device]) -> str:
    """Return torch.distributed's backend: gloo for host memory, and what the devices share."""
    collective = shared_collective(devices)
    return "cpu:gloo" if collective in (None, "cpu:gloo") else f"cpu:gloo,{collective}"


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """Parts of peak rates, above 0 and up to 1. Their sources stand beside them in the files.

    Attributes:
        processor: of the processor's arithmetic and of the rows it aggregates (eq. 11 and 12).
        memory: of the host's memory while features are loaded (eq. 7).
        accelerator: of an accelerator's arithmetic and memory (eq. 11 and 12).
        link: of its link to the host (eq. 8 and 13).
    """

    processor: float
    memory: float
    accelerator: float
    link: float

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not 0 < value <= 1:
                raise ConfigError(f"efficiency.{each.name}={value}: must be above 0 and up to 1")
