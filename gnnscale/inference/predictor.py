"""Predictor of vertex outputs, with exact or sampled inference."""

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
from gnnscale.run.inputs import EvaluationOptions

_LOG = logging.getLogger(__name__)

#: Random stream of sampled evaluation: a step that training never has, so that the sample of a
#: vertex does not depend on the vertices that are evaluated with it.
EVALUATION_STEP = 1 << 40


class Predictor:
    """Predictor of the vertices of a graph by a model, whose weights may change between calls.

    ``runtime.inference`` selects all neighbors or sampled neighbors. Repeated calls with equal
    weights give equal results.
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
        """Predict with ``model``.

        Args:
            model: the model.
            graph: the graph.
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
        self._exact: LayerwiseInference | None = None
        if exact and model.infers_by_layer:
            self._exact = LayerwiseInference(
                model,
                graph,
                num_threads=options.num_threads,
                store=store,
                num_layers=num_layers,
                device=device,
            )
        if exact and self._exact is None:
            _LOG.info(
                f"runtime.inference=exact: {options.model_name} has no inference_per_layer, and is "
                "evaluated over sampled neighbors (docs/your-model.md)"
            )

    @property
    def inference(self) -> str:
        """Inference in use, one of ``INFERENCE``."""
        return "sampled" if self._exact is None else "exact"

    def prepare(self, vertices: IntArray | None) -> None:
        """Log the cost of predicting ``vertices`` if it is high; None: all vertices.

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
        """Return the logits of the vertices of each split."""
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
        loader = loading.FeatureLoader(
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
