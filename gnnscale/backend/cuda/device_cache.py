"""Feature rows and adjacency lists cached in the memory of a GPU clique (Legion).

Each member of the clique reads the caches of all members.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gnnscale import ops
from gnnscale.backend.cuda.engine import Engine
from gnnscale.cache.plan import HOST, ROWS_FROM, CliqueCache
from gnnscale.core import Array, ConfigError, Int64Array
from gnnscale.graph import Graph

#: Maximum devices of a clique, as in ``cuda/include/gnnscale_cuda/rows.hpp``.
MAX_MEMBERS = 16
#: Alignment of every array in bytes.
_ALIGNMENT = 256
#: Bytes copied to the device at a time.
_PIECE_BYTES = 64 << 20
_ABSENT = -1


@dataclass(frozen=True, kw_only=True)
class CacheSlots:
    """Slot (index of the cached row or list) of each cached vertex.

    Slots are counted through the caches of a clique's members (devices that read each other's
    memory), which cache disjoint vertices.
    """

    of_vertex: torch.Tensor  #: ``[num_vertices]`` int32 on the device; -1 for uncached vertices
    first: tuple[int, ...]  #: ``[num_members + 1]`` first slot of each member, then their number

    @classmethod
    def of(
        cls, cached_ids: Sequence[Array], num_vertices: int, device: torch.device
    ) -> "CacheSlots":
        """Return the slots of ``cached_ids``, the vertices that each member caches."""
        ends = np.cumsum([0, *(len(ids) for ids in cached_ids)])
        slot_of = np.full(num_vertices, _ABSENT, np.int32)
        for first, vertices in zip(ends, cached_ids, strict=False):
            slot_of[vertices] = np.arange(first, first + len(vertices), dtype=np.int32)
        return cls(of_vertex=torch.from_numpy(slot_of).to(device), first=tuple(ends.tolist()))

    def words(self, *tables: Sequence[torch.Tensor]) -> list[int]:
        """Return the integers by which kernels find cached arrays, padded to ``MAX_MEMBERS``.

        They are the address of ``of_vertex``, the number of members, the first slots, and each
        member's address of every table; a table has an array per member.
        """
        count = len(self.first) - 1
        padded = [self.first[min(member, count)] for member in range(MAX_MEMBERS + 1)]
        words = [self.of_vertex.data_ptr(), count, *padded]
        for arrays in tables:
            words += [part.data_ptr() for part in arrays] + [0] * (MAX_MEMBERS - count)
        return words


#: Words of an empty cache of rows, and of adjacency lists.
NO_ROWS = [0] * (2 + MAX_MEMBERS + 1 + MAX_MEMBERS)
NO_LISTS = [0] * (2 + MAX_MEMBERS + 1 + 2 * MAX_MEMBERS)


@dataclass(frozen=True, kw_only=True)
class CachedRows:
    """Feature rows cached in the memory of devices that read each other's memory (a clique)."""

    slots: CacheSlots
    tables: tuple[torch.Tensor, ...]  #: ``[n_k, width]`` of each member, in the host's type

    @property
    def words(self) -> list[int]:
        """Integers by which the gather kernel finds cached rows: slots and addresses of tables."""
        return self.slots.words(self.tables)


