"""The state of a training run: its open parts, and where it stands."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import Tensor

from gnnscale.core.metrics import ClassCounts
from gnnscale.data.tables.vertex_ids import read_classes
from gnnscale.distributed.process_group import Group
from gnnscale.graph import SplitLabels
from gnnscale.run import records
from gnnscale.run.checkpoint.writer import RunCheckpoint
from gnnscale.run.config import RunConfig
from gnnscale.run.history import History
from gnnscale.run.tasks.base import Task, ceiling
from gnnscale.run.tasks.edges import EdgeTask
from gnnscale.run.tasks.links import LinkTask
from gnnscale.training.gradient_sync import StepTotals
from gnnscale.training.pipeline.slices import BatchSlice
from gnnscale.training.pipeline.step import WorkerStep
from gnnscale.training.worker.device import WorkerDevice
from gnnscale.training.worker.model_state import ModelState, TrainInputs
from gnnscale.training.worker.schedule import BatchSchedule


@dataclass(kw_only=True)
class Progress:
    """The epochs and steps that are done."""

    steps_per_epoch: int  #: steps of an epoch
    steps_done: int = 0  #: over all epochs; with the seed it fixes samples and dropout
    #: the first validation metric of every epoch done, None for one without
    metrics: list[float | None] = field(default_factory=list)
    #: records of the epochs done, on rank 0
    history: History = field(default_factory=History)
    #: the record of an epoch that is trained and not done, on rank 0; else None
    unvalidated: records.EpochRecord | None = None
    #: the model's state after the best epoch, on rank 0
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    #: what the epoch had added up that the run continues; None at the start of an epoch
    resumed: records.EpochSums | None = None

    @property
    def epoch(self) -> int:
        """Epochs done: trained, and validated if that was due."""
        return len(self.metrics)

    @property
    def steps_left(self) -> int:
        """Steps of the epoch that is not done; 0 if only its validation is missing."""
        return (self.epoch + 1) * self.steps_per_epoch - self.steps_done


@dataclass(kw_only=True)
class TrainState:
    """One worker's view of a training run."""

    config: RunConfig  #: its options
    group: Group  #: the workers of the run
    data: TrainInputs  #: what is trained on
    learning: ModelState  #: the model and its optimizer
    device: WorkerDevice  #: this worker's device
    checkpoint: RunCheckpoint  #: where the run is saved
    progress: Progress  #: how far it has come
    may_stop: bool = False  #: whether an observer may end training, on every rank alike
    stopped: bool = False  #: whether one has
    layout: records.RunLayout = field(init=False)  #: what its devices do and keep
    schedule: BatchSchedule = field(init=False)  #: what is trained when

    @property
    def step(self) -> WorkerStep:
        """What a training step does after the stages."""
        return self.device.step

    @property
    def metric(self) -> str:
        """What decides which epoch is the best."""
        return self.data.task.measures[0]

    @property
    def awaits_validation(self) -> bool:
        """Whether an epoch is trained that is not done: the run continues from its checkpoint."""
        return self.progress.steps_left <= 0

    def wants_checkpoint(self, step: int) -> bool:
        """Whether a checkpoint is due after ``step``; rank 0 says so for all.

        It must be a step after which weights are updated, since no gradients are kept, and not the
        last one of an epoch, which ends with a separate decision.

        Raises:
            OSError: the last checkpoint could not be written.
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
        done = self.progress.epoch >= self.config.epochs
        return done or self.out_of_patience or self.stopped

    @property
    def out_of_patience(self) -> bool:
        """Whether ``runtime.patience`` validations in a row brought nothing better."""
        patience = self.config.runtime.patience
        return (
            patience is not None and records.waited(self.progress.metrics, self.metric) >= patience
        )

    @property
    def may_end_early(self) -> bool:
        """Whether any epoch may turn out to be the last, on every rank alike."""
        return self.may_stop or self.follows_metrics

    @property
    def follows_metrics(self) -> bool:
        """Whether validation decides how the run continues, on every rank alike."""
        config = self.config
        return config.runtime.patience is not None or config.optimizer.follows_metrics

    @property
    def learning_rate(self) -> float:
        """Learning rate of the epoch to come, after its warm-up."""
        metrics = [each for each in self.progress.metrics if each is not None]
        return self.config.optimizer.learning_rate(
            self.progress.epoch, epochs=self.config.epochs, metrics=metrics, metric=self.metric
        )

    def begin_epoch(self) -> Iterator[BatchSlice]:
        """Yield the epoch's slices: sampled, loaded, transferred; and set each step's rate."""
        self.learning.trained.train()
        rate, num_steps = self.learning_rate, self.progress.steps_per_epoch
        for _ in range(self.progress.steps_left):
            batch = next(self.schedule.pipeline)
            part = self.config.optimizer.warm_up(batch.step, steps_per_epoch=num_steps)
            self.learning.set_rate(rate * part)
            yield batch

    def rebalance(self, batch: BatchSlice, totals: StepTotals) -> str | None:
        """Let dynamic resource management look at a step, and return what it decides."""
        self.progress.steps_done = batch.step + 1
        full = batch.num_seeds == self.data.order.batch_size
        return self.schedule.rebalance(batch, totals, full=full)

    def result(
        self,
        test_metrics: dict[str, float | None] | None = None,
        test_classes: ClassCounts | None = None,
    ) -> records.TrainResult:
        """Describe the run so far."""
        graph, progress = self.data.graph, self.progress
        return records.TrainResult(
            dataset=graph.name,
            model=self.config.model.name,
            seed=self.config.seed,
            layout=self.layout,
            measures=self.data.task.measures,
            ceiling=ceiling(graph, self.metric),
            history=progress.history,
            graph=_figures_of(self.data.task),
            test_metrics=test_metrics or {},
            test_classes=test_classes,
            stopped_early=(self.out_of_patience or self.stopped)
            and progress.epoch < self.config.epochs,
            steps_per_epoch=progress.steps_per_epoch,
            steps_done=progress.steps_done,
        )


def _figures_of(task: Task) -> records.GraphStats:
    """Count what a run trains on, validates and tests."""
    graph, of_edges = task.graph, isinstance(task, EdgeTask)
    labels: SplitLabels = task.labels if isinstance(task, EdgeTask) else graph
    parts = (
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
        split_of="edges" if isinstance(task, LinkTask | EdgeTask) else "vertices",
        split=tuple(len(each) for each in parts),
        classes=read_classes(graph, edges=of_edges),
    )
