"""Estimates of a design before any build: cycles, resources, bytes, and what limits it."""

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
from gnnscale.fpga_design.resources.die import MAX_SHARE
from gnnscale.graph import Graph
from gnnscale.nn import GNN, ModelConfig
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.cost_model.hitgnn import (
    FEATURE_BYTES,
    ComputeDesign,
    FpgaCard,
    Phase,
    gnn_seconds,
    phases,
)
from gnnscale.planner.fpga_board import Board
from gnnscale.planner.simulator.hitgnn import layer_sizes
from gnnscale.sampling import SamplerConfig

#: Seeds of the mini-batch that C simulation is compared on, and its random graph.
_SEEDS, _VERTICES, _DEGREE = 32, 16384, 32
_EDGE_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class Pass:
    """A pass over a layer in cycles of a compute unit; its tasks run side by side."""

    name: str
    load: float  #: of rows from the unit's memory and over the link, eq. 7
    aggregate: float  #: eq. 8
    update: float  #: eq. 9
    limit: str  #: what is slowest: ``memory``, ``link``, ``aggregate`` or ``update``


@dataclass(frozen=True, kw_only=True)
class SimulationComparison:
    """A mini-batch in C simulation beside the equations."""

    num_seeds: int
    csim_cycles: int
    equation_cycles: float

    @property
    def ratio(self) -> float:
        """How many times the equations' cycles C simulation takes."""
        return self.csim_cycles / self.equation_cycles


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a design is expected to do and to take; nothing of it was measured."""

    workload: str  #: graph and model
    num_seeds: int  #: of a card's mini-batch
    groups: int  #: of seeds that a unit trains one after the other
    passes: tuple[Pass, ...]  #: of a group
    cycles: float  #: of a step on one compute unit
    step_s: float  #: seconds of it
    nvtps: float  #: vertices per second of a card (HitGNN, eq. 3)
    bottleneck: str  #: what limits most cycles
    memory_bytes: dict[str, float]  #: of a unit's step, by kind
    processes: dict[str, Resources]  #: of a compute unit, process by process
    shares: dict[str, dict[str, float]]  #: of each die that has a unit, the shell included
    fits: bool  #: whether each die keeps ``MAX_SHARE``
    csim: SimulationComparison

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        found = asdict(self)
        found["figures"] = "estimated"
        found["max_share"] = MAX_SHARE
        found["csim"]["ratio"] = self.csim.ratio
        return found


def estimate(board: Board, goal: Goal, point: Point, csim: SimulationComparison) -> Estimate:
    """Return the estimate of a design for the first of the goal's mini-batches."""
    units = len(point.dies)
    dies = [die for die in board.dies if die.name in point.dies]
    row_words = point.row_words or DesignSize.row_words
    size = DesignSize(n=point.n, m=point.m, row_words=row_words)
    whole = goal.batches[0]
    groups, (part, *_) = groups_of(goal, units, row_words)
    card = FpgaCard(
        clock_hz=board.clock_hz,
        bandwidth=unit_bandwidth(board, dies),
        link_bandwidth=goal.link_bandwidth / units,
        local_share=part.local_share,
    )
    design = ComputeDesign(n=point.n, m=point.m)
    found = phases(card, part.layers)
    cycles = groups * gnn_seconds(found, design) * board.clock_hz
    step_s = cycles / board.clock_hz
    fits = {die.name: fit(size, die) for die in dies}
    return Estimate(
        workload=whole.name,
        num_seeds=round(whole.size.num_seeds),
        groups=groups,
        passes=tuple(_pass(each, design, board.clock_hz) for each in found),
        cycles=cycles,
        step_s=step_s,
        nvtps=whole.size.num_vertices / step_s,
        bottleneck=point.bottleneck,
        memory_bytes=_memory_bytes(part, groups),
        processes=fits[dies[0].name].taken,
        shares={name: each.shares for name, each in fits.items()},
        fits=all(each.fits for each in fits.values()),
        csim=csim,
    )


def _pass(phase: Phase, design: ComputeDesign, clock_hz: int) -> Pass:
    return Pass(
        name=phase.name,
        load=(phase.memory_s + phase.link_s) * clock_hz,
        aggregate=phase.pe_s / design.n * clock_hz,
        update=phase.multiplier_s / design.m * clock_hz,
        limit=phase.limit(design),
    )


def _memory_bytes(part: BatchWorkload, groups: int) -> dict[str, float]:
    """Bytes that cross a unit's memory in a step; hidden rows stay on the chip."""
    first = part.layers[0]
    weights = sum(layer.num_weights for layer in part.layers) * FEATURE_BYTES
    # Edges are read forward, and those of all layers but the first backward again.
    edges = sum(layer.edges for layer in part.layers) * 2 - first.edges
    return {
        "features": groups * first.sources * first.width_in * FEATURE_BYTES,
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
    """Train a small mini-batch in C simulation, and count its cycles by the equations too.

    Args:
        graph: to sample; None for a random one of the widths given.
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
    card = FpgaCard(clock_hz=board.clock_hz, bandwidth=unit_bandwidth(board, dies))
    layers = [each.in_words() for each in layer_sizes(BatchSize.of(batch), built.layer_costs)]
    seconds = gnn_seconds(phases(card, layers), ComputeDesign(n=point.n, m=point.m))
    return SimulationComparison(
        num_seeds=len(seeds), csim_cycles=counted, equation_cycles=seconds * board.clock_hz
    )
