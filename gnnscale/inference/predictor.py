"""Predictor of vertex outputs, with exact or sampled inference, and of scores of pairs.

Scores of pairs of vertices give best partners of a vertex, and outputs of labeled edges.
"""

import logging
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gnnscale.backend import InferenceCapable
from gnnscale.backend import feature_loading as loading
from gnnscale.backend.typed_loading import open_loader
from gnnscale.core import Array, Float32Array, IntArray, track
from gnnscale.core.artifact.files import check_space
from gnnscale.core.sorted_sets import distinct
from gnnscale.features import FeatureStore
from gnnscale.graph import Graph
from gnnscale.inference.known_edges import KnownTargets
from gnnscale.inference.layerwise import LayerwiseInference
from gnnscale.inference.row_predictor import EVALUATION_STEP, RowPredictor
from gnnscale.inference.typed_layerwise import TypedInference
from gnnscale.nn import EdgeModel, LinkModel, TrainableModel
from gnnscale.nn.typed.model import TypedGNN
from gnnscale.run.inputs import EvaluationOptions
from gnnscale.run.tasks.cutoffs import before_edges, listed_cutoff_edges
from gnnscale.sampling import FanoutSampling, SamplerConfig
from gnnscale.sampling.edge_batches import edge_links

_LOG = logging.getLogger(__name__)


class Predictor:
    """Predictor of the vertices of a graph by a model, whose weights may change between calls.

    ``runtime.inference`` selects all neighbors or sampled neighbors; a model that cannot be
    inferred layer by layer always gets sampled neighbors. Calls with equal weights give equal
    results.
    """

    def __init__(
        self,
        model: TrainableModel,
        graph: Graph,
        options: EvaluationOptions,
        *,
        store: FeatureStore | None = None,
        num_layers: int | None = None,
        device: InferenceCapable | None = None,
    ) -> None:
        """Predict vertices of ``graph`` with ``model``.

        Args:
            options: options of inference.
            store: store of the features; None: the graph's features in host memory.
            num_layers: number of layers of exact inference, from the first; None: all layers.
            device: device of exact inference; None: the host.
        """
        self._model = model
        self._graph = graph
        self._options = options
        self._store = store
        exact = options.inference == "exact"
        self._exact: LayerwiseInference | TypedInference | None = None
        if exact and isinstance(model, TypedGNN):
            self._exact = TypedInference(
                model,
                graph,
                num_threads=options.num_threads,
                fanouts=_fanouts(options.sampler, graph),
                num_layers=num_layers,
            )
        elif exact and model.infers_by_layer:
            self._exact = LayerwiseInference(
                model,
                graph,
                num_threads=options.num_threads,
                store=store,
                num_layers=num_layers,
                device=device,
            )
        if exact and self._exact is None and graph.rows is None:
            _LOG.info(
                f"runtime.inference=exact: {options.model_name} has no inference_per_layer, and is "
                "evaluated over sampled neighbors (docs/your-model.md)"
            )

    @property
    def inference(self) -> str:
        """Inference in use, one of ``INFERENCE``; of task rows, that of the options."""
        if self._graph.rows is not None:
            return self._options.inference
        return "sampled" if self._exact is None else "exact"

    def of_rows(self) -> RowPredictor:
        """Return the predictor of task rows with the same model, graph, options and store."""
        return RowPredictor(self._model, self._graph, self._options, store=self._store)

    def of_edges(self) -> RowPredictor:
        """Return the predictor of ends of edges as of the edges' times, as in training."""
        sampler = before_edges(self._options.sampler)
        return RowPredictor(
            self._model,
            self._graph,
            replace(self._options, sampler=sampler),
            store=self._store,
            left_out=listed_cutoff_edges(self._graph, sampler),
        )

    def prepare(self, vertices: IntArray | None) -> None:
        """Log the cost of exact inference of ``vertices`` if it is high; None: all vertices.

        Raises:
            ConfigError: exact inference needs more disk than is free.
        """
        if self._exact is not None:
            self._exact.prepare(vertices)

    def logits(self, vertices: IntArray) -> Float32Array:
        """Return logits ``[len(vertices), num_classes]`` in the order of ``vertices``.

        Raises:
            GraphError: a file of the graph became shorter.
        """
        self._graph.check_files()
        if self._exact is not None:
            logits: Float32Array = self._exact.logits(vertices).numpy()
        else:
            logits = np.concatenate(list(self._sampled(vertices)))
        self._graph.check_files()
        return logits

    def rows(self, vertices: IntArray | None) -> Iterator[Float32Array]:
        """Yield the output rows of ``vertices`` in chunks, in order; None: all vertices.

        Raises:
            GraphError: a file of the graph became shorter.
        """
        self._graph.check_files()
        if self._exact is not None:
            yield from (rows.numpy() for rows in self._exact.rows(vertices))
        else:
            yield from self._sampled(
                range(self._graph.num_vertices) if vertices is None else vertices
            )
        self._graph.check_files()

    def logits_of_each(self, splits: Sequence[IntArray]) -> list[Float32Array]:
        """Return the logits of the vertices of each of ``splits``, one array a split."""
        if self._exact is None:
            return [self.logits(vertices) for vertices in splits]
        # The hidden layers of all splits mostly share their vertices: compute them once.
        logits = self.logits(np.concatenate(splits))
        return np.split(logits, np.cumsum([len(vertices) for vertices in splits])[:-1])

    @torch.no_grad()
    def _sampled(self, vertices: loading.Vertices) -> Iterator[Float32Array]:
        options = self._options
        self._model.eval()
        sampler = options.sampler.sampler(
            self._graph, seed=options.seed, num_threads=options.num_threads
        )
        loader = open_loader(
            self._graph,
            self._model,
            num_threads=options.num_threads,
            store=self._store,
            compute_dtype=getattr(torch, options.compute_dtype),
        )
        dtype = self._graph.indices.dtype
        with track("evaluating", total=len(vertices), unit="vertices") as advance:
            for start in range(0, len(vertices), options.batch_size):
                seeds = np.asarray(vertices[start : start + options.batch_size], dtype)
                batch = sampler.sample(seeds, EVALUATION_STEP)
                yield self._model(batch, loader.load(batch)).numpy()
                advance(batch.num_seeds)


