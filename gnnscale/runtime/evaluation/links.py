"""How well edges are distinguished from others: their ranks among candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.core.progress import track
from gnnscale.model.links import LinkGNN
from gnnscale.task.links.ranking import hits_at, mean_reciprocal_rank, ranks
from gnnscale.task.links.task import LinkTask

if TYPE_CHECKING:
    from gnnscale.runtime.evaluation.evaluate import Predictor

#: Rows that are compared at once take about so many bytes.
_SLICE_BYTES = 64 << 20
#: Candidates of a part of the split are drawn at a separate step, which training never reaches.
_STEPS = {"train": 1 << 41, "valid": (1 << 41) + 1, "test": (1 << 41) + 2}


class LinkExaminer:
    """Ranks held-out edges; the same weights give the same answer every time.

    Each edge's destination is ranked among ``task.num_candidates`` vertices, drawn uniformly as a
    function of ``task.split_seed`` and the edge.
    """

    def __init__(self, task: LinkTask, model: LinkGNN, predictor: Predictor) -> None:
        """Examine ``model``, whose output rows ``predictor`` computes."""
        self._task = task
        self._model = model
        self._predictor = predictor

    def prepare(self, splits: Sequence[str]) -> None:
        """Say what examining each of ``splits`` takes.

        Raises:
            ConfigError: exact inference needs more of the disk than is free.
        """
        for split in splits:
            self._predictor.prepare(self._vertices(split))

    def measure(self, splits: Sequence[str]) -> list[dict[str, float | None]]:
        """Return MRR and Hits@k of each of ``splits``."""
        found = [self._ranks(split) for split in splits]
        mrr, hits = self._task.measures
        k = self._task.config.hits
        return [{mrr: mean_reciprocal_rank(each), hits: hits_at(each, k)} for each in found]

    @torch.no_grad()
    def _ranks(self, split: str) -> NDArray[np.float64]:
        """Return the rank of every edge of ``split``."""
        vertices = self._vertices(split)
        rows = torch.from_numpy(self._predictor.logits(vertices))
        self._model.decoder.eval()
        found = []
        with track("ranking edges", len(self._edges(split)), "edges") as advance:
            for edges, candidates in self._slices(split):
                source = rows[_places(vertices, edges[:, 0])]
                others = np.concatenate([edges[:, 1:], candidates], axis=1)
                destination = rows[_places(vertices, others)]
                scores = self._model.decoder(source[:, None], destination)
                found.append(ranks(scores.numpy()))
                advance(len(edges))
        return np.concatenate(found)

    def _vertices(self, split: str) -> NDArray[np.integer]:
        """Return the vertices whose rows are needed, ascending."""
        graph = self._task.graph
        needed = np.zeros(graph.num_vertices, np.bool_)
        for edges, candidates in self._slices(split):
            needed[edges] = True
            needed[candidates] = True
        return np.flatnonzero(needed).astype(graph.indices.dtype)

    def _slices(self, split: str) -> Iterator[tuple[NDArray[np.integer], NDArray[np.int64]]]:
        """Yield edges ``[n, 2]`` and their candidates ``[n, k]``, few enough to be compared."""
        edges, task = self._edges(split), self._task
        count = task.config.num_candidates
        row_bytes = 4 * self._model.widths[-1]
        size = max(1, _SLICE_BYTES // ((1 + count) * row_bytes))
        for first in range(0, len(edges), size):
            part = np.asarray(edges[first : first + size])
            candidates = ops.draw_negatives(
                np.arange(first, first + len(part)),
                count,
                task.graph.num_vertices,
                seed=task.config.split_seed,
                step=_STEPS[split],
            )
            yield part, candidates

    def _edges(self, split: str) -> NDArray[np.integer]:
        edges: NDArray[np.integer] = getattr(self._task.split, split)
        return edges


def _places(vertices: NDArray[np.integer], wanted: NDArray[np.integer]) -> torch.Tensor:
    """Return where ``wanted`` are among ``vertices``, which ascend."""
    return torch.from_numpy(np.searchsorted(vertices, wanted))
