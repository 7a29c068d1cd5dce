"""``balance_thread`` (HyScale-GNN, section IV-A): a thread moves from the fastest CPU task."""

from collections.abc import Collection, Mapping, Sequence

from gnnscale.plan import DevicePlan
from gnnscale.runtime.drm.move import HostTask, Move, Trade, num_threads


def balance_thread(
    plan: DevicePlan,
    tasks: Sequence[Mapping[str, float]],
    *,
    givers: Sequence[str],
    bottleneck: str,
    tabu_trades: Collection[Trade] = (),
) -> Move | None:
    """Find a thread of the fastest CPU task that the bottleneck makes better use of.

    It is given to the slowest device of the bottleneck task, and taken from the device that has
    most in the giving task; of several from the one whose task takes the least time. A task keeps
    at least one thread, and time is taken to be inverse to threads: if the giver would become
    as slow as the bottleneck was, the next task is asked.

    Args:
        tasks: seconds of each device's tasks, by the paper's names.
        givers: CPU tasks, the fastest first.

    Returns:
        The trade, which promises a part of the bottleneck's time; None if there is none: without
        prefetching no two tasks run at once, a task of which each device has one thread has none to
        give, and a device that computes itself takes none.
    """
    receivers = _host_tasks(plan, tasks, bottleneck)
    if not receivers:
        return None
    receiver, slowest = max(receivers.items(), key=lambda item: item[1])
    has = num_threads(plan.shares[receiver.device], bottleneck)
    for task in givers:
        found = {} if task == bottleneck else _host_tasks(plan, tasks, task)
        here = plan.shares[receiver.device].machine
        found = {
            each: seconds
            for each, seconds in found.items()
            if plan.shares[each.device].machine == here
        }
        if not found:
            continue

        def wealth(item: tuple[HostTask, float]) -> tuple[int, float]:
            return num_threads(plan.shares[item[0].device], item[0].task), -item[1]

        giver, fast = max(found.items(), key=wealth)
        spares = num_threads(plan.shares[giver.device], task)
        trade = Trade(giver=giver, receiver=receiver)
        if spares < 2 or trade in tabu_trades:
            continue
        after = max(slowest * has / (has + 1), fast * spares / (spares - 1))
        if after < slowest:
            return Move(plan=trade.apply(plan), promise=1 - after / slowest, trade=trade)
    return None


def take_back(plan: DevicePlan, trade: Trade) -> Move:
    """Return the move that undoes ``trade``, which was of no use."""
    back = trade.reverse
    return Move(plan=back.apply(plan), promise=1.0, trade=back, takes_back=True)


def _host_tasks(
    plan: DevicePlan, tasks: Sequence[Mapping[str, float]], task: str
) -> dict[HostTask, float]:
    """Seconds of ``task`` on the devices that run it with their own host threads."""
    return {
        HostTask(device=i, task=task): seconds[task]
        for i, (share, seconds) in enumerate(zip(plan.shares, tasks, strict=True))
        if task in seconds and num_threads(share, task)
    }
