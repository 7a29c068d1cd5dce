"""Processor of a platform: rates of its threads, and contention between workers."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, ClassVar

from gnnscale.core import ConfigError, check_range
from gnnscale.core.config.untrusted import names
from gnnscale.planner.device_plan import MAX_THREADS
from gnnscale.planner.device_spec import Efficiency

#: Rates that are bound by memory rather than arithmetic.
_MEMORY_RATES = (
    *("memory_bandwidth", "cache_bandwidth", "rows_per_s"),
    *("memory_rows_per_s", "widened_per_s", "write_bandwidth"),
)
#: Bounds of seconds and rates, so that sums and quotients stay finite.
_MAX_SECONDS, _MIN_RATE = 1e9, 1e-9
#: Rates of propagation on the host's cores, eq. 11 and 12.
_TRAINER_RATES = (
    *("aggregate_bandwidth", "stream_bandwidth", "operand_bandwidth"),
    *("macs_per_s", "bfloat16_macs_per_s", "attention_per_s"),
)
#: Checked fields of a processor.
_PROCESSOR_FIELDS = (
    *("cores", "cache_bytes", "layer_s"),
    *("load_s", "lookups_per_s", "update_s", "update_bandwidth"),
)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Rates of a processor's threads together while nothing else runs.

    Every list has an entry per entry of ``Processor.threads``. Bandwidths are effective, as in
    section V of HyScale-GNN: reached by feature rows, below the peak of the memory.

    Attributes:
        memory_bandwidth: bytes per second of random feature rows in memory, eq. 7.
        cache_bandwidth: bytes per second of feature rows in the last-level cache.
        rows_per_s: rows per second, however short.
        memory_rows_per_s: random rows in memory per second, however short.
        widened_per_s: values per second converted to float32 from a narrower stored type. None: no
            extra time.
        write_bandwidth: bytes per second of writing loaded rows. None: no extra time.
        aggregate_bandwidth: bytes per second of hidden rows in aggregation, eq. 11.
        stream_bandwidth: bytes per second of sequentially written activations.
        operand_bandwidth: bytes per second of operands of products, read forward during
            multiplication. None: ``stream_bandwidth``, read after multiplication.
        macs_per_s: multiply-accumulates per second, N·freq of eq. 12.
        bfloat16_macs_per_s: multiply-accumulates per second in bfloat16. None: too slow to be used.
        attention_per_s: edges and vertices of attention, times heads, per second.
        sampled_edges_per_s: edges per second of neighbor sampling, for graphs without data.
    """

    allows_infinite: ClassVar[bool] = True  #: An infinite rate stands for work that takes no time

    memory_bandwidth: list[float]
    cache_bandwidth: list[float]
    rows_per_s: list[float]
    memory_rows_per_s: list[float]
    aggregate_bandwidth: list[float]
    stream_bandwidth: list[float]
    macs_per_s: list[float]
    attention_per_s: list[float]
    sampled_edges_per_s: list[float]
    operand_bandwidth: list[float] | None = None
    bfloat16_macs_per_s: list[float] | None = None
    widened_per_s: list[float] | None = None
    write_bandwidth: list[float] | None = None

    def __post_init__(self) -> None:
        for name, values in vars(self).items():
            check_amounts(f"processor.rates.{name}", values)

    def scaled(self, efficiency: Efficiency) -> "Rates":
        """Return these peak rates times the reached fractions in ``efficiency``."""
        parts = dict.fromkeys(_TRAINER_RATES, efficiency.processor)
        parts |= dict.fromkeys(_MEMORY_RATES, efficiency.memory)
        rates: dict[str, Any] = {
            name: [part * rate for rate in getattr(self, name)]
            for name, part in parts.items()
            if getattr(self, name) is not None
        }
        return replace(self, **rates)

    def values(self, name: str) -> list[float] | None:
        """Return the rates in field ``name``, one per number of threads; None: not set.

        ``bfloat16_macs_per_s`` defaults to ``macs_per_s``.
        """
        rates: list[float] | None = getattr(self, name)
        if rates is None and name == "bfloat16_macs_per_s":
            return self.macs_per_s
        return rates


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """Contention between workers on one processor, and the cost of synchronization.

    Attributes:
        compute_contention: slowdown of propagation while all other cores are busy. Infinite: only
            the rates of all threads together are known.
        memory_contention: slowdown of sampling and loading while all other cores are busy.
        sync_latency_s: minimum seconds of an all-reduce of gradients.
        sync_bandwidth: bytes of gradients per second that workers sum in shared memory.
        straggler_wait: mean fraction of a step that one of two equal workers waits for the other.
        message_latency_s: seconds of a message between workers, such as rows of P3. None:
            ``sync_latency_s``.
        message_bandwidth: bytes per second of messages. None: ``sync_bandwidth``.
    """

    allows_infinite: ClassVar[bool] = True  #: See ``Rates``

    compute_contention: float
    memory_contention: float
    sync_latency_s: float
    sync_bandwidth: float
    straggler_wait: float = 0.0
    message_latency_s: float | None = None
    message_bandwidth: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_amounts(f"processor.sharing.{name}", value)

    def contention(self, name: str) -> float:
        """Return the slowdown of rate ``name`` while all other cores are busy.

        It is ``memory_contention`` for rates bound by memory, else ``compute_contention``.
        """
        return self.memory_contention if name in _MEMORY_RATES else self.compute_contention

    def sync_seconds(self, num_bytes: float, num_workers: int) -> float:
        """Return the seconds of an all-reduce by workers with a core each, eq. 13."""
        if num_workers < 2:
            return 0.0
        return self.sync_latency_s + num_bytes / self.sync_bandwidth

    @property
    def messages(self) -> tuple[float, float]:
        """Latency of a message in seconds, and bytes per second of messages."""
        latency_s = self.message_latency_s
        return (
            self.sync_latency_s if latency_s is None else latency_s,
            self.message_bandwidth or self.sync_bandwidth,
        )

    def straggler_seconds(self, step_s: float, num_workers: int) -> float:
        """Return a worker's mean wait in steps of ``step_s`` for the slowest of ``num_workers``.

        Step times are modeled as normal variables, whose expected maximum grows with the number of
        workers (Blom, Statistical Estimates and Transformed Beta-Variables, 1958).
        """
        if num_workers < 2:
            return 0.0
        latest, of_two = (
            NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) for count in (num_workers, 2)
        )
        return step_s * self.straggler_wait * latest / of_two


