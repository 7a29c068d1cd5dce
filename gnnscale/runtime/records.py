"""What a training run hands to whoever reports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

__all__ = ["EpochRecord", "Observer", "StepRecord", "TrainResult", "best_epoch", "waited"]


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """A finished training step.

    Attributes:
        epoch: the epoch it belongs to, from 1.
        step: its number in the epoch, from 1.
        num_steps: steps of an epoch.
        loss: mean over the epoch's seeds so far.
        num_edges: edges traversed in the epoch so far.
        seconds: since the epoch began.
    """

    epoch: int
    step: int
    num_steps: int
    loss: float
    num_edges: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """A finished epoch, one line of ``metrics.jsonl``.

    Attributes:
        epoch: counted from 1.
        train_loss: mean over the training vertices, each under the weights of its own step.
        valid_metric: None where the epoch was not validated, or the metric is not defined.
        lr: learning rate.
        epoch_time_s: seconds of training, without validation.
        eval_time_s: seconds of validation, None where there was none.
        num_edges: edges traversed, over all layers and mini-batches.
        num_vertices: vertices traversed, over all layers and mini-batches.
        stage_times_s: seconds in each stage, None for a stage that this run has not.
        peak_rss_bytes: largest resident set of the process so far.
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

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> EpochRecord:
        """Rebuild a record from ``asdict``, ignoring keys of another release."""
        names = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in values.items() if key in names})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values only, fit for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """A training run: not yet begun, stopped, or finished.

    Attributes:
        dataset: name of the graph.
        model: name of the model's options class.
        seed: the run's seed.
        metric: what ``valid_metric`` and ``test_metric`` measure.
        ceiling: the best test accuracy that the graph's generator allows, None where not known.
        history: the epochs, those before a resumption included.
        test_metric: under the weights of ``best_epoch``; None where the run did not get there.
        stopped_early: whether patience ran out before the last epoch.
    """

    dataset: str
    model: str
    seed: int
    metric: str
    ceiling: float | None
    history: tuple[EpochRecord, ...]
    test_metric: float | None = None
    stopped_early: bool = False

    @property
    def best_epoch(self) -> int | None:
        """The epoch with the best validation metric, from 1; None before the first."""
        return best_epoch(self.history)

    @property
    def valid_metric(self) -> float | None:
        """Validation metric of the best epoch."""
        best = self.best_epoch
        return None if best is None else self.history[best - 1].valid_metric


def best_epoch(history: Sequence[EpochRecord]) -> int | None:
    """Return the first epoch, from 1, with the highest validation metric.

    Where no epoch has one, the last epoch is the best; where there is no epoch, None.
    """
    best: EpochRecord | None = None
    for record in history:
        if record.valid_metric is None:
            continue
        if best is None or best.valid_metric is None or record.valid_metric > best.valid_metric:
            best = record
    best = best or (history[-1] if history else None)
    return None if best is None else best.epoch


def waited(history: Sequence[EpochRecord]) -> int:
    """Return how many validations in a row, up to now, brought nothing better."""
    best = best_epoch(history)
    if best is None:
        return 0
    return sum(record.valid_metric is not None for record in history if record.epoch > best)


class Observer(Protocol):
    """Is told what happens in a run, in this order, and must not change it."""

    def started(self, run: TrainResult) -> None:
        """The run is set up; ``run.history`` holds the epochs it resumes behind."""

    def stepped(self, record: StepRecord) -> None:
        """A training step is done."""

    def trained(self) -> None:
        """The last step of an epoch is done; validation may follow."""

    def finished_epoch(self, record: EpochRecord) -> None:
        """An epoch and its validation are done, and its checkpoint is on disk."""
