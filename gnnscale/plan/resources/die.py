"""Whether a design fits a die."""

from __future__ import annotations

from dataclasses import dataclass

from gnnscale.plan.resources.design import DesignSize
from gnnscale.plan.resources.processes import Processes
from gnnscale.plan.resources.quantities import NAMES, Resources, total
from gnnscale.plan.resources.tool import VITIS_HLS, Tool


@dataclass(frozen=True, kw_only=True)
class Die:
    """A die (SLR) of a card: what it has, and what the platform's shell takes of it."""

    name: str
    has: Resources
    shell: Resources
    source: str


#: Each of the four dies. The shell is that of the platform xilinx_u250_xdma_201830_2, for which
#: ThunderGP has what ``platforminfo`` leaves: 345,171 LUTs, 704,801 registers, 2,877 DSP slices,
#: 500 BRAM and 320 URAM blocks.
U250 = Die(
    name="Alveo U250",
    has=Resources(luts=432_000, registers=864_000, dsps=3_072, brams=672, urams=320),
    shell=Resources(luts=86_829, registers=159_199, dsps=195, brams=172, urams=0),
    source="data sheet DS962 over four; platforminfo of xilinx_u250_xdma_201830_2, by ThunderGP",
)
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