@dataclass(frozen=True, kw_only=True)
class Processor:
    """Cores and memory of the host.

    Attributes:
        name: name in reports.
        cores: number of cores that a run may use.
        cache_bytes: bytes of the last-level cache.
        threads: ascending numbers of threads with measured rates; the last is ``cores``.
        rates: rates for each entry of ``threads``.
        layer_s: minimum seconds of a layer's propagation, for each entry of ``threads``.
        load_s: minimum seconds of loading a mini-batch.
        lookups_per_s: coefficients per second that one thread looks up for a mini-batch.
        update_s: minimum seconds of gathering gradients and of the optimizer's step.
        update_bandwidth: bytes of weights per second of gathering and optimizer together.
        sharing: contention between workers.
    """

    allows_infinite: ClassVar[bool] = True  #: See ``Rates``

    name: str = field(metadata=names("text"))
    cores: int
    cache_bytes: int
    threads: list[int]
    rates: Rates
    layer_s: list[float]
    load_s: float
    lookups_per_s: float
    update_s: float
    update_bandwidth: float
    sharing: Sharing

    def __post_init__(self) -> None:
        threads = self.threads
        if not threads or threads[0] < 1 or sorted(set(threads)) != threads:
            raise ConfigError(f"processor.threads={threads}: expected ascending numbers from 1 on")
        check_range("processor.cores", self.cores, 1, MAX_THREADS)
        if threads[-1] != self.cores:
            raise ConfigError(
                f"processor.threads={threads}: expected cores={self.cores} at the end"
            )
        listed = {f"rates.{name}": values for name, values in vars(self.rates).items()}
        for name, values in (listed | {"layer_s": self.layer_s}).items():
            if values is not None and len(values) != len(threads):
                raise ConfigError(
                    f"processor.{name}={values}: expected a value for each of threads={threads}"
                )
        for name in _PROCESSOR_FIELDS:
            check_amounts(f"processor.{name}", getattr(self, name))

    def rate(self, name: str, threads: int, active: float) -> float:
        """Return the rate ``name`` of ``threads`` threads while ``active`` threads work in total.

        A rate of None, which takes no extra time, is infinite. Threads share cores and memory: t of
        T threads get at least rate(T)·t/T. Threads of different workers do not wait for each other.
        They lose at most the contention measured between processes.
        """
        rates = self.rates.values(name)
        if rates is None:
            return math.inf
        unshared = shared_rate(self.threads, rates, threads, threads)
        if active <= threads or math.isinf(unshared):
            return unshared
        busy_share = min(1.0, (active - threads) / max(self.cores - threads, 1))
        contention = self.sharing.contention(name)
        slower = (1 + (contention - 1) * busy_share) * max(1.0, active / max(self.cores, threads))
        return max(shared_rate(self.threads, rates, threads, active), unshared / slower)

    def layer_seconds(self, threads: int, active: float) -> float:
        """Return the minimum seconds of a layer, longer if ``active`` threads exceed the cores."""
        position = min(max(bisect_left(self.threads, threads), 0), len(self.threads) - 1)
        return self.layer_s[position] * max(1.0, active / self.cores)


def check_amounts(option: str, amounts: float | Sequence[float] | None) -> None:
    """Raise ConfigError for rates below 1e-9, or seconds outside of 0 to 1e9.

    The name of ``option`` tells whether ``amounts`` are seconds.
    """
    name = option.rpartition(".")[2]
    seconds = name == "straggler_wait" or (name.endswith("_s") and not name.endswith("_per_s"))
    for value in (amounts,) if isinstance(amounts, (int, float)) else amounts or ():
        if seconds and not 0 <= value <= _MAX_SECONDS:
            raise ConfigError(f"{option}={amounts}: expected seconds from 0 to {_MAX_SECONDS:g}")
        if not seconds and not value >= _MIN_RATE:
            raise ConfigError(f"{option}={amounts}: expected numbers from {_MIN_RATE:g} on")


def shared_rate(
    numbers: Sequence[int], rates: Sequence[float], threads: int, active: float
) -> float:
    """Return the rate of ``threads`` (t) of ``active`` (T) threads: rate(T)·t/T.

    ``rates`` of ascending ``numbers`` of threads are interpolated linearly from 0 on; more threads
    get the last rate.
    """
    active = max(active, threads)
    count = min(active, numbers[-1])
    position = bisect_left(numbers, count)
    low, low_rate = (numbers[position - 1], rates[position - 1]) if position else (0, 0.0)
    high, high_rate = numbers[position], rates[position]
    if math.isinf(high_rate):
        return math.inf
    if math.isinf(low_rate):
        low_rate = high_rate
    total = low_rate + (high_rate - low_rate) * (count - low) / (high - low)
    # Interpolation between very different rates cancels below both of them.
    return max(total, min(low_rate, high_rate)) * threads / active
