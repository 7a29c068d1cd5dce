"""Neighbor sampling over a graph with types: mini-batches with a block for each edge type."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gnnscale.core import (
    MAX_COUNT,
    Array,
    ConfigError,
    Float32Array,
    Int64Array,
    IntArray,
    brief,
    listed_numbers,
)
from gnnscale.graph import Graph, GraphSchema
from gnnscale.ops import NativeSampler, SampledHop, TypedSample
from gnnscale.sampling.minibatch import Block, MiniBatch, prepare_weights

#: How neighbors of a list are drawn: all alike, by the weights of edges, or by LABOR, whose random
#: numbers lists share in a hop or in the whole mini-batch.
Draws = Literal["uniform", "weight", "labor_hop", "labor_batch"]
#: Fan-outs by hop for all edge types, or for each edge type: by its name, ``user-buys-item``, or by
#: the triple of its names.
Fanouts = Sequence[int] | Mapping[str, Sequence[int]] | Mapping[tuple[str, str, str], Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class TypedBlock:
    """One layer of a mini-batch over a graph with types.

    For each type of vertices, destinations are the first ``dst_sizes[t]`` of ``src_sizes[t]``
    sources.
    """

    #: by edge type its edges, in local ids of its source type, to the destinations of its
    #: destination type
    relations: tuple[Block, ...]
    src_sizes: tuple[int, ...]  #: number of source vertices of each vertex type
    dst_sizes: tuple[int, ...]  #: number of destination vertices of each vertex type

    @property
    def num_src(self) -> int:
        """Number of source vertices of all types, destinations included."""
        return sum(self.src_sizes)

    @property
    def num_dst(self) -> int:
        """Number of destination vertices of all types."""
        return sum(self.dst_sizes)

    @property
    def num_edges(self) -> int:
        """Number of sampled edges of all types."""
        return sum(block.num_edges for block in self.relations)

    @property
    def topology_bytes(self) -> int:
        """Bytes of the offsets and indices of all edge types."""
        return sum(block.topology_bytes for block in self.relations)

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays of all edge types."""
        return sum(block.num_bytes for block in self.relations)

    def with_edge_attr(self, edge_attr: Sequence[Float32Array]) -> "TypedBlock":
        """Return the block with loaded features of the edges of each type, ``[num_edges, width]``.

        Edge types of width 0 have none.
        """
        relations = [
            replace(block, edge_attr=rows) if rows.shape[1] else block
            for block, rows in zip(self.relations, edge_attr, strict=True)
        ]
        return replace(self, relations=tuple(relations))


@dataclass(frozen=True, kw_only=True)
class TypedMiniBatch(MiniBatch):
    """Sampled computation graph of one step, over a graph with types: a block for each layer.

    Input vertices of a type are contiguous, in the order of the schema. Every layer's vertices of a
    type are a prefix of the type's input vertices; the seeds of the type are the first of them.
    """

    type_sizes: tuple[int, ...]  #: number of input vertices of each vertex type
    seed_sizes: tuple[int, ...]  #: number of seeds of each vertex type
    blocks: tuple[TypedBlock, ...]  # type: ignore[assignment]
    #: numbers of the source and destination type of each edge type
    ends: tuple[tuple[int, int], ...]

    @property
    def seeds(self) -> IntArray:
        """Global ids of the seeds, type after type, in the order of the model's output rows."""
        ids = [self.seeds_of(number) for number in range(len(self.seed_sizes))]
        return np.concatenate(ids)

    @property
    def lists_read(self) -> tuple[tuple[IntArray, Int64Array], ...]:
        """For each block and vertex type, vertices with lists, and offsets of all their edges."""
        lists = []
        for block in self.blocks:
            for number, size in enumerate(block.dst_sizes):
                ends = zip(self.ends, block.relations, strict=True)
                offsets = [relation.indptr for (_, to), relation in ends if to == number]
                if offsets and size:
                    lists.append((self.vertices(number, size), np.sum(offsets, axis=0)))
        return tuple(lists)

    def vertices(self, vertex_type: int, count: int | None = None) -> IntArray:
        """Return the global ids of the first ``count`` input vertices of a type; None: of all.

        ``vertex_type`` is the type's position in ``schema.vertex_types``.
        """
        first = sum(self.type_sizes[:vertex_type])
        size = self.type_sizes[vertex_type] if count is None else count
        return self.input_vertices[first : first + size]

    def seeds_of(self, vertex_type: int) -> IntArray:
        """Return the global ids of the seeds of a type, given by its position in the schema."""
        return self.vertices(vertex_type, self.seed_sizes[vertex_type])

    def with_edge_attr(self, edge_attr: Sequence[Float32Array]) -> "TypedMiniBatch":
        """Return the batch with loaded features of the edges of each type in each block."""
        count = len(self.ends)
        blocks = [
            block.with_edge_attr(edge_attr[index * count : (index + 1) * count])
            for index, block in enumerate(self.blocks)
        ]
        return replace(self, blocks=tuple(blocks))


