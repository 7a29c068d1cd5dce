"""HitGNN's models of a design: eq. 1 and 2 with HP-GNN's constants, eq. 3 to 9, Algorithm 4."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnscale.core import ConfigError
from gnnscale.fpga_design.dse.goal import (
    SIZES_M,
    SIZES_N,
    BatchWorkload,
    Goal,
    Point,
    part_of,
    sum_limits,
)
from gnnscale.planner.cost_model.hitgnn import ComputeDesign, Phase, seconds_of
from gnnscale.planner.fpga_board import Board, Die

#: λ1 and λ2 of eq. 1: DSP slices of a multiply-accumulate unit and a scatter-gather PE. ρ1 to ρ3 of
#: eq. 2: LUTs of both and of the routing network. HP-GNN publishes these values. They reproduce
#: Table V: 90 and 56 % of a U250's DSP slices, 72 and 65 % of its LUTs.
DSPS_OF_MULTIPLIER, DSPS_OF_PE = 5, 112
LUTS_OF_MULTIPLIER, LUTS_OF_PE, LUTS_OF_ROUTING = 470, 21_715, 4_610


def dsps(n: Any, m: Any) -> Any:
    """Return the DSP slices of ``n`` PEs and ``m`` multiply-accumulate units, eq. 1."""
    return DSPS_OF_MULTIPLIER * m + DSPS_OF_PE * n


def luts(n: Any, m: Any, *, ways: Any) -> Any:
    """Return the LUTs of ``n`` PEs and ``m`` multipliers of a die, eq. 2.

    ``ways`` is the number of PEs of all dies together, which the routing network connects.
    """
    return LUTS_OF_MULTIPLIER * m + LUTS_OF_PE * n + LUTS_OF_ROUTING * n * np.log2(ways)


def explore(board: Board, goal: Goal) -> tuple[Point, ...]:
    """Return all designs that fit by HitGNN's Algorithm 4, with equal n and m on all used dies.

    n and m are powers of two. ConfigError: no design fits.
    """
    points = []
    for n in SIZES_N:
        for m in SIZES_M:
            for count in range(1, len(board.dies) + 1):
                dies = [die for die in board.dies if _fits(die, n, m, count)]
                dies.sort(key=lambda die: -die.available.luts)
                if len(dies) >= count:
                    points.append(_point(board, goal, dies[:count], n, m))
    if not points:
        raise ConfigError(_why_none(board))
    return tuple(points)


def sweep(die: Die, goal: Goal, *, dies: int, clock_hz: float) -> tuple[int, int, float]:
    """Return n, m and NVTPS of the fastest design of a die by Algorithm 4 to the letter.

    n from 1 to n_max and m from 1 to m_max by eq. 1 and 2 need no templates; each of ``dies`` equal
    dies has an equal part of a mini-batch. Raises ConfigError if not even n = 1 and m = 1 fits.
    """
    free = die.available
    if dsps(1, 1) > free.dsps or luts(1, 1, ways=dies) > free.luts:
        raise ConfigError(f"die {die.name}: no design fits, not even n=1, m=1")
    n_max = int(min(free.dsps // DSPS_OF_PE, free.luts // LUTS_OF_PE))
    m_max = int(min(free.dsps // DSPS_OF_MULTIPLIER, free.luts // LUTS_OF_MULTIPLIER))
    n, m = np.arange(1, n_max + 1)[:, None], np.arange(1, m_max + 1)[None, :]
    valid = (dsps(n, m) <= free.dsps) & (luts(n, m, ways=dies * n) <= free.luts)
    rates = np.where(valid, _nvtps(_passes(die, goal, dies, clock_hz), goal.batches, n, m), 0.0)
    best = np.unravel_index(int(rates.argmax()), rates.shape)
    return int(best[0]) + 1, int(best[1]) + 1, float(rates[best])


def _passes(die: Die, goal: Goal, dies: int, clock_hz: float) -> tuple[tuple[Phase, ...], ...]:
    parts = [part_of(batch, dies) for batch in goal.batches]
    return goal.passes(parts, clock_hz=clock_hz, bandwidth=die.bandwidth, units=dies)


def _nvtps(
    passes: Sequence[Sequence[Phase]], batches: Sequence[BatchWorkload], n: Any, m: Any
) -> Any:
    """Return vertices per second (eq. 3) with ``n`` and ``m``, mean over the mini-batches."""
    pairs = zip(passes, batches, strict=True)
    rates = [batch.size.num_vertices / seconds_of(phases, n, m) for phases, batch in pairs]
    return sum(rates) / len(rates)


def _fits(die: Die, n: int, m: int, count: int) -> bool:
    available = die.available
    return bool(dsps(n, m) <= available.dsps and luts(n, m, ways=count * n) <= available.luts)


def _point(board: Board, goal: Goal, dies: Sequence[Die], n: int, m: int) -> Point:
    slowest = min(dies, key=lambda die: die.bandwidth)
    passes = _passes(slowest, goal, len(dies), board.clock_hz)
    design = ComputeDesign(n=n, m=m)
    seconds = sum_limits(passes, design)
    shares = {
        (name, die.name): amount / getattr(die.has, name)
        for die in dies
        for name, amount in (("luts", luts(n, m, ways=len(dies) * n)), ("dsps", dsps(n, m)))
    }
    fullest = max(shares, key=lambda key: shares[key])
    return Point(
        n=n,
        m=m,
        dies=tuple(die.name for die in board.dies if die in dies),
        nvtps=float(_nvtps(passes, goal.batches, n, m)),
        bottleneck=max(seconds, key=lambda name: seconds[name]),
        shares={
            name: max(share for (resource, _), share in shares.items() if resource == name)
            for name in ("luts", "dsps")
        },
        limit=" of ".join(fullest),
    )


def _why_none(board: Board) -> str:
    """Return the error text: the scarcest resource of the die that comes closest to a fit."""
    n, m = SIZES_N[0], SIZES_M[0]
    needs = {"dsps": float(dsps(n, m)), "luts": float(luts(n, m, ways=n))}

    def shortage(die: Die) -> tuple[float, str]:
        return max((needs[name] / getattr(die.available, name), name) for name in needs)

    die = min(board.dies, key=shortage)
    _, name = shortage(die)
    over = needs[name] - getattr(die.available, name)
    return (
        f"board {board.name}: no design fits: n={n}, m={m} takes {needs[name]:,.0f} {name}, "
        f"{over:,.0f} more than available on {die.name}"
    )