@dataclass(frozen=True, kw_only=True)
class DeviceAdjacencyCache:
    """Adjacency lists cached in the memory of devices that read each other's memory (a clique)."""

    slots: CacheSlots
    indptr: tuple[torch.Tensor, ...]  #: ``[m_k + 1]`` int64 of each member
    indices: tuple[torch.Tensor, ...]  #: neighbors of each member, in the graph's type

    @property
    def words(self) -> list[int]:
        """Integers by which sampling kernels find cached lists: slots and addresses of arrays."""
        return self.slots.words(self.indptr, self.indices)


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Byte ranges of cached rows, list offsets and neighbors in a device's cache memory."""

    rows: tuple[int, int]
    indptr: tuple[int, int]
    indices: tuple[int, int]

    @classmethod
    def of(cls, graph: Graph, num_rows: int, topology: Array) -> "_Layout":
        row_bytes = graph.feature_bytes // max(graph.num_vertices, 1)
        num_edges = int(_degrees(graph, topology).sum())
        sizes = (num_rows * row_bytes, (len(topology) + 1) * 8, num_edges * graph.indices.itemsize)
        ends = np.cumsum([0, *(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)]).tolist()
        spans = tuple((first, first + size) for first, size in zip(ends, sizes, strict=False))
        return cls(rows=spans[0], indptr=spans[1], indices=spans[2])

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays, at least 1."""
        return max(self.indices[1], 1)


class ResidentCache:
    """Cache memory of one device, in one piece, with access to the caches of its peers.

    Peers exchange only the addresses of their pieces, and open them once every member is filled:

        cache = ResidentCache(contents, graph, engine)
        cache.open_peers(all_gather_object(cache.address))
        cache.rows.slots.of_vertex[7]  # slot of vertex 7, -1: read from host memory
    """

    def __init__(self, contents: CliqueCache, graph: Graph, engine: Engine) -> None:
        """Allocate the device's cache memory, and fill it; DeviceMemoryError: memory is too small.

        ``contents`` names the vertices whose rows and lists of ``graph`` are cached. ConfigError:
        the clique has more than ``MAX_MEMBERS`` devices.
        """
        if len(contents.names) > MAX_MEMBERS:
            raise ConfigError(
                f"cache plan: {len(contents.names)} devices in a clique; "
                f"expected at most {MAX_MEMBERS}"
            )
        self.contents = contents  #: cached vertices of each member
        self._graph = graph
        self._engine = engine
        look_ahead = contents.look_ahead
        self._num_rows = (
            [len(ids) for ids in contents.features] if look_ahead is None else [look_ahead.num_rows]
        )
        pairs = zip(self._num_rows, contents.topology, strict=True)
        self._layouts = [_Layout.of(graph, *pair) for pair in pairs]
        self._own_piece = engine.memory(self._layouts[contents.member].num_bytes)
        self._pieces = [self._own_piece.bytes] * len(contents.names)
        self._fill()
        engine.synchronize()

    @property
    def address(self) -> str:
        """Address by which peers open the device's cache memory."""
        return self._own_piece.address

    @property
    def has_no_peers(self) -> bool:
        """Whether the device is the only member of its clique."""
        return len(self._pieces) == 1

    def open_peers(self, addresses: Sequence[str]) -> None:
        """Open the cache memory of all peers; ``addresses``: each clique member's, own included."""
        for member, address in enumerate(addresses):
            if member != self.contents.member:
                size = self._layouts[member].num_bytes
                self._pieces[member] = self._engine.open_memory(address, size)

    def counters(self, rows: Sequence[int]) -> dict[str, float]:
        """Return ``rows`` as counters by name: rows read from each member, then from the host."""
        names = (*self.contents.names, HOST)
        return {f"{ROWS_FROM}{name}": float(count) for name, count in zip(names, rows, strict=True)}

    @property
    def rows(self) -> CachedRows | None:
        """Statically cached rows of all clique members. None: no member has a static row cache."""
        if not any(map(len, self.contents.features)):
            return None
        tables = tuple(map(self._rows_of, range(len(self._pieces))))
        return CachedRows(slots=self._slots_of(self.contents.features), tables=tables)

    @property
    def own_rows(self) -> torch.Tensor:
        """``[n, width]`` rows that this device caches, in its memory."""
        return self._rows_of(self.contents.member)

    @property
    def lists(self) -> DeviceAdjacencyCache | None:
        """Cached adjacency lists of all clique members. None: no member caches lists."""
        if not any(map(len, self.contents.topology)):
            return None
        members = range(len(self._pieces))
        return DeviceAdjacencyCache(
            slots=self._slots_of(self.contents.topology),
            indptr=tuple(map(self._indptr_of, members)),
            indices=tuple(map(self._indices_of, members)),
        )

    def _slots_of(self, cached_ids: Sequence[Array]) -> CacheSlots:
        return CacheSlots.of(cached_ids, self._graph.num_vertices, self._engine.device)

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
        graph, member = self._graph, self.contents.member
        features, topology = self.contents.features[member], self.contents.topology[member]
        rows, done = self._rows_of(member), 0
        for chunk in _chunks(features, np.full(len(features), rows[:1].nbytes, np.int64)):
            piece = torch.from_numpy(np.ascontiguousarray(graph.features[chunk]))
            rows[done : done + len(chunk)] = piece.view(rows.dtype)
            done += len(chunk)
        degrees = _degrees(graph, topology)
        ends = np.concatenate([[0], np.cumsum(degrees)])
        self._indptr_of(member).copy_(torch.from_numpy(ends))
        neighbors, done = self._indices_of(member), 0
        for chunk in _chunks(topology, degrees * graph.indices.itemsize):
            piece = torch.from_numpy(_concat_lists(graph, chunk))
            neighbors[done : done + len(piece)] = piece
            done += len(piece)


def _degrees(graph: Graph, vertices: Array) -> Int64Array:
    """Return the in-degrees of ``vertices``; GraphError: an adjacency list is damaged."""
    begins, ends = graph.indptr[vertices], graph.indptr[vertices + 1]
    wrong = (begins < 0) | (ends < begins) | (ends > graph.num_edges)
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        raise ops.damaged(
            str(graph.path or graph.name),
            f"indptr: the neighbours of vertex {vertices[index]} are {begins[index]} to "
            f"{ends[index]}, there are {graph.num_edges} edges",
        )
    degrees: Int64Array = np.asarray(ends - begins, np.int64)
    return degrees


def _concat_lists(graph: Graph, vertices: Array) -> Array:
    """Return the concatenated adjacency lists of ``vertices``."""
    degrees = _degrees(graph, vertices)
    begins = np.asarray(graph.indptr[vertices], np.int64)
    firsts = np.cumsum(degrees) - degrees
    positions = np.arange(int(degrees.sum())) + np.repeat(begins - firsts, degrees)
    return np.asarray(graph.indices[positions])


def _chunks(vertices: Array, num_bytes: Int64Array) -> Iterator[Array]:
    """Yield ``vertices`` in chunks with about ``_PIECE_BYTES`` of cached data.

    ``num_bytes`` has the bytes that are cached for each vertex.
    """
    number = np.cumsum(num_bytes) // _PIECE_BYTES
    for chunk in np.split(vertices, np.flatnonzero(np.diff(number)) + 1):
        if len(chunk):
            yield chunk
