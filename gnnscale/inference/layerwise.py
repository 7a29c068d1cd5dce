"""Exact inference over the full graph, layer by layer with all neighbors."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch

from gnnscale import ops
from gnnscale.backend import InferenceCapable
from gnnscale.backend.feature_loading import LoadedChunk, Vertices
from gnnscale.core import Array, track
from gnnscale.core.artifact.files import size
from gnnscale.features import FeatureStore, HostFeatures
from gnnscale.graph import Graph
from gnnscale.inference.chunks import Chunk, Workers, as_chunks
from gnnscale.inference.layers import EncodedRows, LayerPass, close
from gnnscale.inference.memory_plan import InferenceWork, MemoryLimits, SubsetStore, find_work
from gnnscale.inference.pass_planning import estimated_s, with_passes
from gnnscale.nn import TrainableModel

_LOG = logging.getLogger(__name__)

#: Minimum chunks of an inference that is announced in the log.
_MIN_ANNOUNCED_CHUNKS = 64

_LIMITS = MemoryLimits()


class _InputCache:
    """Cache that keeps the first layer's loaded chunks for the next call, up to ``max_bytes``."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.chunks: list[LoadedChunk] | None = None

    def fill(self, chunks: Iterator[LoadedChunk]) -> Iterator[LoadedChunk]:
        """Yield ``chunks``; once all are yielded, keep them if they fit into the cache."""
        loaded: list[LoadedChunk] = []
        num_bytes = 0
        for block, x in chunks:
            num_bytes += x.nbytes + block.num_bytes
            if num_bytes <= self._max_bytes:
                loaded.append((block, x))
            else:
                loaded.clear()
            yield block, x
        if num_bytes <= self._max_bytes:
            self.chunks = loaded


