"""Evaluation of link prediction by ranks of edges, of a model and of vertices' popularity."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gnnscale.core import Array, Float32Array, Float64Array, Int64Array, IntArray, ranking, track
from gnnscale.core.sorted_sets import distinct
from gnnscale.inference.known_edges import KnownTargets
from gnnscale.inference.predictor import Predictor
from gnnscale.nn import LinkModel
from gnnscale.nn.link_decoder import Decoder, DotProduct
from gnnscale.run.tasks.links import LinkTask
from gnnscale.sampling import draw_candidates

#: Approximate bytes of the rows or scores that are compared together.
SLICE_BYTES = 64 << 20
#: Random streams of the candidates of each part of the split: steps that training never has.
STEPS = {"train": 1 << 41, "valid": (1 << 41) + 1, "test": (1 << 41) + 2}


@dataclass(frozen=True, kw_only=True)
class _Scorer:
    """Decoder with the rows that it compares: ``[..., width]`` of vertices ``[...]``."""

    decoder: Decoder
    width: int
    sources: Callable[[Array], torch.Tensor]
    destinations: Callable[[Array], torch.Tensor]


class LinkExaminer:
    """Evaluation of link prediction by ranks; equal weights give equal results.

    Each edge's destination is ranked among ``task.num_candidates`` candidates, sampled uniformly,
    or among all, of its kind if ``task.candidates`` has kinds. The sample is a function of
    ``task.seed``, the split and the edge's index.
    """

    def __init__(self, task: LinkTask, model: LinkModel, predictor: Predictor) -> None:
        """Rank with the decoder of ``model``, whose output rows ``predictor`` computes."""
        self._task = task
        self._model = model
        self._predictor = predictor

    def prepare(self, splits: Sequence[str]) -> None:
        """Log the cost of measuring ``splits`` if it is high; ConfigError: the disk is too full."""
        for split in splits:
            self._predictor.prepare(self._vertices(split))

    def measure(
        self, splits: Sequence[str], thresholds: Sequence[float] | None = None
    ) -> list[dict[str, float | None]]:
        """Return the metrics of each split, ``task.measures``, which need no ``thresholds``."""
        return [self._metrics(split, self._by_model(split)) for split in splits]

    def measure_popularity(self, split: str) -> dict[str, float | None]:
        """Return the metrics of ``split`` if the training in-degree of a destination is its score.

        All sources then have the same order of candidates.
        """
        degrees = torch.from_numpy(self._task.popularity.astype(np.float32))[:, None]
        scorer = _Scorer(
            decoder=DotProduct(),
            width=1,
            sources=lambda vertices: torch.ones(*vertices.shape, 1),
            destinations=lambda vertices: degrees[torch.from_numpy(vertices.astype(np.int64))],
        )
        return self._metrics(split, scorer)

    def _by_model(self, split: str) -> _Scorer:
        """Return the model's decoder and rows of ``split``, computed now."""
        vertices = self._vertices(split)
        rows = torch.from_numpy(self._predictor.logits(vertices))

        def take(ids: Array) -> torch.Tensor:
            return rows[torch.from_numpy(np.searchsorted(vertices, ids))]

        decoder = self._model.decoder.eval()
        width = self._model.widths[-1]
        return _Scorer(decoder=decoder, width=width, sources=take, destinations=take)

    @torch.no_grad()
    def _metrics(self, split: str, scorer: _Scorer) -> dict[str, float | None]:
        """Return ``task.measures`` of ``split`` by the scores of ``scorer``."""
        task, values = self._task, list[float]()
        if task.num_candidates is None:
            ranks, sources = self._ranks_of_all(split, scorer)
            for k in task.k:
                values += ranking.metrics_at(ranks, sources, k)
        else:
            ranks = self._ranks_of_samples(split, scorer)
        values.append(ranking.mean_reciprocal_rank(ranks))
        values += [ranking.hits_at(ranks, k) for k in task.hits]
        return dict(zip(task.measures, values, strict=True))

    def _ranks_of_samples(self, split: str, scorer: _Scorer) -> Float64Array:
        """Return the rank, by score, of each edge's destination among its candidates, ``[n]``."""
        ranks = []
        with track("ranking edges", len(self._edges(split)), "edges") as advance:
            for pairs, candidates in self._slices(split, scorer.width):
                source = scorer.sources(pairs[:, :1])
                targets = np.concatenate([pairs[:, 1:], candidates], axis=1)
                edge_scores = scorer.decoder(source, scorer.destinations(targets))
                ranks.append(ranking.ranks(edge_scores.numpy()))
                advance(len(pairs))
        return np.concatenate(ranks)

    def _ranks_of_all(self, split: str, scorer: _Scorer) -> tuple[Float64Array, Int64Array]:
        """Return the rank of each edge among all candidates of its kind, and its list's number.

        Both are ``[n]``, ordered by kind and source. A list, numbered from 0, has the candidates of
        a source and kind: without the source and known edges. Memory holds the scores of some
        sources at a time.
        """
        edges = self._edges(split)
        sources = distinct(edges[:, 0])
        pairs = self._task.known_pairs(split)
        edges_left_out = KnownTargets(sources, pairs, num_vertices=self._task.graph.num_vertices)
        ranks, lists, num_lists = [], [], 0
        with track("ranking edges", len(edges), "edges") as advance:
            for of_kind, candidates in self._kinds(edges):
                of_kind = of_kind[np.argsort(of_kind[:, 0], kind="stable")]
                sources, numbers = np.unique(of_kind[:, 0], return_inverse=True)
                columns = np.searchsorted(candidates, of_kind[:, 1])
                target_rows = scorer.destinations(candidates)
                size = max(1, SLICE_BYTES // (4 * len(candidates)))
                for first in range(0, len(sources), size):
                    part = sources[first : first + size]
                    inside = slice(*np.searchsorted(numbers, [first, first + size]))
                    rows, targets = numbers[inside] - first, columns[inside]
                    scores = _score(scorer, part, target_rows)
                    of_edges = scores[rows, targets]
                    _leave_out(scores, part, candidates, edges_left_out)
                    scores[rows, targets] = of_edges
                    ranks.append(ranking.ranks_in_rows(scores, rows, targets))
                    advance(len(rows))
                lists.append(numbers + num_lists)
                num_lists += len(sources)
        return np.concatenate(ranks), np.concatenate(lists)

    def _kinds(self, edges: IntArray) -> Iterator[tuple[IntArray, Array]]:
        """Yield the edges ``[n, 2]`` to vertices of each kind, and its ascending candidates."""
        candidates = self._task.candidates
        if candidates is None:
            yield np.asarray(edges), np.arange(self._task.graph.num_vertices)
            return
        kinds = candidates.kinds[edges[:, 1]]
        for kind in np.unique(kinds):
            first, last = candidates.offsets[kind : kind + 2]
            yield np.asarray(edges[kinds == kind]), candidates.vertices[first:last]

    def _vertices(self, split: str) -> IntArray:
        """Return the ascending ids of all vertices of ``split``'s edges and their candidates."""
        graph, edges = self._task.graph, self._edges(split)
        needed = np.zeros(graph.num_vertices, np.bool_)
        if self._task.num_candidates is None:
            needed[edges] = True
            for _, candidates in self._kinds(edges):
                needed[candidates] = True
        else:
            for pairs, candidates in self._slices(split, self._model.widths[-1]):
                needed[pairs] = needed[candidates] = True
        return np.flatnonzero(needed).astype(graph.indices.dtype)

    def _slices(self, split: str, width: int) -> Iterator[tuple[IntArray, Int64Array]]:
        """Yield edges ``[n, 2]`` and their candidates ``[n, k]`` in slices of bounded bytes.

        Rows of ``width`` floats are compared.
        """
        pairs, task = self._edges(split), self._task
        count = task.num_candidates
        assert count is not None
        size = max(1, SLICE_BYTES // ((1 + count) * 4 * width))
        for first in range(0, len(pairs), size):
            part = np.asarray(pairs[first : first + size])
            candidates = draw_candidates(
                task.candidates,
                np.arange(first, first + len(part)),
                part[:, 1],
                count,
                num_vertices=task.graph.num_vertices,
                seed=task.seed,
                step=STEPS[split],
            )
            yield part, candidates

    def _edges(self, split: str) -> IntArray:
        pairs: IntArray = getattr(self._task.split, split)
        return pairs


def _score(scorer: _Scorer, sources: IntArray, target_rows: torch.Tensor) -> Float32Array:
    """Return the scores ``[s, m]`` of ``sources`` ``[s]`` and of ``target_rows`` ``[m, width]``.

    NaN becomes -inf, so that it ranks last.
    """
    source_rows = scorer.sources(sources)
    scores = torch.empty(len(sources), len(target_rows))
    pair_bytes = 4 * (scorer.decoder.hidden_width + 1)
    size = max(1, SLICE_BYTES // (len(sources) * pair_bytes))
    for first in range(0, len(target_rows), size):
        part = slice(first, first + size)
        scorer.decoder.score_all_pairs(source_rows, target_rows[part], scores[:, part])
    scores[scores.isnan()] = -torch.inf
    return scores.numpy()


def _leave_out(
    scores: Float32Array, sources: IntArray, candidates: Array, targets: KnownTargets
) -> None:
    """Write NaN to the entries of ``scores`` ``[s, m]`` of known edges, and of a source itself."""
    columns = np.minimum(np.searchsorted(candidates, sources), len(candidates) - 1)
    themselves = np.flatnonzero(candidates[columns] == sources)
    scores[themselves, columns[themselves]] = np.nan
    scores[targets.positions(sources, candidates)] = np.nan
