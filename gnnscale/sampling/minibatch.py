"""Mini-batches, which pass from the sampler to the model, and the sampler protocol."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gnnscale.core import Array, ConfigError, track
from gnnscale.core.types import Float32Array, Int32Array, Int64Array, IntArray, UInt32Array
from gnnscale.graph import Graph
from gnnscale.ops import NativeSampler, Sampled
from gnnscale.sampling.time_rule import TimeRule


@dataclass(frozen=True, kw_only=True)
class Block:
    """One layer of a mini-batch as a bipartite graph, in compressed sparse columns.

    Destination vertices are the first ``num_dst`` of the ``num_src`` source vertices. The messages
    for destination ``i`` come from ``indices[indptr[i]:indptr[i + 1]]``.
    """

    indptr: Int64Array  #: ``[num_dst + 1]`` int64 offsets
    indices: Int32Array  #: ``[num_edges]`` int32 local ids of source vertices
    num_src: int  #: number of source vertices, destinations included
    #: ``[num_edges]`` float32, 1 / (probability that the edge was kept), or None if every neighbor
    #: of a vertex was equally likely (neighbor sampling)
    importance: Float32Array | None = None
    #: ``[num_edges]`` sources as global vertex ids, if sampled: they save look-ups of local ids
    edge_vertices: IntArray | None = None
    #: ``[num_edges]`` float32 edge weights, if the graph has weights and sampling did not use them
    edge_weights: Float32Array | None = None
    #: ``[num_src]`` float32 sums of the weights of all in-edges in the whole graph, if any
    weight_sums: Float32Array | None = None
    #: ``[num_edges]`` uint32 rows of the graph's ``edge_features``, if it has such
    edge_rows: UInt32Array | None = None
    #: ``[num_edges, num_edge_features]`` float32 edge features, once a model's step loads them
    edge_attr: Float32Array | None = None

    def __repr__(self) -> str:
        """Return one line with the sizes of the block."""
        return (
            f"<gnnscale.Block: {self.num_edges:,} edges from {self.num_src:,} vertices to "
            f"{self.num_dst:,}>"
        )

    @property
    def edge_factors(self) -> Float32Array | None:
        """``[num_edges]`` float32, importance times weight of each message. None: all are 1."""
        if self.importance is None or self.edge_weights is None:
            return self.edge_weights if self.importance is None else self.importance
        return self.importance * self.edge_weights

    @property
    def num_dst(self) -> int:
        """Number of destination vertices."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of sampled edges."""
        return len(self.indices)

    @property
    def topology_bytes(self) -> int:
        """Bytes of ``indptr`` and ``indices``."""
        return self.indptr.nbytes + self.indices.nbytes

    @property
    def num_bytes(self) -> int:
        """Bytes of the block's arrays."""
        return sum(array.nbytes for array in vars(self).values() if isinstance(array, np.ndarray))


