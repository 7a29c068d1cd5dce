"""What a design is generated for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gnnscale.core import MAX_SEED, ConfigError, check_choice, check_range
from gnnscale.dataset import GraphSource
from gnnscale.model import ModelConfig
from gnnscale.plan.board import Board
from gnnscale.plan.dse import MODES
from gnnscale.plan.graphs import PUBLISHED
from gnnscale.plan.simulator.hitgnn import ALGORITHMS
from gnnscale.sampler import SamplerConfig

#: Partitioners of HitGNN's Table I, for several cards. P3's columns are on no FPGA here.
PARTITIONERS = {"distdgl": "edge_cut", "pagraph": "pagraph"}
_MAX_CARDS = 256
_MAX_BATCH = 1 << 20


@dataclass(frozen=True, kw_only=True)
class GenerateConfig:
    """A design that is asked for, or a report of the vendor's tools that is compared with one.

    Attributes:
        seed: fixes the mini-batches that are sampled, and the test vectors.
        board: the card.
        mode: one of ``MODES``: whose models of resources and cycles choose the design.
        system: one of ``ALGORITHMS``: which input rows are in a card's memory.
        cards: how many train together.
        graph: one of ``PUBLISHED``, whose mini-batches count if no dataset is given.
        model: options of the model.
        sampler: options of the sampler.
        batch_size: seeds of a card's mini-batch.
        link_share: part of the board's link bandwidth that is reckoned with.
        report: a directory of the vendor's reports to compare with the design that it was built
            of; None generates.
        design: the directory of that design; None for the one above the reports.
        dataset: a graph to sample, None for the sizes of ``graph``.
        force: replace a design, or a comparison, that is in the output folder.
    """

    seed: int
    board: Board
    mode: str
    system: str
    cards: int
    graph: str
    model: ModelConfig
    sampler: SamplerConfig
    batch_size: int
    link_share: float
    report: Path | None = None
    design: Path | None = None
    dataset: GraphSource | None = None
    force: bool = False

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)
        check_choice("system", self.system, ALGORITHMS)
        check_choice("graph", self.graph, PUBLISHED)
        check_range("seed", self.seed, 0, MAX_SEED)
        check_range("cards", self.cards, 1, _MAX_CARDS)
        check_range("batch_size", self.batch_size, 1, _MAX_BATCH)
        check_range("link_share", self.link_share, 0.01, 1)
        self.sampler.check_layers(self.model.num_layers)
        if self.design is not None and self.report is None:
            raise ConfigError(f"design={self.design}: only with report=DIR")
