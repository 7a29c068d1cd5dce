"""Memory plan of exact inference: required hidden rows, and their stores in memory or files."""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from gnnscale.backend import feature_loading as loading
from gnnscale.core import Array, ConfigError, Traffic, read_memory
from gnnscale.core.artifact.files import size
from gnnscale.features import Aggregation, WrappedStore
from gnnscale.graph import Graph
from gnnscale.inference.activation_store import FileRows, MemoryRows, file_bytes
from gnnscale.nn import ProjectedLayer, TrainableModel, TransformFirstLayer
from gnnscale.nn.conv.linear import GraphLayer
from gnnscale.sampling import Block, NeighborSampler

#: Share of the vertices above which a layer is computed for all vertices.
_MAX_SUBSET_SHARE = 0.5
#: Number of set bits of each byte.
_POPCOUNT = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)


def needed_vertices(
    graph: Graph,
    outputs: loading.Vertices,
    num_hidden: int,
    *,
    chunk_edges: int,
    chunk_vertices: int,
    num_threads: int,
) -> list[loading.Vertices]:
    """Return the vertices for which each hidden layer is required, first layer first.

    A layer is required for the vertices of the next layer and their in-neighbors, from ``outputs``
    on. All vertices are computed if more than half of them are required. ``chunk_edges`` and
    ``chunk_vertices`` limit the in-edges and vertices searched at a time.
    """
    everything = range(graph.num_vertices)
    sampler = NeighborSampler(graph, fanouts=[-1], num_threads=num_threads)
    needed: list[loading.Vertices] = []
    required = outputs
    for _ in range(num_hidden):
        if isinstance(required, range) or len(required) > _MAX_SUBSET_SHARE * len(everything):
            required = everything
        else:
            is_input = np.zeros(graph.num_vertices, np.bool_)
            for chunk in loading.cut(graph, required, chunk_edges, chunk_vertices):
                is_input[sampler.reach(chunk, 0).input_vertices] = True
            is_subset = int(is_input.sum()) <= _MAX_SUBSET_SHARE * len(everything)
            inputs = np.flatnonzero(is_input).astype(graph.indices.dtype)
            required = inputs if is_subset else everything
        needed.insert(0, required)
    return needed


class RankBitmap:
    """Bitmap of a subset of vertices; for each eight bits, the number of members before them."""

    def __init__(self, vertices: Array, num_vertices: int) -> None:
        member = np.zeros(num_vertices, np.bool_)
        member[vertices] = True
        self._bits = np.packbits(member, bitorder="little")
        counts = np.cumsum(_POPCOUNT[self._bits], dtype=vertices.dtype)
        self._first_ranks = counts - _POPCOUNT[self._bits]

    def ranks(self, vertices: Array) -> Array:
        """Return the position in the ascending subset of each of ``vertices``, all members."""
        byte = vertices >> 3
        lower_bits = (1 << (vertices & 7)) - 1
        ranks: Array = self._first_ranks[byte] + _POPCOUNT[self._bits[byte] & lower_bits]
        return ranks


