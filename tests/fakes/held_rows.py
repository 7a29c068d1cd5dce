"""A feature store that wraps a store: a fixed set of rows is held apart, as in a cache."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale.core.stages import Access, Traffic
from gnnscale.features import FeatureStore, FeatureStoreConfig, HostFeatures
from gnnscale.graph import Graph


class HeldRows(FeatureStore):
    """Rows of some vertices come from here, those of all others from another store."""

    def __init__(self, inner: FeatureStore, vertices: NDArray[Any]) -> None:
        self._inner = inner
        self._rows, _ = inner.gather(vertices, dtype=torch.float32, num_threads=1)
        self._place = np.full(inner.num_rows, -1, np.int64)
        self._place[vertices] = np.arange(len(vertices))

    @property
    def num_rows(self) -> int:
        return self._inner.num_rows

    @property
    def width(self) -> int:
        return self._inner.width

    @property
    def row_bytes(self) -> int:
        return self._inner.row_bytes

    def gather(
        self, vertices: NDArray[Any], *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        place = self._place[vertices]
        held, asked = np.flatnonzero(place >= 0), np.flatnonzero(place < 0)
        rows, traffic = self._inner.gather(vertices[asked], dtype=dtype, num_threads=num_threads)
        out = torch.empty(len(vertices), self.width, dtype=dtype)
        out[torch.from_numpy(asked)] = rows
        out[torch.from_numpy(held)] = self._rows[torch.from_numpy(place[held])].to(dtype)
        return out, traffic + Traffic(rows=Access(hits=len(held), misses=len(asked)))


@dataclass(frozen=True, kw_only=True)
class HoldEvenVertices(FeatureStoreConfig):
    """Holds the rows of every even vertex."""

    def open(self, graph: Graph) -> HeldRows:
        return HeldRows(HostFeatures.of(graph), np.arange(0, graph.num_vertices, 2))


@dataclass(frozen=True, kw_only=True)
class OtherRows(FeatureStoreConfig):
    """A store of a graph with one vertex more."""

    def open(self, graph: Graph) -> HostFeatures:
        return HostFeatures(np.zeros((graph.num_vertices + 1, graph.num_features), "f4"), "float32")
