"""Sampled mini-batches in the formats of PyG and DGL."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.api.loader.loader_data import AlignedRows, LoaderData, allocate
from gnnscale.core import Array, Int64Array
from gnnscale.core.lazy import import_dgl
from gnnscale.nn.adapters import to_dgl_blocks
from gnnscale.sampling.minibatch import to_minibatch

#: DGL's customary names for PyG's x and y, and for edge weights and features.
_DGL_NAMES = {"x": "feat", "y": "label"}
_DGL_EDGE_NAMES = {"edge_weight": "weight", "edge_attr": "feat"}


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Options of sampling and of the batches' memory."""

    fanouts: list[int]  #: neighbors per vertex and hop, from the seeds outwards; -1 for all
    replace: bool  #: sample with replacement
    by_weight: bool  #: sample in proportion to edge weights
    edge_ids: bool  #: batches contain edge ids
    seed: int  #: seed of all random choices, together with the step
    num_threads: int  #: threads of the native kernels
    pinned: bool  #: allocate batches in page-locked memory


class _BatchReader:
    """Sampler of the user's graph, with the data of sampled vertices and edges."""

    def __init__(self, data: LoaderData, sampling: Sampling) -> None:
        self.data = data
        self._sampling = sampling
        self._sampler = ops.NativeSampler(data.graph)
        #: Whether batches contain edge ids.
        self.has_edge_ids = sampling.edge_ids or bool(data.edge_rows)

    def sample(self, seeds: Array, step: int, *, only_new: bool) -> ops.Sampled:
        """Sample the neighbors of ``seeds``; ``only_new`` expands only the last hop's vertices."""
        sampling = self._sampling
        return self._sampler.sample_neighbors(
            seeds,
            sampling.fanouts,
            replace=sampling.replace,
            seed=sampling.seed,
            step=step,
            num_threads=sampling.num_threads,
            only_new=only_new,
            by_weight=sampling.by_weight,
            edge_positions=self.has_edge_ids,
            edge_weights=self.data.hands_weights,
            edge_rows=self.data.edge_features is not None,
        )

    def empty(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Return an uninitialized int64 tensor."""
        return allocate(shape, torch.int64, pinned=self._sampling.pinned)

    def vertex_rows(self, ids: Int64Array) -> dict[str, torch.Tensor]:
        """Return the data of vertices ``ids`` by PyG's names."""
        return {name: self._take(rows, ids) for name, rows in self.data.rows.items()}

    def _take(self, rows: AlignedRows, ids: Int64Array) -> torch.Tensor:
        sampling = self._sampling
        return rows.take(ids, num_threads=sampling.num_threads, pinned=sampling.pinned)

    def edge_rows(self, hops: list[ops.SampledHop]) -> tuple[torch.Tensor | None, dict[str, Any]]:
        """Return the ids of the edges of ``hops``, None without ids, and the edges' data."""
        data = {}
        if self.data.hands_weights:
            weights = [hop.edge_weights for hop in hops if hop.edge_weights is not None]
            data["edge_weight"] = torch.from_numpy(np.concatenate(weights))
        if self.data.edge_features is not None:
            row_ids = [hop.edge_rows for hop in hops if hop.edge_rows is not None]
            ids = np.concatenate(row_ids).astype(np.int64)
            data["edge_attr"] = self._take(self.data.edge_features, ids)
        if not self.has_edge_ids:
            return None, data
        edge_ids = self.empty((sum(len(hop.indices) for hop in hops),))
        positions = [hop.positions for hop in hops if hop.positions is not None]
        ids = np.concatenate(positions, out=edge_ids.numpy())
        if self.data.graph.edge_ids is not None:
            ids[:] = self.data.graph.edge_ids[ids]
        for name, rows in self.data.edge_rows.items():
            data[name] = self._take(rows, ids)
        return edge_ids, data


class PyGFormat:
    """Batches as ``torch_geometric.data.Data``; a hop expands the vertices of the last hop."""

    def __init__(self, data: LoaderData, sampling: Sampling) -> None:
        """Prepare to sample ``data``; raise ImportError if PyG is not installed."""
        try:
            from torch_geometric.data import Data
        except ImportError:
            raise ImportError(
                "PyG is not installed; pip install 'gnnscale[pyg]', or use output_format='dgl'"
            ) from None
        self._make: Callable[..., Any] = Data
        self._reader = _BatchReader(data, sampling)

    def batch(self, seeds: Array, input_ids: Int64Array, step: int) -> Any:
        """Return the batch of ``seeds``, named ``input_ids`` by the caller, at ``step``."""
        reader = self._reader
        vertices, hops, _ = reader.sample(seeds, step, only_new=True)
        # Number of vertices before hop 1, after hop 1, ... A hop's destinations are the vertices
        # that the previous hop added.
        num_vertices = [len(seeds), *(hop.num_src for hop in hops)]
        num_edges = [len(hop.indices) for hop in hops]
        edge_index = reader.empty((2, sum(num_edges)))
        ends, done = edge_index.numpy(), 0
        for first_dst, hop in zip([0, *num_vertices], hops, strict=False):
            out = ends[:, done : done + len(hop.indices)]
            ops.expand_edges(hop.indptr, hop.indices, first_dst=first_dst, out=out)
            done += len(hop.indices)
        n_id = reader.empty((len(vertices),))
        n_id.numpy()[:] = vertices
        e_id, edge_data = reader.edge_rows(hops)
        ids = {"n_id": n_id} if e_id is None else {"n_id": n_id, "e_id": e_id}
        rows = reader.vertex_rows(n_id.numpy())
        return self._make(
            edge_index=edge_index,
            **{**ids, **reader.data.constants, **rows, **edge_data},
            input_id=torch.from_numpy(input_ids),
            batch_size=len(seeds),
            num_sampled_nodes=np.diff([0, *num_vertices]).tolist(),
            num_sampled_edges=num_edges,
        )


class DGLFormat:
    """Batches as DGL's ``(input_nodes, output_nodes, blocks)``; a hop expands all vertices."""

    def __init__(self, data: LoaderData, sampling: Sampling) -> None:
        """Prepare to sample ``data``; raise ImportError if DGL is not installed."""
        self._edge_id = import_dgl().EID
        self._reader = _BatchReader(data, sampling)

    def batch(self, seeds: Array, input_ids: Int64Array, step: int) -> Any:
        """Return the batch of ``seeds`` at ``step``; ``input_ids`` are unused."""
        reader, idtype = self._reader, self._reader.data.id_dtype
        sampled = reader.sample(seeds, step, only_new=False)
        batch = to_minibatch(len(seeds), sampled, seed=0, step=step)
        blocks = to_dgl_blocks(batch, idtype=idtype)
        vertices = batch.input_vertices.astype(np.int64)
        for ids, frame in (
            (vertices, blocks[0].srcdata),
            (vertices[: batch.num_seeds], blocks[-1].dstdata),
        ):
            for name, values in reader.vertex_rows(ids).items():
                frame[_DGL_NAMES.get(name, name)] = values
        for block, hop in zip(blocks, reversed(sampled[1]), strict=True):
            edge_ids, edge_data = reader.edge_rows([hop])
            if edge_ids is not None:
                block.edata[self._edge_id] = edge_ids.to(idtype)
            for name, values in edge_data.items():
                block.edata[_DGL_EDGE_NAMES.get(name, name)] = values
        input_nodes = torch.from_numpy(vertices).to(idtype)
        return input_nodes, input_nodes[: batch.num_seeds], blocks


#: Batch formats by name; a format may be called from several threads.
FORMATS: dict[str, type[PyGFormat] | type[DGLFormat]] = {"pyg": PyGFormat, "dgl": DGLFormat}
