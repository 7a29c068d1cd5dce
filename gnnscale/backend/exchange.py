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
    """All-to-all exchange of rows between the devices of a run, ahead of propagation.

    It runs in its own thread with its own process group, at the same time as the all-reduce of
    gradients.
    """

    def trade(self, batch: MiniBatch, inputs: Inputs) -> Inputs:
        """Send rows to the other devices, and return the input with the rows received.

        Every device calls this once a step, in step order. A device without seeds in the step
        passes an empty mini-batch.

        Returns:
            Input of the first layer. Its ``traffic`` includes the exchange.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ExchangeConfig(ABC):
    """Base class of the configuration group ``exchange``."""

    @abstractmethod
    def open(self, group: Group, graph: Graph) -> Exchange:
        """Return the exchange of one worker.

        Args:
            group: process group of all workers, used by the exchange only.
            graph: training graph of the worker.
        """
