"""Stage times of mini-batches by counted work: no clock is read, so that they repeat exactly."""

from __future__ import annotations

from dataclasses import replace

from gnnscale.plan.device_plan import DevicePlan
from gnnscale.plan.perf.equations import BatchSize
from gnnscale.plan.perf.nominal import nominal_platform
from gnnscale.plan.perf.predict import Host, device_times
from gnnscale.plan.perf.workload import Workload
from gnnscale.sampler import MiniBatch
from gnnscale.stages import StageTimes

__all__ = ["CountedWork"]


class CountedWork:
    """What the mini-batches of one device take by their vertices, edges and bytes (eq. 7 to 13).

    The device has the rates of its metadata, the host nominal ones. Caches spare what their plan
    foretells: what they have found depends on when a run was resumed.
    """

    def __init__(self, workload: Workload, *, rank: int, cores: int) -> None:
        """Count the work of one device.

        Args:
            workload: what it trains; sizes and seconds of sampling are not looked at.
            rank: its position in plans.
            cores: threads of the host that may compute at once.
        """
        self._workload = workload
        self._rank = rank
        self._processor = nominal_platform(cores).processor

    def stage_times(self, plan: DevicePlan, batch: MiniBatch | None) -> StageTimes:
        """Return the seconds of each stage of ``batch`` under ``plan``, None for no seeds."""
        if batch is None or not batch.num_seeds:
            return StageTimes()
        share = replace(plan.shares[self._rank], num_seeds=batch.num_seeds)
        machine = [each for each in plan.shares if each.machine == share.machine]
        threads = float(sum(each.host_threads for each in machine))
        host = Host(processor=self._processor, num_workers=len(plan.shares), emulates=True)
        active = dict.fromkeys(("sample", "load", "propagate"), threads)
        size = BatchSize.of(batch)
        return device_times(host, share, self._workload, size, active, {}).stages
