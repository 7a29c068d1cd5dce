"""Rows and lists in the memory of GPUs of a clique, each of which reads those of all (Legion)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gnnscale import ops
from gnnscale.backend.cuda.engine import Engine
from gnnscale.cache.plan import CliqueCache
from gnnscale.core import Array, ConfigError, Int64Array
from gnnscale.graph import Graph

#: Devices of a clique at most, as in ``cuda/include/gnnscale_cuda/rows.hpp``.
MAX_MEMBERS = 16
#: Every array begins at a multiple of it.
_ALIGNMENT = 256
#: Bytes of rows or neighbours that are copied to the device at a time.
_PIECE_BYTES = 64 << 20
_ABSENT = -1


@dataclass(frozen=True, kw_only=True)
class CacheSlots:
    """The slot of each vertex among what all members keep.

    Those of a member come after those of the members before it. No two keep the same vertex.
    """

    of_vertex: torch.Tensor  #: ``[num_vertices]`` int32 on the device; -1 if nobody keeps it
    first: tuple[int, ...]  #: ``[num_members + 1]`` first slot of each member, and their number

    @classmethod
    def of(cls, kept: Sequence[Array], num_vertices: int, device: torch.device) -> CacheSlots:
        """Return the slots of the vertices that each member keeps."""
        ends = np.cumsum([0, *(len(each) for each in kept)])
        found = np.full(num_vertices, _ABSENT, np.int32)
        for first, vertices in zip(ends, kept, strict=False):
            found[vertices] = np.arange(first, first + len(vertices), dtype=np.int32)
        return cls(of_vertex=torch.from_numpy(found).to(device), first=tuple(ends.tolist()))

    def words(self, *tables: Sequence[torch.Tensor]) -> list[int]:
        """Return what kernels read of them: slots, members, and the addresses of tables."""
        count = len(self.first) - 1
        padded = [self.first[min(each, count)] for each in range(MAX_MEMBERS + 1)]
        words = [self.of_vertex.data_ptr(), count, *padded]
        for each in tables:
            words += [part.data_ptr() for part in each] + [0] * (MAX_MEMBERS - count)
        return words


#: What kernels read of slots if there is no cache, for rows and for lists.
NO_ROWS = [0] * (2 + MAX_MEMBERS + 1 + MAX_MEMBERS)
NO_LISTS = [0] * (2 + MAX_MEMBERS + 1 + 2 * MAX_MEMBERS)


@dataclass(frozen=True, kw_only=True)
class CachedRows:
    """Feature rows that members keep."""

    slots: CacheSlots
    tables: tuple[torch.Tensor, ...]  #: ``[n_k, width]`` of each member, in the host's type

    @property
    def words(self) -> list[int]:
        """What the gather kernel reads of them."""
        return self.slots.words(self.tables)


@dataclass(frozen=True, kw_only=True)
class DeviceAdjacencyCache:
    """Adjacency lists that members keep."""

    slots: CacheSlots
    indptr: tuple[torch.Tensor, ...]  #: ``[m_k + 1]`` int64 of each member
    indices: tuple[torch.Tensor, ...]  #: neighbours of each member, in the graph's type

    @property
    def words(self) -> list[int]:
        """What sampling kernels read of them."""
        return self.slots.words(self.indptr, self.indices)


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """The places of a member's arrays in its piece of memory, in bytes."""

    rows: tuple[int, int]
    indptr: tuple[int, int]
    indices: tuple[int, int]

    @classmethod
    def of(cls, graph: Graph, num_rows: int, topology: Array) -> _Layout:
        row_bytes = graph.feature_bytes // max(graph.num_vertices, 1)
        num_edges = int(_degrees(graph, topology).sum())
        sizes = (
            num_rows * row_bytes,
            (len(topology) + 1) * 8,
            num_edges * graph.indices.itemsize,
        )
        ends = np.cumsum([0, *(-(-each // _ALIGNMENT) * _ALIGNMENT for each in sizes)]).tolist()
        spans = tuple((first, first + size) for first, size in zip(ends, sizes, strict=False))
        return cls(rows=spans[0], indptr=spans[1], indices=spans[2])

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays, one at least."""
        return max(self.indices[1], 1)


class ResidentCache:
    """What one device keeps, in one piece of its memory, and the pieces of its peers.

    Peers are opened after all members have filled theirs: their slots follow from the plan, so that
    only the address of a piece is traded.
    """

    def __init__(self, kept: CliqueCache, graph: Graph, engine: Engine) -> None:
        """Fill the device's own piece.

        Raises:
            ConfigError: there are too many members.
            DeviceMemoryError: it does not fit.
            GraphError: a list is damaged.
        """
        if len(kept.names) > MAX_MEMBERS:
            raise ConfigError(
                f"cache plan: {len(kept.names)} devices read each other's caches, GPUs of a clique "
                f"are {MAX_MEMBERS} at most"
            )
        self._kept = kept
        self._graph = graph
        self._engine = engine
        ahead = kept.look_ahead
        self._num_rows = (
            [len(each) for each in kept.features] if ahead is None else [ahead.num_rows]
        )
        pairs = zip(self._num_rows, kept.topology, strict=True)
        self._layouts = [_Layout.of(graph, *pair) for pair in pairs]
        self._own = engine.memory(self._layouts[kept.own].num_bytes)
        self._pieces = [self._own.bytes] * len(kept.names)
        self._fill()
        engine.synchronize()

    @property
    def address(self) -> str:
        """What peers open this device's piece by."""
        return self._own.address

    @property
    def is_alone(self) -> bool:
        """Whether there are no peers."""
        return len(self._pieces) == 1

    @property
    def kept(self) -> CliqueCache:
        """What is kept."""
        return self._kept

    def open_peers(self, addresses: Sequence[str]) -> None:
        """Open the pieces of all peers, whose addresses come in the order of members."""
        for member, address in enumerate(addresses):
            if member != self._kept.own:
                size = self._layouts[member].num_bytes
                self._pieces[member] = self._engine.open_memory(address, size)

    @property
    def rows(self) -> CachedRows | None:
        """The rows of all members; None if nobody keeps any."""
        if not any(map(len, self._kept.features)):
            return None
        slots = CacheSlots.of(self._kept.features, self._graph.num_vertices, self._engine.device)
        tables = tuple(map(self._rows_of, range(len(self._pieces))))
        return CachedRows(slots=slots, tables=tables)

    @property
    def own_rows(self) -> torch.Tensor:
        """``[n, width]`` memory of the device's own rows."""
        return self._rows_of(self._kept.own)

    @property
    def lists(self) -> DeviceAdjacencyCache | None:
        """The lists of all members; None if nobody keeps any."""
        if not any(map(len, self._kept.topology)):
            return None
        members = range(len(self._pieces))
        return DeviceAdjacencyCache(
            slots=CacheSlots.of(self._kept.topology, self._graph.num_vertices, self._engine.device),
            indptr=tuple(map(self._indptr_of, members)),
            indices=tuple(map(self._indices_of, members)),
        )

    def _rows_of(self, member: int) -> torch.Tensor:
        first, end = self._layouts[member].rows
        dtype = getattr(torch, self._graph.feature_dtype)
        rows = self._pieces[member][first:end].view(dtype)
        return rows.view(self._num_rows[member], self._graph.num_features)

    def _indptr_of(self, member: int) -> torch.Tensor:
        first, end = self._layouts[member].indptr
        return self._pieces[member][first:end].view(torch.int64)

    def _indices_of(self, member: int) -> torch.Tensor:
        first, end = self._layouts[member].indices
        dtype = getattr(torch, self._graph.indices.dtype.name)
        return self._pieces[member][first:end].view(dtype)

    def _fill(self) -> None:
        graph, own = self._graph, self._kept.own
        features, topology = self._kept.features[own], self._kept.topology[own]
        rows, done = self._rows_of(own), 0
        for chunk in _chunks(features, np.full(len(features), rows[:1].nbytes, np.int64)):
            piece = torch.from_numpy(np.ascontiguousarray(graph.features[chunk]))
            rows[done : done + len(chunk)] = piece.view(rows.dtype)
            done += len(chunk)
        degrees = _degrees(graph, topology)
        ends = np.concatenate([[0], np.cumsum(degrees)])
        self._indptr_of(own).copy_(torch.from_numpy(ends))
        neighbors, done = self._indices_of(own), 0
        for chunk in _chunks(topology, degrees * graph.indices.itemsize):
            piece = torch.from_numpy(_lists_of(graph, chunk))
            neighbors[done : done + len(piece)] = piece
            done += len(piece)


def _degrees(graph: Graph, vertices: Array) -> Int64Array:
    """Return the lengths of the lists of ``vertices``.

    Raises:
        GraphError: one is damaged.
    """
    begins, ends = graph.indptr[vertices], graph.indptr[vertices + 1]
    wrong = (begins < 0) | (ends < begins) | (ends > graph.num_edges)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise ops.damaged(
            str(graph.path or graph.name),
            f"indptr: the neighbours of vertex {vertices[at]} are {begins[at]} to {ends[at]}, "
            f"there are {graph.num_edges} edges",
        )
    degrees: Int64Array = np.asarray(ends - begins, np.int64)
    return degrees


def _lists_of(graph: Graph, vertices: Array) -> Array:
    """Return the lists of ``vertices``, one after the other."""
    degrees = _degrees(graph, vertices)
    begins = np.asarray(graph.indptr[vertices], np.int64)
    firsts = np.cumsum(degrees) - degrees
    places = np.arange(int(degrees.sum())) + np.repeat(begins - firsts, degrees)
    return np.asarray(graph.indices[places])


def _chunks(vertices: Array, num_bytes: Int64Array) -> Iterator[Array]:
    """Cut ``vertices``, each of so many bytes, into chunks."""
    number = np.cumsum(num_bytes) // _PIECE_BYTES
    for chunk in np.split(vertices, np.flatnonzero(np.diff(number)) + 1):
        if len(chunk):
            yield chunk
