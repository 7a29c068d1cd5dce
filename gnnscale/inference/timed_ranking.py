"""Evaluation of link prediction by ranks of edges as of their times."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gnnscale.core import Float32Array, Float64Array, Int64Array, IntArray, ranking, track
from gnnscale.inference.link_ranking import SLICE_BYTES, STEPS, LinkExaminer
from gnnscale.inference.predictor import Predictor
from gnnscale.nn import LinkModel
from gnnscale.nn.link_decoder import Decoder, DotProduct
from gnnscale.run.tasks.timed_links import TimedLinkTask
from gnnscale.sampling.timed import distinct_units
from gnnscale.sampling.timed_links import TimedCandidates, timed_candidates

#: Units whose rows are computed together, about.
_UNITS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class _TimedScorer:
    """Decoder with the rows that it compares: ``[n, width]`` of sources and of destinations."""

    decoder: Decoder
    width: int
    #: rows of vertices ``[n]`` as of cut-offs ``[n]``, of sources, then of destinations
    rows: Callable[[IntArray, Int64Array], tuple[torch.Tensor, torch.Tensor]]


class _CutoffGroup:
    """Edges of one time, destination kind and list: their sources, and all candidates."""

    def __init__(self, edges: IntArray, time: int, candidates: Int64Array) -> None:
        self.time = time
        self.sources, self.rows = np.unique(edges[:, 0], return_inverse=True)
        self.candidates = candidates
        self.columns = np.searchsorted(candidates, edges[:, 1])

    @property
    def vertices(self) -> Int64Array:
        """Sources, then candidates."""
        return np.concatenate([self.sources.astype(np.int64), self.candidates])


class TimedLinkExaminer(LinkExaminer):
    """Evaluation of links by ranks among candidates that exist at the time of the edge.

    Rows of an edge's ends and of its candidates are as of its time. Candidates that are drawn are
    no edges by then, as negatives. Among all candidates, the source's edges of earlier times are
    left out, or those of any time.
    """

    def __init__(self, task: TimedLinkTask, model: LinkModel, predictor: Predictor) -> None:
        """Rank with the decoder of ``model``, whose rows of units ``predictor`` computes."""
        super().__init__(task, model, predictor)
        self._timed = task
        self._units = predictor.of_edges()
        edge_type = task.split.relation.edge_type
        self._negatives: TimedCandidates = timed_candidates(task.graph, edge_type, task.candidates)

    def prepare(self, splits: Sequence[str]) -> None:
        """Do nothing: mini-batches of ``splits`` are of bounded memory."""

    def measure(
        self, splits: Sequence[str], thresholds: Sequence[float] | None = None
    ) -> list[dict[str, float | None]]:
        """Return the metrics of each split, ``task.measures``, which need no ``thresholds``."""

        def rows_of(vertices: IntArray, times: Int64Array) -> tuple[torch.Tensor, torch.Tensor]:
            units, positions = distinct_units(vertices, times)
            rows = torch.from_numpy(self._units.outputs(*units))[torch.from_numpy(positions).long()]
            return rows, rows

        decoder, width = self._model.decoder.eval(), self._model.widths[-1]
        scorer = _TimedScorer(decoder=decoder, width=width, rows=rows_of)
        return [self._timed_metrics(split, scorer) for split in splits]

    def measure_popularity(self, split: str) -> dict[str, float | None]:
        """Return the metrics of ``split`` by training in-degrees of destinations."""
        degrees = torch.from_numpy(self._timed.popularity.astype(np.float32))[:, None]

        def rows_of(vertices: IntArray, times: Int64Array) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.ones(len(vertices), 1), degrees[
                torch.from_numpy(vertices.astype(np.int64))
            ]

        return self._timed_metrics(split, _TimedScorer(decoder=DotProduct(), width=1, rows=rows_of))

    @torch.no_grad()
    def _timed_metrics(self, split: str, scorer: _TimedScorer) -> dict[str, float | None]:
        task, values = self._timed, list[float]()
        if task.num_candidates is None:
            ranks, lists = self._timed_ranks_of_all(split, scorer)
            for k in task.k:
                values += ranking.metrics_at(ranks, lists, k)
        else:
            ranks = self._timed_ranks_of_samples(split, scorer, task.num_candidates)
        values.append(ranking.mean_reciprocal_rank(ranks))
        values += [ranking.hits_at(ranks, k) for k in task.hits]
        return dict(zip(task.measures, values, strict=True))

    def _timed_ranks_of_samples(self, split: str, scorer: _TimedScorer, count: int) -> Float64Array:
        """Return the rank of each edge's destination among ``count`` candidates, ``[n]``."""
        edges, times = np.asarray(self._edges(split)), np.asarray(self._timed.split.times(split))
        size = max(1, min(SLICE_BYTES // ((2 + count) * 4 * scorer.width), _UNITS // (2 + count)))
        order = np.argsort(times, kind="stable")
        ranks = np.empty(len(edges))
        with track("ranking edges", len(edges), "edges") as advance:
            for first in range(0, len(edges), size):
                rows = order[first : first + size]
                candidates_drawn = self._negatives.draw(
                    rows, edges[rows], times[rows], count, seed=self._timed.seed, step=STEPS[split]
                )
                ends = np.concatenate([edges[rows].astype(np.int64), candidates_drawn], axis=1)
                of_sources, of_targets = scorer.rows(
                    ends.reshape(-1), np.repeat(times[rows], ends.shape[1])
                )
                shape = (*ends.shape, -1)
                sources = of_sources.reshape(shape)[:, :1]
                scores = scorer.decoder(sources, of_targets.reshape(shape)[:, 1:])
                ranks[rows] = ranking.ranks(scores.numpy())
                advance(len(rows))
        return ranks

    def _timed_ranks_of_all(
        self, split: str, scorer: _TimedScorer
    ) -> tuple[Float64Array, Int64Array]:
        """Return the rank of each edge among all candidates, and its list's number, both ``[n]``.

        A list has the candidates of a source, kind and time. Edges are in the order of time.
        """
        ranks, lists, num_lists = [], [], 0
        with track("ranking edges", len(self._edges(split)), "edges") as advance:
            for groups in _batches(self._groups(split)):
                counts = [len(group.vertices) for group in groups]
                vertices = np.concatenate([group.vertices for group in groups])
                times = np.repeat([group.time for group in groups], counts)
                of_sources, of_targets = scorer.rows(vertices, times)
                source_parts = torch.split(of_sources, counts)
                target_parts = torch.split(of_targets, counts)
                parts = zip(groups, source_parts, target_parts, strict=True)
                for group, source_rows, target_rows in parts:
                    count = len(group.sources)
                    scores = self._scores(scorer, source_rows[:count], target_rows[count:])
                    self._leave_out(scores, group)
                    ranks.append(ranking.ranks_in_rows(scores, group.rows, group.columns))
                    lists.append(group.rows + num_lists)
                    num_lists += count
                    advance(len(group.rows))
        return np.concatenate(ranks), np.concatenate(lists)

    def _groups(self, split: str) -> Iterator[_CutoffGroup]:
        """Yield the edges of each time and destination kind, in the order of time."""
        edges, times = np.asarray(self._edges(split)), np.asarray(self._timed.split.times(split))
        candidates = self._timed.candidates
        kinds = np.zeros(len(edges)) if candidates is None else candidates.kinds[edges[:, 1]]
        order = np.lexsort((kinds, times))
        edges, times, kinds = edges[order], times[order], kinds[order]
        changes = (np.diff(times) != 0) | (np.diff(kinds) != 0)
        for part in np.split(np.arange(len(edges)), np.flatnonzero(changes) + 1):
            time, group = int(times[part[0]]), self._negatives.of_kind(int(edges[part[0], 1]))
            exists = self._negatives.exist(group, np.full(len(group), time))
            # A destination is a candidate even if it exists later than its edge.
            exists |= np.isin(group, edges[part, 1])
            yield _CutoffGroup(edges[part], time, group[exists])

    def _scores(
        self, scorer: _TimedScorer, source_rows: torch.Tensor, target_rows: torch.Tensor
    ) -> Float32Array:
        scores = torch.empty(len(source_rows), len(target_rows))
        scorer.decoder.score_all_pairs(source_rows, target_rows, scores)
        scores[scores.isnan()] = -torch.inf
        matches: Float32Array = scores.numpy()
        return matches

    def _leave_out(self, scores: Float32Array, group: _CutoffGroup) -> None:
        """Write NaN to the scores of known edges and of a source, but for predicted edges."""
        predicted = scores[group.rows, group.columns]
        task, candidates = self._timed, group.candidates
        earlier = None if task.filters_all else group.time
        for row, source in enumerate(group.sources.tolist()):
            left_out = np.array([source])
            if task.filters_known:
                left_out = np.append(left_out, self._known_edges(source, earlier))
            columns = np.searchsorted(candidates, left_out)
            columns = np.minimum(columns, len(candidates) - 1)
            scores[row, columns[candidates[columns] == left_out]] = np.nan
        scores[group.rows, group.columns] = predicted

    def _known_edges(self, source: int, earlier: int | None) -> Int64Array:
        return self._negatives.known_edges.targets(source, earlier)


def _batches(groups: Iterator[_CutoffGroup]) -> Iterator[list[_CutoffGroup]]:
    """Yield lists of consecutive groups of about ``_UNITS`` vertices, or of one group."""
    batch, count = list[_CutoffGroup](), 0
    for group in groups:
        size = len(group.vertices)
        if batch and count + size > _UNITS:
            yield batch
            batch, count = [], 0
        batch.append(group)
        count += size
    if batch:
        yield batch
