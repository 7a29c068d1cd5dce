"""The record of a design, which lies in its directory as ``design.json``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from gnnscale.core import (
    MAX_SEED,
    ConfigError,
    check_bank,
    check_choice,
    check_label,
    check_range,
    check_word,
    decode,
)
from gnnscale.core.config.yaml_file import read_regular
from gnnscale.data import GraphSource
from gnnscale.fpga_design.dse import MODES
from gnnscale.nn import ModelConfig
from gnnscale.planner.fpga_board import Board
from gnnscale.planner.graphs import PUBLISHED
from gnnscale.planner.simulator.hitgnn import ALGORITHMS
from gnnscale.sampling import SamplerConfig

DESIGN_FILE = "design.json"

#: Of the record; others are refused.
FORMAT = 1
_MAX_BYTES = 1 << 20

Name = Annotated[str, Meta(max_length=256)]
Count = Annotated[int, Meta(ge=1, le=1 << 50)]
Amount = Annotated[float, Meta(ge=0, le=1e18)]


@dataclass(frozen=True, kw_only=True)
class ResourceUse:
    """Resources of a compute unit by the model of the parts."""

    luts: Amount
    registers: Amount
    dsps: Amount
    brams: Amount
    urams: Amount


@dataclass(frozen=True, kw_only=True)
class GeneratedDesign:
    """What was generated, and what was reckoned with."""

    format: int
    version: Name  #: of gnnscale
    sources: Name  #: hash of the kernels' sources
    board: Name
    part: Name  #: the vendor's name of the FPGA
    platform: Name
    mode: Name  #: whose models chose it
    n: Count  #: scatter-gather PEs of a compute unit
    m: Count  #: multiply-accumulate units of a compute unit
    row_words: Count  #: of a compute unit's memory of rows
    clock_hz: Count
    dies: tuple[Name, ...]  #: those that have a compute unit
    banks: tuple[Name, ...]  #: the memory of each
    resources: ResourceUse  #: of a compute unit
    estimated_cycles: Amount  #: of a step on one compute unit

    def __post_init__(self) -> None:
        self.check_words()

    def check_words(self) -> None:
        """Check that texts mean nothing to the programs whose input they become.

        Raises:
            ConfigError: one is no word.
        """
        check_label("board", self.board)
        for name in ("version", "sources", "part", "platform", "mode"):
            check_word(name, getattr(self, name))
        for die in self.dies:
            check_word("dies", die)
        for bank in self.banks:
            check_bank("banks", bank)

    @property
    def compute_units(self) -> int:
        """How many there are, one on each die."""
        return len(self.dies)

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def read_design(directory: Path) -> GeneratedDesign:
    """Return the design that was generated into ``directory``.

    Raises:
        ConfigError: it is missing, or damaged, or of another version.
    """
    file = directory / DESIGN_FILE
    try:
        content = read_regular(file, limit=_MAX_BYTES)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}; gnnscale generate writes it") from None
    try:
        found = decode(GeneratedDesign, content, source=str(file))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if found.format != FORMAT:
        raise ConfigError(f"{file}: format {found.format}, and this version reads {FORMAT}")
    return found


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
