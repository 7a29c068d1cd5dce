"""Scores of pairs of vertices, the best partners of a vertex, and outputs of labelled edges."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import torch

from gnnscale.core import Array, Float32Array, IntArray, track
from gnnscale.core.artifact.files import check_space
from gnnscale.graph import Graph
from gnnscale.inference.predictor import Predictor
from gnnscale.nn.link_decoder import EdgeGNN, LinkGNN
from gnnscale.sampling.edge_batches import edge_links

#: Rows that take more are kept in a temporary file.
_MEMORY_BYTES = 512 << 20
#: Rows and scores that are compared at once take about so many bytes.
_SLICE_BYTES = 64 << 20


class PairScorer:
    """Scores of edges that might be, from exact output rows of their ends."""

    def __init__(self, model: LinkGNN, predictor: Predictor, graph: Graph) -> None:
        """Score by the decoder of ``model``, whose output rows ``predictor`` computes."""
        self._decoder = model.decoder.eval()
        self._width = model.widths[-1]
        self._predictor = predictor
        self._graph = graph

    @torch.no_grad()
    def scores(self, pairs: IntArray) -> Iterator[Float32Array]:
        """Yield the scores of ``pairs`` ``[n, 2]``, sources and targets, some after the other."""
        vertices = np.unique(pairs)
        step = max(1, _SLICE_BYTES // (8 * self._width))
        with self._kept(vertices) as rows, track("scoring", len(pairs), "pairs") as advance:
            for first in range(0, len(pairs), step):
                places = np.searchsorted(vertices, pairs[first : first + step])
                source, target = (torch.from_numpy(rows[places[:, end]]) for end in (0, 1))
                yield self._decoder(source, target).numpy()
                advance(len(places))

    @torch.no_grad()
    def partners(
        self, vertices: IntArray, candidates: IntArray | None, k: int
    ) -> Iterator[tuple[IntArray, Float32Array]]:
        """Yield the ``k`` partners of highest score of each of ``vertices``, some after the other.

        Every candidate is compared, but a vertex with itself. Of equal scores, any comes first.

        Args:
            candidates: ``[m]`` ascending, at least ``k`` besides the vertex itself; None for all
                vertices.

        Returns:
            Partners ``[s, k]``, best first, and their scores ``[s, k]``.
        """
        every = np.arange(self._graph.num_vertices) if candidates is None else candidates
        needed = None if candidates is None else np.union1d(vertices, candidates)
        sources, targets = self._slices(len(vertices), len(every), k)
        total = len(vertices) * len(every)
        with self._kept(needed) as rows, track("comparing", total, "pairs") as advance:
            for first in range(0, len(vertices), sources):
                some = vertices[first : first + sources]
                own = torch.from_numpy(rows[_places(needed, some)])
                best = _TopPartners(some, k)
                # One array for all slices: fresh memory costs as much as filling it.
                scores = torch.empty(len(some), targets)
                for begin in range(0, len(every), targets):
                    others = every[begin : begin + targets]
                    theirs = torch.from_numpy(_taken(rows, _places(needed, others)))
                    # The last slice may be narrower.
                    compared = scores.view(-1)[: len(some) * len(others)].view(len(some), -1)
                    self._decoder.every_pair(own, theirs, compared)
                    best.add(others, compared)
                    advance(len(some) * len(others))
                yield best.partners.numpy(), best.scores.numpy()

    def _slices(self, num_sources: int, num_targets: int, k: int) -> tuple[int, int]:
        """Return how many sources and targets are compared at once."""
        row_bytes = 4 * self._width
        targets = min(num_targets, max(k, _SLICE_BYTES // (4 * row_bytes)))
        pair_bytes = 4 * (self._decoder.hidden_width + 1)
        return max(1, min(num_sources, _SLICE_BYTES // (targets * pair_bytes))), targets

    def _kept(self, vertices: IntArray | None) -> AbstractContextManager[Float32Array]:
        """Compute the output rows of ``vertices``, all if None."""
        count = self._graph.num_vertices if vertices is None else len(vertices)
        return _kept_rows(self._predictor, vertices, count, self._width)


@contextmanager
def _kept_rows(
    predictor: Predictor, vertices: IntArray | None, count: int, width: int
) -> Iterator[Float32Array]:
    """Compute rows ``[count, width]`` of ``vertices``, all if None; in a file if they are many."""
    shape, num_bytes = (count, width), 4 * count * width
    with tempfile.TemporaryDirectory() as folder:
        if num_bytes <= _MEMORY_BYTES:
            rows: Float32Array = np.empty(shape, np.float32)
        else:
            check_space("rows to be compared", Path(folder), disk=num_bytes)
            rows = np.memmap(Path(folder, "rows"), np.float32, "w+", shape=shape)
        first = 0
        predictor.prepare(vertices)
        for some in predictor.rows(vertices):
            rows[first : first + len(some)] = some
            first += len(some)
        yield rows


class EdgePredictor:
    """Outputs of labelled edges, from exact output rows of their ends."""

    def __init__(self, model: EdgeGNN, predictor: Predictor) -> None:
        """Predict by the edges' network of ``model``, whose output rows ``predictor`` computes."""
        self._model = model
        self._predictor = predictor
        self._width = model.widths[-1]

    def prepare(self, ends: IntArray) -> None:
        """Log what predicting edges with ``ends`` ``[n, 2]`` takes; refuse it without room."""
        self._predictor.prepare(np.unique(ends))

    @torch.no_grad()
    def outputs(
        self, ends: IntArray, rows: IntArray, features: Float32Array | None
    ) -> Iterator[Float32Array]:
        """Yield the outputs of edges, some after the other.

        Args:
            ends: ``[n, 2]`` sources and destinations.
            rows: ``[n]`` of their features.
            features: ``[num_rows, num_edge_features]``, None without.
        """
        self._model.network.eval()
        vertices = np.unique(ends)
        step = max(1, _SLICE_BYTES // (4 * (3 * self._width + self._model.network.width_in)))
        kept = _kept_rows(self._predictor, vertices, len(vertices), self._width)
        with kept as found, track("predicting", len(ends), "edges") as advance:
            for first in range(0, len(ends), step):
                some = slice(first, first + step)
                own, links = edge_links(ends[some], rows[some], features)
                taken = torch.from_numpy(found[np.searchsorted(vertices, own)])
                yield self._model.outputs(taken, links).numpy()
                advance(len(links.sources))


class _TopPartners:
    """The partners of highest score so far."""

    def __init__(self, vertices: IntArray, k: int) -> None:
        self._vertices = np.array(vertices, np.int64)
        self.partners = torch.full((len(vertices), k), -1)
        self.scores = torch.full((len(vertices), k), -torch.inf)

    def add(self, others: Array, scores: torch.Tensor) -> None:
        """Take candidates ``[m]`` that ascend, with scores ``[s, m]`` of the edges to them.

        Scores of vertices with themselves are replaced in place.
        """
        ids = torch.from_numpy(np.array(others, np.int64))
        own = np.searchsorted(others, self._vertices)
        same = np.flatnonzero(others[np.minimum(own, len(others) - 1)] == self._vertices)
        scores[torch.from_numpy(same), torch.from_numpy(own[same])] = -torch.inf
        found, places = _top(scores, min(self.scores.shape[1], len(ids)))
        scores = torch.cat([self.scores, found], dim=1)
        partners = torch.cat([self.partners, ids[places]], dim=1)
        self.scores, order = scores.topk(self.scores.shape[1], dim=1)
        self.partners = partners.gather(1, order)


#: Columns of a group, of which ``_top`` first looks at the highest score.
_GROUP = 64


def _top(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ``k`` highest of each row of ``scores`` ``[s, m]``, and their columns.

    The ``k`` highest are in the ``k`` groups whose highest score is highest. So a row is read once,
    and what is sorted is short.
    """
    num_rows, num_columns = scores.shape
    num_groups = num_columns // _GROUP
    if num_groups < 4 * k:
        return scores.topk(k, dim=1)
    # Group g has the columns g, g + num_groups, and so on: whole vectors are compared.
    shape, strides = (num_rows, _GROUP, num_groups), (num_columns, num_groups, 1)
    groups = scores.as_strided(shape, strides).amax(dim=1).topk(k, dim=1).indices
    members = groups[:, :, None] + num_groups * torch.arange(_GROUP)
    rest = torch.arange(num_groups * _GROUP, num_columns).expand(num_rows, -1)
    columns = torch.cat([members.flatten(1), rest], dim=1)
    found, places = scores.gather(1, columns).topk(k, dim=1)
    return found, columns.gather(1, places)


def _taken(rows: Float32Array, places: IntArray) -> Float32Array:
    """Return ``rows`` at ``places``, which ascend; without a copy if they are consecutive."""
    first, last = int(places[0]), int(places[-1])
    return rows[first : last + 1] if last - first + 1 == len(places) else rows[places]


def _places(needed: IntArray | None, vertices: IntArray) -> IntArray:
    """Return the rows of ``vertices`` among those that are kept."""
    return vertices if needed is None else np.searchsorted(needed, vertices)