class SubsetStore(WrappedStore):
    """Store of the rows of a subset of vertices, indexed by vertex."""

    def __init__(
        self, rows: MemoryRows | FileRows, positions: Callable[[Array], Array], num_vertices: int
    ) -> None:
        """Read the row of a vertex in ``rows`` at its position, which ``positions`` returns."""
        self.inner = self.rows = rows
        self._positions = positions
        self._num_vertices = num_vertices

    @classmethod
    def from_vertices(
        cls, rows: MemoryRows | FileRows, vertices: Array, num_vertices: int
    ) -> "SubsetStore":
        """Return a store in which row ``i`` of ``rows`` belongs to ascending ``vertices[i]``."""
        return cls(rows, RankBitmap(vertices, num_vertices).ranks, num_vertices)

    @property
    def num_rows(self) -> int:
        """Number of vertices of the graph."""
        return self._num_vertices

    def local(self, vertices: Array, block: Block) -> tuple[Array, Block]:
        """Return the positions of ``vertices`` in ``rows``, and ``block`` without source ids."""
        return self._positions(vertices), replace(block, edge_vertices=None)

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, ``[n, width]``, and the bytes read."""
        return self.rows.gather(self._positions(vertices), dtype=dtype, num_threads=num_threads)

    def aggregate(
        self,
        vertices: Array,
        block: Block,
        aggregation: Aggregation,
        *,
        dtype: torch.dtype,
        num_threads: int,
    ) -> tuple[torch.Tensor, Traffic]:
        """Return a row per destination, aggregated over ``block``, and the bytes read."""
        positions, local_block = self.local(vertices, block)
        return self.rows.aggregate(
            positions, local_block, aggregation, dtype=dtype, num_threads=num_threads
        )


#: Maximum share of the available memory, and bytes, of hidden layers in memory: larger files are
#: read as fast from the page cache, which the system can reclaim.
_HIDDEN_SHARE, _MAX_HIDDEN_BYTES = 0.6, 512 << 20

#: Share of the available memory, and minimum bytes, of sums over the edges of a layer in a file.
_STREAM_SHARE, _MIN_STREAM_BYTES = 0.15, 64 << 20

#: Maximum share of the available memory of files that stay in the page cache, and maximum bytes of
#: sums for such files: further passes over them read no disk.
_CACHED_SHARE, _MAX_CACHED_STREAM_BYTES = 0.5, 256 << 20


@dataclass(frozen=True, kw_only=True)
class InferencePlan:
    """Choice of memory or a file for the rows of each hidden layer, and the bytes of either."""

    in_file: tuple[bool, ...]  #: for each hidden layer whether it goes to a temporary file
    temporary_bytes: int  #: maximum bytes of files that exist together
    memory_bytes: int  #: maximum bytes of layers in memory that exist together
    #: maximum bytes of sums over the edges of a layer in a file, and of the rows mapped meanwhile
    stream_bytes: int
    cached: bool  #: whether the files fit into the page cache, so that reads need no disk

    def check_disk(self) -> None:
        """Raise ConfigError if ``temporary_bytes`` exceed the free disk."""
        folder = Path(tempfile.gettempdir())
        if self.temporary_bytes > (free := shutil.disk_usage(folder).free):
            raise ConfigError(
                f"runtime.inference=exact: expected {size(self.temporary_bytes)} of temporary "
                f"disk, got {size(free)} in {folder}; TMPDIR=FOLDER takes another folder, "
                "runtime.inference=sampled needs none"
            )


def plan_layers(
    layers: Sequence[tuple[int, int]],
    *,
    hidden_bytes: int | None,
    stream_bytes: int | None,
    keeps_all: bool = False,
) -> InferencePlan:
    """Plan for each hidden layer, of ``(rows, width)``, whether memory or a file stores it.

    Args:
        hidden_bytes: maximum bytes of a layer in memory; None: a share of the available memory, up
            to 512 MiB for all layers that exist together.
        stream_bytes: maximum bytes of sums of a layer that reads a file; None: a share of the
            available memory.
        keeps_all: whether the last layer reads the outputs of all hidden layers, so that all exist
            together.
    """
    total = sum if keeps_all else _adjacent
    available = read_memory().available
    sizes = [4 * rows * width for rows, width in layers]
    if hidden_bytes is None:
        limit = min(int(available * _HIDDEN_SHARE), _MAX_HIDDEN_BYTES)
        # A layer is read while the next one is written.
        num_layers = len(sizes) if keeps_all else 2
        hidden_bytes = limit if total(sizes) <= limit else limit // num_layers
    in_file = tuple(num_bytes > hidden_bytes for num_bytes in sizes)
    files = [
        file_bytes(*layer) if filed else 0 for layer, filed in zip(layers, in_file, strict=True)
    ]
    in_memory = [0 if filed else num_bytes for num_bytes, filed in zip(sizes, in_file, strict=True)]
    temporary_bytes = total(files)
    cached = temporary_bytes <= available * _CACHED_SHARE
    if stream_bytes is None:
        stream_bytes = int(available * _STREAM_SHARE)
        if cached:
            stream_bytes = min(stream_bytes, _MAX_CACHED_STREAM_BYTES)
        stream_bytes = max(stream_bytes, _MIN_STREAM_BYTES)
    return InferencePlan(
        in_file=in_file,
        temporary_bytes=temporary_bytes,
        memory_bytes=total(in_memory),
        stream_bytes=stream_bytes,
        cached=cached,
    )


def _adjacent(sizes: Sequence[int]) -> int:
    """Return the maximum sum of two consecutive sizes."""
    return max((a + b for a, b in pairwise([0, *sizes])), default=0)


#: Maximum ratio of projected rows to output rows. A few vertices have many neighbors, whose
#: projection would take longer than the narrower rows save.
_MAX_PROJECTED_RATIO = 2


@dataclass(frozen=True, kw_only=True)
class MemoryLimits:
    """Memory limits of exact inference."""

    #: maximum bytes of a hidden layer in memory; None: a share of the available memory, up to
    #: 512 MiB
    hidden_bytes: int | None = None
    chunk_edges: int = 1 << 18  #: maximum edges of a chunk; up to 4 chunks are computed together
    chunk_vertices: int = 1 << 12  #: maximum vertices of a chunk
    #: maximum edges of a chunk that gathers single rows from a file
    file_chunk_edges: int = 1 << 16
    #: maximum bytes of sums over the edges of a layer in a file, and of its mapped rows; None: a
    #: share of the available memory
    stream_bytes: int | None = None
    #: maximum bytes of rows that a pass over the features transforms, otherwise in column blocks;
    #: None: a share of the available memory
    made_bytes: int | None = None
    #: maximum bytes of inputs of the first layer that are cached for the next call
    kept_bytes: int = 64 << 20
    #: maximum vertices of a graph whose hidden layers are computed for all vertices, so that cached
    #: inputs serve every call
    whole_vertices: int = 1 << 20


@dataclass(frozen=True, kw_only=True)
class LayerSize:
    """Numbers of the vertices for which a layer is computed, and of their in-edges."""

    num_vertices: int
    num_edges: int

    @classmethod
    def from_vertices(cls, graph: Graph, vertices: loading.Vertices) -> "LayerSize":
        """Return the size of a layer that is computed for ``vertices``."""
        if isinstance(vertices, range):
            return cls(num_vertices=graph.num_vertices, num_edges=graph.num_edges)
        num_edges = int(loading.in_degrees(graph, vertices).sum(dtype=np.float64))
        return cls(num_vertices=len(vertices), num_edges=num_edges)


@dataclass(frozen=True, kw_only=True)
class InputPlan:
    """Plan of passes over the features, each of which computes some columns of transformed rows.

    Example: a layer of width 256 whose blocks are [(0, 128), (128, 256)] reads the features twice.
    """

    layer: TransformFirstLayer  #: the first layer, which aggregates transformed rows
    vertices: loading.Vertices  #: ascending ids of the vertices to transform
    blocks: list[tuple[int, int]]  #: ``(first, last + 1)`` columns of each pass
    memory_bytes: int  #: bytes of the rows of one pass
    temporary_bytes: int  #: bytes of the file with sums of all passes; 0 for a single pass

    @property
    def num_passes(self) -> int:
        """Number of reads of the features: for passes, and for the destinations' own rows."""
        self_reads = len(self.blocks) if self.layer.reads_rows and not self.layer.reads_own else 0
        return len(self.blocks) + self_reads + self.layer.reads_own


