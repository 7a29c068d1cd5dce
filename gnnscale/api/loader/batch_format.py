"""Sampled mini-batches in PyG's form and in DGL's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.api.loader.loader_data import LoaderData, allocate
from gnnscale.core import Array, Int64Array
from gnnscale.core.optional import import_dgl
from gnnscale.nn.adapters import to_dgl_blocks
from gnnscale.sampling.minibatch import to_minibatch

#: DGL's customary names of what PyG calls x and y, and of weights and features of edges.
_DGL_NAMES = {"x": "feat", "y": "label"}
_DGL_EDGE_NAMES = {"edge_weight": "weight", "edge_attr": "feat"}


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How batches are drawn and where they are put."""

    fanouts: list[int]  #: neighbours a vertex, from the seeds outwards; -1 takes all
    replace: bool  #: draw with replacement
    by_weight: bool  #: draw with probability by the weights of the graph's edges
    edge_ids: bool  #: batches have the number of each edge
    seed: int  #: fixes every choice, together with the step
    num_threads: int  #: threads of the native kernels
    pinned: bool  #: put batches into page-locked memory


class _Drawing:
    """Draws samples of the user's graph, and finds the data of their vertices and edges."""

    def __init__(self, data: LoaderData, sampling: Sampling) -> None:
        self.data = data
        self._how = sampling
        self._sampler = ops.NativeSampler(data.graph)
        #: Whether batches have the numbers of edges.
        self.numbers_edges = sampling.edge_ids or bool(data.edge_rows)

    def sample(self, seeds: Array, step: int, *, only_new: bool) -> ops.Sampled:
        """Draw the neighbours of ``seeds``."""
        how = self._how
        return self._sampler.sample_neighbors(
            seeds,
            how.fanouts,
            replace=how.replace,
            seed=how.seed,
            step=step,
            num_threads=how.num_threads,
            only_new=only_new,
            by_weight=how.by_weight,
            edge_positions=self.numbers_edges,
            edge_weights=self.data.hands_weights,
            edge_rows=self.data.edge_features is not None,
        )

    def empty(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Return int64 numbers that are yet to be written."""
        return allocate(shape, torch.int64, pinned=self._how.pinned)

    def vertex_rows(self, ids: Int64Array) -> dict[str, torch.Tensor]:
        """Return the data of vertices ``ids``, by PyG's names."""
        how = self._how
        return {
            name: rows.take(ids, num_threads=how.num_threads, pinned=how.pinned)
            for name, rows in self.data.rows.items()
        }

    def edge_rows(self, hops: list[ops.SampledHop]) -> tuple[torch.Tensor | None, dict[str, Any]]:
        """Return the numbers of the edges of ``hops``, if asked for, and their data."""
        how, found = self._how, {}
        if self.data.hands_weights:
            weights = [hop.edge_weights for hop in hops if hop.edge_weights is not None]
            found["edge_weight"] = torch.from_numpy(np.concatenate(weights))
        if self.data.edge_features is not None:
            of_edges = [hop.edge_rows for hop in hops if hop.edge_rows is not None]
            ids = np.concatenate(of_edges).astype(np.int64)
            found["edge_attr"] = self.data.edge_features.take(
                ids, num_threads=how.num_threads, pinned=how.pinned
            )
        if not self.numbers_edges:
            return None, found
        numbers = self.empty((sum(len(hop.indices) for hop in hops),))
        places = [hop.positions for hop in hops if hop.positions is not None]
        ids = np.concatenate(places, out=numbers.numpy())
        if self.data.graph.edge_ids is not None:
            ids[:] = self.data.graph.edge_ids[ids]
        for name, rows in self.data.edge_rows.items():
            found[name] = rows.take(ids, num_threads=how.num_threads, pinned=how.pinned)
        return numbers, found


class PyGFormat:
    """``torch_geometric.data.Data``, each hop expanding the vertices that the last one found."""

    def __init__(self, data: LoaderData, sampling: Sampling) -> None:
        """Prepare to sample ``data``; raise ImportError if PyG is not installed."""
        try:
            from torch_geometric.data import Data
        except ImportError:
            raise ImportError(
                "PyG is not installed; pip install 'gnnscale[pyg]', or use output_format='dgl'"
            ) from None
        self._make: Callable[..., Any] = Data
        self._drawing = _Drawing(data, sampling)

    def batch(self, seeds: Array, input_ids: Int64Array, step: int) -> Any:
        """Return the batch of ``seeds`` at ``step``; ``input_ids`` are the caller's names."""
        drawing = self._drawing
        vertices, hops, _ = drawing.sample(seeds, step, only_new=True)
        # Vertices reached before hop 1, after hop 1, ...; a hop's destinations are those that the
        # hop before it added.
        reached = [len(seeds), *(hop.num_src for hop in hops)]
        num_edges = [len(hop.indices) for hop in hops]
        edge_index = drawing.empty((2, sum(num_edges)))
        ends, done = edge_index.numpy(), 0
        for first_dst, hop in zip([0, *reached], hops, strict=False):
            out = ends[:, done : done + len(hop.indices)]
            ops.expand_edges(hop.indptr, hop.indices, first_dst=first_dst, out=out)
            done += len(hop.indices)
        n_id = drawing.empty((len(vertices),))
        n_id.numpy()[:] = vertices
        e_id, on_edges = drawing.edge_rows(hops)
        numbers = {"n_id": n_id} if e_id is None else {"n_id": n_id, "e_id": e_id}
        rows = drawing.vertex_rows(n_id.numpy())
        return self._make(
            edge_index=edge_index,
            **{**numbers, **drawing.data.constants, **rows, **on_edges},
            input_id=torch.from_numpy(input_ids),
            batch_size=len(seeds),
            num_sampled_nodes=np.diff([0, *reached]).tolist(),
            num_sampled_edges=num_edges,
        )


class DGLFormat:
    """DGL's ``(input_nodes, output_nodes, blocks)``, each hop expanding all vertices above it."""

    def __init__(self, data: LoaderData, sampling: Sampling) -> None:
        """Prepare to sample ``data``; raise ImportError if DGL is not installed."""
        self._edge_id = import_dgl().EID
        self._drawing = _Drawing(data, sampling)

    def batch(self, seeds: Array, input_ids: Int64Array, step: int) -> Any:
        """Sample, gather and label one batch."""
        drawing, idtype = self._drawing, self._drawing.data.id_dtype
        sampled = drawing.sample(seeds, step, only_new=False)
        batch = to_minibatch(len(seeds), sampled, seed=0, step=step)
        blocks = to_dgl_blocks(batch, idtype=idtype)
        vertices = batch.input_vertices.astype(np.int64)
        for ids, frame in (
            (vertices, blocks[0].srcdata),
            (vertices[: batch.num_seeds], blocks[-1].dstdata),
        ):
            for name, values in drawing.vertex_rows(ids).items():
                frame[_DGL_NAMES.get(name, name)] = values
        for block, hop in zip(blocks, reversed(sampled[1]), strict=True):
            numbers, on_edges = drawing.edge_rows([hop])
            if numbers is not None:
                block.edata[self._edge_id] = numbers.to(idtype)
            for name, values in on_edges.items():
                block.edata[_DGL_EDGE_NAMES.get(name, name)] = values
        input_nodes = torch.from_numpy(vertices).to(idtype)
        return input_nodes, input_nodes[: batch.num_seeds], blocks


#: Each makes batches of one form, and may be called from several threads at once.
FORMATS: dict[str, type[PyGFormat] | type[DGLFormat]] = {"pyg": PyGFormat, "dgl": DGLFormat}
