"""Record of a generated design, ``design.json``, and the options of the generator."""

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

#: Version of the record's format.
FORMAT = 1
_MAX_BYTES = 1 << 20

Name = Annotated[str, Meta(max_length=256)]
Count = Annotated[int, Meta(ge=1, le=1 << 50)]
Amount = Annotated[float, Meta(ge=0, le=1e18)]


@dataclass(frozen=True, kw_only=True)
class ResourceUse:
    """Resources of a compute unit by the resource model."""

    luts: Amount
    registers: Amount
    dsps: Amount
    brams: Amount
    urams: Amount


@dataclass(frozen=True, kw_only=True)
class GeneratedDesign:
    """Record of a generated design: its board, sizes, dies, and estimated resources and cycles."""

    format: int
    version: Name  #: version of gnnscale
    sources: Name  #: hash of the kernels' sources
    board: Name
    part: Name  #: the vendor's name of the FPGA
    platform: Name
    mode: Name  #: exploration mode, one of ``MODES``
    n: Count  #: scatter-gather PEs of a compute unit
    m: Count  #: multiply-accumulate units of a compute unit
    row_words: Count  #: row memory of a compute unit in words of 64 bytes
    clock_hz: Count
    dies: tuple[Name, ...]  #: dies with a compute unit
    banks: tuple[Name, ...]  #: memory bank of each of these dies
    resources: ResourceUse  #: resources of a compute unit
    estimated_cycles: Amount  #: cycles of a step on one compute unit

    def __post_init__(self) -> None:
        self.check_words()

    def check_words(self) -> None:
        """Raise ConfigError if a name has characters that the generated files cannot hold."""
        check_label("board", self.board)
        for name in ("version", "sources", "part", "platform", "mode"):
            check_word(name, getattr(self, name))
        for die in self.dies:
            check_word("dies", die)
        for bank in self.banks:
            check_bank("banks", bank)

    @property
    def compute_units(self) -> int:
        """Number of compute units, one per die."""
        return len(self.dies)

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        return asdict(self)


def read_design(directory: Path) -> GeneratedDesign:
    """Read the record in ``directory``; ConfigError: it is missing, damaged or of other format."""
    file = directory / DESIGN_FILE
    try:
        content = read_regular(file, limit=_MAX_BYTES)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}; gnnscale generate writes it") from None
    try:
        design = decode(GeneratedDesign, content, source=str(file))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if design.format != FORMAT:
        raise ConfigError(f"{file}: expected format {FORMAT}, got {design.format}")
    return design


#: Partitioners of HitGNN's Table I for several cards. FPGAs do not support P3's columns.
PARTITIONERS = {"distdgl": "edge_cut", "pagraph": "pagraph"}
_MAX_CARDS = 256
_MAX_BATCH = 1 << 20


@dataclass(frozen=True, kw_only=True)
class GenerateConfig:
    """Options of generating a design, or of comparing a vendor's reports with a design.

    Attributes:
        seed: seed of sampled mini-batches and test vectors.
        board: the card.
        mode: one of ``MODES``: the models of resources and cycles.
        system: one of ``ALGORITHMS``, which determines the input rows in a card's memory.
        cards: number of cards that train together.
        graph: one of ``PUBLISHED``, used without a dataset.
        model: options of the model.
        sampler: options of the sampler.
        batch_size: seeds of a card's mini-batch.
        link_share: usable fraction of the board's link bandwidth.
        report: directory of vendor reports to compare with their design. None: generate a design.
        design: directory of that design. None: the nearest one above the reports.
        dataset: graph to sample. None: the sizes of ``graph``.
        force: replace a design or a comparison in the output directory.
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
            raise ConfigError(f"design={self.design}: expected null without report=DIR")
