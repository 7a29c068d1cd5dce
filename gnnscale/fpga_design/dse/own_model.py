"""Designs by what our kernels take and do: the model of their parts, and what C simulation charges.

Their throughput is that of equations 5 to 9, with rows of whole words, and with the part of a
bank's bandwidth that C simulation charges. What is left out, above all the filling and draining of
pipelines, is measured by ``scripts/benchmarks fpga_cycles``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from gnnscale.core import ConfigError
from gnnscale.fpga_design.dse.goal import SIZES_M, SIZES_N, BatchWorkload, Goal, Point
from gnnscale.fpga_design.resources import DesignSize, Resources, fit
from gnnscale.fpga_design.resources.die import MAX_SHARE, Fit
from gnnscale.planner.cost_model.hitgnn import PE_SIMD, ComputeDesign, gnn_seconds, limits
from gnnscale.planner.device_spec import ROW_WORDS
from gnnscale.planner.fpga_board import Board, Die

#: Of a bank's bandwidth, what long bursts get (``fpga/README.md``).
BANK_SHARE = 0.875
#: Bytes that a port of a compute unit takes in a cycle, however fast its memory is.
_PORT_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class RejectedDesign:
    """A design that no set of dies takes."""

    n: int
    m: int
    shares: dict[str, float]  #: of each resource, on the die with the most room
    limit: str  #: the resource that is fullest, and that die


def explore(board: Board, goal: Goal) -> tuple[tuple[Point, ...], tuple[RejectedDesign, ...]]:
    """Return all designs that fit, and those that do not fit on any die.

    Raises:
        ConfigError: not even the smallest design fits on any die.
    """
    points: list[Point] = []
    refused: list[RejectedDesign] = []
    for n, m in product(SIZES_N, SIZES_M):
        found = _with_most_memory(board, goal, n, m)
        points += found
        if not found:
            name, least = _roomiest(board, DesignSize(n=n, m=m, row_words=ROW_WORDS[0]))
            limit = f"{least.limit} of {name}"
            refused.append(RejectedDesign(n=n, m=m, shares=least.shares, limit=limit))
    if not points:
        raise ConfigError(_why_none(board))
    return tuple(points), tuple(refused)


def _with_most_memory(board: Board, goal: Goal, n: int, m: int) -> list[Point]:
    """Return the points of n and m, each with as much memory of rows as its dies have room for."""
    found: dict[tuple[str, ...], Point] = {}
    for row_words in sorted(ROW_WORDS, reverse=True):
        for point in _of_size(board, goal, DesignSize(n=n, m=m, row_words=row_words)):
            found.setdefault(point.dies, point)
    return list(found.values())


def _of_size(board: Board, goal: Goal, size: DesignSize) -> list[Point]:
    """Return the points of one size: on one die, on two, and so on, those with most room first."""
    fits = {die.name: _fit(size, die.has, die.shell) for die in board.dies}
    having = [die for die in board.dies if fits[die.name].fits]
    having.sort(key=lambda die: max(fits[die.name].shares.values()))
    counts = range(1, len(having) + 1)
    return [_point(board, goal, having[:count], size, fits) for count in counts]


@cache
def _fit(size: DesignSize, has: Resources, shell: Resources) -> Fit:
    """Dies that are alike are looked at once."""
    return fit(size, Die(name="die", has=has, shell=shell, bank="DDR[0]", bandwidth=1.0))


def _roomiest(board: Board, size: DesignSize) -> tuple[str, Fit]:
    """Return the die on which a size takes the smallest part, and what it takes there."""
    fits = {die.name: _fit(size, die.has, die.shell) for die in board.dies}
    name = min(fits, key=lambda each: max(fits[each].shares.values()))
    return name, fits[name]


def groups_of(goal: Goal, units: int, row_words: int) -> tuple[int, list[BatchWorkload]]:
    """Return the groups of seeds that a unit trains one after the other, and one of them.

    Seeds are halved until the output rows of all layers of a group fit on the chip. Groups share
    neighbours, so that each is more than its part of the whole.
    """
    groups, max_groups = 1, goal.batches[0].size.num_seeds / units
    while True:
        found = [in_words(batch) for batch in goal.slices(units * groups)]
        words = max(_row_words(batch) for batch in found)
        if words <= row_words or groups >= max_groups:
            return groups, found
        groups *= 2


def _row_words(batch: BatchWorkload) -> float:
    return sum(layer.rows * layer.width_out / PE_SIMD for layer in batch.layers)


def unit_bandwidth(board: Board, dies: Sequence[Die]) -> float:
    """Return the bytes per second that each of the compute units of ``dies`` can count on."""
    slowest = min(die.bandwidth for die in dies)
    return BANK_SHARE * min(slowest, float(_PORT_BYTES * board.clock_hz))


def in_words(batch: BatchWorkload) -> BatchWorkload:
    """Return a mini-batch whose rows are whole words, as the kernels have them."""
    return replace(batch, layers=tuple(layer.in_words() for layer in batch.layers))


def _point(
    board: Board, goal: Goal, dies: Sequence[Die], size: DesignSize, fits: dict[str, Fit]
) -> Point:
    units = len(dies)
    groups, slices = groups_of(goal, units, size.row_words)
    passes = goal.passes(
        slices,
        clock_hz=board.clock_hz,
        bandwidth=unit_bandwidth(board, dies),
        units=units,
    )
    design = ComputeDesign(n=size.n, m=size.m)
    rates = [
        batch.size.num_vertices / (groups * gnn_seconds(each, design))
        for batch, each in zip(goal.batches, passes, strict=True)
    ]
    found: dict[str, float] = {}
    for each in passes:
        for name, seconds in limits(each, design).items():
            found[name] = found.get(name, 0.0) + seconds
    fullest = max(dies, key=lambda die: max(fits[die.name].shares.values()))
    names = fits[fullest.name].shares
    having = [die.name for die in dies]
    return Point(
        n=size.n,
        m=size.m,
        dies=tuple(die.name for die in board.dies if die.name in having),
        nvtps=sum(rates) / len(rates),
        bottleneck=max(found, key=lambda name: found[name]),
        shares={name: max(fits[die].shares[name] for die in having) for name in names},
        limit=f"{fits[fullest.name].limit} of {fullest.name}",
        row_words=size.row_words,
    )


def _why_none(board: Board) -> str:
    smallest = DesignSize(n=SIZES_N[0], m=SIZES_M[0], row_words=ROW_WORDS[0])
    name, found = _roomiest(board, smallest)
    share = found.shares[found.limit]
    return (
        f"board {board.name}: no design fits: n={smallest.n}, m={smallest.m} and the shell take "
        f"{share:.1%} of the {found.limit} of {name}, {share - MAX_SHARE:.1%} more than the "
        f"{MAX_SHARE:.0%} that can be placed"
    )
