"""Mini-batches of a graph with types: PyG's ``HeteroData``, and blocks of DGL."""

from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.api.loader.formats import Sampling
from gnnscale.api.loader.loader_data import AlignedRows, names_in_batches
from gnnscale.api.loader.seeds import TypedSeeds
from gnnscale.api.loader.trees import SeedTrees
from gnnscale.api.loader.typed_data import TypedLoaderData
from gnnscale.core import Array, Int64Array, import_dgl
from gnnscale.graph import EdgeType
from gnnscale.nn.adapters import BlockData, DGLBlockBuilder
from gnnscale.ops import SampledHop, TypedSample
from gnnscale.sampling import TypedBlock
from gnnscale.sampling.typed import typed_blocks


class _TypedReader:
    """Sampler of the user's graph, with the data of sampled vertices and edges."""

    def __init__(
        self, data: TypedLoaderData, sampling: Sampling, fanouts: list[list[int]], *, for_dgl: bool
    ) -> None:
        self.data = data
        self.sampling = sampling
        self.schema = data.graph.schema
        self._fanouts = fanouts
        self._sampler = sampling.open(data.graph)
        self._has_ids = data.graph.edge_ids is not None
        #: by vertex or edge type its attributes, by their names in batches
        self._rows: dict[Any, dict[str, AlignedRows]] = {}
        for of_edges, of_types in ((False, data.rows), (True, data.edge_rows)):
            for key, rows in of_types.items():
                names = names_in_batches(
                    rows, of_edges=of_edges, is_of_dgl=data.is_of_dgl, for_dgl=for_dgl
                )
                self._rows[key] = {names[name]: values for name, values in rows.items()}

    def sample(
        self, seeds: Array, step: int, *, only_new: bool, trees: SeedTrees | None = None
    ) -> TypedSample:
        """Return vertices and hops sampled from ``seeds``, fixed by ``step`` and the loader's seed.

        A hop expands all vertices so far, or with ``only_new`` those of the last hop. ``trees`` are
        those of the seeds. None: seeds share one subgraph.
        """
        sampling = self.sampling
        return self._sampler.sample_typed(
            seeds,
            self._fanouts,
            replace=sampling.replace,
            seed=sampling.seed,
            step=step,
            num_threads=sampling.num_threads,
            only_new=only_new,
            by_weight=sampling.by_weight,
            edge_positions=self._has_ids,
            **sampling.as_of(trees),
        )

    def vertices(self, sampled: TypedSample) -> dict[str, torch.Tensor]:
        """Return by vertex type the sampled ids within the type, int64."""
        ids, offset = {}, 0
        for number, vertex_type in enumerate(self.schema.vertex_types):
            size = sampled.type_sizes[-1][number]
            first = self.schema.vertices(number).start
            n_id = self.sampling.empty((size,))
            np.subtract(sampled.input_vertices[offset : offset + size], first, out=n_id.numpy())
            ids[vertex_type.name] = n_id
            offset += size
        return ids

    def tree_numbers(self, sampled: TypedSample, trees: SeedTrees) -> list[torch.Tensor]:
        """Return by vertex type the number of each sampled vertex's tree."""
        assert sampled.trees is not None
        numbers = self.sampling.tree_numbers(trees, sampled.trees)
        return list(torch.split(numbers, list(sampled.type_sizes[-1])))

    def edge_ids(self, hops: Sequence[SampledHop]) -> torch.Tensor | None:
        """Return the ids of the edges of ``hops``, all of one edge type; None: not in batches."""
        ids = self.data.graph.edge_ids
        if ids is None:
            return None
        positions = [hop.positions for hop in hops if hop.positions is not None]
        return torch.from_numpy(ids[np.concatenate(positions)])

    def rows(self, key: Any, ids: Int64Array) -> dict[str, torch.Tensor]:
        """Return rows ``ids`` of all attributes of a vertex type, or of an edge type's triple."""
        return {name: self.sampling.take(rows, ids) for name, rows in self._rows[key].items()}


