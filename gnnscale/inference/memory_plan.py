"""Which hidden rows exact inference needs, where it keeps them, and what that takes of the disk."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from gnnscale.backend import feature_loading as loading
from gnnscale.core import Array, ConfigError, Traffic, find_memory
from gnnscale.core.artifact.files import size
from gnnscale.features import Aggregation, FeatureStore
from gnnscale.graph import Graph
from gnnscale.inference.activation_store import FileRows, MemoryRows, file_bytes
from gnnscale.nn import TrainableModel
from gnnscale.nn.conv.linear import GraphLayer
from gnnscale.nn.transform_first import ProjectedLayer, TransformFirstLayer
from gnnscale.sampling import Block, NeighborSampler

#: Of a set of more vertices than this part, all are computed: each then is its own row.
_MOST = 0.5
_BITS = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)


def needed_vertices(
    graph: Graph,
    wanted: loading.Vertices,
    num_hidden: int,
    *,
    chunk_edges: int,
    chunk_vertices: int,
    num_threads: int,
) -> list[loading.Vertices]:
    """Return the vertices that each hidden layer is needed of, inputs first.

    Of the last hidden layer these are ``wanted`` and their in-neighbours; of each one before, the
    same of the layer above it. All vertices are computed if these are most of them.
    """
    everything = range(graph.num_vertices)
    sampler = NeighborSampler(graph, fanouts=[-1], num_threads=num_threads)
    needed: list[loading.Vertices] = []
    for _ in range(num_hidden):
        if isinstance(wanted, range) or len(wanted) > _MOST * len(everything):
            needed.insert(0, everything)
            wanted = everything
            continue
        found = np.zeros(graph.num_vertices, np.bool_)
        for chunk in loading.cut(graph, wanted, chunk_edges, chunk_vertices):
            found[sampler.reach(chunk, 0).input_vertices] = True
        reached = int(found.sum()) <= _MOST * len(everything)
        wanted = np.flatnonzero(found).astype(graph.indices.dtype) if reached else everything
        needed.insert(0, wanted)
    return needed


class RankBitmap:
    """The place of a vertex among some, which ascend: a bit a vertex, and a number each eight."""

    def __init__(self, vertices: Array, num_vertices: int) -> None:
        member = np.zeros(num_vertices, np.bool_)
        member[vertices] = True
        self._bits = np.packbits(member, bitorder="little")
        before = np.cumsum(_BITS[self._bits], dtype=vertices.dtype)
        self._before = before - _BITS[self._bits]

    def of(self, vertices: Array) -> Array:
        """Return the place of each of ``vertices``, all of which are members."""
        byte = vertices >> 3
        below = (1 << (vertices & 7)) - 1
        places: Array = self._before[byte] + _BITS[self._bits[byte] & below]
        return places


class SubsetStore(FeatureStore):
    """Rows of some vertices, asked for by vertex."""

    def __init__(
        self, rows: MemoryRows | FileRows, places: Callable[[Array], Array], num_vertices: int
    ) -> None:
        """Take row ``places(vertices)[i]`` of ``rows`` as that of ``vertices[i]``."""
        self.rows = rows
        self._places = places
        self._num_vertices = num_vertices

    @classmethod
    def of(cls, rows: MemoryRows | FileRows, vertices: Array, num_vertices: int) -> SubsetStore:
        """Take row ``i`` of ``rows`` as that of ``vertices[i]``; they ascend."""
        return cls(rows, RankBitmap(vertices, num_vertices).of, num_vertices)

    @property
    def num_rows(self) -> int:
        """Number of vertices of the graph."""
        return self._num_vertices

    @property
    def width(self) -> int:
        """Features of a row."""
        return self.rows.width

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.rows.row_bytes

    def local(self, vertices: Array, block: Block) -> tuple[Array, Block]:
        """Return the rows of ``vertices``, and the block without its vertices."""
        return self._places(vertices), replace(block, edge_vertices=None)

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, ``[n, width]``."""
        return self.rows.gather(self._places(vertices), dtype=dtype, num_threads=num_threads)

    def aggregate(
        self,
        vertices: Array,
        block: Block,
        aggregation: Aggregation,
        *,
        dtype: torch.dtype,
        num_threads: int,
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, aggregated over ``block``."""
        places, local = self.local(vertices, block)
        return self.rows.aggregate(places, local, aggregation, dtype=dtype, num_threads=num_threads)


#: The part of the available memory that hidden layers may take, and bytes at most: a file beyond
#: that is read as fast from the page cache, which the system takes back if memory is short.
_HIDDEN_PART, _MAX_HIDDEN_BYTES = 0.6, 512 << 20

#: The part that sums over the edges of a layer in a file may take, and bytes at least.
_STREAM_PART, _MIN_STREAM_BYTES = 0.15, 64 << 20

#: Bytes at most if the files fit into this part of the available memory: reading them again
#: for more sums takes no disk.
_CACHED_PART, _MAX_CACHED_STREAM_BYTES = 0.5, 256 << 20

#: What is written to learn how fast the disk is.
_TRIED_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class InferencePlan:
    """Where hidden layers are kept."""

    in_file: tuple[bool, ...]  #: for each hidden layer whether it goes to a temporary file
    temporary_bytes: int  #: of the files that exist at once
    memory_bytes: int  #: of the layers in memory that exist at once
    #: sums over the edges of a layer in a file may take so much, and so may the rows that are
    #: mapped meanwhile
    stream_bytes: int
    #: whether the system has room for the files beside, so that reading them takes no disk
    cached: bool

    def check_disk(self) -> None:
        """Refuse a plan that needs more of the disk than is free.

        Raises:
            ConfigError: names what is needed, and the alternatives.
        """
        folder = Path(tempfile.gettempdir())
        if self.temporary_bytes > (free := shutil.disk_usage(folder).free):
            raise ConfigError(
                f"runtime.inference=exact: needs {size(self.temporary_bytes)} of temporary disk, "
                f"and {size(free)} are free in {folder}; TMPDIR=FOLDER takes another folder, "
                "runtime.inference=sampled needs none"
            )


def plan_layers(
    layers: Sequence[tuple[int, int]],
    *,
    hidden_bytes: int | None,
    stream_bytes: int | None,
    keeps_all: bool = False,
) -> InferencePlan:
    """Decide where each hidden layer is kept.

    Args:
        layers: ``(rows, width)`` of each hidden layer.
        hidden_bytes: a layer of more goes to a file; None goes by the memory that is available,
            up to 512 MiB.
        keeps_all: whether the last layer reads the rows of all others.
    """
    at_once = sum if keeps_all else _adjacent
    available = find_memory().available
    sizes = [4 * rows * width for rows, width in layers]
    if hidden_bytes is None:
        most = min(int(available * _HIDDEN_PART), _MAX_HIDDEN_BYTES)
        # A layer is read while the next one is written.
        num_kept = len(sizes) if keeps_all else 2
        hidden_bytes = most if at_once(sizes) <= most else most // num_kept
    in_file = tuple(each > hidden_bytes for each in sizes)
    files = [
        file_bytes(*layer) if filed else 0 for layer, filed in zip(layers, in_file, strict=True)
    ]
    kept = [0 if filed else each for each, filed in zip(sizes, in_file, strict=True)]
    temporary_bytes = at_once(files)
    cached = temporary_bytes <= available * _CACHED_PART
    if stream_bytes is None:
        stream_bytes = int(available * _STREAM_PART)
        if cached:
            stream_bytes = min(stream_bytes, _MAX_CACHED_STREAM_BYTES)
        stream_bytes = max(stream_bytes, _MIN_STREAM_BYTES)
    return InferencePlan(
        in_file=in_file,
        temporary_bytes=temporary_bytes,
        memory_bytes=at_once(kept),
        stream_bytes=stream_bytes,
        cached=cached,
    )


def _adjacent(sizes: Sequence[int]) -> int:
    """Return the most that two layers after another take together."""
    return max((a + b for a, b in pairwise([0, *sizes])), default=0)


def disk_rate() -> float:
    """Return bytes a second that the disk of temporary files writes, by trying."""
    with tempfile.TemporaryFile(prefix="gnnscale-inference-") as file:
        start = time.perf_counter()
        file.write(bytes(_TRIED_BYTES))
        file.flush()
        os.fdatasync(file.fileno())
        return _TRIED_BYTES / (time.perf_counter() - start)


#: Rows are projected if at most so many are made for each that is wanted. The neighbours of a
#: few vertices are many, and their products would take longer than narrower rows save.
_MOST_PROJECTED = 2


@dataclass(frozen=True, kw_only=True)
class MemoryLimits:
    """What inference may hold in memory."""

    #: hidden rows of a layer beyond this size go to a temporary file; None for what fits into the
    #: memory that is available, up to 512 MiB
    hidden_bytes: int | None = None
    chunk_edges: int = 1 << 18  #: of a chunk, to bound its memory; a few are computed at once
    chunk_vertices: int = 1 << 12  #: of a chunk, likewise
    #: of a chunk that reads single rows from a file, and holds them in memory
    file_chunk_edges: int = 1 << 16
    #: sums over the edges of a layer in a file, and as much again of its rows; None for a part of
    #: the memory that is available
    stream_bytes: int | None = None
    #: rows that a pass over the features makes may take so much, some of their columns at a time;
    #: None for a part of the memory that is available
    made_bytes: int | None = None
    #: inputs of the first layer up to this size are kept for the next call
    kept_bytes: int = 64 << 20
    #: of a graph of up to so many, hidden layers are computed for all vertices, and what is kept
    #: serves any; of a larger one for those that are needed
    whole_vertices: int = 1 << 20


@dataclass(frozen=True, kw_only=True)
class LayerSize:
    """Vertices that a layer is computed for, and their in-edges."""

    num_vertices: int
    num_edges: int

    @classmethod
    def of(cls, graph: Graph, vertices: loading.Vertices) -> LayerSize:
        """Return the size of a layer that is computed for ``vertices``."""
        if isinstance(vertices, range):
            return cls(num_vertices=graph.num_vertices, num_edges=graph.num_edges)
        num_edges = int(loading.in_degrees(graph, vertices).sum(dtype=np.float64))
        return cls(num_vertices=len(vertices), num_edges=num_edges)


@dataclass(frozen=True, kw_only=True)
class InputPlan:
    """Passes over the features, each of which makes columns of rows that are kept in memory."""

    layer: TransformFirstLayer  #: the first layer, for such rows
    vertices: loading.Vertices  #: whose rows are made, ascending
    blocks: list[tuple[int, int]]  #: ``(first, last + 1)`` of the columns that a pass makes
    memory_bytes: int  #: of the rows that one pass makes
    temporary_bytes: int  #: of a file that keeps sums of columns until all are there; 0 without it

    @property
    def num_passes(self) -> int:
        """How often features are read, those of destinations included."""
        own = len(self.blocks) if self.layer.reads_rows and not self.layer.reads_own else 0
        return len(self.blocks) + own + self.layer.reads_own


@dataclass(frozen=True, kw_only=True)
class InferenceWork:
    """What the rows of some vertices take, their logits if all layers are computed."""

    #: the vertices that each layer is computed for; of the last one those that are wanted
    needed: list[loading.Vertices]
    layers: list[GraphLayer]  #: those of the model that are computed, some of them projected
    #: what is stored of each hidden layer: columns of a row that is aggregated, and 2 if
    #: vertices have own rows beside
    widths: list[tuple[int, int]]
    sizes: list[LayerSize]  #: of each layer
    plan: InferencePlan  #: where hidden layers are kept
    #: passes that make rows for the first layer; None if it reads the features' own
    inputs: InputPlan | None = None
    #: whether the rows that an encoder makes are made once, and "memory" or "file" if so
    encoded: Literal["memory", "file"] | None = None

    @property
    def num_advanced(self) -> int:
        """Vertices of all layers and passes, those that a pass of several sums included."""
        layers = sum(each.num_vertices for each in self.sizes)
        if self.inputs is None:
            return layers + (0 if self.encoded is None else len(self.needed[0]))
        num_blocks, summed = len(self.inputs.blocks), self.sizes[0].num_vertices
        return layers + num_blocks * (len(self.inputs.vertices) + (num_blocks > 1) * summed)

    @property
    def wanted(self) -> loading.Vertices:
        """The vertices whose rows are wanted."""
        return self.needed[-1]


def find_work(
    model: TrainableModel,
    graph: Graph,
    wanted: loading.Vertices,
    limits: MemoryLimits,
    *,
    num_threads: int,
    num_layers: int | None = None,
) -> InferenceWork:
    """Return what rows of ``wanted`` take, after ``num_layers`` layers, all if None."""
    num_hidden = (num_layers or len(model.layers)) - 1
    everything = range(graph.num_vertices)
    needed: list[loading.Vertices] = [everything] * num_hidden
    if graph.num_vertices > limits.whole_vertices:
        needed = needed_vertices(
            graph,
            wanted,
            num_hidden,
            chunk_edges=limits.chunk_edges,
            chunk_vertices=limits.chunk_vertices,
            num_threads=num_threads,
        )
    needed = [*needed, wanted]
    layers = [model.layer(0)]
    widths = []
    # What more than the next layer reads is stored as it is.
    again = {number for index in range(num_hidden + 1) for number in model.reads(index)}
    for index in range(1, num_hidden + 1):
        layer, width = model.layer(index), model.widths[index]
        projected = None
        few = len(needed[index - 1]) > _MOST_PROJECTED * len(needed[index])
        if index not in again and not few:
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
    sizes = [LayerSize.of(graph, each) for each in needed]
    return InferenceWork(needed=needed, layers=layers, widths=widths, sizes=sizes, plan=plan)
