"""Features of which some rows lie in the device's own memory, or in that of a peer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.cache.cache_plan import HOST, ROWS_FROM
from gnnscale.feature import FeatureStore, HostFeatures
from gnnscale.stages import Access, Traffic

__all__ = ["CachedFeatures", "slots_of"]


def slots_of(num_vertices: int, caches: Sequence[NDArray[Any]]) -> ops.RankedSlots:
    """Return the slot of each vertex among the rows of all ``caches``.

    It takes least memory where there is one cache whose vertices ascend.

    Args:
        num_vertices: of the graph.
        caches: the vertices of each member of a clique. The slots of a member come after those of
            the members before it.
    """
    return ops.RankedSlots(num_vertices, list(caches))


class CachedFeatures(FeatureStore):
    """The host's features, some rows of which are read in the caches of a clique.

    The values are the host's own, bit for bit. Where a row is found decides what it costs.
    """

    def __init__(
        self,
        host: HostFeatures,
        caches: Sequence[NDArray[Any]],
        slots: ops.RankedSlots,
        *,
        own: int,
        names: Sequence[str] = (),
    ) -> None:
        """Wrap ``host``.

        Args:
            host: has every row.
            caches: ``[n_k, width]`` the rows that each member of the clique keeps, as they are
                stored at the host.
            slots: of these rows; see ``slots_of``.
            own: which of ``caches`` is this device's.
            names: what reports call the members.
        """
        self._host = host
        # One object, since another thread may gather while it is replaced.
        self._content = (list(caches), slots)
        self._own = own
        self._names = (*names, HOST)
        # Rows are read in one thread, and counted by another.
        self._counting = threading.Lock()
        self._found = [0] * (len(caches) + 1)

    @property
    def num_rows(self) -> int:
        """Number of rows, one for each vertex."""
        return self._host.num_rows

    @property
    def width(self) -> int:
        """Features of a row."""
        return self._host.width

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is stored."""
        return self._host.row_bytes

    def gather(
        self, vertices: NDArray[Any], *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, ``[n, width]``, each read where it is found."""
        out = ops.empty((len(vertices), self.width), dtype)
        caches, slots = self._content
        _, name = self._host.stored
        found = ops.gather_cached(
            self._host.stored,
            [(rows, name) for rows in caches],
            slots,
            vertices,
            out=out,
            num_threads=num_threads,
        )
        counts = found.tolist()
        with self._counting:
            self._found = [before + each for before, each in zip(self._found, counts, strict=True)]
        return out, found_rows(counts, own=self._own, row_bytes=self.row_bytes)

    def replace(self, caches: Sequence[NDArray[Any]], slots: ops.RankedSlots) -> None:
        """Read other rows in the caches of the same members from now on."""
        self._content = (list(caches), slots)

    def take_counters(self) -> dict[str, float]:
        """Return the rows read at each member and at the host since the last call, by name."""
        with self._counting:
            found, self._found = self._found, [0] * len(self._found)
        pairs = zip(self._names, found, strict=True)
        return {f"{ROWS_FROM}{name}": float(each) for name, each in pairs}


def found_rows(found: Sequence[int], *, own: int, row_bytes: int) -> Traffic:
    """Return the traffic of rows that were found in each cache of a clique and, last, at the host.

    Args:
        found: number of rows by place.
        own: which of the caches is the device's.
        row_bytes: bytes of a row.
    """
    peers = sum(found[:-1]) - found[own]
    return Traffic(
        rows=Access(
            hits=found[own],
            peer_hits=peers,
            misses=found[-1],
            host_bytes=found[-1] * row_bytes,
            peer_bytes=peers * row_bytes,
        )
    )