def triple_of(edge_type: EdgeType) -> tuple[str, str, str]:
    """Return the names of source type, relation and destination type."""
    return edge_type.source, edge_type.relation, edge_type.destination


class HeteroFormat:
    """Maker of batches as PyG's ``HeteroData``.

    As in PyG, each hop expands only the vertices that the hop before has added.
    """

    def __init__(
        self,
        data: TypedLoaderData,
        sampling: Sampling,
        fanouts: list[list[int]],
        seeds: TypedSeeds | None = None,
    ) -> None:
        """Prepare to sample ``data`` by ``fanouts`` of every hop and edge type.

        ``seeds`` are those that ``batch`` takes; None: only ``subgraph`` is called. ImportError:
        there is no PyG.
        """
        try:
            from torch_geometric.data import HeteroData
        except ImportError:
            raise ImportError(
                "PyG is not installed; pip install '.[pyg]', or use output_format='dgl'"
            ) from None
        self._without_data = HeteroData()
        self._without_data._global_store.update(data.constants.get(None, {}))
        keys = [vertices.name for vertices in data.graph.schema.vertex_types]
        for key in (*keys, *map(triple_of, data.graph.schema.edge_types)):
            self._without_data[key].update(data.constants.get(key, {}))
        self._seed_types = () if seeds is None else seeds.types
        self._reader = _TypedReader(data, sampling, fanouts, for_dgl=False)

    def batch(
        self, seeds: Array, input_ids: Int64Array, step: int, cutoffs: Int64Array | None = None
    ) -> Any:
        """Return the batch of ``seeds``, global ids, with the ``input_id`` of each.

        ``step`` fixes random choices. ``cutoffs`` are those of the seeds' trees, which are numbered
        type after type. None: seeds have no trees.
        """
        schema, sampling = self._reader.schema, self._reader.sampling
        types, trees = schema.type_of(seeds), None
        if cutoffs is not None:
            order = np.argsort(types, kind="stable")
            seeds, input_ids, types = seeds[order], input_ids[order], types[order]
            trees = SeedTrees.in_order(cutoffs[order])
        batch = self.subgraph(seeds, step, trees)
        for number in self._seed_types:
            is_type = types == number
            input_id = torch.from_numpy(input_ids[is_type])
            store = batch[schema.vertex_types[number].name]
            _add(store, {"input_id": input_id, "batch_size": len(input_id)})
            if trees is not None:
                _add(store, sampling.seed_time(trees.cutoffs[is_type]))
        return batch

    def subgraph(self, seeds: Array, step: int, trees: SeedTrees | None = None) -> Any:
        """Return the vertices and edges sampled from ``seeds``, global ids, with their data.

        ``trees`` are those of the seeds. None: seeds share one subgraph.
        """
        reader = self._reader
        sampled = reader.sample(seeds, step, only_new=True, trees=trees)
        batch = copy(self._without_data)
        counts_by_type = list(zip(*sampled.type_sizes, strict=True))
        for store, (name, n_id), counts in zip(
            batch.node_stores, reader.vertices(sampled).items(), counts_by_type, strict=True
        ):
            _add(store, self._vertex_data(name, n_id))
            added = [last - first for first, last in pairwise((0, *counts))]
            _add(store, {"num_sampled_nodes": added})
        numbers = [] if trees is None else reader.tree_numbers(sampled, trees)
        for store, of_type in zip(batch.node_stores, numbers, strict=False):
            _add(store, {"batch": of_type})
        for number, store in enumerate(batch.edge_stores):
            hops = [hop[number] for hop in sampled.hops]
            firsts = [0, *counts_by_type[int(reader.schema.destinations[number])]]
            _add(store, self._edge_data(store._key, hops, firsts))
        return batch

    def _vertex_data(self, name: str, n_id: torch.Tensor) -> dict[str, Any]:
        rows = self._reader.rows(name, n_id.numpy())
        return {"n_id": n_id, **rows} if rows else {"n_id": n_id, "num_nodes": len(n_id)}

    def _edge_data(
        self, triple: tuple[str, str, str], hops: Sequence[SampledHop], firsts: Sequence[int]
    ) -> dict[str, Any]:
        """Return the edges of a type; a hop's destinations begin with local id ``firsts[hop]``."""
        counts = [len(hop.indices) for hop in hops]
        edge_index = self._reader.sampling.empty((2, sum(counts)))
        ends, done = edge_index.numpy(), 0
        for hop, count, first in zip(hops, counts, firsts, strict=False):
            out = ends[:, done : done + count]
            ops.expand_edges(hop.indptr, hop.indices, first_dst=first, out=out)
            done += count
        data = {"edge_index": edge_index, "num_sampled_edges": counts}
        e_id = self._reader.edge_ids(hops)
        if e_id is None:
            return data
        return {**data, "e_id": e_id, **self._reader.rows(triple, e_id.numpy())}


