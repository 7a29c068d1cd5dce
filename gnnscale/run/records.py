"""Records that a training run passes to its observers, and the epoch sums in a checkpoint."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import msgspec

from gnnscale.cache import CacheStats, Uncached
from gnnscale.core import Count, GpuUse, Positive, StageTimes, StructArray, Traffic, better
from gnnscale.core.binary_metrics import Thresholds
from gnnscale.core.metrics import ClassCounts
from gnnscale.partition import PartitionStats
from gnnscale.planner import DevicePlan, Threads
from gnnscale.planner.cost_model import equations, stage_work


@dataclass(frozen=True, kw_only=True)
class DeviceTotals:
    """Sums over one device's parts of an epoch's mini-batches so far."""

    num_seeds: Count = 0
    stages: StageTimes = field(default_factory=StageTimes)  #: seconds in each stage
    traffic: Traffic = field(default_factory=Traffic)  #: bytes moved


@dataclass(frozen=True, kw_only=True)
class EpochSums:
    """Sums over all devices of an unfinished epoch, from which a resumed run continues."""

    num_batches: Positive
    num_seeds: Positive
    num_edges: Positive
    num_vertices: Positive
    loss: float  #: summed over the seeds
    #: seconds since the epoch began, without the time between stop and resumption
    seconds: Annotated[float, msgspec.Meta(gt=0)]
    devices: tuple[DeviceTotals, ...] = ()  #: empty if resumed with different devices
    #: metrics of this worker's device; a checkpoint stores them in ``workers``
    counters: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DeviceStep:
    """One device's part of a training step."""

    num_seeds: int  #: seeds of its slice of the mini-batch
    threads: Threads  #: host threads of its stages
    stages: StageTimes  #: seconds in each stage; 0 for a stage that the device does not have
    traffic: Traffic  #: bytes that its slice moved


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """A finished training step."""

    epoch: int  #: epoch of the step, from 1
    step: int  #: number of the step in the epoch, from 1
    num_steps: int  #: steps of an epoch
    mean_loss: float  #: running mean over the epoch's seeds so far
    num_edges: int  #: edges traversed in the epoch so far
    seconds: float  #: time since the epoch began
    global_step: int  #: number of the step in the run, from 0
    loss: float  #: mean over this step's seeds
    devices: tuple[DeviceStep, ...]  #: each device's part of the step
    #: decision of dynamic resource management after the step; None without a change
    decision: str | None = None


