"""What a simulation returns, whichever system is simulated."""

from __future__ import annotations

from dataclasses import dataclass

from gnnscale.plan.device import Efficiency
from gnnscale.plan.device_plan import DevicePlan
from gnnscale.plan.perf.equations import Prediction


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What the planner chose for a step, and the stage times that follow."""

    plan: DevicePlan  #: the split and the threads
    predicted: Prediction


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """Training with some number of accelerators.

    Attributes:
        num_accelerators: how many.
        step_s: seconds of a step.
        epoch_s: seconds of an epoch.
        mteps: HyScale-GNN, eq. 5.
        nvtps: vertices of all layers per second, HitGNN, eq. 3.
        bandwidth_efficiency: ``nvtps`` over all memories' bytes per second, in GB (HitGNN, section
            VII-D).
        energy_j: joules of an epoch, of the accelerators; None if their power is not known.
        bottleneck: what takes longest of the slowest device's step.
        planned: the split, the threads and the stage times; None without a planner.
    """

    num_accelerators: int
    step_s: float
    epoch_s: float
    mteps: float
    nvtps: float
    bandwidth_efficiency: float
    energy_j: float | None
    bottleneck: str
    planned: Planned | None = None


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Results for several numbers of accelerators.

    Attributes:
        graph: the graph's name.
        model: name of the model's options class.
        platform: the platform's name.
        system: the published system that is simulated, ``hyscale`` or one of HitGNN's.
        efficiency: the part of the platform's peak rates that was reckoned with; None if its
            rates count in full.
        hybrid: whether the processor trains beside the accelerators.
        results: in the order asked for.
        beside: the same on a published platform; None if not asked for.
        measured: whether a machine measured the platform's rates, and no document states them.
    """

    graph: str
    model: str
    platform: str
    system: str
    efficiency: Efficiency | None
    hybrid: bool
    results: tuple[Simulated, ...]
    beside: Scaling | None = None
    measured: bool = False

    def speedup(self, result: Simulated) -> float:
        """Return how much faster than the first result an epoch is."""
        return self.results[0].epoch_s / result.epoch_s
