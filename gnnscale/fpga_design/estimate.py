"""Estimates of a design before any build: cycles, resources, bytes and bottleneck."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnscale.backend.fpga.layout import ChipLimits
from gnnscale.backend.fpga.step_result import train_alone
from gnnscale.fpga_design.dse import Goal, Point
from gnnscale.fpga_design.dse.goal import BatchWorkload
from gnnscale.fpga_design.dse.own_model import groups_of, unit_bandwidth
from gnnscale.fpga_design.package import random_graph
from gnnscale.fpga_design.resources import DesignSize, Resources, fit
from gnnscale.fpga_design.resources.processes import MAX_SHARE
from gnnscale.graph import Graph
from gnnscale.nn import GNN, ModelConfig
from gnnscale.planner.cost_model import hitgnn
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.fpga_board import Board
from gnnscale.planner.simulator.hitgnn import layer_sizes
from gnnscale.sampling import SamplerConfig

#: Mini-batch of the comparison with C simulation: seeds, and vertices and degree of a random graph.
_SEEDS, _VERTICES, _DEGREE = 32, 16384, 32
_EDGE_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class Pass:
    """Pass over a layer with concurrent tasks, in cycles of a compute unit."""

    name: str
    load: float  #: reads from the unit's memory and over the link, eq. 7
    aggregate: float  #: eq. 8
    update: float  #: eq. 9
    limit: str  #: slowest task: ``memory``, ``link``, ``aggregate`` or ``update``


@dataclass(frozen=True, kw_only=True)
class SimulationComparison:
    """Cycles of a mini-batch in C simulation and by the equations."""

    num_seeds: int
    csim_cycles: int
    equation_cycles: float

    @property
    def ratio(self) -> float:
        """Cycles of C simulation over cycles of the equations."""
        return self.csim_cycles / self.equation_cycles


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Estimated performance and resources of a design; nothing is measured."""

    workload: str  #: name of graph and model
    num_seeds: int  #: seeds of a card's mini-batch
    groups: int  #: groups of seeds that a unit trains in turn
    passes: tuple[Pass, ...]  #: passes of a group
    cycles: float  #: cycles of a step on one compute unit
    step_s: float  #: seconds of a step
    nvtps: float  #: vertices per second of a card (HitGNN, eq. 3)
    bottleneck: str  #: task that limits most cycles
    memory_bytes: dict[str, float]  #: bytes of a unit's step, by kind
    processes: dict[str, Resources]  #: resources of a compute unit by process
    shares: dict[str, dict[str, float]]  #: used fractions of each die with a unit, shell included
    fits: bool  #: whether all dies keep ``MAX_SHARE``
    csim: SimulationComparison

    def plain(self) -> dict[str, Any]:
        """Return the estimate as JSON values."""
        values = asdict(self)
        values["figures"] = "estimated"
        values["max_share"] = MAX_SHARE
        values["csim"]["ratio"] = self.csim.ratio
        return values


def estimate(board: Board, goal: Goal, point: Point, csim: SimulationComparison) -> Estimate:
    """Return the estimated cycles, bytes and resources of ``point`` for the goal's first batch."""
    units = len(point.dies)
    dies = [die for die in board.dies if die.name in point.dies]
    row_words = point.row_words or DesignSize.row_words
    size = DesignSize(n=point.n, m=point.m, row_words=row_words)
    batch = goal.batches[0]
    groups, (part, *_) = groups_of(goal, units, row_words)
    bandwidth = unit_bandwidth(board, dies)
    (passes,) = goal.passes([part], clock_hz=board.clock_hz, bandwidth=bandwidth, units=units)
    design = hitgnn.ComputeDesign(n=point.n, m=point.m)
    cycles = groups * hitgnn.gnn_seconds(passes, design) * board.clock_hz
    step_s = cycles / board.clock_hz
    fits = {die.name: fit(size, die) for die in dies}
    return Estimate(
        workload=batch.name,
        num_seeds=round(batch.size.num_seeds),
        groups=groups,
        passes=tuple(_pass(phase, design, board.clock_hz) for phase in passes),
        cycles=cycles,
        step_s=step_s,
        nvtps=batch.size.num_vertices / step_s,
        bottleneck=point.bottleneck,
        memory_bytes=_memory_bytes(part, groups),
        processes=fits[dies[0].name].resources,
        shares={name: die_fit.shares for name, die_fit in fits.items()},
        fits=all(die_fit.fits for die_fit in fits.values()),
        csim=csim,
    )


def _pass(phase: hitgnn.Phase, design: hitgnn.ComputeDesign, clock_hz: int) -> Pass:
    return Pass(
        name=phase.name,
        load=(phase.memory_s + phase.link_s) * clock_hz,
        aggregate=phase.pe_s / design.n * clock_hz,
        update=phase.multiplier_s / design.m * clock_hz,
        limit=phase.limit(design),
    )


def _memory_bytes(part: BatchWorkload, groups: int) -> dict[str, float]:
    """Return by kind of data the bytes between a unit and its memory in a step of all groups."""
    first = part.layers[0]
    weights = sum(layer.num_weights for layer in part.layers) * hitgnn.FEATURE_BYTES
    # Backward propagation reads the edges of all layers but the first again.
    edges = sum(layer.edges for layer in part.layers) * 2 - first.edges
    return {
        "features": groups * first.sources * first.width_in * hitgnn.FEATURE_BYTES,
        "edges": groups * edges * _EDGE_BYTES,
        "weights": groups * 2.0 * weights,
        "gradients": groups * float(weights),
    }


def compare_with_csim(
    point: Point,
    board: Board,
    model: ModelConfig,
    sampler: SamplerConfig,
    *,
    graph: Graph | None,
    num_features: int,
    num_classes: int,
    library: Path,
    seed: int,
) -> SimulationComparison:
    """Return a mini-batch's cycles in C simulation and by the equations.

    ``graph`` is sampled. None: a random graph. ``library`` is the simulation library of ``point``.
    """
    used = graph or random_graph(_VERTICES, _VERTICES * _DEGREE, num_features, num_classes)
    torch.manual_seed(seed)
    built = model.build(num_features=num_features, num_classes=num_classes)
    assert isinstance(built, GNN)
    seeds = np.asarray(used.train_idx[:_SEEDS])
    batch = sampler.sampler(used, seed=seed, num_threads=1).sample(seeds, 0)
    limits = ChipLimits(n=point.n, row_words=point.row_words or ChipLimits.row_words)
    counted = train_alone(library, limits, used, built, batch).counters["cycles"]
    dies = [die for die in board.dies if die.name in point.dies]
    card = hitgnn.FpgaCard(clock_hz=board.clock_hz, bandwidth=unit_bandwidth(board, dies))
    layers = [layer.in_words() for layer in layer_sizes(BatchSize.of(batch), built.layer_costs)]
    seconds = hitgnn.gnn_seconds(
        hitgnn.phases(card, layers), hitgnn.ComputeDesign(n=point.n, m=point.m)
    )
    return SimulationComparison(
        num_seeds=len(seeds), csim_cycles=counted, equation_cycles=seconds * board.clock_hz
    )
