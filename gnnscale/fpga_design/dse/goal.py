"""What a design is explored for: mini-batches, and how a card gets their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.cost_model.hitgnn import FpgaCard, LayerWorkload, Phase, phases
from gnnscale.planner.simulator.hitgnn import layer_sizes
from gnnscale.planner.simulator.workload import SimulatedTask

#: n and m of a compute unit that there are templates of, as Table V has them: powers of two
#: (``fpga/include/gnnscale_fpga/design.hpp``).
SIZES_N = tuple(2**power for power in range(5))
SIZES_M = tuple(2**power for power in range(4, 12))


@dataclass(frozen=True, kw_only=True)
class BatchWorkload:
    """A mini-batch of a card, or what one compute unit gets of it."""

    name: str  #: of the graph and the model
    size: BatchSize
    layers: tuple[LayerWorkload, ...]
    local_share: float = 1.0  #: β of eq. 7


@dataclass(frozen=True, kw_only=True)
class Goal:
    """Mini-batches whose mean throughput counts.

    Attributes:
        batches: of a whole card, one of each graph and model.
        slices: returns the mini-batches of an equal slice of the seeds, one of so many. Slices
            share neighbours, so that each is larger than its part of the whole.
        link_bandwidth: bytes per second from the host to a card.
    """

    batches: tuple[BatchWorkload, ...]
    slices: Callable[[int], tuple[BatchWorkload, ...]]
    link_bandwidth: float

    def passes(
        self, batches: Sequence[BatchWorkload], *, clock_hz: float, bandwidth: float, units: int
    ) -> tuple[tuple[Phase, ...], ...]:
        """Return the passes of each of ``batches`` on a compute unit, one of ``units``.

        Args:
            bandwidth: bytes per second of the unit's memory.
            units: that share the link.
        """
        found = []
        for batch in batches:
            card = FpgaCard(
                clock_hz=clock_hz,
                bandwidth=bandwidth,
                link_bandwidth=self.link_bandwidth / units,
                local_share=batch.local_share,
            )
            found.append(phases(card, batch.layers))
        return tuple(found)


def part_of(batch: BatchWorkload, units: int) -> BatchWorkload:
    """Return an equal part of a mini-batch's work, for units that share one mini-batch."""

    def cut(layer: LayerWorkload) -> LayerWorkload:
        parts = {name: getattr(layer, name) / units for name in ("sources", "rows", "edges")}
        return replace(layer, **parts)

    return replace(batch, layers=tuple(cut(layer) for layer in batch.layers))


def goal_of(
    tasks: Sequence[tuple[SimulatedTask, float]], *, batch_size: int, link_bandwidth: float
) -> Goal:
    """Return the goal of training on some graphs.

    Args:
        tasks: each with β of eq. 7, the part of input rows that are in the card's memory.
        batch_size: seeds of a card's mini-batch.
        link_bandwidth: bytes per second from the host to a card.

    Raises:
        ConfigError: the kernels do not have the model.
    """

    @cache
    def slices(parts: int) -> tuple[BatchWorkload, ...]:
        return tuple(_mini_batch(task, local, batch_size / parts) for task, local in tasks)

    return Goal(batches=slices(1), slices=slices, link_bandwidth=link_bandwidth)


def _mini_batch(task: SimulatedTask, local: float, num_seeds: float) -> BatchWorkload:
    size = task.size(num_seeds)
    layers = layer_sizes(size, task.workload.layers)
    return BatchWorkload(name=task.name, size=size, layers=layers, local_share=local)


@dataclass(frozen=True, kw_only=True)
class Point:
    """A design of a card: the same n and m on every die that has a compute unit."""

    n: int  #: scatter-gather PEs of a die
    m: int  #: multiply-accumulate units of a die
    dies: tuple[str, ...]  #: those that have a compute unit
    nvtps: float  #: vertices per second of the card, the mean over the goal's mini-batches (eq. 3)
    bottleneck: str  #: what limits its step for the longest time
    #: of each resource, the largest part that is taken of a die
    shares: dict[str, float]
    limit: str  #: the resource that is fullest, and its die
    row_words: int | None = None  #: of a compute unit's memory of rows; None if there is no such

    @property
    def card(self) -> tuple[int, int]:
        """N and m of all dies together, as the papers give them."""
        return self.n * len(self.dies), self.m * len(self.dies)

    @property
    def fullest(self) -> float:
        """The largest part of a resource that is taken."""
        return max(self.shares.values())


def best_of(points: Sequence[Point]) -> Point:
    """Return the fastest point; of equally fast ones that which takes less."""
    return max(points, key=lambda point: (point.nvtps, -point.fullest))


def pareto(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points that no other one beats in both throughput and fullest resource."""
    found: list[Point] = []
    for point in sorted(points, key=lambda each: (each.fullest, -each.nvtps)):
        if not found or point.nvtps > found[-1].nvtps:
            found.append(point)
    return tuple(found)
