"""HitGNN's DSE engine: the best design of a card, with all candidates, in mode ``ours`` as well.

Mode ``ours`` models our kernels' designs by resources of their processes and bandwidth of C
simulation. Throughput follows equations 5 to 9 with rows of whole words and the bank bandwidth of C
simulation. ``scripts/benchmarks fpga_cycles`` measures the rest, above all pipeline fill and drain.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from gnnscale.core import ConfigError, check_choice
from gnnscale.fpga_design.dse import hitgnn
from gnnscale.fpga_design.dse.goal import (
    SIZES_M,
    SIZES_N,
    BatchWorkload,
    Goal,
    Point,
    best_of,
    pareto,
    sum_limits,
)
from gnnscale.fpga_design.resources import DesignSize, Resources, fit
from gnnscale.fpga_design.resources.processes import MAX_SHARE, Fit
from gnnscale.planner import ROW_WORDS, Board, Die
from gnnscale.planner.cost_model.hitgnn import PE_SIMD, ComputeDesign, gnn_seconds

#: Models of cycles and resources: of our kernels, or of the paper.
MODES = ("ours", "hitgnn")


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """Result of exploring a card: best, Pareto-optimal, fitting and refused designs."""

    board: Board
    mode: str  #: one of ``MODES``
    best: Point
    pareto: tuple[Point, ...]  #: Pareto front of throughput and fullest resource
    points: tuple[Point, ...]  #: all designs that fit
    refused: "tuple[RejectedDesign, ...]"  #: designs that do not fit, in mode ``ours``
    #: n, m and NVTPS of Algorithm 4 by die, with sizes that need no template, in mode ``hitgnn``
    sweeps: dict[str, tuple[int, int, float]]
    seconds: float  #: seconds of the exploration

    def at(self, n: int, m: int) -> Point | None:
        """Return the fastest design with ``n`` PEs, ``m`` multipliers per die. None: none fits."""
        points = [point for point in self.points if (point.n, point.m) == (n, m)]
        return best_of(points) if points else None


def explore(board: Board, goal: Goal, mode: str) -> Exploration:
    """Return the designs of ``board`` and the best for ``goal``, by the models of ``mode``.

    ConfigError: no design fits.
    """
    check_choice("mode", mode, MODES)
    start = time.perf_counter()
    refused: tuple[RejectedDesign, ...] = ()
    sweeps: dict[str, tuple[int, int, float]] = {}
    if mode == "hitgnn":
        points = hitgnn.explore(board, goal)
        used = {name for point in points for name in point.dies}
        sweeps = {
            die.name: hitgnn.sweep(die, goal, dies=len(used), clock_hz=board.clock_hz)
            for die in board.dies
            if die.name in used
        }
    else:
        points, refused = explore_own(board, goal)
    return Exploration(
        board=board,
        mode=mode,
        best=best_of(points),
        pareto=pareto(points),
        points=points,
        refused=refused,
        sweeps=sweeps,
        seconds=time.perf_counter() - start,
    )


#: Fraction of a bank's bandwidth that long bursts reach (``fpga/README.md``).
BANK_SHARE = 0.875
#: Bytes per cycle of a compute unit's port.
_PORT_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class RejectedDesign:
    """Compute unit, of sizes n and m, that fits on no die, and its use of the freest die."""

    n: int
    m: int
    shares: dict[str, float]  #: used fraction by resource, on the die with the most free resources
    limit: str  #: fullest resource, and that die


def explore_own(board: Board, goal: Goal) -> tuple[tuple[Point, ...], tuple[RejectedDesign, ...]]:
    """Return all designs of our kernels that fit, and the sizes n and m that fit on no die.

    ConfigError: no design fits.
    """
    points: list[Point] = []
    refused: list[RejectedDesign] = []
    for n, m in product(SIZES_N, SIZES_M):
        fitting = _with_most_memory(board, goal, n, m)
        points += fitting
        if not fitting:
            name, fit_there = _freest_die(board, DesignSize(n=n, m=m, row_words=ROW_WORDS[0]))
            limit = f"{fit_there.limit} of {name}"
            refused.append(RejectedDesign(n=n, m=m, shares=fit_there.shares, limit=limit))
    if not points:
        raise ConfigError(_why_none(board))
    return tuple(points), tuple(refused)


def _with_most_memory(board: Board, goal: Goal, n: int, m: int) -> list[Point]:
    """Return a design with n and m for each set of dies, with the largest row memory that fits."""
    points: dict[tuple[str, ...], Point] = {}
    for row_words in sorted(ROW_WORDS, reverse=True):
        for point in _of_size(board, goal, DesignSize(n=n, m=m, row_words=row_words)):
            points.setdefault(point.dies, point)
    return list(points.values())


def _of_size(board: Board, goal: Goal, size: DesignSize) -> list[Point]:
    """Return the designs of one size on 1, 2, ... dies, starting with the freest dies."""
    fits = {die.name: _fit(size, die.has, die.shell) for die in board.dies}
    dies = [die for die in board.dies if fits[die.name].fits]
    dies.sort(key=lambda die: max(fits[die.name].shares.values()))
    return [_point(board, goal, dies[: i + 1], size, fits) for i in range(len(dies))]


@cache
def _fit(size: DesignSize, has: Resources, shell: Resources) -> Fit:
    """Return how a unit of ``size`` plus the board's ``shell`` fills a die of resources ``has``."""
    return fit(size, Die(name="die", has=has, shell=shell, bank="DDR[0]", bandwidth=1.0))


