"""FPGA cards by their data sheets: the resources of each die, and the memory beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from gnnscale.core import (
    ConfigError,
    check_bank,
    check_choice,
    check_label,
    check_range,
    check_word,
    shown,
)
from gnnscale.core.config.renamed import current_path
from gnnscale.core.config.typed import typed
from gnnscale.core.config.untrusted import names
from gnnscale.core.config.yaml_file import check_known, check_references, read_yaml

_MAX_DIES = 16
_MAX_CLOCK_HZ = 1_000_000_000
#: Figures whose source a file has to name.
SOURCED = ("dies", "bandwidth", "clock_hz", "link_bandwidth", "power_w")


@dataclass(frozen=True, kw_only=True)
class Board:
    """An FPGA card.

    Attributes:
        name: what reports call it: ASCII letters, digits, spaces and ``_.:+()/-``.
        part: the vendor's name of the FPGA, a word of ASCII letters, digits and ``_.+-``.
        platform: the Vitis platform that a design is built for, likewise a word.
        dies: from the first to the last; each has the memory beside it.
        memory_bytes: of all its memory.
        clock_hz: cycles per second of the kernels.
        link_bandwidth: bytes per second from the host at best.
        power_w: watts while it computes.
        sources: of the figures, by ``SOURCED``.
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
        # They stand as they are in a design's Makefile, Tcl, C++ and connectivity.
        check_label("board.name", self.name)
        check_word("board.part", self.part)
        check_word("board.platform", self.platform)
        if not 1 <= len(self.dies) <= _MAX_DIES:
            raise ConfigError(f"board.dies: {len(self.dies)} dies, allowed are 1 to {_MAX_DIES}")
        labels = [die.name for die in self.dies]
        if len(set(labels)) < len(labels):
            raise ConfigError(f"board.dies: {', '.join(labels)}: each needs its own name")
        check_range("board.memory_bytes", self.memory_bytes, 1, 1 << 50)
        check_range("board.clock_hz", self.clock_hz, 1_000_000, _MAX_CLOCK_HZ)
        for name in ("link_bandwidth", "power_w"):
            check_amount(f"board.{name}", getattr(self, name))
        missing = [name for name in SOURCED if not self.sources.get(name)]
        if missing:
            raise ConfigError(
                f"board.sources.{missing[0]}: required; name the source of {missing[0]}"
            )

    @property
    def bandwidth(self) -> float:
        """Bytes per second of all its memory."""
        return sum(die.bandwidth for die in self.dies)


def board_values(file: Path) -> dict[str, Any]:
    """Return the options of a board that a user's file gives; they are not checked any further.

    A copy of a file that ships may keep its ``_target_``.

    Raises:
        ConfigError: it cannot be read, or gives what is no option of a board.
    """
    try:
        values = read_yaml(file)
    except FileNotFoundError:
        raise ConfigError(f"board={shown(str(file))}: no such file") from None
    if current_path(str(values.get("_target_"))) == f"{Board.__module__}.{Board.__qualname__}":
        del values["_target_"]
    check_known(file, values, [each.name for each in fields(Board)])
    check_references(file, values, allowed=False)
    return values


def boards() -> tuple[str, ...]:
    """Return the names of the boards that ship."""
    files = (resources.files("gnnscale.configs") / "board").iterdir()
    found = (each.name for each in files)
    return tuple(sorted(name[:-5] for name in found if name.endswith(".yaml")))


def board(name: str) -> Board:
    """Return a board that ships.

    Raises:
        ConfigError: none is called so.
    """
    check_choice("board", name, boards())
    file = resources.files("gnnscale.configs") / "board" / f"{name}.yaml"
    return typed(OmegaConf.create(file.read_text()), Board)


@dataclass(frozen=True, kw_only=True)
class Resources:
    """How much of each there is, or is taken.

    Attributes:
        luts: look-up tables of six inputs, those used as memory included.
        registers: of a bit.
        dsps: DSP slices.
        brams: blocks of 36 Kbit.
        urams: blocks of 288 Kbit.
    """

    luts: float = 0
    registers: float = 0
    dsps: float = 0
    brams: float = 0
    urams: float = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(**{each: getattr(self, each) + getattr(other, each) for each in NAMES})

    def __mul__(self, count: float) -> Resources:
        return Resources(**{each: getattr(self, each) * count for each in NAMES})

    __rmul__ = __mul__


#: Their names, in this order.
NAMES = tuple(each.name for each in fields(Resources))


def total(parts: Iterable[Resources]) -> Resources:
    """Return the sum of ``parts``."""
    return sum(parts, Resources())


#: Beyond these, times and shares are no numbers of 64 bits any more.
_LEAST, _LIMIT = 1e-3, 1e18

#: More of any resource than a die of a card has, so that all designs of a die fit in memory.
_RESOURCE_LIMIT = 1e7


def check_amount(option: str, value: float, limit: float = _LIMIT) -> None:
    """Raise ConfigError, naming ``option``, unless ``value`` is from 1e-3 to ``limit``."""
    if not value > 0:
        raise ConfigError(f"{option}={value:g}: must be above 0")
    if not _LEAST <= value <= limit:
        raise ConfigError(f"{option}={value:g}: must be at least {_LEAST:g} and at most {limit:g}")


@dataclass(frozen=True, kw_only=True)
class Die:
    """A die (SLR) of a card.

    Attributes:
        name: as Vitis calls it, such as ``SLR0``.
        has: all there is of it.
        shell: what the platform's shell takes of that.
        bank: the memory beside it, as Vitis calls it, such as ``DDR[0]`` or ``HBM[0:9]``.
        bandwidth: bytes per second of ``bank``.
    """

    name: str
    has: Resources
    shell: Resources
    bank: str
    bandwidth: float

    def __post_init__(self) -> None:
        # Both stand as they are in a design's connectivity.
        check_word("board.dies.name", self.name)
        check_bank(f"die {self.name}: bank", self.bank)
        check_amount(f"die {self.name}: bandwidth", self.bandwidth)
        for name in NAMES:
            has, shell = getattr(self.has, name), getattr(self.shell, name)
            check_amount(f"die {self.name}: has.{name}", has, _RESOURCE_LIMIT)
            if not 0 <= shell < has:
                raise ConfigError(
                    f"die {self.name}: shell.{name}={shell:g}: must be from 0 to has.{name}={has:g}"
                )

    @property
    def left(self) -> Resources:
        """What the shell leaves."""
        return self.has + -1 * self.shell
