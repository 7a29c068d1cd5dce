"""An exchange in which devices trade rows: every device loads the rows of its own vertices alone.

Vertex v belongs to device v modulo devices. A device asks each other one for the rows it lacks, and
gets them; a device without seeds asks for nothing, and still answers.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from gnnscale.backend.exchange import ExchangeConfig
from gnnscale.core.stages import Access, Traffic
from gnnscale.distributed.process_group import Group
from gnnscale.features import FeatureStore, FeatureStoreConfig, HostFeatures
from gnnscale.graph import Graph
from gnnscale.nn import Inputs
from gnnscale.sampling import MiniBatch


class OwnRows(HostFeatures):
    """Zeros for all vertices: what a device owns, it adds in the exchange."""

    aggregate = FeatureStore.aggregate

    def gather(self, vertices: Any, *, dtype: torch.dtype, num_threads: int) -> tuple[Any, Traffic]:
        return torch.zeros(len(vertices), self.width, dtype=dtype), Traffic()


@dataclass(frozen=True, kw_only=True)
class NoRows(FeatureStoreConfig):
    """Nothing is loaded before the exchange."""

    def open(self, graph: Graph) -> FeatureStore:
        return OwnRows.of(graph)


class RowExchange:
    """Asks the owner of every input vertex for its row."""

    def __init__(self, group: Group, graph: Graph) -> None:
        self._group = group
        self._features = torch.from_numpy(np.array(graph.features))

    def trade(self, batch: MiniBatch, inputs: Inputs) -> Inputs:
        size, vertices = self._group.size, batch.input_vertices
        owners = [np.flatnonzero(vertices % size == rank) for rank in range(size)]
        asked = [torch.from_numpy(vertices[each].astype(np.int64)) for each in owners]
        wanted = self._group.trade(asked)
        rows = self._group.trade([self._features[each] for each in wanted])
        x = inputs.x.clone()
        for places, answer in zip(owners, rows, strict=True):
            x[torch.from_numpy(places)] = answer
        peers = [answer for rank, answer in enumerate(rows) if rank != self._group.rank]
        num_bytes = sum(answer.nbytes for answer in peers)
        traffic = Traffic(rows=Access(peer_bytes=num_bytes))
        return replace(inputs, x=x, traffic=inputs.traffic + traffic)


@dataclass(frozen=True, kw_only=True)
class TradeRows(ExchangeConfig):
    """Every device has the rows of its own vertices."""

    def open(self, group: Group, graph: Graph) -> RowExchange:
        return RowExchange(group, graph)
