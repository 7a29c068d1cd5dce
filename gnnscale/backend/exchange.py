"""Row exchange between devices: an optional pipeline stage between load and transfer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gnnscale.distributed.process_group import Group
    from gnnscale.graph import Graph
    from gnnscale.nn import Inputs
    from gnnscale.sampling import MiniBatch


class Exchange(Protocol):
    """Exchange between a run's devices that completes first-layer inputs, in a separate thread."""

    def trade(self, batch: MiniBatch, inputs: Inputs) -> Inputs:
        """Exchange rows or blocks with other devices; return ``inputs`` completed, with traffic.

        Every device calls this once a step, in step order; without seeds, with an empty mini-batch.
        """


@dataclass(frozen=True, kw_only=True)
class ExchangeConfig(ABC):
    """Base class of the configuration group ``exchange``."""

    @abstractmethod
    def open(self, group: Group, graph: Graph) -> Exchange:
        """Return a worker's exchange; ``group`` is a process group of all workers for exchanges."""
