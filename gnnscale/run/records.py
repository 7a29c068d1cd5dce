"""What a training run hands to its observers, and the sums of an epoch that a checkpoint keeps."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import msgspec

from gnnscale.cache import CacheStats, Uncached
from gnnscale.core import Count, Positive, StageTimes, StructArray, Traffic, better
from gnnscale.core.gpu import GpuUse
from gnnscale.core.metrics import ClassCounts
from gnnscale.partition import PartitionStats
from gnnscale.planner import DevicePlan, Threads
from gnnscale.planner.cost_model import equations
from gnnscale.planner.cost_model import stage_work as work


@dataclass(frozen=True, kw_only=True)
class DeviceTotals:
    """What one device has done in an epoch so far."""

    num_seeds: Count = 0  #: of its slices
    stages: StageTimes = field(default_factory=StageTimes)  #: seconds in each stage
    traffic: Traffic = field(default_factory=Traffic)  #: what its slices moved


@dataclass(frozen=True, kw_only=True)
class EpochSums:
    """An epoch that is not done: with these its record becomes that of an undisturbed one.

    An epoch without steps has no sums, and no mean loss.

    Attributes:
        num_batches, num_seeds, num_edges, num_vertices: so far, over all devices.
    """

    num_batches: Positive
    num_seeds: Positive
    num_edges: Positive
    num_vertices: Positive
    loss: float  #: summed over the seeds
    #: since the epoch began, without those in which the run stood still
    seconds: Annotated[float, msgspec.Meta(gt=0)]
    #: each device's part; empty if others go on than those that began
    devices: tuple[DeviceTotals, ...] = ()
    #: figures of this worker's own device; a checkpoint has them in ``workers``
    counters: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DeviceStep:
    """One device's part of a training step.

    Attributes:
        num_seeds: its slice of the mini-batch.
        threads: host threads of its stages.
        stages: seconds in each stage; 0 for one that it has not.
        traffic: what its slice moved.
    """

    num_seeds: int
    threads: Threads
    stages: StageTimes
    traffic: Traffic


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """A finished training step.

    Attributes:
        epoch: the epoch it belongs to, from 1.
        step: its number in the epoch, from 1.
        num_steps: steps of an epoch.
        mean_loss: running mean over the epoch's seeds so far.
        num_edges: edges traversed in the epoch so far.
        seconds: since the epoch began.
        global_step: its number in the run, from 0.
        loss: mean over this step's seeds.
        devices: what each device did in it.
        decision: what dynamic resource management decided after it, None for nothing.
    """

    epoch: int
    step: int
    num_steps: int
    mean_loss: float
    num_edges: int
    seconds: float
    global_step: int
    loss: float
    devices: tuple[DeviceStep, ...]
    decision: str | None = None


@dataclass(frozen=True, kw_only=True)
class DeviceEpoch:
    """One device's part of an epoch.

    Attributes:
        name: as in the device plan.
        kind: as in the device plan: ``cpu``, ``emulated``.
        figures: the kind of its figures, ``Device.figures``.
        batch_share: mean part of a mini-batch's seeds.
        threads: host threads of ``sample``, ``load``, ``propagate`` at the end of the epoch.
        stage_times_s: seconds in each stage, None for a stage that it has not.
        traffic: what its slices moved.
        host_to_device_bytes: of its mini-batches over its link, None without a link.
        peak_rss_bytes: largest resident set of its worker process so far.
        pss_bytes: proportional set of the process now: pages shared with other workers count once
            over all of them; None if the system does not report it.
        gpu: what the GPU that it is took while it trained, by NVML; None of any other device, and
            of a GPU that a device of a lower rank counts.
        counters: figures that only this kind of device has; for emulated ones ``late_s``, the
            seconds by which the host was slower than what it emulates, ``late_stages`` and
            ``late_steps``.
    """

    name: str
    kind: str
    figures: str
    batch_share: float
    threads: dict[str, int]
    stage_times_s: dict[str, float | None]
    traffic: Traffic
    host_to_device_bytes: int | None
    peak_rss_bytes: int
    pss_bytes: int | None
    gpu: GpuUse | None = None
    counters: dict[str, int | float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """A finished epoch, one line of ``metrics.jsonl``.

    Attributes:
        epoch: counted from 1.
        train_loss: mean over the training vertices, each under the weights of its own step.
        valid_metric: None if the epoch was not validated, or the metric is not defined.
        valid_metrics: all that the run measures, by name, that of ``valid_metric`` first; None for
            one that is not defined. Empty if the epoch was not validated.
        lr: learning rate, that of the last step.
        epoch_time_s: seconds of training, without checkpoint and validation.
        eval_time_s: seconds of validation, None if there was none.
        num_edges: edges traversed, over all layers and mini-batches.
        num_vertices: vertices traversed, over all layers and mini-batches.
        stage_times_s: seconds in each stage on the device that was slowest in it, None for a stage
            that this run has not.
        peak_rss_bytes: largest resident set of any process of the run so far.
        devices: what each device did.
    """

    epoch: int
    train_loss: float
    valid_metric: float | None
    lr: float
    epoch_time_s: float
    eval_time_s: float | None
    num_edges: int
    num_vertices: int
    stage_times_s: dict[str, float | None]
    peak_rss_bytes: int
    devices: tuple[DeviceEpoch, ...] = ()
    valid_metrics: dict[str, float | None] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values only, fit for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class DroppedProcessors:
    """The processors that a run leaves out: its accelerator is as fast alone."""

    names: tuple[str, ...]  #: of the processors
    position: int  #: of the accelerator in the plan
    name: str  #: of the accelerator
    step_with_s: float  #: seconds of a rehearsed step with them
    step_without_s: float  #: and without

    @property
    def line(self) -> str:
        """What is said of it."""
        return (
            f"{', '.join(self.names)} left out: a step takes {self.step_with_s * 1e3:.2f} ms with "
            f"and {self.step_without_s * 1e3:.2f} ms without"
        )


@dataclass(frozen=True, kw_only=True)
class NetworkStats:
    """What machines that divide the feature rows send each other."""

    num_machines: int
    row_bytes: int  #: bytes of a row, as it is stored
    id_bytes: int  #: bytes of the vertex by which it is asked for


@dataclass(frozen=True, kw_only=True)
class RunLayout:
    """What the devices of a run do and keep."""

    plan: DevicePlan  #: the device plan that the run begins with
    #: what the performance model predicts for it, on rank 0; None if not asked
    predicted: equations.PlanPredictions | None = None
    planning_s: float | None = None  #: seconds that finding it took, rehearsals included
    #: what a step is expected to move, data-parallel and as P3 does; None if the model cannot be
    #: split
    step_bytes: work.StepBytes | None = None
    #: what is known of the devices' parts; None if the graph is whole
    partition: PartitionStats | None = None
    #: what is known of the devices' caches; None if there are none
    cache: CacheStats | None = None
    #: devices that cache nothing although the options ask for caches; None for none
    uncached: Uncached | None = None
    #: NVLinks between each two GPUs of the plan, in its order; None without GPUs or an answer
    nvlink: tuple[tuple[int, ...], ...] | None = None
    left_out: DroppedProcessors | None = None  #: processors that the run left out; None for none
    network: NetworkStats | None = None  #: of divided rows; None if every machine has all


@dataclass(frozen=True, kw_only=True)
class GraphStats:
    """Sizes of what a run trains on."""

    num_vertices: int
    num_edges: int  #: directed edges, those of messages
    num_features: int
    feature_dtype: str  #: the type in which rows are stored; int8 and int4 are lossy
    num_classes: int  #: classes, or targets of regression
    split_of: str  #: ``vertices`` or ``edges``, what is trained, validated and tested
    split: tuple[int, ...]  #: how many train, validate and test
    classes: Sequence[str] | None = None  #: names of the classes; None without names


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """A training run: not yet begun, stopped, or finished.

    Attributes:
        dataset: name of the graph.
        model: name of the model's options class.
        seed: the run's seed.
        layout: what its devices do and keep.
        measures: what validation and test measure; the first decides which epoch is the best.
        ceiling: the best test accuracy that the graph's generator allows, None if not known.
        history: the epochs, those before a resumption included.
        graph: sizes of the graph and its split; None if not known.
        test_metrics: all of ``measures`` under the weights of ``best_epoch``, by name; empty if the
            run did not get there.
        test_classes: how these decide, class by class; None without classes.
        stopped_early: whether patience ran out, or an observer ended training, before the last
            epoch.
        steps_per_epoch: steps of an epoch; None before a run has begun.
        steps_done: over all epochs, those before a resumption included.
    """

    dataset: str
    model: str
    seed: int
    layout: RunLayout
    measures: tuple[str, ...]
    ceiling: float | None
    history: Sequence[EpochRecord]
    graph: GraphStats | None = None
    test_metrics: dict[str, float | None] = field(default_factory=dict)
    test_classes: ClassCounts | None = None
    stopped_early: bool = False
    steps_per_epoch: int | None = None
    steps_done: int = 0

    @property
    def plan(self) -> DevicePlan:
        """The device plan that the run began with."""
        return self.layout.plan

    @property
    def metric(self) -> str:
        """What ``valid_metric`` and ``test_metric`` are."""
        return self.measures[0]

    @property
    def test_metric(self) -> float | None:
        """Test metric under the weights of ``best_epoch``; None if the run did not get there."""
        return self.test_metrics.get(self.metric)

    @property
    def best_epoch(self) -> int | None:
        """The epoch with the best validation metric, from 1; None before the first."""
        return best_epoch(self.history, self.metric)

    @property
    def valid_metric(self) -> float | None:
        """Validation metric of the best epoch."""
        best = self.best_epoch
        return None if best is None else self.history[best - 1].valid_metric

    @property
    def valid_metrics(self) -> dict[str, float | None]:
        """All validation metrics of the best epoch, by name."""
        best = self.best_epoch
        return {} if best is None else self.history[best - 1].valid_metrics

    def epochs_of(self, rank: int) -> dict[int, DeviceEpoch]:
        """Return what a device of the plan did in each epoch.

        Before a run was resumed it may have had another device in this place.
        """
        device = self.plan.shares[rank].device
        mine = (device.label, device.kind)
        places = ((e.epoch, e.devices[rank]) for e in self.history if rank < len(e.devices))
        return {epoch: found for epoch, found in places if (found.name, found.kind) == mine}


def best_epoch(history: Sequence[EpochRecord], metric: str) -> int | None:
    """Return the first epoch, from 1, with the best validation metric.

    If no epoch has one, the last epoch is the best; if there is no epoch, None.

    Args:
        metric: what their ``valid_metric`` measures.
    """
    return best_number([each.valid_metric for each in history], metric)


def best_number(metrics: Sequence[float | None], metric: str) -> int | None:
    """Return as ``best_epoch`` does, of the validation metrics of all epochs, None without one."""
    best = _best(metrics, metric)
    if best is not None:
        return best + 1
    return len(metrics) or None


def waited(metrics: Sequence[float | None], metric: str) -> int:
    """Return how many validations in a row, up to now, brought nothing better.

    Args:
        metrics: the validation metric of every epoch, None if there is none.
    """
    best = _best(metrics, metric)
    return 0 if best is None else sum(each is not None for each in metrics[best + 1 :])


def _best(metrics: Sequence[float | None], metric: str) -> int | None:
    """Return where the first of the best metrics is, None if there is none."""
    best: tuple[int, float] | None = None
    for place, value in enumerate(metrics):
        if value is not None and (best is None or better(metric, value, best[1])):
            best = place, value
    return None if best is None else best[0]


class StopTraining(Exception):  # noqa: N818
    """Raised by an observer: training ends after the epoch in progress, as after the last epoch.

    That epoch is validated and saved, the best weights are tested, and the observers get
    ``finished``. Raised in ``finished_epoch``, it ends training after the epoch of the
    record. ``StopTraining("REASON")`` is logged with its reason.
    """


class Observer:
    """Receives the events of a run, in this order, and must not change them.

    These methods do nothing: a custom class has this one as its base, and the methods that it
    needs. It lives in the process that started the run, and is called from one thread. It ends
    training by raising ``StopTraining``; any other exception ends the run at once, and
    ``gnnscale.train`` raises it.
    """

    def started(self, run: TrainResult) -> None:
        """The run is set up; ``run.history`` has the epochs that it continues from."""

    def stepped(self, record: StepRecord) -> None:
        """A training step is done."""

    def traced(self, spans: StructArray) -> None:
        """Stages of the last steps, ``[num_spans]`` of ``SPAN``, of all devices."""

    def trained(self) -> None:
        """The last step of an epoch is done; a checkpoint and validation may follow."""

    def finished_epoch(self, record: EpochRecord) -> None:
        """An epoch and its validation are done."""

    def finished(self, run: TrainResult) -> None:
        """All epochs are done, and the best weights are tested."""

    def close(self) -> None:
        """Nothing follows, whatever the end: it comes last, and also if the run failed."""


class RunObserver(Observer):
    """All observers of a run together.

    Attributes:
        may_stop: whether one of them may end training, so that each epoch waits for them.
        stop_requested: whether one of them has asked to end training.
    """

    may_stop: bool = False
    stop_requested: bool = False
