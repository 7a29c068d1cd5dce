"""FPGA cards by their data sheets: the resources of each die and the memory attached to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from gnnscale.core import (
    ConfigError,
    brief,
    check_bank,
    check_choice,
    check_label,
    check_range,
    check_word,
)
from gnnscale.core.config import check_known, check_references, current_path, names, read_yaml
from gnnscale.core.config.typed import typed

_MAX_DIES = 16
_MAX_CLOCK_HZ = 1_000_000_000
#: Fields of a board whose source the file has to state in ``sources``.
SOURCED = ("dies", "bandwidth", "clock_hz", "link_bandwidth", "power_w")


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Amount of each FPGA resource that a die has or a design takes.

    Attributes:
        luts: look-up tables with six inputs, including the ones used as memory.
        registers: one-bit registers.
        dsps: DSP slices.
        brams: BRAM blocks of 36 Kbit.
        urams: URAM blocks of 288 Kbit.
    """

    luts: float = 0
    registers: float = 0
    dsps: float = 0
    brams: float = 0
    urams: float = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(**{name: getattr(self, name) + getattr(other, name) for name in NAMES})

    def __mul__(self, count: float) -> Resources:
        return Resources(**{name: getattr(self, name) * count for name in NAMES})

    __rmul__ = __mul__


#: Names of the resources, in the order of the fields.
NAMES = tuple(field.name for field in fields(Resources))


def total(parts: Iterable[Resources]) -> Resources:
    """Return the sum of ``parts``; no resources if it is empty."""
    return sum(parts, Resources())


#: Bounds of rates, so that times and shares computed from them are finite float64 values.
_LEAST, _LIMIT = 1e-3, 1e18

#: Upper bound of every resource: above any existing die, and small enough to keep the search small.
_RESOURCE_LIMIT = 1e7


def check_amount(option: str, value: float, limit: float = _LIMIT) -> None:
    """Raise ConfigError, naming ``option``, unless ``value`` is from 1e-3 to ``limit``."""
    if not _LEAST <= value <= limit:
        raise ConfigError(f"{option}={value:g}: expected {_LEAST:g} to {limit:g}")


@dataclass(frozen=True, kw_only=True)
class Die:
    """Die (SLR) of a card.

    Attributes:
        name: the die's name in Vitis, such as ``SLR0``.
        has: all resources of the die.
        shell: the part of ``has`` that the platform's shell occupies.
        bank: the die's memory as Vitis names it, such as ``DDR[0]`` or ``HBM[0:9]``.
        bandwidth: bytes per second of ``bank``.
    """

    name: str
    has: Resources
    shell: Resources
    bank: str
    bandwidth: float

    def __post_init__(self) -> None:
        # The connectivity file of a design contains both without quotes.
        check_word("board.dies.name", self.name)
        check_bank(f"die {self.name}: bank", self.bank)
        check_amount(f"die {self.name}: bandwidth", self.bandwidth)
        for name in NAMES:
            has, shell = getattr(self.has, name), getattr(self.shell, name)
            check_amount(f"die {self.name}: has.{name}", has, _RESOURCE_LIMIT)
            if not 0 <= shell < has:
                raise ConfigError(
                    f"die {self.name}: shell.{name}={shell:g}: expected 0 up to has.{name}={has:g}"
                )

    @property
    def available(self) -> Resources:
        """Resources that the shell leaves to a design."""
        return self.has + -1 * self.shell


@dataclass(frozen=True, kw_only=True)
class Board:
    """FPGA card.

    Attributes:
        name: name in reports: ASCII letters, digits, spaces and ``_.:+()/-``.
        part: the vendor's part number of the FPGA, a word of ASCII letters, digits and ``_.+-``.
        platform: the Vitis platform that designs are built for, also such a word.
        dies: the dies in order, each with its own memory.
        memory_bytes: bytes of memory on the whole card.
        clock_hz: clock of the kernels in Hz.
        link_bandwidth: peak bytes per second between host and card.
        power_w: watts under load.
        sources: the source of each field in ``SOURCED``, by field name.
    """

    name: str = field(metadata=names("text"))
    part: str = field(metadata=names("text"))
    platform: str = field(metadata=names("text"))
    dies: list[Die]
    memory_bytes: int
    clock_hz: int
    link_bandwidth: float
    power_w: float
    sources: dict[str, str] = field(metadata=names("text"))

    def __post_init__(self) -> None:
        # A design's Makefile, Tcl, C++ and connectivity files contain them without quotes.
        check_label("board.name", self.name)
        check_word("board.part", self.part)
        check_word("board.platform", self.platform)
        if not 1 <= len(self.dies) <= _MAX_DIES:
            raise ConfigError(f"board.dies: expected 1 to {_MAX_DIES} dies, got {len(self.dies)}")
        labels = [die.name for die in self.dies]
        if len(set(labels)) < len(labels):
            raise ConfigError(f"board.dies: expected distinct names, got {', '.join(labels)}")
        check_range("board.memory_bytes", self.memory_bytes, 1, 1 << 50)
        check_range("board.clock_hz", self.clock_hz, 1_000_000, _MAX_CLOCK_HZ)
        for name in ("link_bandwidth", "power_w"):
            check_amount(f"board.{name}", getattr(self, name))
        missing = [name for name in SOURCED if not self.sources.get(name)]
        if missing:
            raise ConfigError(f"board.sources.{missing[0]}: required; state where it comes from")

    @property
    def bandwidth(self) -> float:
        """Bytes per second of all the card's memory together."""
        return sum(die.bandwidth for die in self.dies)


def board_values(file: Path) -> dict[str, Any]:
    """Read the options of a board from a user's YAML file; only their names are checked.

    The ``_target_`` of a copied shipped file is dropped. Raises ConfigError if the file cannot be
    read or contains an unknown option.
    """
    try:
        values = read_yaml(file)
    except FileNotFoundError:
        raise ConfigError(f"board={brief(str(file))}: no such file") from None
    if current_path(str(values.get("_target_"))) == f"{Board.__module__}.{Board.__qualname__}":
        del values["_target_"]
    check_known(file, values, [field.name for field in fields(Board)])
    check_references(file, values, allowed=False)
    return values


def boards() -> tuple[str, ...]:
    """Return the names of the boards that ship with the package."""
    files = (resources.files("gnnscale.configs") / "board").iterdir()
    return tuple(sorted(f.name[:-5] for f in files if f.name.endswith(".yaml")))


def board(name: str) -> Board:
    """Return the shipped board called ``name``."""
    check_choice("board", name, boards())
    file = resources.files("gnnscale.configs") / "board" / f"{name}.yaml"
    return typed(OmegaConf.create(file.read_text()), Board)
