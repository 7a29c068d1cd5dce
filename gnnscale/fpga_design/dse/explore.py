"""HitGNN's DSE engine: the design of a card, and all those that it was chosen from."""

from __future__ import annotations

import time
from dataclasses import dataclass

from gnnscale.core import check_choice
from gnnscale.fpga_design.dse import hitgnn
from gnnscale.fpga_design.dse import own_model as parts
from gnnscale.fpga_design.dse.goal import Goal, Point, best_of, pareto
from gnnscale.planner.fpga_board import Board

#: Whose models: those of the paper, or those of our kernels.
MODES = ("ours", "hitgnn")


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """What came of exploring the designs of a card."""

    board: Board
    mode: str  #: one of ``MODES``
    best: Point
    pareto: tuple[Point, ...]  #: by throughput and fullest resource
    points: tuple[Point, ...]  #: all that fit
    refused: tuple[parts.RejectedDesign, ...]  #: those that do not fit, of ``ours``
    #: by die, n, m and NVTPS of Algorithm 4 to the letter: the best of all sizes, whether there are
    #: templates of them or not; of ``hitgnn``
    sweeps: dict[str, tuple[int, int, float]]
    seconds: float  #: that it took

    def at(self, n: int, m: int) -> Point | None:
        """Return the fastest point of a die's n and m; None if it does not fit."""
        found = [point for point in self.points if (point.n, point.m) == (n, m)]
        return best_of(found) if found else None


def explore(board: Board, goal: Goal, mode: str) -> Exploration:
    """Explore the designs of ``board``.

    Args:
        mode: one of ``MODES``.

    Raises:
        ConfigError: no design fits, with the resource, the die, and by how much.
    """
    check_choice("mode", mode, MODES)
    start = time.perf_counter()
    refused: tuple[parts.RejectedDesign, ...] = ()
    sweeps: dict[str, tuple[int, int, float]] = {}
    if mode == "hitgnn":
        points = hitgnn.explore(board, goal)
        used = {name for point in points for name in point.dies}
        how = {"dies": len(used), "clock_hz": board.clock_hz}
        sweeps = {d.name: hitgnn.sweep(d, goal, **how) for d in board.dies if d.name in used}
    else:
        points, refused = parts.explore(board, goal)
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
