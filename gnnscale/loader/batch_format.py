"""Sampled mini-batches in PyG's form and in DGL's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.loader.vertex_data import LoaderData, allocate
from gnnscale.model.adapters import import_dgl, to_dgl_blocks
from gnnscale.sampler import NeighborSampler

__all__ = ["FORMATS", "BatchFormat", "DGLFormat", "PyGFormat", "Sampling"]

#: DGL's customary names of what PyG calls x and y.
_DGL_NAMES = {"x": "feat", "y": "label"}


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How batches are drawn and where they are put.

    Attributes:
        fanouts: neighbours a vertex, from the seeds outwards; -1 takes all.
        replace: draw with replacement.
        seed: fixes every choice, together with the step.
        num_threads: threads of the native kernels.
        pinned: put batches into page-locked memory.
    """

    fanouts: list[int]
    replace: bool
    seed: int
    num_threads: int
    pinned: bool


class BatchFormat(Protocol):
    """Makes batches of one form. May be called from several threads at once."""

    def batch(self, seeds: NDArray[Any], input_ids: NDArray[np.int64], step: int) -> Any:
        """Return the batch of ``seeds`` at ``step``; ``input_ids`` are the caller's names."""
        ...


class PyGFormat:
    """``torch_geometric.data.Data``, each hop expanding the vertices that the last one found."""

    def __init__(self, data: LoaderData, sampling: Sampling) -> None:
        """Prepare to sample ``data``.

        Raises:
            ImportError: PyG is not installed.
        """
        try:
            from torch_geometric.data import Data
        except ImportError:
            raise ImportError(
                "PyG is not installed; pip install 'gnnscale[pyg]', or use output_format='dgl'"
            ) from None
        self._make: Callable[..., Any] = Data
        self._data = data
        self._sampling = sampling
        self._sampler = ops.NativeSampler(data.graph)

    def batch(self, seeds: NDArray[Any], input_ids: NDArray[np.int64], step: int) -> Any:
        """Sample, gather and label one batch."""
        how = self._sampling
        vertices, hops, _ = self._sampler.sample_neighbors(
            seeds,
            how.fanouts,
            replace=how.replace,
            seed=how.seed,
            step=step,
            num_threads=how.num_threads,
            only_new=True,
        )
        # Vertices reached before hop 1, after hop 1, ...; a hop's destinations are those that the
        # hop before it added.
        reached = [len(seeds), *(hop.num_src for hop in hops)]
        num_edges = [len(hop.indices) for hop in hops]
        edge_index = allocate((2, sum(num_edges)), torch.int64, pinned=how.pinned)
        ends, done = edge_index.numpy(), 0
        for first_dst, hop in zip([0, *reached], hops, strict=False):
            out = ends[:, done : done + len(hop.indices)]
            ops.expand_edges(hop.indptr, hop.indices, first_dst=first_dst, out=out)
            done += len(hop.indices)
        n_id = allocate((len(vertices),), torch.int64, pinned=how.pinned)
        n_id.numpy()[:] = vertices
        rows = {
            name: rows.take(n_id.numpy(), num_threads=how.num_threads, pinned=how.pinned)
            for name, rows in self._data.rows.items()
        }
        return self._make(
            edge_index=edge_index,
            **{"n_id": n_id, **self._data.constants, **rows},
            input_id=torch.from_numpy(input_ids),
            batch_size=len(seeds),
            num_sampled_nodes=np.diff([0, *reached]).tolist(),
            num_sampled_edges=num_edges,
        )


class DGLFormat:
    """DGL's ``(input_nodes, output_nodes, blocks)``, each hop expanding all vertices above it."""

    def __init__(self, data: LoaderData, sampling: Sampling) -> None:
        """Prepare to sample ``data``.

        Raises:
            ImportError: DGL is not installed.
        """
        import_dgl()
        self._data = data
        self._sampling = sampling
        self._sampler = NeighborSampler(
            data.graph,
            fanouts=sampling.fanouts,
            replace=sampling.replace,
            seed=sampling.seed,
            num_threads=sampling.num_threads,
        )

    def batch(self, seeds: NDArray[Any], input_ids: NDArray[np.int64], step: int) -> Any:
        """Sample, gather and label one batch."""
        batch = self._sampler.sample(seeds, step)
        blocks = to_dgl_blocks(batch, idtype=self._data.id_dtype)
        vertices = batch.input_vertices.astype(np.int64)
        for ids, frame in (
            (vertices, blocks[0].srcdata),
            (vertices[: batch.num_seeds], blocks[-1].dstdata),
        ):
            for name, rows in self._data.rows.items():
                frame[_DGL_NAMES.get(name, name)] = rows.take(
                    ids, num_threads=self._sampling.num_threads, pinned=self._sampling.pinned
                )
        input_nodes = torch.from_numpy(vertices).to(self._data.id_dtype)
        return input_nodes, input_nodes[: batch.num_seeds], blocks


FORMATS: dict[str, Callable[[LoaderData, Sampling], BatchFormat]] = {
    "pyg": PyGFormat,
    "dgl": DGLFormat,
}
