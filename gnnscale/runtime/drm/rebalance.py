"""One decision of dynamic resource management: a pure function of the stage times.

Every worker has the same times, and comes to the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnnscale.core.stages import StageTimes
from gnnscale.plan import DevicePlan
from gnnscale.runtime.drm import algorithm1, balance_work, task_times
from gnnscale.runtime.drm.balance_thread import balance_thread, take_back
from gnnscale.runtime.drm.damping import Damping
from gnnscale.runtime.drm.move import Move


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What ``rebalance`` decides."""

    plan: DevicePlan  #: the plan from now on; equal to the one before if nothing is to be gained
    damping: Damping  #: to be handed to the next decision
    move: str | None = None  #: what is done and why, one line; None if nothing is
    #: the paper's name of the task that takes longest; None if nothing was measured
    bottleneck: str | None = None


def rebalance(
    plan: DevicePlan,
    stages: Sequence[StageTimes],
    damping: Damping,
    *,
    movable: bool = True,
    counted: bool = False,
) -> Decision:
    """Make one decision of dynamic resource management (HyScale-GNN, section IV-A).

    Algorithm 1 chooses the move. If it chooses ``balance_thread``, work is moved instead if that
    promises more: in the paper a CPU task serves all devices alike, here every worker has its own,
    and what one of them is late with may be a matter of its share. Work also moves if no
    thread can be taken, as on two cores, when every task has one.

    Moves settle (see ``Damping``). One that promises less than the dead band is not made; work goes
    a smaller part of its way after each change of direction; a trade of threads that did not make
    its receiver faster, or made the step slower, is taken back and not tried again for a while, and
    one that did is not reversed for a while.

    Args:
        movable: whether seeds may move between devices; threads may in any case.
        counted: whether the times are those of counted work, which the move's line then states.
    """
    pairs = zip(plan.shares, stages, strict=True)
    tasks = [task_times.TaskTimes.of_device(share, times).tasks() for share, times in pairs]
    seconds = [max(each.values()) for each in tasks]
    if max(seconds) <= 0:
        return Decision(plan=plan, damping=damping)
    longest = task_times.TaskTimes.of(plan, stages).tasks()
    choice = algorithm1.algorithm_1(longest)
    damping = damping.observe(plan, seconds)
    if (failed := damping.failed_trade(tasks)) is not None:
        proposals = [take_back(plan, failed)]
    else:
        thread = balance_thread(
            plan,
            tasks,
            givers=choice.givers,
            bottleneck=choice.bottleneck,
            tabu_trades=[trade for trade, _ in damping.tabu_trades],
        )
        work = balance_work.propose_work(plan, damping) if movable else None
        proposals = [each for each in (thread, work) if each is not None]
    bottleneck = f"{choice.bottleneck} {longest[choice.bottleneck] * 1000:.1f}"
    best = max(proposals, key=lambda each: each.promise, default=None)
    move = None if best is None or best.promise < damping.threshold else best
    return Decision(
        plan=plan if move is None else move.plan,
        damping=damping.after(move, tasks),
        move=_describe(plan, move, f"{bottleneck} ms{' by counted work' if counted else ''}"),
        bottleneck=choice.bottleneck,
    )


def _describe(plan: DevicePlan, move: Move | None, bottleneck: str) -> str | None:
    """Say in one line what is done and why."""
    if move is None or move.plan == plan:
        return None
    names = [share.device.label for share in plan.shares]
    if move.trade is not None:
        ends = (move.trade.giver, move.trade.receiver)
        giver, receiver = (f"{each.task} of {names[each.device]}" for each in ends)
        what = f"1 thread {'back ' if move.takes_back else ''}from {giver} to {receiver}"
    else:
        pairs = list(zip(names, move.shift, strict=True))
        givers = ", ".join(name for name, change in pairs if change < 0)
        takers = ", ".join(name for name, change in pairs if change > 0)
        moved = sum(change for change in move.shift if change > 0)
        what = f"{'1 seed' if moved == 1 else f'{moved} seeds'} from {givers} to {takers}"
    return f"{bottleneck} is the bottleneck: {what}"
