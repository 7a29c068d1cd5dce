"""The record of a design, which lies in its directory as ``design.json``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from gnnscale.core import ConfigError, check_bank, check_label, check_word, decode
from gnnscale.options.file import read_regular

DESIGN_FILE = "design.json"
#: Of the record; others are refused.
FORMAT = 1
_MAX_BYTES = 1 << 20

Name = Annotated[str, Meta(max_length=256)]
Count = Annotated[int, Meta(ge=1, le=1 << 50)]
Amount = Annotated[float, Meta(ge=0, le=1e18)]


@dataclass(frozen=True, kw_only=True)
class Taken:
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
    resources: Taken  #: of a compute unit
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