@dataclass(frozen=True, kw_only=True)
class InferenceWork:
    """Plan of exact inference for some output vertices: layers, vertices, stores and passes."""

    #: vertices for which each layer is computed; the last entry has the output vertices
    needed: list[loading.Vertices]
    layers: list[GraphLayer]  #: the computed layers, some with projection before aggregation
    #: stored columns of a hidden layer's row, and number of parts: 2 if destinations have separate
    #: rows for themselves
    widths: list[tuple[int, int]]
    sizes: list[LayerSize]  #: size of each layer
    plan: InferencePlan  #: stores of the hidden layers
    inputs: InputPlan | None = None  #: passes of a transform-first layer; None: raw features
    #: store of rows that are encoded once; None: no encoder, or encoding in each chunk
    encoded: Literal["memory", "file"] | None = None

    @property
    def num_advanced(self) -> int:
        """Sum of the vertices of all layers and passes: the total of the progress bar."""
        layers = sum(layer.num_vertices for layer in self.sizes)
        if self.inputs is None:
            return layers + (0 if self.encoded is None else len(self.needed[0]))
        num_blocks, summed = len(self.inputs.blocks), self.sizes[0].num_vertices
        return layers + num_blocks * (len(self.inputs.vertices) + (num_blocks > 1) * summed)

    @property
    def outputs(self) -> loading.Vertices:
        """Vertices of the last layer's output."""
        return self.needed[-1]


def find_work(
    model: TrainableModel,
    graph: Graph,
    outputs: loading.Vertices,
    limits: MemoryLimits,
    *,
    num_threads: int,
    num_layers: int | None = None,
) -> InferenceWork:
    """Return a plan of exact inference for ``outputs`` by the first ``num_layers`` (None: all)."""
    num_hidden = (num_layers or len(model.layers)) - 1
    everything = range(graph.num_vertices)
    needed: list[loading.Vertices] = [everything] * num_hidden
    if graph.num_vertices > limits.whole_vertices:
        needed = needed_vertices(
            graph,
            outputs,
            num_hidden,
            chunk_edges=limits.chunk_edges,
            chunk_vertices=limits.chunk_vertices,
            num_threads=num_threads,
        )
    needed = [*needed, outputs]
    layers = [model.layer(0)]
    widths = []
    # Rows that later layers read too are stored without projection.
    read_again = {number for index in range(num_hidden + 1) for number in model.reads(index)}
    for index in range(1, num_hidden + 1):
        layer, width = model.layer(index), model.widths[index]
        projected = None
        pays = len(needed[index - 1]) <= _MAX_PROJECTED_RATIO * len(needed[index])
        if index not in read_again and pays:
            projected = ProjectedLayer.of(layer, width)
        layers.append(projected or layer)
        widths.append((projected.width, projected.num_parts) if projected else (width, 1))
    pairs = zip(needed, widths, strict=False)
    plan = plan_layers(
        [(len(vertices), width * num_parts) for vertices, (width, num_parts) in pairs],
        hidden_bytes=limits.hidden_bytes,
        stream_bytes=limits.stream_bytes,
        keeps_all=len(model.reads(num_hidden)) > 1,
    )
    sizes = [LayerSize.from_vertices(graph, vertices) for vertices in needed]
    return InferenceWork(needed=needed, layers=layers, widths=widths, sizes=sizes, plan=plan)
