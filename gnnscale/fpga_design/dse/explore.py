"""HitGNN's DSE engine: the best design of a card, with all candidates."""

from __future__ import annotations

import time
from dataclasses import dataclass

from gnnscale.core import check_choice
from gnnscale.fpga_design.dse import hitgnn, own_model
from gnnscale.fpga_design.dse.goal import Goal, Point, best_of, pareto
from gnnscale.planner.fpga_board import Board

#: Models of cycles and resources: of our kernels, or of the paper.
MODES = ("ours", "hitgnn")


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """Best, Pareto-optimal, fitting and refused designs of a card."""

    board: Board
    mode: str  #: one of ``MODES``
    best: Point
    pareto: tuple[Point, ...]  #: Pareto front of throughput and fullest resource
    points: tuple[Point, ...]  #: all designs that fit
    refused: tuple[own_model.RejectedDesign, ...]  #: designs that do not fit, in mode ``ours``
    #: n, m and NVTPS of Algorithm 4 by die, with sizes that need no template, in mode ``hitgnn``
    sweeps: dict[str, tuple[int, int, float]]
    seconds: float  #: seconds of the exploration

    def at(self, n: int, m: int) -> Point | None:
        """Return the fastest design with n and m per die. None: it does not fit."""
        points = [point for point in self.points if (point.n, point.m) == (n, m)]
        return best_of(points) if points else None


def explore(board: Board, goal: Goal, mode: str) -> Exploration:
    """Return the fitting designs of ``board`` and the best for ``goal``; ConfigError: none fits."""
    check_choice("mode", mode, MODES)
    start = time.perf_counter()
    refused: tuple[own_model.RejectedDesign, ...] = ()
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
        points, refused = own_model.explore(board, goal)
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
