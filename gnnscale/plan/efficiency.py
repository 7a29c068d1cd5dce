"""Efficiency: the part of its peak rates that a machine reaches while it trains.

Data sheets have peaks, and the equations want effective rates (HyScale-GNN, section V). What a
platform's own runs measured is effective as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from gnnscale.config import ConfigError

__all__ = ["Efficiency"]


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """Parts of peak rates, above 0 and up to 1. Their sources stand beside them in the files.

    Attributes:
        processor: of the processor's arithmetic and of the rows it aggregates (eq. 11 and 12).
        memory: of the host's memory while features are loaded (eq. 7).
        accelerator: of an accelerator's arithmetic and memory (eq. 11 and 12).
        link: of its link to the host (eq. 8 and 13).
    """

    processor: float
    memory: float
    accelerator: float
    link: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 < value <= 1:
                raise ConfigError(f"efficiency.{field.name}={value}: must be above 0 and up to 1")