@dataclass(frozen=True, kw_only=True)
class Links:
    """Edges to predict (existence or labels) and their negatives, by positions among the seeds."""

    sources: Int32Array  #: ``[n]`` int32 positions of the edges' sources among the seeds
    #: ``[n, 1 + k]`` int32 positions of each edge's destination, and of its k negatives
    destinations: Int32Array
    #: ``[n]`` rows of the edges' labels. None: the model tells edges from negatives
    rows: IntArray | None = None
    #: ``[n, num_edge_features]`` float32 features of labeled edges. None: no features
    features: Float32Array | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays of the links."""
        return sum(array.nbytes for array in vars(self).values() if isinstance(array, np.ndarray))


@dataclass(frozen=True, kw_only=True)
class BatchRows:
    """Rows of a task that a mini-batch predicts, by positions among the seeds."""

    numbers: IntArray  #: ``[n]`` row numbers
    #: ``[n]`` int32 position of each row's vertex, as of its cut-off, among the model's output rows
    positions: Int32Array

    @property
    def num_bytes(self) -> int:
        """Bytes of both arrays."""
        return self.numbers.nbytes + self.positions.nbytes


@dataclass(frozen=True, kw_only=True)
class MiniBatch:
    """A sampled computation graph of one step: one block per layer, inputs first.

    ``blocks[0]`` reads the input features and ``blocks[-1]`` writes the seeds' embeddings. Every
    layer's vertices are a prefix of ``input_vertices``; the seeds are its first ``num_seeds``.
    """

    seed: int  #: the run's seed
    step: int  #: global step that, with the run's seed, determines every random choice
    num_seeds: int  #: number of seeds, each with an output row of the model
    input_vertices: IntArray  #: ``[blocks[0].num_src]`` global vertex ids
    blocks: tuple[Block, ...]  #: from the input layer to the output layer
    #: predicted edges between seeds. None: the seeds themselves are predicted
    links: Links | None = None
    #: rows of a task that are predicted. None: the seeds themselves are predicted
    rows: BatchRows | None = None
    #: ``[num_input_vertices]`` int64 cut-off as of which each input vertex is reached: a vertex may
    #: stand among them once for each cut-off. None: sampling does not regard times
    cutoffs: Int64Array | None = None
    #: rule of the edges that sampling allowed, as of ``cutoffs``. None: it does not regard times
    time_rule: TimeRule | None = None

    def __repr__(self) -> str:
        """Return one line with the step and the sizes of the mini-batch."""
        return (
            f"<gnnscale.MiniBatch of step {self.step}: {self.num_seeds:,} seeds, "
            f"{len(self.input_vertices):,} input vertices, {self.num_edges:,} edges in "
            f"{len(self.blocks)} blocks>"
        )

    @property
    def seeds(self) -> IntArray:
        """Global ids of the seeds, in the order of the model's output rows."""
        return self.input_vertices[: self.num_seeds]

    @property
    def distinct_inputs(self) -> IntArray:
        """``input_vertices``; if they are as of cut-offs, each vertex once, ascending."""
        vertices: IntArray = self.input_vertices
        return vertices if self.cutoffs is None else np.unique(vertices)

    @property
    def intervals(self) -> Int64Array | None:
        """``[2, num_input_vertices]`` int64 lowest and highest time of edges to input vertices.

        None: sampling does not regard times, or bounds depend on the way from the seed.
        """
        if self.cutoffs is None or self.time_rule is None:
            return None
        return self.time_rule.intervals(np.asarray(self.cutoffs))

    @property
    def first_seed(self) -> int:
        """Global id of the first seed; IndexError: the mini-batch is empty."""
        return int(self.seeds[0])

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays of the mini-batch."""
        parts = [part.num_bytes for part in (self.links, self.rows) if part is not None]
        times = 0 if self.cutoffs is None else self.cutoffs.nbytes
        blocks = sum(block.num_bytes for block in self.blocks)
        return self.input_vertices.nbytes + times + sum(parts) + blocks

    @property
    def lists_read(self) -> tuple[tuple[IntArray, Int64Array], ...]:
        """For each block, the vertices whose adjacency lists it samples, and edges' offsets."""
        return tuple((self.input_vertices[: block.num_dst], block.indptr) for block in self.blocks)

    @property
    def num_edges(self) -> int:
        """Number of edges over all layers, the numerator of MTEPS (HyScale-GNN eq. 5)."""
        return sum(block.num_edges for block in self.blocks)

    @property
    def num_vertices(self) -> int:
        """Number of vertices over all layers 0..L, the numerator of NVTPS (HitGNN eq. 3)."""
        return self.num_seeds + sum(block.num_src for block in self.blocks)


@dataclass(frozen=True, kw_only=True)
class InputFrontier:
    """Input vertices of a mini-batch and the ``indptr`` of each block, without edges' sources."""

    input_vertices: IntArray  #: as in ``MiniBatch``
    #: offsets of the blocks, from the seeds outwards; with types, of each block's vertex types
    indptrs: tuple[Int64Array, ...]
    #: vertices whose lists each of ``indptrs`` counts. None: the first input vertices
    list_vertices: tuple[IntArray, ...] | None = None

    @classmethod
    def of(cls, batch: MiniBatch) -> "InputFrontier":
        """Return the input vertices and the blocks' ``indptr`` of ``batch``.

        A vertex that is an input as of several cut-offs is one input vertex.
        """
        lists = batch.lists_read[::-1]
        return cls(
            input_vertices=batch.distinct_inputs,
            indptrs=tuple(indptr for _, indptr in lists),
            list_vertices=tuple(vertices for vertices, _ in lists),
        )

    @property
    def lists_read(self) -> list[tuple[IntArray, Int64Array]]:
        """Vertices whose lists sampling reads, and edges' offsets, from the seeds outwards."""
        vertices: Iterable[IntArray] | None = self.list_vertices
        if vertices is None:
            vertices = (self.input_vertices[: len(indptr) - 1] for indptr in self.indptrs)
        return list(zip(vertices, self.indptrs, strict=True))

    @property
    def num_edges(self) -> int:
        """Number of sampled edges over all hops."""
        return sum(int(indptr[-1]) for indptr in self.indptrs)

    @property
    def num_lists(self) -> int:
        """Number of adjacency lists that sampling the mini-batch reads, over all hops."""
        return sum(len(indptr) - 1 for indptr in self.indptrs)


#: Largest number of hops of a sampler.
MAX_HOPS = 16


