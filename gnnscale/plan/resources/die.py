"""Whether a design fits a die."""

from __future__ import annotations

from dataclasses import dataclass

from gnnscale.core import ConfigError, check_bank, check_word
from gnnscale.plan.resources.design import DesignSize
from gnnscale.plan.resources.processes import Processes
from gnnscale.plan.resources.quantities import NAMES, Resources, total
from gnnscale.plan.resources.tool import VITIS_HLS, Tool

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


#: Of each resource, shell included: what is fuller is seldom placed at its clock.
MAX_SHARE = 0.85


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What a design takes of a die."""

    taken: dict[str, Resources]  #: of each process, and of what is beside them
    shares: dict[str, float]  #: of each resource, the shell included

    @property
    def fits(self) -> bool:
        """Whether it leaves enough of each resource."""
        return all(share <= MAX_SHARE for share in self.shares.values())

    @property
    def limit(self) -> str:
        """The resource of which it takes the largest share."""
        return max(self.shares, key=lambda name: self.shares[name])


def fit(size: DesignSize, die: Die, tool: Tool = VITIS_HLS) -> Fit:
    """Return what a design takes of a die, one compute unit on it."""
    taken = Processes(size, tool).all()
    all_of_it = total(taken.values()) + die.shell
    shares = {name: getattr(all_of_it, name) / getattr(die.has, name) for name in NAMES}
    return Fit(taken=taken, shares=shares)
