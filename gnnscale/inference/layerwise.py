"""Exact inference over the whole graph, layer by layer with all neighbours."""

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
from gnnscale.inference.activation_store import EncodedRows, Workers
from gnnscale.inference.chunks import Chunk, as_chunks
from gnnscale.inference.layers import LayerPass, close
from gnnscale.inference.memory_plan import InferenceWork, MemoryLimits, SubsetStore, find_work
from gnnscale.inference.pass_planning import with_passes
from gnnscale.inference.time_estimate import estimated_s
from gnnscale.nn import TrainableModel

_LOG = logging.getLogger(__name__)

#: Inference of more chunks than these takes long enough to be announced.
_MANY_CHUNKS = 64

_LIMITS = MemoryLimits()


class LayerwiseInference:
    """Computes exact logits: every layer for all vertices that need it before the next one.

    Of fewer layers, what comes of them. Each hidden layer is computed once per vertex;
    sampling would compute it once per path. What the first layer reads depends on no weight unless
    rows are learned, and is kept if it is small: a small graph would spend most of each validation
    on reading it again.
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
        """Prepare to infer.

        Args:
            num_threads: threads of torch and of the native kernels, over all chunks at once.
            store: where features are read, by default the graph's own.
            num_layers: the first so many layers are computed; None computes all, for logits.
            device: that computes; None for the host.
        """
        self._model = model
        self._device = device
        self._num_layers = len(model.layers) if num_layers is None else num_layers
        self._graph = graph
        self._features = HostFeatures.of(graph) if store is None else store
        self._store = self._features
        if model.encoder is not None:
            self._store = EncodedRows(self._features, model.encoder, width=model.widths[1])
        self._limits = limits
        self._num_threads = num_threads
        self._kept: list[LoadedChunk] | None = None
        self._last: InferenceWork | None = None

    def work(self, vertices: Array | None) -> InferenceWork:
        """Return what ``logits`` of ``vertices`` has to do; of the last ones it is remembered."""
        wanted: Vertices = range(self._graph.num_vertices)
        if vertices is not None:
            wanted = np.asarray(vertices, dtype=self._graph.indices.dtype)
        last = self._last
        if last is not None and np.array_equal(last.wanted, wanted):
            return last
        model, graph, limits, num_threads = (
            self._model,
            self._graph,
            self._limits,
            self._num_threads,
        )
        self._last = find_work(
            model,
            graph,
            wanted,
            limits,
            num_threads=num_threads,
            num_layers=self._num_layers,
        )
        if self._device is None:
            self._last = with_passes(
                self._last, model, graph, self._features, limits, num_threads=num_threads
            )
        first = [work.needed[0] for work in (last, self._last) if work and len(work.needed) > 1]
        if not all(isinstance(each, range) for each in first):
            self._kept = None
        return self._last

    def prepare(self, vertices: Array | None) -> None:
        """Say what inference of ``vertices``, None for all, takes when that is much.

        Raises:
            ConfigError: there is less room on the disk than hidden layers need.
        """
        work = self.work(vertices)
        if self._device is not None:
            return
        work.plan.check_disk()
        if sum(each.num_edges for each in work.sizes) < _MANY_CHUNKS * self._limits.chunk_edges:
            return
        _LOG.info(
            f"exact inference of {len(work.wanted):,} vertices of {self._graph.name}: "
            f"about {self.estimate_s(vertices):,.0f} s each time, "
            f"{size(work.plan.temporary_bytes)} of temporary disk, "
            f"{size(work.plan.memory_bytes)} of memory for hidden layers{self._reading(work)}"
        )

    @property
    def _from_disk(self) -> bool:
        """Whether most features are not in memory when they are read."""
        return isinstance(self._features, HostFeatures) and self._features.from_disk

    def _reading(self, work: InferenceWork) -> str:
        """Return what passes over the features take, and how features on the disk are read."""
        if work.inputs is not None:
            made = f", {size(work.inputs.memory_bytes)} for rows of the first one"
            if not self._from_disk:
                return made
            passes = work.inputs.num_passes
            return f"{made}; passes over the features: {passes}"
        if not self._from_disk:
            return ""
        if work.encoded is not None:
            return "; passes over the features: 1"
        return "; features are read at random places, for each chunk of edges again"

    def estimate_s(self, vertices: Array | None) -> float:
        """Return the seconds that ``logits`` of ``vertices`` will about take."""
        with self._passes(vertices) as (passes, work):
            return estimated_s(passes, work, self._graph, self._store, self._features)

    @torch.no_grad()
    def logits(self, vertices: Array | None = None) -> torch.Tensor:
        """Return the last layer's rows of ``vertices``, with the weights as they are now.

        Args:
            vertices: distinct ids, all by default. Layers are computed for what these need alone.

        Returns:
            ``[len(vertices), num_classes]`` float32, in the order of ``vertices``.
        """
        num_rows = len(self.work(vertices).wanted)
        out = ops.empty((num_rows, self._model.widths[self._num_layers]), torch.float32)
        first = 0
        for rows in self.rows(vertices):
            out[first : first + len(rows)] = rows
            first += len(rows)
        return out

    def rows(self, vertices: Array | None = None) -> Iterator[torch.Tensor]:
        """Yield what ``logits`` returns, a chunk of rows after the other.

        Rows of hidden layers alone are kept in between. The model must not be used meanwhile.

        Args:
            vertices: distinct ids, all by default.
        """
        if self._device is not None:
            yield from self._device.inferred_rows(self._model, self.work(vertices).needed)
            return
        if self._from_disk:
            # Training has taken memory since this was planned, and rows made of the file take most.
            self._last = None
        # What the layers read: number 0 the features, n the output of layer n - 1.
        stores: list[FeatureStore] = [self._store]
        with self._passes(vertices) as (passes, work):
            last = len(work.layers) - 1
            try:
                with self._progress(work.num_advanced) as advance:
                    if work.encoded is not None:
                        stores[0] = passes.encode(self._features, advance)
                    for index, needed in enumerate(work.needed[:-1]):
                        stores.append(self._infer(index, passes, stores, needed, advance))
                        self._close_read(stores, index + 1, last)
                    pieces = passes.pieces(last, stores[-1], work.wanted, advance)
                    for _, rows in passes.compute(last, pieces, None, self._own(stores, last)):
                        advance(len(rows))
                        yield rows
            finally:
                for each in stores:
                    close(each)

    def _own(self, stores: Sequence[FeatureStore], index: int) -> list[FeatureStore]:
        """Return the stores of which layer ``index`` reads the rows of its vertices."""
        return [stores[number] for number in self._model.reads(index)]

    def _close_read(self, stores: list[FeatureStore], following: int, last: int) -> None:
        """Close the stores that no layer from ``following`` on reads."""
        layers = range(following, last + 1)
        still = {following, *(each for index in layers for each in self._model.reads(index))}
        for number, store in enumerate(stores):
            if number not in still:
                close(store)
                # A layer in memory gives its own back once nothing names it.
                stores[number] = self._features

    @contextmanager
    def _passes(self, vertices: Array | None) -> Iterator[tuple[LayerPass, InferenceWork]]:
        """Have workers, and the model in evaluation mode, for the work of ``vertices``."""
        work = self.work(vertices)
        was_training = self._model.training
        self._model.eval()
        try:
            # torch may have been given fewer, as many as there are cores.
            workers = Workers(min(self._num_threads, torch.get_num_threads()))
            with workers.running():
                passes = LayerPass(self._model, self._graph, work, self._limits, workers)
                yield passes, work
        finally:
            self._model.train(was_training)

    def _progress(self, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Show progress, but for a graph that is done before there is any to be shown."""
        graph, limits = self._graph, self._limits
        if graph.num_edges < limits.chunk_edges and graph.num_vertices < limits.chunk_vertices:
            return nullcontext(lambda _: None)
        return track("inference", total=total, unit="vertices")

    def _infer(
        self,
        index: int,
        passes: LayerPass,
        stores: Sequence[FeatureStore],
        vertices: Vertices,
        advance: Callable[[int], None],
    ) -> FeatureStore:
        """Compute the hidden layer ``index`` of ``vertices`` from the rows of those before it."""
        if index == 0 and self._kept is not None and not passes.makes_rows:
            groups: Iterable[Iterable[Chunk]] = [as_chunks(self._kept)]
        else:
            groups = passes.pieces(index, stores[-1], vertices, advance)
        out = passes.output(index, len(vertices))
        assert out is not None
        try:
            chunks = passes.compute(index, groups, out, self._own(stores, index))
            # What an encoder makes changes with its weights, and so do learned rows.
            model = self._model
            changes = model.encoder is not None or model.vertex_rows is not None
            changes = changes or passes.makes_rows
            keeps = index == 0 and self._kept is None and not changes
            for block, _ in self._keep(chunks) if keeps else chunks:
                advance(block.num_dst)
        except BaseException:
            close(out)
            raise
        if isinstance(vertices, range):
            return out
        return SubsetStore.of(out, vertices, self._graph.num_vertices)

    def _keep(self, chunks: Iterator[LoadedChunk]) -> Iterator[LoadedChunk]:
        """Yield ``chunks``, and keep them if they are small."""
        kept: list[LoadedChunk] = []
        num_bytes = 0
        for block, x in chunks:
            num_bytes += x.nbytes + block.num_bytes
            if num_bytes <= self._limits.kept_bytes:
                kept.append((block, x))
            else:
                kept.clear()
            yield block, x
        if num_bytes <= self._limits.kept_bytes:
            self._kept = kept
