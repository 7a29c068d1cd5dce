"""Fit of a design on a die."""

from __future__ import annotations

from dataclasses import dataclass

from gnnscale.fpga_design.resources.design import VITIS_HLS, DesignSize, Tool
from gnnscale.fpga_design.resources.processes import Processes
from gnnscale.planner.fpga_board import NAMES, Die, Resources, total

#: Usable fraction of each resource, shell included: fuller dies seldom reach their clock.
MAX_SHARE = 0.85


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Resources that a design takes of a die."""

    resources: dict[str, Resources]  #: by process, and by shared part such as ``ports``
    shares: dict[str, float]  #: used fraction by resource, shell included

    @property
    def fits(self) -> bool:
        """Whether no resource is fuller than ``MAX_SHARE``."""
        return all(share <= MAX_SHARE for share in self.shares.values())

    @property
    def limit(self) -> str:
        """Fullest resource."""
        return max(self.shares, key=lambda name: self.shares[name])


def fit(size: DesignSize, die: Die, tool: Tool = VITIS_HLS) -> Fit:
    """Return the fit of one compute unit of a design on a die."""
    resources = Processes(size, tool).all()
    used = total(resources.values()) + die.shell
    shares = {name: getattr(used, name) / getattr(die.has, name) for name in NAMES}
    return Fit(resources=resources, shares=shares)