@dataclass(frozen=True, kw_only=True)
class DeviceEpoch:
    """One device's part of an epoch."""

    name: str  #: label in the device plan
    kind: str  #: kind in the device plan, such as ``cpu`` or ``emulated``
    figures: str  #: kind of its results, ``Device.figures``: measured, emulated, estimated
    batch_share: float  #: mean share of a mini-batch's seeds, 0 to 1
    threads: dict[str, int]  #: host threads of ``sample``, ``load``, ``propagate`` at the end
    #: seconds in each stage; None for a stage that the device does not have
    stage_times_s: dict[str, float | None]
    traffic: Traffic  #: bytes that its slices moved
    host_to_device_bytes: int | None  #: bytes of its mini-batches over its link, if any
    peak_rss_bytes: int  #: largest resident set of its worker process so far
    #: current proportional set of the process, in which a page shared by n workers counts as 1/n;
    #: None if the system does not report it
    pss_bytes: int | None
    #: use of the GPU while it trained, by NVML; None without a GPU, and for a GPU that a device of
    #: a lower rank reports
    gpu: GpuUse | None = None
    #: metrics of this kind of device alone. Emulated devices have ``late_s`` (seconds by which the
    #: host was slower than the emulated device), ``late_stages``, ``late_steps``.
    counters: dict[str, int | float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """A finished epoch, one line of ``metrics.jsonl``."""

    epoch: int  #: number of the epoch, from 1
    train_loss: float  #: mean over the training vertices, each under the weights of its own step
    valid_metric: float | None  #: first validation metric; None if not validated, or not defined
    lr: float  #: learning rate of the last step
    epoch_time_s: float  #: seconds of training, without checkpoint and validation
    eval_time_s: float | None  #: seconds of validation; None if not validated
    num_edges: int  #: edges traversed, over all layers and mini-batches
    num_vertices: int  #: vertices traversed, over all layers and mini-batches
    #: seconds in each stage on its slowest device; None for a stage that no device has
    stage_times_s: dict[str, float | None]
    peak_rss_bytes: int  #: largest resident set of any process of the run so far
    devices: tuple[DeviceEpoch, ...] = ()  #: each device's part of the epoch
    #: share of the usable cores that other programs have kept busy since the run's first step, 0 to
    #: 1; None if unknown: several machines, the first 2 seconds, or an epoch without gathering
    other_load: float | None = None
    #: validation metrics by name, ``valid_metric`` first; None for an undefined metric. Empty if
    #: the epoch was not validated.
    valid_metrics: dict[str, float | None] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-compatible values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class DroppedProcessors:
    """Processors that a run drops because its accelerator is as fast without them."""

    names: tuple[str, ...]  #: labels of the processors
    position: int  #: position of the accelerator in the plan
    name: str  #: label of the accelerator
    step_with_s: float  #: seconds of a profiled step with the processors
    step_without_s: float  #: seconds of a profiled step without them

    @property
    def line(self) -> str:
        """Line of the log about the dropped processors."""
        return (
            f"{', '.join(self.names)} left out: a step takes {self.step_with_s * 1e3:.2f} ms with "
            f"and {self.step_without_s * 1e3:.2f} ms without"
        )


@dataclass(frozen=True, kw_only=True)
class NetworkStats:
    """Sizes in the row exchange between machines that shard the features."""

    num_machines: int
    row_bytes: int  #: bytes of a stored row
    id_bytes: int  #: bytes of a vertex id in a request


@dataclass(frozen=True, kw_only=True)
class RunLayout:
    """Device plan of a run with its predictions, partition and caches."""

    plan: DevicePlan  #: the device plan that the run begins with
    #: predictions of the performance model, on rank 0; None on other ranks
    predicted: equations.PlanPredictions | None = None
    planning_s: float | None = None  #: seconds of planning, profiling runs included
    #: bytes that a step is expected to move, data-parallel and with P3; None if the model cannot be
    #: split
    step_bytes: stage_work.StepBytes | None = None
    partition: PartitionStats | None = None  #: None if the graph is not partitioned
    cache: CacheStats | None = None  #: None without caches
    #: number of devices without a requested cache, and the reason; None if no device lacks one
    uncached: Uncached | None = None
    #: NVLinks between each pair of GPUs, in plan order; None without GPUs or if NVML does not say
    nvlink: tuple[tuple[int, ...], ...] | None = None
    left_out: DroppedProcessors | None = None  #: None if no processor is dropped
    network: NetworkStats | None = None  #: None unless machines shard the features


@dataclass(frozen=True, kw_only=True)
class GraphStats:
    """Sizes of the training graph and its split."""

    num_vertices: int
    num_edges: int  #: directed edges along which messages are sent
    num_features: int
    feature_dtype: str  #: type of the stored rows; int8 and int4 are lossy
    num_classes: int  #: classes, or targets of regression
    split_of: str  #: ``vertices``, ``edges`` or ``rows``: the elements of the split
    split: tuple[int, ...]  #: sizes of training, validation and test set
    classes: Sequence[str] | None = None  #: names of the classes; None without names
    #: share of positives by part of the split, if a metric is to be compared with it
    base_rates: dict[str, float] = field(default_factory=dict)


class MeasuredRun:
    """Base of runs with records of epochs and test metrics, by which it finds the best epoch."""

    history: Sequence[EpochRecord]
    test_metrics: Mapping[str, float | None]
    metric: str

    @property
    def test_metric(self) -> float | None:
        """Test metric under the weights of ``best_epoch``; None before the test, or not defined."""
        return self.test_metrics.get(self.metric)

    @property
    def best_epoch(self) -> int | None:
        """First epoch, from 1, with the best validation metric, else the last; None: no epoch."""
        return best_number([record.valid_metric for record in self.history], self.metric)

    @property
    def valid_metrics(self) -> dict[str, float | None]:
        """All validation metrics of the best epoch, by name."""
        best = self.best_epoch
        return {} if best is None else self.history[best - 1].valid_metrics

    @property
    def valid_metric(self) -> float | None:
        """Validation metric of the best epoch; None: not validated, or not defined."""
        best = self.best_epoch
        return None if best is None else self.history[best - 1].valid_metric


@dataclass(frozen=True, kw_only=True)
class TrainResult(MeasuredRun):
    """Result of a training run, which has not begun, was stopped, or is finished."""

    dataset: str  #: name of the graph
    model: str  #: name of the model's options class
    seed: int
    layout: RunLayout  #: device plan, partition and caches
    measures: tuple[str, ...]  #: names of the metrics; the first selects the best epoch
    ceiling: float | None  #: best test accuracy that the graph's generator allows; None if unknown
    history: Sequence[EpochRecord]  #: records of all epochs, with the epochs before a resumption
    graph: GraphStats | None = None  #: sizes of the graph and its split; None if unknown
    #: test metrics under the weights of ``best_epoch``, by name; empty if the run stopped before
    #: the test
    test_metrics: dict[str, float | None] = field(default_factory=dict)
    #: test metrics if training in-degrees rank the candidates of links; empty for other tasks
    test_popularity: dict[str, float | None] = field(default_factory=dict)
    test_classes: ClassCounts | None = None  #: test counts per class; None without classes
    thresholds: Thresholds | None = None  #: thresholds of the test metrics; None: 0.5
    stopped_early: bool = False  #: whether patience or an observer ended training early
    steps_per_epoch: int | None = None  #: steps of an epoch; None before a run has begun
    steps_done: int = 0  #: steps over all epochs, with the epochs before a resumption

    @property
    def plan(self) -> DevicePlan:
        """The device plan that the run began with."""
        return self.layout.plan

    @property
    def metric(self) -> str:  # type: ignore[override]
        """Name of the metric in ``valid_metric`` and ``test_metric``."""
        return self.measures[0]

    def epochs_of(self, rank: int) -> dict[int, DeviceEpoch]:
        """Return, by number, the records of the epochs that the plan's device ``rank`` trained."""
        device = self.plan.shares[rank].device
        records = ((e.epoch, e.devices[rank]) for e in self.history if rank < len(e.devices))
        return {
            epoch: record
            for epoch, record in records
            if (record.name, record.kind) == (device.label, device.kind)
        }


def best_epoch(history: Sequence[EpochRecord], metric: str) -> int | None:
    """Return the first epoch, from 1, with the best validation metric; without any, the last."""
    return best_number([record.valid_metric for record in history], metric)


def best_number(metrics: Sequence[float | None], metric: str) -> int | None:
    """Return ``best_epoch`` by the validation metric of each epoch; None: not validated."""
    best = _best(metrics, metric)
    return len(metrics) or None if best is None else best + 1


def num_validations_since_best(metrics: Sequence[float | None], metric: str) -> int:
    """Return the number of validations after the best of ``metrics``; None is no validation."""
    best = _best(metrics, metric)
    return 0 if best is None else sum(value is not None for value in metrics[best + 1 :])


def _best(metrics: Sequence[float | None], metric: str) -> int | None:
    """Return the index of the first best value by ``metric``'s direction; None: no value."""
    best, best_value = None, math.nan
    for index, value in enumerate(metrics):
        if value is not None and (best is None or better(metric, value, best_value)):
            best, best_value = index, value
    return best


class StopTraining(Exception):  # noqa: N818
    """Exception by which an observer ends training after the epoch in progress.

    That epoch is validated and saved, the best weights are tested, and all observers get
    ``finished``. Raised in ``finished_epoch``, it ends training after the recorded epoch.
    The reason in ``StopTraining("REASON")`` is logged.
    """


class Observer:
    """Base of custom observers, whose methods receive the events of a run in definition order.

    All methods do nothing; a subclass overrides those it needs and must not change their arguments.
    They are called from one thread of the launching process. ``StopTraining`` ends training; any
    other exception ends the run immediately, and ``gnnscale.train`` raises it.
    """

    def started(self, run: TrainResult) -> None:
        """Receive the run before its first step; ``run.history`` has epochs before a resumption."""

    def stepped(self, record: StepRecord) -> None:
        """Receive a finished training step."""

    def traced(self, spans: StructArray) -> None:
        """Receive spans of all devices' stages since the last call, ``[num_spans]`` of ``SPAN``."""

    def trained(self) -> None:
        """Receive the end of an epoch's last step; a checkpoint and validation may follow."""

    def finished_epoch(self, record: EpochRecord) -> None:
        """Receive an epoch after its validation."""

    def finished(self, run: TrainResult) -> None:
        """Receive the run after its last epoch and the test of its best weights."""

    def close(self) -> None:
        """Release resources; the last call, also after a failure."""


class RunObserver(Observer):
    """Base of the observer that forwards events to all observers and knows if one ends training."""

    may_stop: bool = False  #: whether an observer may end training: epochs wait for it
    stop_requested: bool = False  #: whether an observer has requested the end of training
