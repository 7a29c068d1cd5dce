"""Loader of sampled mini-batches for a user's own training loop, in the formats of PyG and DGL."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from gnnscale.api.loader.formats import FORMATS, Sampling
from gnnscale.api.loader.loader_data import EdgeUse, read_data
from gnnscale.api.loader.minibatch_loader import MiniBatchLoader, fanouts_of_hops
from gnnscale.api.loader.seeds import (
    read_seed_times,
    read_seeds,
    read_typed_seed_times,
    read_typed_seeds,
)
from gnnscale.api.loader.typed_data import read_hetero_data, read_heterograph
from gnnscale.api.loader.typed_formats import HeteroFormat, HeterographFormat
from gnnscale.core import ConfigError
from gnnscale.core import types as arrays
from gnnscale.core.process import standard_arithmetic
from gnnscale.data.peer_fields import is_hetero_data, is_heterograph
from gnnscale.data.peers import single_graph
from gnnscale.sampling.typed import fanouts_by_type


class NeighborLoader(MiniBatchLoader):
    """Loader of sampled mini-batches, with the arguments of PyG's loader of this name.

    Background threads sample batches and gather their rows natively, in place of worker processes.
    The threads end with the loop, also when the loop breaks off.

    Example::

        loader = NeighborLoader(graph, [10, 5], input_nodes=train_ids, batch_size=512)
        for batch in loader:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]

    A batch in PyG's format is a ``torch_geometric.data.Data`` with

    - ``x``, ``y`` and any further vertex attribute of ``data``: rows of the sampled vertices;
    - ``edge_index`` ``[2, num_edges]`` int64 local ids, sources then destinations, hop by hop;
    - ``n_id`` int64 global ids of the vertices, seeds first, then hop by hop;
    - ``input_id`` int64 positions of the seeds in ``input_nodes`` (their ids for a mask);
    - ``batch_size``, the number of seeds;
    - ``num_sampled_nodes`` (seeds, hop 1, ...) and ``num_sampled_edges`` (hop 1, ...), lists for
      ``torch_geometric.utils.trim_to_layer``. As in PyG, a hop expands the vertices that the
      previous hop added.

    If edges have data (``edge_attr``, ``edge_weight``, ...), or with ``edge_ids``, a batch also has

    - the rows of the sampled edges, in the order of ``edge_index``;
    - ``e_id`` int64 indices into the ``edge_index`` of ``data``. For a ``gnnscale.Graph``: its
      ``edge_ids``, or indices into its ``indices``.

    With ``time_attr`` or ``disjoint``, a batch has a tree for each seed, and seeds may repeat. The
    vertices of a tree are distinct. Such a batch also has

    - ``batch`` int64 numbers of the vertices' trees, which count the seeds;
    - ``seed_time`` int64 times of the seeds, with ``time_attr``.

    As in PyG, a tree has no edge that becomes known after the time of its seed: at the time of the
    edge, or of its source. Types without ``time_attr`` are known at all times. Equal seeds of equal
    times draw equal trees in a batch.

    A batch in DGL's format is ``(input_nodes, output_nodes, blocks)``. The ``srcdata`` of the first
    block has rows for all its sources, and the ``dstdata`` of the last block for its destinations
    (``feat``, ``label``, ...). The ``edata`` of each block has edge data and ``dgl.EID``. As in
    DGL, a hop expands every vertex of the block above.

    Every ``iter()`` begins an epoch. Epochs differ in the sampled neighbors, and with ``shuffle``
    in the order of the seeds. ``seed`` determines both for any number of threads.

    The loader is an ``IterableDataset`` with a length. ``DataLoader(loader, batch_size=None)``
    yields its batches. Worker processes are refused, since each would yield all batches.

    Args:
        data: a ``gnnscale.Graph``, or a homogeneous PyG ``Data`` or DGL graph on the CPU, whose
            edges are sorted once. Convert it to a Graph first to share the sorted edges among
            loaders. Or a graph with types, PyG's ``HeteroData`` or a heterogeneous DGL graph:
            batches are ``HeteroData``, or DGL's nodes by vertex type and blocks with all types.
        num_neighbors: neighbors per vertex and hop, from the seeds outwards; -1 for all. For a
            graph with types also such a list for each edge type, with 0 for none.
        input_nodes: seeds: ids, distinct unless seeds have trees, or a mask over all vertices.
            None: every vertex. For a graph with types a vertex type, a pair of a vertex type and
            its seeds, or a dictionary of seeds by vertex type.
        input_time: ``[n]`` times of the seeds, integers or datetime64 in the unit of ``time_attr``;
            a dictionary for a dictionary of seeds. None: the vertices' own ``time_attr``.
        time_attr: attribute of vertices or of edges with the times from which they are known,
            integers or datetime64; lists of edges are sorted by it once, so that ``is_sorted``
            changes nothing. ``time`` for a Graph. None: all are known at all times.
        temporal_strategy: ``uniform`` draws among the edges that a tree may have, ``last`` takes
            the newest.
        disjoint: whether each seed has a tree; so it is with ``time_attr``.
        batch_size: seeds of a batch; the last batch may have fewer.
        shuffle: whether the order of seeds changes each epoch, determined by ``(seed, epoch)``.
        drop_last: whether to drop a last batch with fewer seeds.
        replace: whether to sample neighbors with replacement.
        num_workers: number of background threads. 0: batches are computed on demand.
        prefetch_factor: batches that each background thread prepares ahead. None: 2.
        pin_memory: whether to allocate batches in page-locked memory; needs CUDA.
        transform: function called with each batch in the background thread; its result is yielded.
        weight_attr: edge attribute with sampling weights, one number per edge; ``edge_weight`` for
            a Graph. Edges of weight 0 are never sampled. DGL's name ``prob`` is accepted too.
        edge_ids: whether batches contain edge ids even without edge data.
        generator: generator that ``seed`` is drawn from, once.
        seed: seed of order and neighbors. None: drawn from ``generator``, or 0.
        num_threads: threads of the native kernels per batch. None: cores divided by
            ``num_workers``.
        output_format: ``pyg`` or ``dgl``; the latter not for a ``HeteroData``, nor for trees.
        arguments: further arguments of PyG's and DGL's loaders with the values that this loader
            supports; ``docs/loader.md`` lists them.

    Raises:
        ConfigError: an argument has an invalid value.
        GraphError: ``data`` is not usable, or ``input_nodes`` are not distinct vertices, or times
            are no times.
        ImportError: the library of ``output_format`` is not installed.
    """

    @standard_arithmetic()
    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int],
        input_nodes: Any = None,
        *,
        input_time: Any = None,
        time_attr: str | None = None,
        temporal_strategy: str = "uniform",
        disjoint: bool = False,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        replace: bool = False,
        num_workers: int = 1,
        prefetch_factor: int | None = 2,
        pin_memory: bool = False,
        transform: Callable[[Any], Any] | None = None,
        weight_attr: str | None = None,
        edge_ids: bool = False,
        generator: torch.Generator | None = None,
        seed: int | None = None,
        num_threads: int | None = None,
        output_format: str = "pyg",
        **arguments: Any,
    ) -> None:
        if output_format not in FORMATS:
            raise ConfigError(f"output_format={output_format!r}: expected {', '.join(FORMATS)}")
        super().__init__(
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            replace=replace,
            num_workers=num_workers,
            prefetch_factor=prefetch_factor,
            pin_memory=pin_memory,
            transform=transform,
            weight_attr=weight_attr,
            edge_ids=edge_ids,
            generator=generator,
            seed=seed,
            num_threads=num_threads,
            time_attr=time_attr,
            temporal_strategy=temporal_strategy,
            disjoint=disjoint,
            arguments=arguments,
        )
        if output_format == "dgl" and self._sampling.trees is not None:
            option = "disjoint" if time_attr is None else "time_attr"
            raise ConfigError(f"output_format='dgl': expected 'pyg' with {option}, as DGL has none")
        data = single_graph(data, "data").graph
        is_typed = is_hetero_data(data) or is_heterograph(data)
        prepare = _prepare_typed if is_typed else _prepare
        inputs = _Inputs(num_neighbors, input_nodes, input_time, output_format)
        self._prepared = prepare(data, inputs, self._use, self._sampling)
        self._num_seeds = len(self._prepared.seeds)

    def _make_batch(self, positions: arrays.Array, step: int) -> Any:
        """Return the batch of the seeds at ``positions`` ``[n]``; ``step`` fixes random choices."""
        prepared = self._prepared
        seeds, input_ids = prepared.seeds[positions], prepared.input_ids[positions]
        if prepared.cutoffs is None:
            return prepared.format.batch(seeds, input_ids, step)
        return prepared.format.batch(seeds, input_ids, step, prepared.cutoffs[positions])


class _Inputs(NamedTuple):
    """Arguments of ``NeighborLoader`` that depend on its data."""

    num_neighbors: Any
    input_nodes: Any
    input_time: Any
    output_format: str


class _Prepared(NamedTuple):
    """Maker of batches, and its seeds ``[n]``."""

    format: Any  #: maker of batches
    seeds: arrays.Array  #: ids in the graph's id type
    input_ids: arrays.Int64Array  #: ``input_id`` of each seed
    cutoffs: arrays.Int64Array | None  #: cut-off of each seed's tree. None: seeds have no trees


def _prepare(data: Any, inputs: _Inputs, use: EdgeUse, sampling: Sampling) -> _Prepared:
    """Prepare to batch a graph without types."""
    fanouts = fanouts_of_hops(inputs.num_neighbors)
    parts = read_data(data, use)
    repeats = sampling.trees is not None
    ids, input_ids = read_seeds(inputs.input_nodes, parts.graph.num_vertices, repeats=repeats)
    cutoffs = read_seed_times(inputs.input_time, ids, parts.graph, sampling.trees)
    make = FORMATS[inputs.output_format](parts, sampling, fanouts)
    return _Prepared(make, ids.astype(parts.graph.indices.dtype), input_ids, cutoffs)


def _prepare_typed(data: Any, inputs: _Inputs, use: EdgeUse, sampling: Sampling) -> _Prepared:
    """Prepare to batch a graph with types."""
    is_pyg, output_format = is_hetero_data(data), inputs.output_format
    if is_pyg and output_format != "pyg":
        raise ConfigError(f"output_format={output_format!r}: expected 'pyg' for a HeteroData")
    parts = read_hetero_data(data, use) if is_pyg else read_heterograph(data, use)
    schema = parts.graph.schema
    fanouts = fanouts_by_type(schema, inputs.num_neighbors, option="num_neighbors")
    seeds = read_typed_seeds(
        *(inputs.input_nodes, schema),
        allows_plain=not is_pyg,
        repeats=sampling.trees is not None,
    )
    cutoffs = read_typed_seed_times(inputs.input_time, seeds, parts.graph, sampling.trees)
    ids = seeds.ids.astype(parts.graph.indices.dtype)
    make = HeteroFormat if output_format == "pyg" else HeterographFormat
    return _Prepared(make(parts, sampling, fanouts, seeds), ids, seeds.input_ids, cutoffs)