class TypedSampler:
    """Sampler of in-neighbors by each edge type, of each vertex of every hop.

    The neighbors that vertex ``v`` gets by edge type ``r`` at hop ``h`` of step ``s`` depend on
    ``(seed, s, h, v, r)`` alone: any number of threads, and any split of the seeds over workers,
    gives the same answer.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        fanouts: Fanouts,
        draws: Draws = "uniform",
        replace: bool = False,
        seed: int = 0,
        num_threads: int = 1,
    ) -> None:
        """Prepare to draw up to a fan-out of neighbors of a vertex by each edge type at each hop.

        Args:
            graph: the graph.
            fanouts: for each hop, from the seeds outward, one number for all edge types; or such
                lists for all edge types by name. -1 takes all neighbors, 0 none.
            draws: how neighbors are drawn.
            replace: draw with replacement; LABOR draws without.
            seed: determines all draws, with the step.
            num_threads: threads of a call, which change its speed only.

        Raises:
            ConfigError: fan-outs are as ``fanouts_by_type`` refuses them; or neighbors are drawn by
                weights, and edges have none.
        """
        self._native = NativeSampler(graph)
        self.schema = graph.schema
        self.fanouts = fanouts_by_type(graph.schema, fanouts)
        if draws == "weight":
            prepare_weights(self._native, graph, num_threads=num_threads)
        self.num_threads = num_threads
        self._ends = ends_of(self.schema)
        self._seed = seed
        self._has_rows = graph.edge_rows is not None
        # Draws by weight account for the weights.
        self._hands_weights = graph.edge_weights is not None and draws != "weight"
        self._draws = draws
        self._replace = replace

    def sample(self, seeds: Array, step: int) -> TypedMiniBatch:
        """Return the mini-batch of ``seeds`` (distinct vertex ids of any types) at ``step``."""
        labor = {"labor_hop": False, "labor_batch": True}.get(self._draws)
        sampled = self._native.sample_typed(
            seeds,
            self.fanouts,
            replace=self._replace,
            seed=self._seed,
            step=step,
            num_threads=self.num_threads,
            by_weight=self._draws == "weight",
            labor=labor,
            edge_weights=self._hands_weights,
            edge_rows=self._has_rows,
        )
        return TypedMiniBatch(
            seed=self._seed,
            step=step,
            num_seeds=len(seeds),
            input_vertices=sampled.input_vertices,
            type_sizes=sampled.type_sizes[-1],
            seed_sizes=sampled.type_sizes[0],
            blocks=typed_blocks(sampled),
            ends=self._ends,
        )


def ends_of(schema: GraphSchema) -> tuple[tuple[int, int], ...]:
    """Return the numbers of the source and destination type of each edge type."""
    sources, destinations = schema.sources.tolist(), schema.destinations.tolist()
    return tuple(zip(sources, destinations, strict=True))


def typed_blocks(sampled: TypedSample) -> tuple[TypedBlock, ...]:
    """Return the blocks of a native sample, from the inputs to the seeds."""
    blocks: list[TypedBlock] = []
    for number, hop in enumerate(sampled.hops):
        is_last = number + 1 == len(sampled.hops)
        sources = sampled.edge_vertices if is_last else [None] * len(hop)
        dst_sizes, src_sizes = sampled.type_sizes[number : number + 2]
        relations = tuple(map(_block, hop, sources))
        blocks.append(TypedBlock(relations=relations, src_sizes=src_sizes, dst_sizes=dst_sizes))
    return tuple(reversed(blocks))


def _block(hop: SampledHop, edge_vertices: Array | None) -> Block:
    return Block(
        indptr=hop.indptr,
        indices=hop.indices,
        num_src=hop.num_src,
        edge_vertices=edge_vertices,
        edge_weights=hop.edge_weights,
        edge_rows=hop.edge_rows,
    )


def fanouts_by_type(
    schema: GraphSchema, fanouts: Fanouts, *, option: str = "sampler.fanouts"
) -> list[list[int]]:
    """Return for each hop the fan-out of each edge type of the schema.

    ConfigError, which names ``option``: an edge type is unknown or left out, numbers of hops
    differ, or a number is below -1.
    """
    names = [str(edge_type) for edge_type in schema.edge_types]
    if isinstance(fanouts, Mapping):
        lists = {_name(edge_type): numbers for edge_type, numbers in fanouts.items()}
    else:
        lists = dict.fromkeys(names, fanouts)
    for name in lists:
        if name not in names:
            raise ConfigError(
                f"{option}: {brief(name)} is no edge type, allowed are {', '.join(names)}"
            )
    by_type = []
    for name in names:
        if name not in lists:
            raise ConfigError(f"{option}: {name} is missing; one 0 a hop leaves an edge type out")
        by_type.append(listed_numbers(option, lists[name], "[15, 10]"))
        if any(not -1 <= fanout <= MAX_COUNT for fanout in by_type[-1]):
            raise ConfigError(
                f"{option}={by_type[-1]}: expected for each hop a positive number, -1 for all, or "
                "0 for none"
            )
        if len(by_type[-1]) != len(by_type[0]):
            raise ConfigError(
                f"{option}: {name} has {len(by_type[-1])} hops, {names[0]} has {len(by_type[0])}; "
                "all need the same number"
            )
    if not by_type[0]:
        raise ConfigError(f"{option}=[]: at least one hop is needed")
    return [list(hop) for hop in zip(*by_type, strict=True)]


def _name(edge_type: object) -> str:
    return "-".join(map(str, edge_type)) if isinstance(edge_type, tuple) else str(edge_type)
