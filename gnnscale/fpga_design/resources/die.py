"""Whether a design fits a die."""

from __future__ import annotations

from dataclasses import dataclass

from gnnscale.fpga_design.resources.design import VITIS_HLS, DesignSize, Tool
from gnnscale.fpga_design.resources.processes import Processes
from gnnscale.planner.fpga_board import NAMES, Die, Resources, total

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
