"""State of a training run: its open parts, and its progress."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from torch import Tensor

from gnnscale.data.tables.vertex_ids import read_classes
from gnnscale.distributed.process_group import Group
from gnnscale.graph import SplitLabels
from gnnscale.inference.evaluate import HeldOutScores, Validator
from gnnscale.run import records
from gnnscale.run.checkpoint.writer import RunCheckpoint
from gnnscale.run.history import History
from gnnscale.run.tasks.base import EdgeTask, LabelTask, Task, ceiling
from gnnscale.run.tasks.links import LinkTask
from gnnscale.run.tasks.rows import RowTask
from gnnscale.training.gradient_sync import StepTotals
from gnnscale.training.pipeline import BatchSlice, WorkerStep
from gnnscale.training.planning.cost_estimates import PlanOptions
from gnnscale.training.worker.device import WorkerDevice
from gnnscale.training.worker.model_state import ModelState, TrainInputs
from gnnscale.training.worker.schedule import BatchSchedule


@dataclass(kw_only=True)
class Progress:
    """Progress of a run: finished epochs and steps, metrics and best weights."""

    steps_per_epoch: int  #: steps of an epoch
    steps_done: int = 0  #: over all epochs; determines samples and dropout
    #: first validation metric of each finished epoch; None: not validated, or not defined
    metrics: list[float | None] = field(default_factory=list)
    history: History = field(default_factory=History)  #: records of the finished epochs, on rank 0
    #: record of an epoch that is trained but not yet finished, on rank 0; None otherwise
    unvalidated: records.EpochRecord | None = None
    #: the model's state after the best epoch, on rank 0
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    #: totals of the epoch that a checkpoint interrupted; None at the start of an epoch
    resumed: records.EpochSums | None = None

    @property
    def epoch(self) -> int:
        """Number of finished epochs: trained, and validated if validation was due."""
        return len(self.metrics)

    @property
    def steps_left(self) -> int:
        """Steps left in the current epoch; 0 if only its validation is left."""
        return (self.epoch + 1) * self.steps_per_epoch - self.steps_done


@dataclass(kw_only=True)
class TrainState:
    """State of a training run in one worker."""

    model_name: str  #: the model's name in reports
    epochs: int  #: epochs of the run
    patience: int | None  #: validations without a better metric before the end
    options: PlanOptions  #: options of the device plan and of its changes
    group: Group  #: the workers of the run
    data: TrainInputs  #: graph, task, partition and cache plan
    learning: ModelState  #: the model and its optimizer
    device: WorkerDevice  #: this worker's device
    checkpoint: RunCheckpoint  #: writes and reads checkpoints
    open_validator: Callable[[], Validator]  #: returns the validation and test of the model
    progress: Progress  #: finished steps and epochs
    may_stop: bool = False  #: whether an observer may end training; equal on every rank
    stopped: bool = False  #: whether an observer has ended training
    layout: records.RunLayout = field(init=False)  #: plan, predictions and caches of the devices
    schedule: BatchSchedule = field(init=False)  #: slices in the order of steps, prepared ahead

    @property
    def step(self) -> WorkerStep:
        """Object that propagates, synchronizes and updates for a slice."""
        return self.device.step

    @property
    def metric(self) -> str:
        """Name of the metric that decides which epoch is the best."""
        return self.data.task.measures[0]

    @property
    def awaits_validation(self) -> bool:
        """Whether the run resumes after an epoch that is trained but not validated."""
        return self.progress.steps_left <= 0

    def wants_checkpoint(self, step: int) -> bool:
        """Whether rank 0 requests a checkpoint after ``step``; False on the other ranks.

        ``step`` must update the weights, because a checkpoint has no gradients. The last step of an
        epoch has a separate decision. OSError if the last checkpoint could not be written.
        """
        if not self.group.is_rank0:
            return False
        self.checkpoint.check()
        ends_epoch = (step + 1) % self.progress.steps_per_epoch == 0
        updates = not ends_epoch and self.step.updates_after(step)
        return updates and self.checkpoint.is_due_inside

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, patience has run out, or an observer has ended training."""
        done = self.progress.epoch >= self.epochs
        return done or self.out_of_patience or self.stopped

    @property
    def out_of_patience(self) -> bool:
        """Whether the last ``runtime.patience`` validations brought no improvement."""
        if self.patience is None:
            return False
        num_worse = records.num_validations_since_best(self.progress.metrics, self.metric)
        return num_worse >= self.patience

    @property
    def may_end_early(self) -> bool:
        """Whether metrics or observers may end training or lower the rate; equal on every rank."""
        follows_metrics = self.learning.optimizer_options.follows_metrics
        return self.may_stop or self.patience is not None or follows_metrics

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next epoch, without the factor of the warm-up."""
        metrics = [metric for metric in self.progress.metrics if metric is not None]
        return self.learning.optimizer_options.learning_rate(
            self.progress.epoch, epochs=self.epochs, metrics=metrics, metric=self.metric
        )

    def begin_epoch(self) -> Iterator[BatchSlice]:
        """Yield the prepared slices left in the epoch, and set each step's learning rate."""
        self.learning.trained.train()
        rate, num_steps = self.learning_rate, self.progress.steps_per_epoch
        optimizer = self.learning.optimizer_options
        for _ in range(self.progress.steps_left):
            batch = next(self.schedule.pipeline)
            factor = optimizer.warm_up(batch.step, steps_per_epoch=num_steps)
            self.learning.set_rate(rate * factor)
            yield batch

    def rebalance(self, batch: BatchSlice, totals: StepTotals) -> str | None:
        """Count a finished step, and rebalance after it; return a move's log line, or None."""
        self.progress.steps_done = batch.step + 1
        full = batch.num_seeds == self.data.order.batch_size
        return self.schedule.rebalance(batch, totals, full=full)

    def result(self, outcome: HeldOutScores | None = None) -> records.TrainResult:
        """Return the result of the run so far, with the test's ``outcome`` if there is one."""
        outcome = outcome or HeldOutScores(metrics={})
        graph, progress = self.data.graph, self.progress
        return records.TrainResult(
            dataset=graph.name,
            model=self.model_name,
            seed=self.data.seed,
            layout=self.layout,
            measures=self.data.task.measures,
            ceiling=ceiling(graph, self.metric),
            history=progress.history,
            graph=_graph_stats(self.data.task),
            test_metrics=outcome.metrics,
            test_classes=outcome.classes,
            test_popularity=outcome.popularity,
            thresholds=outcome.thresholds,
            stopped_early=(self.out_of_patience or self.stopped) and progress.epoch < self.epochs,
            steps_per_epoch=progress.steps_per_epoch,
            steps_done=progress.steps_done,
        )


def _graph_stats(task: Task) -> records.GraphStats:
    """Return the sizes of the graph, its split and its classes."""
    graph, is_edge_task = task.graph, isinstance(task, EdgeTask)
    labels: SplitLabels = task.labels if isinstance(task, EdgeTask | RowTask) else graph
    sets = (
        (task.split.train, task.split.valid, task.split.test)
        if isinstance(task, LinkTask)
        else (labels.split.train_idx, labels.split.valid_idx, labels.split.test_idx)
    )
    return records.GraphStats(
        num_vertices=graph.num_vertices,
        num_edges=graph.num_edges,
        num_features=graph.num_features,
        feature_dtype=graph.feature_dtype,
        num_classes=labels.num_classes,
        split_of="edges" if isinstance(task, LinkTask | EdgeTask) else _labelled(task),
        split=tuple(len(ids) for ids in sets),
        classes=task.labels.classes
        if isinstance(task, RowTask)
        else read_classes(graph, edges=is_edge_task),
        base_rates=task.base_rates if isinstance(task, LabelTask) else {},
    )


def _labelled(task: Task) -> str:
    """Return the elements of the split of a task on vertices or rows."""
    return "rows" if isinstance(task, RowTask) else "vertices"
