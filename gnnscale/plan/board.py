"""FPGA cards by their data sheets: the resources of each die, and the memory beside it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from gnnscale.core import (
    ConfigError,
    check_choice,
    check_label,
    check_range,
    check_word,
    shown,
)
from gnnscale.options.config import typed
from gnnscale.options.file import check_known, check_references, read_yaml
from gnnscale.options.found import names
from gnnscale.plan.resources.die import Die, check_amount

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
    if values.get("_target_") == f"{Board.__module__}.{Board.__qualname__}":
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
