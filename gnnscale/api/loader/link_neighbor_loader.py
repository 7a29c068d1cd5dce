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
from gnnscale.api.loader.typed_data import read_hetero_data
from gnnscale.api.loader.typed_formats import HeteroFormat
from gnnscale.core import Array, ConfigError, GraphError, Int64Array
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
        GraphError: ``data`` is not usable, or edges or labels do not fit.
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
            arguments=arguments,
        )
        data = single_graph(data, "data").graph
        self._read_graph(data, num_neighbors)
        edges = link_seeds.read_seed_edges(data, edge_label_index, self._schema)
        mode = _mode(neg_sampling, neg_sampling_ratio)
        self._negatives = link_seeds.read_negatives(mode, *edges.sizes)
        labels = link_seeds.read_edge_labels(edge_label, len(edges.sources), self._negatives)
        self._edges = replaced(edges, labels=labels)
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
            self._schema = typed.graph.schema
            by_type = fanouts_by_type(self._schema, num_neighbors, option="num_neighbors")
            self._format = HeteroFormat(typed, self._sampling, by_type)
            self._id_dtype = typed.graph.indices.dtype
        else:
            fanouts = fanouts_of_hops(num_neighbors)
            untyped = read_data(data, self._use)
            self._schema = untyped.graph.schema
            self._format = PyGFormat(untyped, self._sampling, fanouts)
            self._id_dtype = untyped.graph.indices.dtype

    def _make_batch(self, positions: Array, step: int) -> Any:
        """Return the batch of the edges at ``positions`` ``[n]``; ``step`` fixes random choices."""
        edges, negatives, seed = self._edges, self._negatives, self._sampling.seed
        sources, destinations = edges.sources[positions], edges.destinations[positions]
        num_negatives = None
        if negatives is not None and negatives.is_triplet:
            false_ends = negatives.destinations(positions, seed=seed, step=step)
            destinations = np.concatenate([destinations, false_ends.ravel()])
        elif negatives is not None:
            pairs = negatives.pairs(len(positions), seed=seed, step=step)
            sources = np.concatenate([sources, pairs[0]])
            destinations = np.concatenate([destinations, pairs[1]])
            num_negatives = len(pairs[0])
        seeds, src, dst = edges.local_ends(sources, destinations)
        batch = self._format.subgraph(seeds.astype(self._id_dtype), step)
        store = batch if edges.triple is None else batch[edges.triple]
        for key in _LABEL_KEYS:
            store.pop(key, None)
        store.input_id = torch.from_numpy(positions.copy())
        if negatives is not None and negatives.is_triplet:
            self._add_triplets(batch, src, dst)
            return batch
        store.edge_label_index = torch.from_numpy(np.stack([src, dst]))
        labels = link_seeds.label_rows(edges.labels, positions, num_negatives)
        if labels is not None:
            store.edge_label = labels
        return batch

    def _add_triplets(self, batch: Any, src: Int64Array, dst: Int64Array) -> None:
        """Add the ends of a batch's edges, and after them the negatives, to the vertices."""
        triple, num_edges = self._edges.triple, len(src)
        sources, destinations = (batch, batch)
        if triple is not None:
            sources, destinations = batch[triple[0]], batch[triple[2]]
        sources.src_index = torch.from_numpy(src)
        destinations.dst_pos_index = torch.from_numpy(dst[:num_edges])
        negatives = torch.from_numpy(dst[num_edges:]).view(num_edges, -1)
        destinations.dst_neg_index = negatives.squeeze(-1)


def _mode(neg_sampling: Any, ratio: float | None) -> Any:
    """Return ``neg_sampling``, or its value for PyG's ``neg_sampling_ratio``."""
    if not ratio:
        return neg_sampling
    if neg_sampling is not None:
        raise ConfigError(f"neg_sampling_ratio={ratio}: expected None beside neg_sampling")
    return {"mode": "binary", "amount": ratio}
