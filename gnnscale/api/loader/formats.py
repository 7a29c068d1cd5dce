"""Mini-batches of a graph without types in the formats of PyG and DGL."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.api.loader.loader_data import AlignedRows, LoaderData, allocate, names_in_batches
from gnnscale.api.loader.trees import SeedTrees, TreeSampling, with_times
from gnnscale.core import Array, Int32Array, Int64Array, import_dgl
from gnnscale.graph import Graph
from gnnscale.nn.adapters import to_dgl_blocks
from gnnscale.sampling.minibatch import to_minibatch


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Options of a loader: how neighbors are sampled, and the memory of its batches."""

    replace: bool  #: sample with replacement
    by_weight: bool  #: sample in proportion to edge weights
    edge_ids: bool  #: batches contain edge ids
    seed: int  #: seed of all random choices, together with the step
    num_threads: int  #: threads of the native kernels
    pinned: bool  #: allocate batches in page-locked memory
    trees: TreeSampling | None = None  #: trees of seeds. None: seeds share one subgraph

    def empty(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Return an uninitialized int64 tensor, page-locked if the loader allocates batches so."""
        return allocate(shape, torch.int64, pinned=self.pinned)

    def take(self, rows: AlignedRows, ids: Int64Array) -> torch.Tensor:
        """Return rows ``ids`` of an attribute, in memory as ``empty`` allocates it."""
        return rows.take(ids, num_threads=self.num_threads, pinned=self.pinned)

    def open(self, graph: Graph) -> ops.NativeSampler:
        """Return a native sampler of ``graph``, or of trees in it if seeds have trees."""
        return ops.NativeSampler(graph if self.trees is None else with_times(graph))

    def as_of(self, trees: SeedTrees | None) -> dict[str, Any]:
        """Return the arguments of ``NativeSampler.sample_typed`` for the trees of a batch."""
        if trees is None or self.trees is None:
            return {}
        return {"cutoffs": trees.cutoffs, "disjoint": True, "last": self.trees.takes_newest}

    def seed_time(self, cutoffs: Int64Array | None) -> dict[str, torch.Tensor]:
        """Return PyG's attribute of the times of seeds, if trees are as of these."""
        if cutoffs is None or self.trees is None or self.trees.time_attr is None:
            return {}
        return {"seed_time": torch.from_numpy(cutoffs)}

    def tree_numbers(self, trees: SeedTrees, seeds: Int32Array) -> torch.Tensor:
        """Return the number of each vertex's tree, which is that of the seed in ``seeds``."""
        numbers = self.empty((len(seeds),))
        return torch.from_numpy(np.take(trees.numbers, seeds, out=numbers.numpy(), mode="clip"))


class _BatchReader:
    """Sampler of the user's graph, with the data of sampled vertices and edges."""

    def __init__(
        self, data: LoaderData, sampling: Sampling, fanouts: list[int], *, for_dgl: bool = False
    ) -> None:
        self.data = data
        self.sampling = sampling
        self._fanouts = fanouts
        self._sampler = sampling.open(data.graph)
        naming = {"is_of_dgl": data.is_of_dgl, "for_dgl": for_dgl}
        self._names = names_in_batches(data.rows, of_edges=False, **naming)
        edge_names = [*data.edge_rows]
        edge_names += ["edge_weight"] if data.hands_weights else []
        edge_names += ["edge_attr"] if data.edge_features is not None else []
        self._edge_names = names_in_batches(edge_names, of_edges=True, **naming)
        #: Whether batches contain edge ids.
        self.has_edge_ids = sampling.edge_ids or bool(data.edge_rows)
        self._options: dict[str, Any] = {
            "replace": sampling.replace,
            "seed": sampling.seed,
            "num_threads": sampling.num_threads,
            "by_weight": sampling.by_weight,
            "edge_positions": self.has_edge_ids,
            "edge_weights": data.hands_weights,
            "edge_rows": data.edge_features is not None,
        }

    def sample(self, seeds: Array, step: int, *, only_new: bool) -> ops.Sampled:
        """Return vertices and hops sampled from ``seeds``, fixed by ``step`` and the loader's seed.

        A hop expands all vertices so far, or with ``only_new`` those of the last hop.
        """
        return self._sampler.sample_neighbors(
            seeds, self._fanouts, step=step, only_new=only_new, **self._options
        )

    def sample_trees(
        self, seeds: Array, step: int, trees: SeedTrees
    ) -> tuple[Array, list[ops.SampledHop], torch.Tensor]:
        """Return vertices and hops of ``trees``, as ``sample`` with ``only_new``.

        There is also the number of each vertex's tree.
        """
        sampled = self._sampler.sample_typed(
            seeds,
            [[fanout] for fanout in self._fanouts],
            step=step,
            only_new=True,
            **self._options,
            **self.sampling.as_of(trees),
        )
        assert sampled.trees is not None
        numbers = self.sampling.tree_numbers(trees, sampled.trees)
        return sampled.input_vertices, [hop[0] for hop in sampled.hops], numbers

    def vertex_rows(self, ids: Int64Array) -> dict[str, torch.Tensor]:
        """Return the rows of vertices ``ids`` of every vertex attribute."""
        return {
            self._names[name]: self.sampling.take(rows, ids)
            for name, rows in self.data.rows.items()
        }

    def edge_rows(self, hops: list[ops.SampledHop]) -> tuple[torch.Tensor | None, dict[str, Any]]:
        """Return ids (None: not in batches) and attributes of the edges of ``hops``."""
        edge_ids, data = self._edge_data(hops)
        return edge_ids, {self._edge_names[name]: values for name, values in data.items()}

    def _edge_data(self, hops: list[ops.SampledHop]) -> tuple[torch.Tensor | None, dict[str, Any]]:
        data = {}
        if self.data.hands_weights:
            weights = [hop.edge_weights for hop in hops if hop.edge_weights is not None]
            data["edge_weight"] = torch.from_numpy(np.concatenate(weights))
        if self.data.edge_features is not None:
            row_ids = [hop.edge_rows for hop in hops if hop.edge_rows is not None]
            ids = np.concatenate(row_ids).astype(np.int64)
            data["edge_attr"] = self.sampling.take(self.data.edge_features, ids)
        if not self.has_edge_ids:
            return None, data
        edge_ids = self.sampling.empty((sum(len(hop.indices) for hop in hops),))
        positions = [hop.positions for hop in hops if hop.positions is not None]
        ids = np.concatenate(positions, out=edge_ids.numpy())
        if self.data.graph.edge_ids is not None:
            ids[:] = self.data.graph.edge_ids[ids]
        for name, rows in self.data.edge_rows.items():
            data[name] = self.sampling.take(rows, ids)
        return edge_ids, data


class PyGFormat:
    """Maker of PyG's batches (``Data``); each hop expands only the vertices new in the last hop."""

    def __init__(self, data: LoaderData, sampling: Sampling, fanouts: list[int]) -> None:
        """Prepare to sample ``data`` by the fan-out of every hop; ImportError: there is no PyG."""
        try:
            from torch_geometric.data import Data
        except ImportError:
            raise ImportError(
                "PyG is not installed; pip install '.[pyg]', or use output_format='dgl'"
            ) from None
        self._make: Callable[..., Any] = Data
        self._reader = _BatchReader(data, sampling, fanouts)

    def batch(
        self, seeds: Array, input_ids: Int64Array, step: int, cutoffs: Int64Array | None = None
    ) -> Any:
        """Return the batch of ``seeds``, with its ``input_id``; ``step`` fixes random choices.

        ``cutoffs`` are those of the seeds' trees. None: seeds have no trees.
        """
        trees = None if cutoffs is None else SeedTrees.in_order(cutoffs)
        batch = self.subgraph(seeds, step, trees)
        batch.input_id = torch.from_numpy(input_ids)
        batch.batch_size = len(seeds)
        batch.update(self._reader.sampling.seed_time(cutoffs))
        return batch

    def subgraph(self, seeds: Array, step: int, trees: SeedTrees | None = None) -> Any:
        """Return the vertices and edges sampled from ``seeds``, or their ``trees``, with data."""
        reader = self._reader
        numbers: dict[str, torch.Tensor] = {}
        if trees is None:
            vertices, hops, _ = reader.sample(seeds, step, only_new=True)
        else:
            vertices, hops, numbers["batch"] = reader.sample_trees(seeds, step, trees)
        # Number of vertices before hop 1, after hop 1, ... A hop's destinations are the vertices
        # that the previous hop added.
        num_vertices = [len(seeds), *(hop.num_src for hop in hops)]
        num_edges = [len(hop.indices) for hop in hops]
        edge_index = reader.sampling.empty((2, sum(num_edges)))
        ends, done = edge_index.numpy(), 0
        for first_dst, hop in zip([0, *num_vertices], hops, strict=False):
            out = ends[:, done : done + len(hop.indices)]
            ops.expand_edges(hop.indptr, hop.indices, first_dst=first_dst, out=out)
            done += len(hop.indices)
        n_id = reader.sampling.empty((len(vertices),))
        n_id.numpy()[:] = vertices
        e_id, edge_data = reader.edge_rows(hops)
        ids = {"n_id": n_id} if e_id is None else {"n_id": n_id, "e_id": e_id}
        return self._make(
            edge_index=edge_index,
            **{**ids, **reader.data.constants, **reader.vertex_rows(n_id.numpy()), **edge_data},
            **numbers,
            num_sampled_nodes=np.diff([0, *num_vertices]).tolist(),
            num_sampled_edges=num_edges,
        )


class DGLFormat:
    """Maker of DGL's batches (nodes and blocks); each hop expands all vertices sampled so far."""

    def __init__(self, data: LoaderData, sampling: Sampling, fanouts: list[int]) -> None:
        """Prepare to sample ``data`` by the fan-out of every hop; ImportError: there is no DGL."""
        self._edge_id = import_dgl().EID
        self._reader = _BatchReader(data, sampling, fanouts, for_dgl=True)

    def batch(self, seeds: Array, input_ids: Int64Array, step: int) -> Any:
        """Return the batch of ``seeds``; ``step`` fixes random choices, ``input_ids`` nothing."""
        reader, idtype = self._reader, self._reader.data.id_dtype
        sampled = reader.sample(seeds, step, only_new=False)
        batch = to_minibatch(len(seeds), sampled, seed=0, step=step)
        blocks = to_dgl_blocks(batch, idtype=idtype)
        vertices = batch.input_vertices.astype(np.int64)
        for ids, frame in (
            (vertices, blocks[0].srcdata),
            (vertices[: batch.num_seeds], blocks[-1].dstdata),
        ):
            frame.update(reader.vertex_rows(ids))
        for block, hop in zip(blocks, reversed(sampled[1]), strict=True):
            edge_ids, edge_data = reader.edge_rows([hop])
            if edge_ids is not None:
                block.edata[self._edge_id] = edge_ids.to(idtype)
            block.edata.update(edge_data)
        input_nodes = torch.from_numpy(vertices).to(idtype)
        return input_nodes, input_nodes[: batch.num_seeds], blocks


#: Batch formats by name; a format may be called from several threads.
FORMATS: dict[str, type[PyGFormat] | type[DGLFormat]] = {"pyg": PyGFormat, "dgl": DGLFormat}