def _fanouts(sampler: SamplerConfig, graph: Graph) -> dict[str, list[int]] | None:
    """Return the fan-outs of training by edge type; None: the sampler has none."""
    return sampler.lists_for(graph) if isinstance(sampler, FanoutSampling) else None


#: Maximum bytes of rows in memory; more rows go to a temporary file.
_MEMORY_BYTES = 512 << 20
#: Approximate bytes of the rows and scores that are compared together.
_SLICE_BYTES = 64 << 20


class PairScorer:
    """Scorer of pairs of vertices, by the decoder of a link model."""

    def __init__(self, model: LinkModel, predictor: Predictor, graph: Graph) -> None:
        """Score with the decoder of ``model``, whose output rows ``predictor`` computes."""
        self._decoder = model.decoder.eval()
        self._width = model.widths[-1]
        self._predictor = predictor
        self._graph = graph

    @torch.no_grad()
    def scores(self, pairs: IntArray) -> Iterator[Float32Array]:
        """Yield the scores of ``pairs`` ``[n, 2]`` (sources, targets) in chunks, in order."""
        vertices = distinct(pairs)
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
        self,
        vertices: IntArray,
        candidates: IntArray | None,
        k: int,
        left_out: KnownTargets | None = None,
    ) -> Generator[tuple[IntArray, Float32Array]]:
        """Yield the ``k`` best partners of each vertex, in chunks of vertices.

        A vertex is scored with every candidate but itself; ``candidates`` ascend, None: all
        vertices. ``left_out`` are not listed. A chunk has partners ``[s, k]``, best
        first, and their scores; -inf: there is no such partner. The order of equal scores is
        undefined.
        """
        targets = np.arange(self._graph.num_vertices) if candidates is None else candidates
        needed = None if candidates is None else distinct(np.concatenate([vertices, candidates]))
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
                    if left_out is not None:
                        # A view of the same memory: torch would want int64 tensors.
                        scores.numpy()[left_out.positions(sources, ids)] = -np.inf
                    best.add(ids, scores)
                    advance(len(sources) * len(ids))
                yield best.partners.numpy(), best.scores.numpy()

    def _slice_sizes(self, num_sources: int, num_targets: int, k: int) -> tuple[int, int]:
        """Return how many sources and targets to score at a time; ``k`` targets, if there are."""
        row_bytes = 4 * self._width
        targets = min(num_targets, max(k, _SLICE_BYTES // (4 * row_bytes)))
        pair_bytes = 4 * (self._decoder.hidden_width + 1)
        return max(1, min(num_sources, _SLICE_BYTES // (targets * pair_bytes))), targets


@contextmanager
def _output_rows(
    predictor: Predictor, vertices: IntArray | None, count: int, width: int
) -> Iterator[Float32Array]:
    """Compute the rows of ``vertices`` (None: all), and yield an array ``[count, width]`` of them.

    An array of more than ``_MEMORY_BYTES`` is a temporary file until the ``with`` block ends.
    """
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
    """Predictor of the labels of edges or pairs of vertices, by an edge model."""

    def __init__(self, model: EdgeModel, predictor: Predictor) -> None:
        """Predict with the edge network of ``model``, whose vertex rows ``predictor`` computes."""
        self._model = model
        self._predictor = predictor
        self._width = model.widths[-1]

    def prepare(self, ends: IntArray) -> None:
        """Log the cost of predicting edges with ``ends`` ``[n, 2]``; ConfigError: little disk."""
        self._predictor.prepare(distinct(ends))

    @torch.no_grad()
    def outputs(
        self, ends: IntArray, rows: IntArray, features: Array | None
    ) -> Iterator[Float32Array]:
        """Yield the outputs of edges with ``ends`` ``[n, 2]`` in chunks, in order.

        ``rows`` ``[n]`` are the edges' row numbers in ``features`` ``[num_rows,
        num_edge_features]``; None: edges have no features.
        """
        self._model.network.eval()
        vertices = distinct(ends)
        step = max(1, _SLICE_BYTES // (4 * (3 * self._width + self._model.network.width_in)))
        output_rows = _output_rows(self._predictor, vertices, len(vertices), self._width)
        with output_rows as vertex_rows, track("predicting", len(ends), "edges") as advance:
            for first in range(0, len(ends), step):
                part = slice(first, first + step)
                ids, links = edge_links(ends[part], rows[part], features)
                inputs = torch.from_numpy(vertex_rows[np.searchsorted(vertices, ids)])
                yield self._model.decode(inputs, links).numpy()
                advance(len(links.sources))


class _TopPartners:
    """Best ``k`` partners of each vertex among the candidates added so far, and their scores."""

    def __init__(self, vertices: IntArray, k: int) -> None:
        self._vertices = np.array(vertices, np.int64)
        self.partners = torch.full((len(vertices), k), -1)
        self.scores = torch.full((len(vertices), k), -torch.inf)

    def add(self, candidates: Array, scores: torch.Tensor) -> None:
        """Keep the best of previous partners and of ascending ``candidates`` ``[m]``.

        ``scores`` are ``[s, m]``, for s vertices; the score of a vertex with itself is overwritten
        by -inf.
        """
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
    """Return the ``k`` highest of ``scores`` ``[s, m]`` in each row, and their columns.

    Many columns form groups of 64: only the ``k`` groups with the highest maxima are searched.
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
    """Return the positions of ``vertices`` in ascending ``needed``; None: ids are positions."""
    return vertices if needed is None else np.searchsorted(needed, vertices)