class Sampler(Protocol):
    """Sampler of computation graphs for seeds; several threads may call it at a time."""

    #: Threads of one call; may be changed between calls.
    num_threads: int

    def sample(self, seeds: Array, step: int) -> MiniBatch:
        """Return the mini-batch of ``seeds``, distinct vertices (else ValueError), at ``step``."""


class WrappingSampler:
    """Base of samplers that call another sampler, whose ``num_threads`` is also theirs."""

    def __init__(self, sampler: Sampler) -> None:
        """Wrap ``sampler``."""
        self._sampler = sampler

    @property
    def num_threads(self) -> int:
        """Number of threads of one call of the wrapped sampler; may be changed between calls."""
        return self._sampler.num_threads

    @num_threads.setter
    def num_threads(self, num_threads: int) -> None:
        self._sampler.num_threads = num_threads


@dataclass(frozen=True, kw_only=True)
class SamplerConfig(ABC):
    """Base of the configuration group ``sampler``."""

    @property
    @abstractmethod
    def num_layers(self) -> int:
        """Number of hops, which must equal the model's number of layers."""

    @property
    def is_full_neighborhood(self) -> bool:
        """Whether the last hop takes all neighbors of each vertex; false by default."""
        return False

    @abstractmethod
    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> Sampler:
        """Build the sampler for ``graph``; ``num_threads`` changes its speed only."""

    def check_layers(self, num_layers: int) -> None:
        """Raise ConfigError unless the number of hops is ``num_layers``, the model's layers."""
        hops = self.num_layers
        if hops == num_layers:
            return
        has = "1 hop" if hops == 1 else f"{hops} hops"
        line = f"model.num_layers={num_layers}: the sampler has {has}, one a layer is needed"
        names = [name for name, value in vars(self).items() if isinstance(value, Sequence)]
        if not names:
            raise ConfigError(f"{line}; set model.num_layers={hops}")
        values = list(getattr(self, names[0]))
        fitting = [*values, *values[-1:] * num_layers][:num_layers]
        now, other = (f"{str(value).replace(' ', '')}" for value in (values, fitting))
        raise ConfigError(
            f"{line} (sampler.{names[0]}={now}); set model.num_layers={hops}, or "
            f"sampler.{names[0]}={other}"
        )


def prepare_weights(native: NativeSampler, graph: Graph, *, num_threads: int) -> None:
    """Let ``native`` read all edge weights of ``graph``, to draw neighbors by them.

    ConfigError: the graph has no weights.
    """
    if graph.edge_weights is None:
        raise ConfigError(
            f"sampler=weighted: edges of {graph.path or graph.name} have no weights to draw "
            "neighbors by; sampler=neighbor draws all alike"
        )
    with track(f"reading the weights of {graph.name}"):
        native.prepare_weights(num_threads=num_threads)


def whole_numbers(name: str, values: Any) -> list[int]:
    """Return the list or tuple ``values`` as a new list, without a check of its elements.

    TypeError, which mentions ``name``: it is neither.
    """
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"{name}: {type(values).__name__}, allowed is a list of whole numbers")
    return list(values)


def to_minibatch(
    num_seeds: int,
    sampled: Sampled,
    *,
    seed: int,
    step: int,
    weight_sums: Float32Array | None = None,
    num_threads: int = 1,
) -> MiniBatch:
    """Return the native sampler's ``sampled`` hops as a mini-batch: its blocks, inputs first.

    ``seed`` and ``step`` are only recorded. ``weight_sums`` ``[num_vertices]`` are
    ``Graph.weight_sums``, copied for the input vertices by ``num_threads``.
    """
    input_vertices, hops, edge_vertices = sampled
    sums = None if weight_sums is None else _rows(weight_sums, input_vertices, num_threads)
    blocks = tuple(
        Block(
            indptr=hop.indptr,
            indices=hop.indices,
            num_src=hop.num_src,
            importance=hop.importance,
            edge_vertices=edge_vertices if index == 0 else None,
            edge_weights=hop.edge_weights,
            weight_sums=None if sums is None else sums[: hop.num_src],
            edge_rows=hop.edge_rows,
        )
        for index, hop in enumerate(reversed(hops))
    )
    return MiniBatch(
        seed=seed, step=step, num_seeds=num_seeds, input_vertices=input_vertices, blocks=blocks
    )


def _rows(values: Float32Array, vertices: IntArray, num_threads: int) -> Float32Array:
    """Return ``values[vertices]``, read by ``num_threads`` threads."""
    # The launcher imports this file, and starts faster without torch.
    import torch

    from gnnscale import ops

    out = torch.empty(len(vertices), 1)
    ops.gather(torch.from_numpy(values)[:, None], vertices, out=out, num_threads=num_threads)
    rows: Float32Array = out[:, 0].numpy()
    return rows
