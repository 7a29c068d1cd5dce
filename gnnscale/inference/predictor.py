"""Predictions for given vertices, over all neighbours or over sampled ones."""

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from gnnscale.backend import InferenceCapable
from gnnscale.backend import feature_loading as loading
from gnnscale.core import Float32Array, IntArray, track
from gnnscale.features import FeatureStore
from gnnscale.graph import Graph
from gnnscale.inference.layerwise import LayerwiseInference
from gnnscale.nn import TrainableModel
from gnnscale.run.config import RunConfig

_LOG = logging.getLogger(__name__)

#: Sampled evaluation draws at one step that training never reaches, so that what is sampled for a
#: vertex does not depend on which others are evaluated with it.
EVALUATION_STEP = 1 << 40


class Predictor:
    """Predicts vertices of one graph with one model, whose weights may change between calls.

    ``runtime.inference`` selects all neighbours or sampled ones; the same weights give the same
    answer every time.
    """

    def __init__(
        self,
        model: TrainableModel,
        graph: Graph,
        config: RunConfig,
        *,
        store: FeatureStore | None = None,
        num_layers: int | None = None,
        device: InferenceCapable | None = None,
    ) -> None:
        """Predict with ``model``.

        Args:
            store: where features are read; None for the graph's own.
            device: computes over all neighbours; None for the host.
            num_layers: rows are what comes of the first so many layers, over all neighbours; None
                for logits.
        """
        self._model = model
        self._graph = graph
        self._config = config
        self._store = store
        exact = config.runtime.inference == "exact"
        self._exact: LayerwiseInference | None = None
        if exact and model.infers_by_layer:
            self._exact = LayerwiseInference(
                model,
                graph,
                num_threads=config.num_threads,
                store=store,
                num_layers=num_layers,
                device=device,
            )
        if exact and self._exact is None:
            _LOG.info(
                f"runtime.inference=exact: {config.model.name} has no inference_per_layer, and is "
                "evaluated over sampled neighbours (docs/your-model.md)"
            )

    @property
    def inference(self) -> str:
        """One of ``INFERENCE``, what is done."""
        return "sampled" if self._exact is None else "exact"

    def prepare(self, vertices: IntArray | None) -> None:
        """Say what predicting ``vertices``, all if None, takes; refuse it without room.

        Raises:
            ConfigError: exact inference needs more of the disk than is free.
        """
        if self._exact is not None:
            self._exact.prepare(vertices)

    def logits(self, vertices: IntArray) -> Float32Array:
        """Return the logits ``[len(vertices), num_classes]`` of ``vertices``, in their order.

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
        """Yield rows of ``vertices``, all if None, some after the other in their order.

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
        """Return the logits of the vertices of each of ``splits``."""
        if self._exact is None:
            return [self.logits(vertices) for vertices in splits]
        # One pass: the layers below the last are mostly the same vertices for every split.
        together = self.logits(np.concatenate(splits))
        return np.split(together, np.cumsum([len(vertices) for vertices in splits])[:-1])

    @torch.no_grad()
    def _sampled(self, vertices: loading.Vertices) -> Iterator[Float32Array]:
        config = self._config
        self._model.eval()
        sampler = config.sampler.sampler(
            self._graph, seed=config.seed, num_threads=config.num_threads
        )
        loader = loading.FeatureLoader(
            self._graph,
            self._model,
            num_threads=config.num_threads,
            store=self._store,
            compute_dtype=getattr(torch, config.runtime.compute_dtype),
        )
        dtype = self._graph.indices.dtype
        with track("evaluating", total=len(vertices), unit="vertices") as advance:
            for start in range(0, len(vertices), config.batch_size):
                seeds = np.asarray(vertices[start : start + config.batch_size], dtype)
                batch = sampler.sample(seeds, EVALUATION_STEP)
                yield self._model(batch, loader.load(batch)).numpy()
                advance(batch.num_seeds)
