"""Goal of an exploration: mini-batches to train fast, and candidate designs ranked by it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from gnnscale.planner.cost_model import BatchSize, hitgnn
from gnnscale.planner.simulator.hitgnn import layer_sizes
from gnnscale.planner.simulator.simulate import SimulatedTask

#: Values of n and m that have kernel templates, as in Table V: powers of two
#: (``fpga/include/gnnscale_fpga/design.hpp``).
SIZES_N = tuple(2**power for power in range(5))
SIZES_M = tuple(2**power for power in range(4, 12))


@dataclass(frozen=True, kw_only=True)
class BatchWorkload:
    """Layer sizes of a card's mini-batch, or of the part of it that one compute unit trains."""

    name: str  #: name of the graph and the model
    size: BatchSize
    layers: tuple[hitgnn.LayerWorkload, ...]
    local_share: float = 1.0  #: β of eq. 7


@dataclass(frozen=True, kw_only=True)
class Goal:
    """Mini-batches whose mean throughput a design maximizes."""

    batches: tuple[BatchWorkload, ...]  #: a card's mini-batch for each graph and model
    #: returns the mini-batches of 1/k of the seeds for an integer k. Slices share neighbors, so
    #: that a slice is larger than 1/k of the mini-batch
    slices: Callable[[int], tuple[BatchWorkload, ...]]
    link_bandwidth: float  #: bytes per second from the host to a card

    def passes(
        self, batches: Sequence[BatchWorkload], *, clock_hz: float, bandwidth: float, units: int
    ) -> tuple[tuple[hitgnn.Phase, ...], ...]:
        """Return, for each of ``batches``, the passes over layers on a unit, with modeled seconds.

        ``units`` units share the link; ``bandwidth`` of a unit's memory is in bytes per second.
        """
        passes = []
        for batch in batches:
            card = hitgnn.FpgaCard(
                clock_hz=clock_hz,
                bandwidth=bandwidth,
                link_bandwidth=self.link_bandwidth / units,
                local_share=batch.local_share,
            )
            passes.append(hitgnn.phases(card, batch.layers))
        return tuple(passes)


def part_of(batch: BatchWorkload, units: int) -> BatchWorkload:
    """Return a mini-batch with sources, rows and edges of its layers divided by ``units``."""

    def cut(layer: hitgnn.LayerWorkload) -> hitgnn.LayerWorkload:
        parts = {name: getattr(layer, name) / units for name in ("sources", "rows", "edges")}
        return replace(layer, **parts)

    return replace(batch, layers=tuple(cut(layer) for layer in batch.layers))


def make_goal(
    tasks: Sequence[tuple[SimulatedTask, float]], *, batch_size: int, link_bandwidth: float
) -> Goal:
    """Return the goal for pairs of a task and β of eq. 7, the fraction of input rows on a card.

    ``batch_size`` is the number of a card's seeds, ``link_bandwidth`` its bytes per second from the
    host.
    """

    @cache
    def slices(parts: int) -> tuple[BatchWorkload, ...]:
        batches = []
        for task, local in tasks:
            size = task.size(batch_size / parts)
            layers = layer_sizes(size, task.workload.layers)
            batches.append(
                BatchWorkload(name=task.name, size=size, layers=layers, local_share=local)
            )
        return tuple(batches)

    return Goal(batches=slices(1), slices=slices, link_bandwidth=link_bandwidth)


@dataclass(frozen=True, kw_only=True)
class Point:
    """Candidate design of a card, with its modeled throughput.

    Each die that the design uses has ``n`` scatter-gather processing elements and ``m``
    multiply-accumulate units.
    """

    n: int  #: scatter-gather PEs of a die
    m: int  #: multiply-accumulate units of a die
    dies: tuple[str, ...]  #: names of the dies with a compute unit
    nvtps: float  #: vertices per second of the card, mean over the goal's mini-batches (eq. 3)
    bottleneck: str  #: task that limits a step for the longest time
    shares: dict[str, float]  #: largest used fraction over the dies, by resource
    limit: str  #: fullest resource and its die, such as ``luts of SLR0``
    #: row memory of a compute unit in words. None: HitGNN's model has none
    row_words: int | None = None

    @property
    def card(self) -> tuple[int, int]:
        """N and m summed over the dies that the design uses, as in the papers."""
        return self.n * len(self.dies), self.m * len(self.dies)

    @property
    def fullest(self) -> float:
        """Largest used fraction of any resource on any die."""
        return max(self.shares.values())


def best_of(points: Sequence[Point]) -> Point:
    """Return the fastest design; of equally fast designs, the least full one."""
    return max(points, key=lambda point: (point.nvtps, -point.fullest))


def pareto(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the Pareto front of throughput and ``fullest``, the least full design first."""
    front: list[Point] = []
    for point in sorted(points, key=lambda candidate: (candidate.fullest, -candidate.nvtps)):
        if not front or point.nvtps > front[-1].nvtps:
            front.append(point)
    return tuple(front)


def sum_limits(
    passes: Iterable[Sequence[hitgnn.Phase]], design: hitgnn.ComputeDesign
) -> dict[str, float]:
    """Return, by task such as ``memory``, the seconds of the passes that this task limits.

    They are summed over the mini-batches ``passes``.
    """
    seconds: dict[str, float] = {}
    for batch in passes:
        for name, value in hitgnn.limits(batch, design).items():
            seconds[name] = seconds.get(name, 0.0) + value
    return seconds
