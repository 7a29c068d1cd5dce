"""How all workers agree on a plan: rank 0 searches, and every worker profiles its proposals."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence

from gnnscale.plan import Device, DevicePlan
from gnnscale.runtime.planning.profile import PlanProfile
from gnnscale.runtime.planning.search import PlanSearch
from gnnscale.runtime.sync.group import Group

__all__ = ["agree_on_plan"]

log = logging.getLogger(__name__)

#: Seconds of a step above which a rehearsal is announced.
_SLOW_S = 0.5


def agree_on_plan(
    search: PlanSearch | None,
    devices: Sequence[Device],
    group: Group,
    profile: Callable[[DevicePlan], PlanProfile],
) -> DevicePlan:
    """Profile the proposals of ``search`` until it has converged, and return its choice.

    Every worker calls this at the same time.

    Args:
        search: finds the plan, on rank 0; None on the others.
        devices: the devices of the plan.
        group: the workers.
        profile: trains a few steps under a plan.
    """
    while True:
        proposal = search and (search.plan.to_values(), search.converged)
        values, converged = group.broadcast_json(proposal)
        plan = DevicePlan.from_values(devices, values)
        if converged:
            return plan
        if search is not None and search.predicted.step_s > _SLOW_S:
            expected = search.predicted.step_s
            log.info(f"rehearsing the device plan: a few steps, about {expected:.1f} s each")
        mine = json.dumps(profile(plan).to_dict()).encode()
        every = [PlanProfile.from_dict(json.loads(each)) for each in group.gather(mine)]
        if search is not None:
            search.learn(every)
