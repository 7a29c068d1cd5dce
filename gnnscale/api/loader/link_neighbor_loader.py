"""Loader of mini-batches for link prediction, as PyG's loader of this name."""

from collections.abc import Callable, Sequence
from dataclasses import replace as replaced
from typing import Any

import numpy as np
import torch

from gnnscale.api.loader import link_seeds
from gnnscale.api.loader.formats import PyGFormat
from gnnscale.api.loader.loader_data import read_data
from gnnscale.api.loader.minibatch_loader import MiniBatchLoader, fanouts_of_hops
from gnnscale.api.loader.negatives import Negatives, read_negatives
from gnnscale.api.loader.trees import read_cutoffs, times_of_vertices
from gnnscale.api.loader.typed_data import read_hetero_data
from gnnscale.api.loader.typed_formats import HeteroFormat
from gnnscale.core import Array, ConfigError, GraphError, Int64Array, IntArray
from gnnscale.core.process import standard_arithmetic
from gnnscale.data.array_inputs import is_instance_of, type_name
from gnnscale.data.peer_fields import is_hetero_data
from gnnscale.data.peers import single_graph
from gnnscale.sampling.typed import fanouts_by_type

#: Attributes of PyG's data whose meaning batches replace.
_LABEL_KEYS = ("edge_label", "edge_label_index", "edge_label_time")


