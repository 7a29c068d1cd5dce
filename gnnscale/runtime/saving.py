"""When a run is saved: inside epochs and behind them, and its best weights once they are known."""

from __future__ import annotations

from collections.abc import Sequence

from gnnscale.runtime.checkpoint.worker_part import WorkerPart
from gnnscale.runtime.state import TrainState
from gnnscale.runtime.telemetry.epoch_sums import EpochSums
from gnnscale.runtime.telemetry.records import EpochRecord, best_epoch

__all__ = ["keep_best", "save_behind_epoch", "save_inside_epoch"]


def save_inside_epoch(state: TrainState, sums: EpochSums) -> None:
    """Begin to write a checkpoint behind the step that is done; every worker calls this.

    The stages of later steps go on meanwhile.

    Args:
        state: where the run stands.
        sums: what the epoch has added up so far.
    """
    state.join()
    state.backend.buffers_out()
    part = WorkerPart(
        buffers=dict(state.trained.named_buffers()),
        rows=dict(state.step.rows),
        counters=sums.counters,
    )
    workers = state.group.gather(part.packed())
    if state.group.is_rank0:
        _save(state, state.history, sums, workers)


def save_behind_epoch(state: TrainState, trained: EpochRecord, *, last: bool) -> None:
    """Begin to write the checkpoint behind an epoch where it is due, on rank 0.

    Args:
        state: where the run stands; the whole model is up to date.
        trained: the epoch's record, which is yet to be validated.
        last: whether it is the last one, behind which the checkpoint is always written, and
            waited for.
    """
    state.checkpoint.check()
    if last:
        _save_and_wait(state, [*state.history, trained])
    elif state.checkpoint.is_due:
        _save(state, [*state.history, trained])


def keep_best(state: TrainState, trained: EpochRecord) -> None:
    """Keep the best weights, and write them along with the checkpoint of the epoch, on rank 0.

    Args:
        state: where the run stands; the epoch is validated, and the last one of ``history``.
        trained: its record from before.
    """
    best = best_epoch(state.history, state.measures[0])
    assert best is not None
    if best == state.epoch:
        weights = state.model.state_dict()
        state.best_weights = {name: value.clone() for name, value in weights.items()}
    if not state.config.runtime.checkpoint:
        return
    if state.finished and state.checkpoint.saved_step != state.steps_done:
        _save_and_wait(state, [*state.history[:-1], trained])
    if state.checkpoint.saved_step == state.steps_done:
        state.checkpoint.save_best(best, state.best_weights)
    if state.finished:
        state.checkpoint.wait()


def _save_and_wait(state: TrainState, history: Sequence[EpochRecord]) -> None:
    state.checkpoint.wait()
    _save(state, history)
    state.checkpoint.wait()


def _save(
    state: TrainState,
    history: Sequence[EpochRecord],
    sums: EpochSums | None = None,
    workers: Sequence[bytes] = (),
) -> None:
    if state.config.runtime.checkpoint:
        state.checkpoint.save(
            model=state.model,
            optimizer=state.optimizer_state,
            step=state.steps_done,
            history=history,
            best_weights=state.best_weights,
            plan=state.schedule.plan_of(state.steps_done),
            management=state.management,
            sums=sums,
            workers=workers,
        )
