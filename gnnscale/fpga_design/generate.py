"""Generate_Design: a design from an algorithm, a model and a board (HitGNN, section IV).

Before any build its cycles, resources, bytes and bottleneck are estimated.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnscale.backend.fpga import lowering
from gnnscale.backend.fpga.csim import build
from gnnscale.backend.fpga.layout import ChipLimits
from gnnscale.backend.fpga.step_result import train_alone
from gnnscale.core import ConfigError
from gnnscale.fpga_design import package
from gnnscale.fpga_design.design import FORMAT, GenerateConfig, GeneratedDesign, ResourceUse
from gnnscale.fpga_design.dse import Exploration, Goal, Point, explore, make_goal
from gnnscale.fpga_design.dse.explore import groups_of, unit_bandwidth
from gnnscale.fpga_design.dse.goal import BatchWorkload
from gnnscale.fpga_design.package import Vectors, make_vectors, random_graph
from gnnscale.fpga_design.resources import DesignSize, Resources, fit, total
from gnnscale.fpga_design.resources.processes import MAX_SHARE
from gnnscale.graph import Graph
from gnnscale.nn import GNN, ModelConfig
from gnnscale.planner.cost_model import BatchSize, hitgnn
from gnnscale.planner.fpga_board import Board
from gnnscale.planner.graphs import PUBLISHED
from gnnscale.planner.simulator.hitgnn import layer_sizes, local_share
from gnnscale.planner.simulator.simulate import SimulatedTask, measured_task, published_task
from gnnscale.sampling import NeighborSampling, SamplerConfig

#: Mini-batch of the comparison with C simulation: seeds, and vertices and degree of a random graph.
_SEEDS, _VERTICES, _DEGREE = 32, 16384, 32
_EDGE_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class Pass:
    """Estimated cycles of a compute unit for a pass over a layer, by concurrent task."""

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
    """Return, by kind of data, the bytes between a unit and its memory in a step.

    A step trains ``groups`` groups of seeds; ``part`` is the mini-batch of one of the groups.
    """
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


@dataclass(frozen=True, kw_only=True)
class DesignPackage:
    """Design, its estimates and test vectors: the contents of its directory."""

    design: GeneratedDesign
    exploration: Exploration
    estimate: Estimate
    vectors: Vectors
    header: Path | None  #: C++ header of the user's layers. None: built-in layers
    memory_bytes: int  #: memory of the card
    link_bandwidth: float  #: usable bytes per second of the link
    cards: int

    def write(
        self, directory: Path, *, groups: Mapping[str, str], options: Mapping[str, Any]
    ) -> None:
        """Write sources, constants and test vectors to ``directory``.

        ``train.yaml`` there selects configuration ``groups`` and sets ``options``.
        """
        layer = self.header is not None
        texts = {
            "gnnscale_design.hpp": package.constants(self.design),
            "connectivity.cfg": package.connectivity(self.design),
            "design.mk": package.make_constants(self.design, header=layer),
            "design.tcl": package.tcl_constants(self.design, self.vectors.depths, header=layer),
            "train.yaml": package.host_configuration(
                self.design,
                groups=groups,
                options=options,
                cards=self.cards,
                memory_bytes=self.memory_bytes,
                link_bandwidth=self.link_bandwidth,
            ),
        }
        binaries = {f"vectors/{name}": data for name, data in self.vectors.files().items()}
        if self.header is not None:
            binaries["layer.hpp"] = self.header.read_bytes()
        package.write_files(directory, build.sources(), texts, binaries)


def generate(config: GenerateConfig) -> DesignPackage:
    """Explore designs and return the best with the contents of its directory; write no directory.

    Raises ConfigError if no design fits the board, the kernels do not support the model, or a
    compiler is missing for a design without a shipped library; GraphError if the graph store is not
    usable.
    """
    graph = None if config.dataset is None else config.dataset.open()
    if graph is not None:
        graph.refuse_types("an FPGA design")
    header = _check_model(config, graph)
    task = _task(config)
    assert isinstance(config.sampler, NeighborSampling)
    local = local_share(
        config.system, task.degrees, config.sampler.fanouts, config.batch_size, config.cards
    )
    goal = make_goal(
        [(task, local)],
        batch_size=config.batch_size,
        link_bandwidth=config.link_share * config.board.link_bandwidth,
    )
    exploration = explore(config.board, goal, config.mode)
    return _generated(config, goal, exploration, graph, header)


def _check_model(config: GenerateConfig, graph: Graph | None) -> Path | None:
    """Return the C++ header of custom layers, or None; ConfigError: the kernels lack the model."""
    num_features, num_classes = _widths(config, graph)
    if graph is not None and config.model.graph_read(graph).num_edge_features:
        raise ConfigError(
            f"model={config.model.name}: expected a model without edge features on an fpga; "
            "model.edge_features=false ignores them"
        )
    torch.manual_seed(config.seed)
    built = config.model.build(num_features=num_features, num_classes=num_classes)
    if not isinstance(built, GNN):
        raise ConfigError(
            f"model={config.model.name}: expected gcn, sage, gin or layers with a kernel_header, "
            f"got {config.model.name}"
        )
    ChipLimits(n=1).check(lowering.lower(built, aggregated=False))
    return lowering.kernel_header(built)


def _widths(config: GenerateConfig, graph: Graph | None) -> tuple[int, int]:
    if graph is not None:
        graph.check_features()
        return graph.num_features, graph.num_classes
    published = PUBLISHED[config.graph]
    return published.num_features, published.num_classes


def _task(config: GenerateConfig) -> SimulatedTask:
    if not isinstance(config.sampler, NeighborSampling):
        raise ConfigError("sampler: expected neighbor sampling for an fpga design")
    if config.dataset is None:
        return published_task(
            config.graph,
            PUBLISHED[config.graph],
            config.model,
            config.sampler,
            batch_size=config.batch_size,
        )
    return measured_task(
        config.dataset,
        config.model,
        config.sampler,
        batch_size=config.batch_size,
        seed=config.seed,
        cores=1,
        same_machine=False,
    )


def _generated(
    config: GenerateConfig,
    goal: Goal,
    exploration: Exploration,
    graph: Graph | None,
    header: Path | None,
) -> DesignPackage:
    board, point = config.board, exploration.best
    row_words = point.row_words or ChipLimits.row_words
    sizes = {"n": point.n, "m": point.m, "row_words": row_words, "clock_hz": board.clock_hz}
    design = build.SimulatedDesign(**sizes, compute_units=len(point.dies), header=header)
    library = build.library(design)
    num_features, num_classes = _widths(config, graph)
    widths = {"num_features": num_features, "num_classes": num_classes}
    vectors = make_vectors(
        config.model, limits=ChipLimits(n=point.n, row_words=row_words), library=library, **widths
    )
    compared = compare_with_csim(
        point,
        board,
        config.model,
        config.sampler,
        graph=graph,
        library=library,
        seed=config.seed,
        **widths,
    )
    estimated = estimate(board, goal, point, compared)
    return DesignPackage(
        design=_record(board, exploration.mode, point, row_words, estimated),
        exploration=exploration,
        estimate=estimated,
        vectors=vectors,
        header=header,
        memory_bytes=board.memory_bytes,
        link_bandwidth=goal.link_bandwidth,
        cards=config.cards,
    )


def _record(
    board: Board, mode: str, point: Point, row_words: int, estimated: Estimate
) -> GeneratedDesign:
    dies = [die for die in board.dies if die.name in point.dies]
    return GeneratedDesign(
        format=FORMAT,
        version=metadata.version("gnnscale"),
        sources=build.digest_of_sources(),
        board=board.name,
        part=board.part,
        platform=board.platform,
        mode=mode,
        n=point.n,
        m=point.m,
        row_words=row_words,
        clock_hz=board.clock_hz,
        dies=tuple(die.name for die in dies),
        banks=tuple(die.bank for die in dies),
        resources=ResourceUse(**vars(total(estimated.processes.values()))),
        estimated_cycles=estimated.cycles,
    )