def _add(store: Any, data: dict[str, Any]) -> None:
    """Add data that are not None to a store of PyG without derived data.

    PyG's assignment looks for derived data at every name.
    """
    store._mapping.update(data)


class HeterographFormat:
    """Maker of DGL's batches: nodes by vertex type, and blocks.

    As in DGL, each hop expands all vertices sampled so far.
    """

    def __init__(
        self,
        data: TypedLoaderData,
        sampling: Sampling,
        fanouts: list[list[int]],
        seeds: TypedSeeds,
    ) -> None:
        """Prepare to sample ``data`` by ``fanouts`` of every hop and edge type.

        ``seeds`` are those that ``batch`` takes.
        """
        dgl = import_dgl()
        self._vertex_id, self._edge_id = dgl.NID, dgl.EID
        self._is_plain = seeds.is_plain
        self._reader = _TypedReader(data, sampling, fanouts, for_dgl=True)
        self._builder = DGLBlockBuilder(data.graph.schema, idtype=data.id_dtype)

    def batch(self, seeds: Array, input_ids: Int64Array, step: int) -> Any:
        """Return the batch of ``seeds``, global ids; ``input_ids`` change nothing.

        ``step`` fixes random choices.
        """
        reader, idtype = self._reader, self._reader.data.id_dtype
        sampled = reader.sample(seeds, step, only_new=False)
        vertices = reader.vertices(sampled)
        ids = {name: n_id.to(idtype) for name, n_id in vertices.items()}
        typed = typed_blocks(sampled)
        data = [
            self._block_data(block, ids, hop)
            for block, hop in zip(typed, reversed(sampled.hops), strict=True)
        ]
        output_nodes = {}
        for number, (name, n_id) in enumerate(vertices.items()):
            size = sampled.type_sizes[0][number]
            data[0].sources[number].update(reader.rows(name, n_id.numpy()))
            data[-1].destinations[number].update(reader.rows(name, n_id[:size].numpy()))
            if size:
                output_nodes[name] = ids[name][:size]
        blocks = [self._builder.build(*parts) for parts in zip(typed, data, strict=True)]
        # DGL has no dictionary of a single vertex type.
        input_nodes = ids if len(ids) > 1 else next(iter(ids.values()))
        if self._is_plain:
            return input_nodes, next(iter(output_nodes.values())), blocks
        return input_nodes, output_nodes, blocks

    def _block_data(
        self, block: TypedBlock, ids: dict[str, torch.Tensor], hop: Sequence[SampledHop]
    ) -> BlockData:
        """Return vertex ids, and ids and data of the edges of each type, of a block."""
        sources, destinations = (
            [
                {self._vertex_id: values[:size]}
                for values, size in zip(ids.values(), sizes, strict=True)
            ]
            for sizes in (block.src_sizes, block.dst_sizes)
        )
        edges: list[dict[str, torch.Tensor]] = []
        for edge_type, relation in zip(self._reader.schema.edge_types, hop, strict=True):
            e_id = self._reader.edge_ids([relation])
            edges.append({})
            if e_id is not None:
                edges[-1][self._edge_id] = e_id.to(self._reader.data.id_dtype)
                edges[-1].update(self._reader.rows(triple_of(edge_type), e_id.numpy()))
        return BlockData(sources, destinations, edges)
