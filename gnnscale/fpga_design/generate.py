"""Generate_Design: a design from an algorithm, a model and a board (HitGNN, section IV)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from gnnscale.backend.fpga import lowering
from gnnscale.backend.fpga.csim import build
from gnnscale.backend.fpga.layout import ChipLimits
from gnnscale.core import ConfigError
from gnnscale.fpga_design import package
from gnnscale.fpga_design.design import FORMAT, GenerateConfig, GeneratedDesign, ResourceUse
from gnnscale.fpga_design.dse import Exploration, Goal, Point, explore, make_goal
from gnnscale.fpga_design.estimate import Estimate, compare_with_csim, estimate
from gnnscale.fpga_design.package import Vectors, make_vectors
from gnnscale.fpga_design.resources import total
from gnnscale.graph import Graph
from gnnscale.nn import GNN
from gnnscale.planner.fpga_board import Board
from gnnscale.planner.graphs import PUBLISHED
from gnnscale.planner.simulator.hitgnn import local_share
from gnnscale.planner.simulator.simulate import SimulatedTask, measured_task, published_task
from gnnscale.sampling import NeighborSampling


@dataclass(frozen=True, kw_only=True)
class DesignPackage:
    """Design with all contents of its directory."""

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
        """Write the design's directory, with the host's ``options`` and choices of ``groups``."""
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
    """Choose a design and prepare its files, without writing them.

    Raises ConfigError if no design fits the board, the kernels do not support the model, or a
    compiler is missing for a design without a shipped library; GraphError if the graph store is not
    usable.
    """
    graph = None if config.dataset is None else config.dataset.open()
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
    """Check that the kernels support the model; return the C++ header of its layers, if any."""
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
            "got a torch module"
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
