"""Exchange: an optional stage between load and transfer, in which devices trade rows."""

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
    """Trades rows between the devices of a run, in a thread ahead of propagation.

    It has a separate process group, so that it may run while gradients are summed.
    """

    def trade(self, batch: MiniBatch, inputs: Inputs) -> Inputs:
        """Give rows to the other devices, and return the input with what they gave.

        Every device calls this once a step, in the order of steps; one that has no seeds in the
        step takes part with an empty mini-batch.

        Returns:
            The input of the first layer; its ``traffic`` includes that of the exchange.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ExchangeConfig(ABC):
    """Base of the configuration group ``exchange``."""

    @abstractmethod
    def open(self, group: Group, graph: Graph) -> Exchange:
        """Return the exchange of one worker.

        Args:
            group: all workers, over connections that only the exchange uses.
        """