class LayerwiseInference:
    """Exact inference: each layer is computed for all required vertices before the next one.

    Each hidden layer is computed once per vertex; sampling would compute it once per path. Small
    inputs of the first layer are cached between calls unless they depend on weights. Otherwise a
    small graph would spend most of each validation on reading them.

    Example: a model with widths [100, 16, 7] on 50 vertices. ``logits()`` computes 50 hidden rows
    of 16 and returns ``[50, 7]``; with ``num_layers=1`` it returns the hidden rows, ``[50, 16]``.
    """

    def __init__(
        self,
        model: TrainableModel,
        graph: Graph,
        *,
        num_threads: int,
        store: FeatureStore | None = None,
        limits: MemoryLimits = _LIMITS,
        num_layers: int | None = None,
        device: InferenceCapable | None = None,
    ) -> None:
        """Prepare exact inference of ``model`` on ``graph``.

        Args:
            model: the model, whose weights may change between calls.
            num_threads: threads of torch and of the native kernels, shared by all chunks.
            store: store of the features; None: the graph's features in host memory.
            num_layers: number of layers to compute, from the first; None: all layers.
            device: device that computes; None: the host.
        """
        self._model = model
        self._device = device
        self._num_layers = len(model.layers) if num_layers is None else num_layers
        self._graph = graph
        self._features = HostFeatures.of(graph) if store is None else store
        self._store = self._features
        self._from_disk = isinstance(self._features, HostFeatures) and self._features.from_disk
        if model.encoder is not None:
            self._store = EncodedRows(self._features, model.encoder, width=model.widths[1])
        self._limits = limits
        self._num_threads = num_threads
        self._inputs = _InputCache(limits.kept_bytes)
        self._last: InferenceWork | None = None

    def work(self, vertices: Array | None) -> InferenceWork:
        """Return the plan of ``logits(vertices)``, which is kept for the next call.

        ``vertices`` None: all. A plan for other vertices may drop the cached inputs of the first
        layer.
        """
        outputs: Vertices = range(self._graph.num_vertices)
        if vertices is not None:
            outputs = np.asarray(vertices, dtype=self._graph.indices.dtype)
        last = self._last
        if last is not None and np.array_equal(last.outputs, outputs):
            return last
        model, graph, limits, threads = self._model, self._graph, self._limits, self._num_threads
        num_layers = self._num_layers
        work = find_work(model, graph, outputs, limits, num_threads=threads, num_layers=num_layers)
        if self._device is None:
            work = with_passes(work, model, graph, self._features, limits, num_threads=threads)
        self._last = work
        first = [item.needed[0] for item in (last, work) if item and len(item.needed) > 1]
        if not all(isinstance(needed, range) for needed in first):
            self._inputs.chunks = None
        return work

    def prepare(self, vertices: Array | None) -> None:
        """Log the cost of ``logits(vertices)`` if it is high, and the host computes.

        ConfigError: the host's disk has too little space for hidden layers.
        """
        work = self.work(vertices)
        if self._device is not None:
            return
        work.plan.check_disk()
        num_edges = sum(layer.num_edges for layer in work.sizes)
        if num_edges < _MIN_ANNOUNCED_CHUNKS * self._limits.chunk_edges:
            return
        _LOG.info(
            f"exact inference of {len(work.outputs):,} vertices of {self._graph.name}: "
            f"about {self.estimate_s(vertices):,.0f} s each time, "
            f"{size(work.plan.temporary_bytes)} of temporary disk, "
            f"{size(work.plan.memory_bytes)} of memory for hidden layers"
            f"{_describe_reading(work, self._from_disk)}"
        )

    def estimate_s(self, vertices: Array | None) -> float:
        """Return the estimated seconds of ``logits(vertices)`` on the host, from a trial."""
        with self._passes(vertices) as (passes, work):
            return estimated_s(passes, work, self._graph, self._store, self._features)

    @torch.no_grad()
    def logits(self, vertices: Array | None = None) -> torch.Tensor:
        """Return the last layer's rows of ``vertices`` under the current weights, in their order.

        The result is ``[len(vertices), width]`` float32 of the last computed layer; ``vertices``
        are distinct, None: all. Hidden layers are computed only where required.
        """
        num_rows = len(self.work(vertices).outputs)
        out = ops.empty((num_rows, self._model.widths[self._num_layers]), torch.float32)
        first = 0
        for rows in self.rows(vertices):
            out[first : first + len(rows)] = rows
            first += len(rows)
        return out

    def rows(self, vertices: Array | None = None) -> Iterator[torch.Tensor]:
        """Yield the rows of ``logits(vertices)`` in chunks, in the order of ``vertices``.

        The model must not be used meanwhile. Memory holds a few chunks of output rows at a time;
        large hidden layers are in temporary files.
        """
        if self._device is not None:
            yield from self._device.inferred_rows(self._model, self.work(vertices).needed)
            return
        if self._from_disk:
            # Training has taken memory since the last plan, of which transformed rows need most.
            self._last = None
        # Inputs of layers: entry 0 has the features, entry n the output of layer n - 1.
        stores: list[FeatureStore] = [self._store]
        with self._passes(vertices) as (passes, work):
            last = len(work.layers) - 1
            try:
                with _progress(self._graph, self._limits, work.num_advanced) as advance:
                    if work.encoded is not None:
                        stores[0] = passes.encode(self._features, advance)
                    for index, needed in enumerate(work.needed[:-1]):
                        stores.append(self._infer(index, passes, stores, needed, advance))
                        self._close_read(stores, index + 1, last)
                    chunks = passes.chunks(last, stores[-1], work.outputs, advance)
                    self_stores = self._self_stores(stores, last)
                    for _, rows in passes.compute(last, chunks, None, self_stores):
                        advance(len(rows))
                        yield rows
            finally:
                for store in stores:
                    close(store)

    def _self_stores(self, stores: Sequence[FeatureStore], index: int) -> list[FeatureStore]:
        """Return the ``stores`` of earlier outputs that layer ``index`` adds or joins."""
        return [stores[number] for number in self._model.reads(index)]

    def _close_read(self, stores: list[FeatureStore], following: int, last: int) -> None:
        """Free the stores that no layer from ``following`` to ``last`` reads."""
        layers = range(following, last + 1)
        used = {following, *(number for index in layers for number in self._model.reads(index))}
        for number, store in enumerate(stores):
            if number not in used:
                close(store)
                # Dropping the reference frees a store in memory.
                stores[number] = self._features

    @contextmanager
    def _passes(self, vertices: Array | None) -> Iterator[tuple[LayerPass, InferenceWork]]:
        """Yield the computation of layers, and its plan, for ``vertices``.

        Until the ``with`` block ends, worker threads run and the model is in evaluation mode.
        """
        work = self.work(vertices)
        was_training = self._model.training
        self._model.eval()
        try:
            # torch may be limited to fewer threads, such as the number of cores.
            workers = Workers(min(self._num_threads, torch.get_num_threads()))
            with workers.running():
                passes = LayerPass(self._model, self._graph, work, self._limits, workers)
                yield passes, work
        finally:
            self._model.train(was_training)

    def _infer(
        self,
        index: int,
        passes: LayerPass,
        stores: Sequence[FeatureStore],
        vertices: Vertices,
        advance: Callable[[int], None],
    ) -> FeatureStore:
        """Compute hidden layer ``index`` for ``vertices``, and return a store of its output rows.

        ``stores`` has the features, then each earlier layer's output. Small inputs of the first
        layer are cached.
        """
        cached = self._inputs.chunks
        if index == 0 and cached is not None and not passes.makes_rows:
            groups: Iterable[Iterable[Chunk]] = [as_chunks(cached)]
        else:
            groups = passes.chunks(index, stores[-1], vertices, advance)
        out = passes.output(index, len(vertices))
        assert out is not None
        try:
            chunks = passes.compute(index, groups, out, self._self_stores(stores, index))
            # Encoded and learned rows change with the weights.
            changes = self._model.encoder is not None or self._model.vertex_rows is not None
            caches = index == 0 and cached is None and not (changes or passes.makes_rows)
            for block, _ in self._inputs.fill(chunks) if caches else chunks:
                advance(block.num_dst)
        except BaseException:
            close(out)
            raise
        if isinstance(vertices, range):
            return out
        return SubsetStore.from_vertices(out, vertices, self._graph.num_vertices)


def _progress(
    graph: Graph, limits: MemoryLimits, total: int
) -> AbstractContextManager[Callable[[int], None]]:
    """Return the context of a progress bar up to ``total``; a graph of one chunk shows none."""
    if graph.num_edges < limits.chunk_edges and graph.num_vertices < limits.chunk_vertices:
        return nullcontext(lambda _: None)
    return track("inference", total=total, unit="vertices")


def _describe_reading(work: InferenceWork, from_disk: bool) -> str:
    """Return the last part of ``prepare``'s log line: memory and passes for the features."""
    if work.inputs is not None:
        memory = f", {size(work.inputs.memory_bytes)} for rows of the first one"
        passes = f"; passes over the features: {work.inputs.num_passes}"
        return memory + (passes if from_disk else "")
    if not from_disk:
        return ""
    if work.encoded is not None:
        return "; passes over the features: 1"
    return "; features are read at random places, for each chunk of edges again"
