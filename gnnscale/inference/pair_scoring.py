"""Scores of pairs of vertices, best partners of a vertex, and outputs of labeled edges."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from gnnscale.core import Array, Float32Array, IntArray, track
from gnnscale.core.artifact.files import check_space
from gnnscale.graph import Graph
from gnnscale.inference.predictor import Predictor
from gnnscale.nn.link_decoder import EdgeGNN, LinkGNN
from gnnscale.sampling.edge_batches import edge_links

#: Maximum bytes of rows in memory; more rows go to a temporary file.
_MEMORY_BYTES = 512 << 20
#: Approximate bytes of the rows and scores that are compared together.
_SLICE_BYTES = 64 << 20


class PairScorer:
    """Scores of pairs of vertices by the decoder of a link model."""

    def __init__(self, model: LinkGNN, predictor: Predictor, graph: Graph) -> None:
        """Score with the decoder of ``model``, whose output rows ``predictor`` computes."""
        self._decoder = model.decoder.eval()
        self._width = model.widths[-1]
        self._predictor = predictor
        self._graph = graph

    @torch.no_grad()
    def scores(self, pairs: IntArray) -> Iterator[Float32Array]:
        """Yield the scores of ``pairs`` ``[n, 2]`` (sources, targets) in chunks, in order."""
        vertices = np.unique(pairs)
        step = max(1, _SLICE_BYTES // (8 * self._width))
        output_rows = _output_rows(self._predictor, vertices, len(vertices), self._width)
        with output_rows as rows, track("scoring", len(pairs), "pairs") as advance:
            for first in range(0, len(pairs), step):
                positions = np.searchsorted(vertices, pairs[first : first + step])
                source, target = (torch.from_numpy(rows[positions[:, end]]) for end in (0, 1))
                yield self._decoder(source, target).numpy()
                advance(len(positions))

    @torch.no_grad()
    def partners(
        self, vertices: IntArray, candidates: IntArray | None, k: int
    ) -> Iterator[tuple[IntArray, Float32Array]]:
        """Yield the ``k`` best partners of each vertex, in chunks of vertices.

        A vertex is scored with every candidate but itself; ``candidates`` ascend, None: all
        vertices. A chunk has partners ``[s, k]``, best first, and their scores. The order of equal
        scores is undefined.
        """
        targets = np.arange(self._graph.num_vertices) if candidates is None else candidates
        needed = None if candidates is None else np.union1d(vertices, candidates)
        num_sources, num_targets = self._slice_sizes(len(vertices), len(targets), k)
        total, num_rows = len(vertices) * len(targets), len(targets if needed is None else needed)
        output_rows = _output_rows(self._predictor, needed, num_rows, self._width)
        with output_rows as rows, track("comparing", total, "pairs") as advance:
            for first in range(0, len(vertices), num_sources):
                sources = vertices[first : first + num_sources]
                source_rows = torch.from_numpy(rows[_positions(needed, sources)])
                best = _TopPartners(sources, k)
                # One buffer for all slices: allocation would cost as much as filling it.
                buffer = torch.empty(len(sources), num_targets)
                for begin in range(0, len(targets), num_targets):
                    ids = targets[begin : begin + num_targets]
                    target_rows = torch.from_numpy(_select(rows, _positions(needed, ids)))
                    # The last slice may be narrower.
                    scores = buffer.view(-1)[: len(sources) * len(ids)].view(len(sources), -1)
                    self._decoder.score_all_pairs(source_rows, target_rows, scores)
                    best.add(ids, scores)
                    advance(len(sources) * len(ids))
                yield best.partners.numpy(), best.scores.numpy()

    def _slice_sizes(self, num_sources: int, num_targets: int, k: int) -> tuple[int, int]:
        """Return the numbers of sources and targets that are compared together."""
        row_bytes = 4 * self._width
        targets = min(num_targets, max(k, _SLICE_BYTES // (4 * row_bytes)))
        pair_bytes = 4 * (self._decoder.hidden_width + 1)
        return max(1, min(num_sources, _SLICE_BYTES // (targets * pair_bytes))), targets


@contextmanager
def _output_rows(
    predictor: Predictor, vertices: IntArray | None, count: int, width: int
) -> Iterator[Float32Array]:
    """Compute rows ``[count, width]`` of ``vertices`` (None: all) in memory or in a file."""
    shape, num_bytes = (count, width), 4 * count * width
    with tempfile.TemporaryDirectory() as folder:
        if num_bytes <= _MEMORY_BYTES:
            rows: Float32Array = np.empty(shape, np.float32)
        else:
            check_space("rows to be compared", Path(folder), disk=num_bytes)
            rows = np.memmap(Path(folder, "rows"), np.float32, "w+", shape=shape)
        first = 0
        predictor.prepare(vertices)
        for chunk in predictor.rows(vertices):
            rows[first : first + len(chunk)] = chunk
            first += len(chunk)
        yield rows


class EdgePredictor:
    """Outputs of labeled edges by an edge model."""

    def __init__(self, model: EdgeGNN, predictor: Predictor) -> None:
        """Predict with the edge network of ``model``, whose vertex rows ``predictor`` computes."""
        self._model = model
        self._predictor = predictor
        self._width = model.widths[-1]

    def prepare(self, ends: IntArray) -> None:
        """Log the cost of predicting edges with ``ends`` ``[n, 2]``; ConfigError: full disk."""
        self._predictor.prepare(np.unique(ends))

    @torch.no_grad()
    def outputs(
        self, ends: IntArray, rows: IntArray, features: Float32Array | None
    ) -> Iterator[Float32Array]:
        """Yield the outputs of edges with ``ends`` ``[n, 2]`` in chunks, in order.

        ``rows`` are ``[n]`` rows of ``features``, ``[num_rows, num_edge_features]`` or None.
        """
        self._model.network.eval()
        vertices = np.unique(ends)
        step = max(1, _SLICE_BYTES // (4 * (3 * self._width + self._model.network.width_in)))
        output_rows = _output_rows(self._predictor, vertices, len(vertices), self._width)
        with output_rows as vertex_rows, track("predicting", len(ends), "edges") as advance:
            for first in range(0, len(ends), step):
                part = slice(first, first + step)
                ids, links = edge_links(ends[part], rows[part], features)
                inputs = torch.from_numpy(vertex_rows[np.searchsorted(vertices, ids)])
                yield self._model.outputs(inputs, links).numpy()
                advance(len(links.sources))


class _TopPartners:
    """Best ``k`` partners of each vertex among the candidates so far."""

    def __init__(self, vertices: IntArray, k: int) -> None:
        self._vertices = np.array(vertices, np.int64)
        self.partners = torch.full((len(vertices), k), -1)
        self.scores = torch.full((len(vertices), k), -torch.inf)

    def add(self, candidates: Array, scores: torch.Tensor) -> None:
        """Add ascending candidates ``[m]``, scored ``[s, m]``; a vertex with itself scores -inf."""
        ids = torch.from_numpy(np.array(candidates, np.int64))
        columns = np.searchsorted(candidates, self._vertices)
        is_self = candidates[np.minimum(columns, len(candidates) - 1)] == self._vertices
        rows = np.flatnonzero(is_self)
        scores[torch.from_numpy(rows), torch.from_numpy(columns[rows])] = -torch.inf
        top, positions = _top(scores, min(self.scores.shape[1], len(ids)))
        scores = torch.cat([self.scores, top], dim=1)
        partners = torch.cat([self.partners, ids[positions]], dim=1)
        self.scores, order = scores.topk(self.scores.shape[1], dim=1)
        self.partners = partners.gather(1, order)


#: Columns of a group, whose maximum ``_top`` computes first.
_GROUP = 64


def _top(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ``k`` highest scores of each row of ``[s, m]``, and their columns.

    They are in the ``k`` groups with the highest maxima: only these groups are sorted.
    """
    num_rows, num_columns = scores.shape
    num_groups = num_columns // _GROUP
    if num_groups < 4 * k:
        return scores.topk(k, dim=1)
    # Group g has columns g, g + num_groups, ...: the maxima are vectorized.
    shape, strides = (num_rows, _GROUP, num_groups), (num_columns, num_groups, 1)
    groups = scores.as_strided(shape, strides).amax(dim=1).topk(k, dim=1).indices
    members = groups[:, :, None] + num_groups * torch.arange(_GROUP)
    remainder = torch.arange(num_groups * _GROUP, num_columns).expand(num_rows, -1)
    columns = torch.cat([members.flatten(1), remainder], dim=1)
    top, positions = scores.gather(1, columns).topk(k, dim=1)
    return top, columns.gather(1, positions)


def _select(rows: Float32Array, positions: IntArray) -> Float32Array:
    """Return ``rows`` at ascending ``positions``, as a view if they are consecutive."""
    first, last = int(positions[0]), int(positions[-1])
    is_consecutive = last - first + 1 == len(positions)
    return rows[first : last + 1] if is_consecutive else rows[positions]


def _positions(needed: IntArray | None, vertices: IntArray) -> IntArray:
    """Return the positions of ``vertices`` in ascending ``needed``; None: all vertices."""
    return vertices if needed is None else np.searchsorted(needed, vertices)