class LinkNeighborLoader(MiniBatchLoader):
    """Loader of mini-batches around edges, with the arguments of PyG's loader of this name.

    Seeds are the ends of a batch's edges and of its negatives; threads, epochs and data of vertices
    and edges are as in ``NeighborLoader``.

    Example::

        loader = LinkNeighborLoader(data, [10, 5], edges, neg_sampling="binary", batch_size=64)
        for batch in loader:
            z = encoder(batch.x, batch.edge_index)
            src, dst = batch.edge_label_index
            loss = bce((z[src] * z[dst]).sum(1), batch.edge_label)

    A batch is a ``torch_geometric.data.Data``, or a ``HeteroData``, with the attributes of
    ``NeighborLoader`` except ``batch_size``. ``n_id`` begins with the distinct ends of edges,
    ascending in each vertex type. There are also, in a ``HeteroData`` at the seeds' edge type,

    - ``input_id`` int64 positions of the batch's edges in ``edge_label_index``;
    - ``edge_label_index`` ``[2, n]`` int64 local ids of the ends of the batch's edges, then of
      negatives;
    - ``edge_label``: labels of these edges. Of negatives, 0. With negatives, labels that begin with
      0 are counted from 1, and edges without labels have 1.0.

    With triplets, ``src_index`` and ``dst_pos_index`` ``[n]``, and ``dst_neg_index`` ``[n]`` or
    ``[n, amount]``, replace the last two, in a ``HeteroData`` at the vertex types of the ends.

    With ``time_attr`` or ``disjoint``, each end has a tree, as a seed of ``NeighborLoader``, and
    ends are not merged. ``batch`` has the position of the tree's edge in the batch; that of a
    negative is its own modulo the number of edges. With ``time_attr``, both trees are as of the
    time of the edge, and negatives get the time of the edge at this position: only vertices that
    exist by then are drawn, if ``time_attr`` is of vertices. These times are ``edge_label_time`` of
    all edges, with triplets ``seed_time`` of the edges.

    As in PyG, an edge to predict is not left out of the sampled edges: if it is one of the graph's
    edges, it sends messages. ``RandomLinkSplit(disjoint_train_ratio=...)`` of PyG separates both.
    As in PyG, a negative may be an edge by chance.

    A batch, negatives included, is a function of the seed, the epoch and its position.

    Args:
        data: a ``gnnscale.Graph``, or PyG's ``Data`` or ``HeteroData``, on the CPU.
        num_neighbors: as in ``NeighborLoader``.
        edge_label_index: ``[2, n]`` ids of the seed edges' sources and destinations, which may be
            edges of the graph or not. None: all edges. For a ``HeteroData``, an edge type (all of
            its edges), or a pair of an edge type and such ids.
        edge_label: ``[n, ...]`` labels of the seed edges. None: no labels.
        edge_label_time: ``[n]`` times of the seed edges, integers or datetime64; needs
            ``time_attr``, which needs it.
        time_attr, temporal_strategy, disjoint: as in ``NeighborLoader``.
        neg_sampling: ``binary``: as many random pairs of a source and a destination of their types
            as edges. ``triplet``: a random destination for each edge. PyG's ``NegativeSampling``,
            or a dictionary of its arguments, has another ``amount``, or weights of vertices. None:
            no negatives.
        neg_sampling_ratio: PyG's older name for the amount of ``binary``.
        batch_size: edges of a batch, without negatives.
        shuffle: whether the order of edges changes each epoch.
        drop_last: whether to drop a last batch with fewer edges.
        replace, num_workers, prefetch_factor, pin_memory, transform: as in ``NeighborLoader``.
        weight_attr, edge_ids, generator, seed, num_threads: as in ``NeighborLoader``.
        arguments: further arguments of PyG's loader with the values that this loader supports;
            ``docs/loader.md`` lists them.

    Raises:
        ConfigError: an argument has an invalid value.
        GraphError: ``data`` is not usable, or edges, labels or times do not fit.
        ImportError: PyG is not installed.
    """

    @standard_arithmetic()
    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int],
        edge_label_index: Any = None,
        edge_label: Any = None,
        *,
        edge_label_time: Any = None,
        time_attr: str | None = None,
        temporal_strategy: str = "uniform",
        disjoint: bool = False,
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
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
        **arguments: Any,
    ) -> None:
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
        if (edge_label_time is None) != (time_attr is None):
            lacking = "edge_label_time" if edge_label_time is None else "time_attr"
            raise ConfigError(f"{lacking}=None: expected edge_label_time and time_attr, or neither")
        data = single_graph(data, "data").graph
        self._read_graph(data, num_neighbors)
        edges = link_seeds.read_seed_edges(data, edge_label_index, self._graph.schema)
        self._negatives = self._read_negatives(_mode(neg_sampling, neg_sampling_ratio), edges)
        labels = link_seeds.read_edge_labels(edge_label, len(edges.sources), self._negatives)
        times = self._read_times(edge_label_time, edges)
        self._edges = replaced(edges, labels=labels, times=times)
        self._num_seeds = len(edges.sources)

    def _read_graph(self, data: Any, num_neighbors: Any) -> None:
        """Prepare to sample around the vertices of ``data``."""
        self._format: PyGFormat | HeteroFormat
        if is_instance_of(data, "dgl", "DGLGraph"):
            raise GraphError(
                f"data: expected a gnnscale.Graph, or a Data or HeteroData of torch_geometric, got "
                f"{type_name(data)}"
            )
        if is_hetero_data(data):
            typed = read_hetero_data(data, self._use)
            self._graph = typed.graph
            by_type = fanouts_by_type(typed.graph.schema, num_neighbors, option="num_neighbors")
            self._format = HeteroFormat(typed, self._sampling, by_type)
        else:
            fanouts = fanouts_of_hops(num_neighbors)
            untyped = read_data(data, self._use)
            self._graph = untyped.graph
            self._format = PyGFormat(untyped, self._sampling, fanouts)

    def _read_negatives(self, mode: Any, edges: link_seeds.SeedEdges) -> Negatives | None:
        """Return the rule of negatives of ``edges``, which exist in time if edges have times."""
        types = (edges.source_ids, edges.destination_ids)
        sources, destinations = (ids.stop - ids.start for ids in types)
        if self._use.time is None:
            return read_negatives(mode, (sources, destinations))
        times = [times_of_vertices(self._graph, ids) for ids in types]
        return read_negatives(mode, (sources, destinations), (times[0], times[1]))

    def _read_times(self, values: Any, edges: link_seeds.SeedEdges) -> Int64Array | None:
        """Return the times of the seed edges, if the loader uses times; errors name the option."""
        trees, option = self._sampling.trees, "edge_label_time"
        if values is None or trees is None:
            return None
        times = read_cutoffs(values, edges.sources, self._graph, trees, option)
        if self._negatives is not None:
            self._negatives.check_times(times)
        return times

    def _make_batch(self, positions: Array, step: int) -> Any:
        """Return the batch of the edges at ``positions`` ``[n]``; ``step`` fixes random choices."""
        edges, num_edges = self._edges, len(positions)
        times = None if edges.times is None else edges.times[positions]
        sources, destinations = self._ends(positions, times, step)
        trees = None
        if self._sampling.trees is None:
            seeds, src, dst = edges.local_ends(sources, destinations)
        else:
            seeds, src, dst = edges.tree_ends(sources, destinations)
            trees = link_seeds.trees_of_ends(
                times, num_edges, num_sources=len(src), num_destinations=len(dst)
            )
        batch = self._format.subgraph(seeds.astype(self._graph.indices.dtype), step, trees)
        store = batch if edges.triple is None else batch[edges.triple]
        for key in _LABEL_KEYS:
            store.pop(key, None)
        store.input_id = torch.from_numpy(positions.copy())
        if self._negatives is not None and self._negatives.is_triplet:
            self._add_triplets(batch, src, dst, times)
            return batch
        store.edge_label_index = torch.from_numpy(np.stack([src, dst]))
        num_negatives = None if self._negatives is None else len(src) - num_edges
        labels = link_seeds.label_rows(edges.labels, positions, num_negatives)
        if labels is not None:
            store.edge_label = labels
        if times is not None:
            store.edge_label_time = torch.from_numpy(np.resize(times, len(src)))
        return batch

    def _ends(
        self, positions: Array, times: Int64Array | None, step: int
    ) -> tuple[IntArray, IntArray]:
        """Return sources and destinations of the edges at ``positions``, then of negatives.

        ``times`` are those of the edges. None: they have none.
        """
        edges, negatives, seed = self._edges, self._negatives, self._sampling.seed
        sources, destinations = edges.sources[positions], edges.destinations[positions]
        if negatives is None:
            return sources, destinations
        if negatives.is_triplet:
            false_ends = negatives.draw_destinations(positions, times, seed=seed, step=step)
            return sources, np.concatenate([destinations, false_ends.T.ravel()])
        pairs = negatives.draw_pairs(len(positions), times, seed=seed, step=step)
        return np.concatenate([sources, pairs[0]]), np.concatenate([destinations, pairs[1]])

    def _add_triplets(
        self, batch: Any, src: Int64Array, dst: Int64Array, times: Int64Array | None
    ) -> None:
        """Add the ends of a batch's edges, and after them the negatives, to the vertices."""
        triple, num_edges = self._edges.triple, len(src)
        sources, destinations = (batch, batch)
        if triple is not None:
            sources, destinations = batch[triple[0]], batch[triple[2]]
        sources.src_index = torch.from_numpy(src)
        destinations.dst_pos_index = torch.from_numpy(dst[:num_edges])
        negatives = torch.from_numpy(dst[num_edges:]).view(-1, num_edges).T.contiguous()
        destinations.dst_neg_index = negatives.squeeze(-1)
        if times is not None:
            sources.seed_time = destinations.seed_time = torch.from_numpy(times)


def _mode(neg_sampling: Any, ratio: float | None) -> Any:
    """Return ``neg_sampling``, or its value for PyG's ``neg_sampling_ratio``."""
    if not ratio:
        return neg_sampling
    if neg_sampling is not None:
        raise ConfigError(f"neg_sampling_ratio={ratio}: expected None beside neg_sampling")
    return {"mode": "binary", "amount": ratio}
