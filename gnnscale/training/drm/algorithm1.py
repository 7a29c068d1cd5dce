"""Algorithm 1 of HyScale-GNN (section IV-A): which move shortens the bottleneck."""

from collections.abc import Mapping
from dataclasses import dataclass

from gnnscale.training.drm.task_times import CPU_TASKS, T_ACCEL, T_LOAD, T_SA, T_SC


@dataclass(frozen=True, kw_only=True)
class BottleneckMove:
    """Bottleneck task and kind of move, as Algorithm 1 chooses them."""

    bottleneck: str  #: the longest task
    move: str  #: ``balance_work`` or ``balance_thread``
    #: CPU tasks, fastest first, that may give a thread
    givers: tuple[str, ...] = ()


def algorithm_1(tasks: Mapping[str, float]) -> BottleneckMove:
    """Choose the move that should shorten the longest task, by HyScale-GNN's Algorithm 1.

    The move is of seeds between devices (``balance_work``), or of a thread from one of ``givers``
    (``balance_thread``). Line 1 of the algorithm is in ``TaskTimes.tasks``.

    Args:
        tasks: seconds of each task, by the paper's name, on the slowest device that has the task.
            Only tasks of the run: a missing one, at 0 seconds, would always be the fastest.
    """
    sorted_all = sorted(tasks, key=lambda task: -tasks[task])  # line 2
    fastest = sorted_all[-1]  # line 3
    second = sorted_all[-2] if len(sorted_all) > 1 else None  # line 4
    bottleneck = sorted_all[0]  # line 5
    sorted_cpu = [task for task in sorted_all if task in CPU_TASKS]  # line 7

    work = BottleneckMove(bottleneck=bottleneck, move="balance_work")
    # Line 8 takes the last CPU task; the next fastest stands in if it has no thread to spare. Lines
    # 23 and 31 say "fastest", but only CPU tasks have threads to give, as the text says.
    thread = BottleneckMove(
        bottleneck=bottleneck, move="balance_thread", givers=tuple(reversed(sorted_cpu))
    )
    if bottleneck in (T_SA, T_ACCEL):  # lines 11 to 14
        return work
    if bottleneck == T_LOAD:  # lines 15 and 16
        return thread
    counterpart, other = (T_SA, T_ACCEL) if bottleneck == T_SC else (T_ACCEL, T_SA)
    if fastest == counterpart:  # lines 18 and 26
        return work
    if fastest == other and second == counterpart:  # lines 20 and 28
        return work
    return thread  # lines 23 and 31