def _freest_die(board: Board, size: DesignSize) -> tuple[str, Fit]:
    """Return name and fit of the die whose fullest resource a unit of ``size`` fills least."""
    fits = {die.name: _fit(size, die.has, die.shell) for die in board.dies}
    name = min(fits, key=lambda die: max(fits[die].shares.values()))
    return name, fits[name]


def groups_of(goal: Goal, units: int, row_words: int) -> tuple[int, list[BatchWorkload]]:
    """Return the number of seed groups that each unit trains in turn, and a group's mini-batches.

    Seeds are halved until the output rows of all layers of a group fit into ``row_words``, or a
    group has one seed. Groups share neighbors, so that a group is larger than its share of the
    seeds.
    """
    groups, max_groups = 1, goal.batches[0].size.num_seeds / units
    while True:
        batches = [in_words(batch) for batch in goal.slices(units * groups)]
        words = max(
            sum(layer.rows * layer.width_out / PE_SIMD for layer in batch.layers)
            for batch in batches
        )
        if words <= row_words or groups >= max_groups:
            return groups, batches
        groups *= 2


def unit_bandwidth(board: Board, dies: Sequence[Die]) -> float:
    """Return the usable bytes per second of memory of a unit on the slowest of ``dies``."""
    slowest = min(die.bandwidth for die in dies)
    return BANK_SHARE * min(slowest, float(_PORT_BYTES * board.clock_hz))


def in_words(batch: BatchWorkload) -> BatchWorkload:
    """Return a mini-batch with rows padded to whole 64-byte words, as in the kernels."""
    return replace(batch, layers=tuple(layer.in_words() for layer in batch.layers))


def _point(
    board: Board, goal: Goal, dies: Sequence[Die], size: DesignSize, fits: dict[str, Fit]
) -> Point:
    units = len(dies)
    groups, slices = groups_of(goal, units, size.row_words)
    passes = goal.passes(
        slices, clock_hz=board.clock_hz, bandwidth=unit_bandwidth(board, dies), units=units
    )
    design = ComputeDesign(n=size.n, m=size.m)
    rates = [
        batch.size.num_vertices / (groups * gnn_seconds(phases, design))
        for batch, phases in zip(goal.batches, passes, strict=True)
    ]
    seconds = sum_limits(passes, design)
    fullest = max(dies, key=lambda die: max(fits[die.name].shares.values()))
    resources = fits[fullest.name].shares
    names = [die.name for die in dies]
    return Point(
        n=size.n,
        m=size.m,
        dies=tuple(die.name for die in board.dies if die.name in names),
        nvtps=sum(rates) / len(rates),
        bottleneck=max(seconds, key=lambda name: seconds[name]),
        shares={r: max(fits[name].shares[r] for name in names) for r in resources},
        limit=f"{fits[fullest.name].limit} of {fullest.name}",
        row_words=size.row_words,
    )


def _why_none(board: Board) -> str:
    smallest = DesignSize(n=SIZES_N[0], m=SIZES_M[0], row_words=ROW_WORDS[0])
    name, fullest = _freest_die(board, smallest)
    share = fullest.shares[fullest.limit]
    return (
        f"board {board.name}: no design fits: n={smallest.n}, m={smallest.m} and the shell take "
        f"{share:.1%} of the {fullest.limit} of {name}, {share - MAX_SHARE:.1%} more than the "
        f"{MAX_SHARE:.0%} that can be placed"
    )
