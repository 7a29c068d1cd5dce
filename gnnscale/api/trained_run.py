"""Predictions, embeddings and weights of a trained run."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnscale.api.loaded_run import LoadedRun, output_kind
from gnnscale.core import ConfigError, check_choice, check_range, standard_arithmetic
from gnnscale.core.types import Array, Float32Array
from gnnscale.data.tables.vertex_ids import read_classes
from gnnscale.graph import Graph
from gnnscale.inference.export import outputs, weights
from gnnscale.inference.export.link_ends import find_candidates, find_known
from gnnscale.inference.export.predict import EDGES, check_partners, find_edges
from gnnscale.inference.load_run import run_candidates
from gnnscale.inference.predictor import Predictor
from gnnscale.inference.timed_edges import edge_outputs
from gnnscale.nn import EdgeModel, LinkModel, user_module
from gnnscale.run.config import RunConfig


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainedRun:
    """Run with trained weights, for inference on its own graph or another one."""

    directory: Path  #: the run directory
    config: RunConfig  #: the run's options

    @property
    def model(self) -> torch.nn.Module:
        """A torch module with the weights of the best epoch, in evaluation mode.

        Raises:
            ConfigError: the run has no checkpoint of the best epoch.
        """
        model = self._loaded.trained.model
        return model.module if isinstance(model, user_module.UserModel) else model

    @property
    def graph(self) -> Graph:
        """The graph that the run samples, with any learned feature rows written into its features.

        Raises:
            ConfigError: the run has no checkpoint, or its graph store is missing or has changed.
            GraphError: the graph store is not usable.
        """
        return self._loaded.graph

    @property
    def class_names(self) -> list[str] | dict[str, list[str] | None] | None:
        """Names of the classes by number; of edges with ``task=edges``. None: labels are numbers.

        With labels of several vertex types, the names of each type.

        Raises:
            ConfigError: as for ``graph``.
            GraphError: the names in the graph store are damaged.
        """
        run = self._loaded
        if run.graph.targets:
            return {labels.vertex_type: labels.classes for labels in run.graph.type_labels}
        if run.graph.rows is not None and run.trained.signature.predicts_rows:
            return run.graph.rows.classes
        return read_classes(run.graph, edges=isinstance(run.trained.model, EdgeModel))

    @standard_arithmetic()
    def predict(
        self,
        vertices: Any = None,
        *,
        rows: Any = None,
        graph: Any = None,
        what: str | None = None,
        threshold: float | None = None,
        inference: str = "exact",
        unseen: str = "refuse",
    ) -> Array:
        """Return the model's predictions for ``vertices``, in their order, or for task rows.

        Args:
            vertices: distinct ids, which are the user's own ids if the graph has them; ``train``,
                ``valid`` or ``test``; a ``.npy`` file of ids; None for all vertices. In a graph
                with types they are of the type that was trained; ``"item"`` is another type, and
                ``("item", ids)`` vertices of it. A run of several types needs one of these.
            rows: rows to predict, for a run that was trained on task rows: a pair of ids and
                cut-offs, which may repeat, or a file, as the option ``rows`` of ``gnnscale
                predict``. None: the graph's own rows, or the part that ``vertices`` names.
            graph: graph of the vertices, of any type that ``train`` takes, with the features that
                the model was trained on. None: the run's own graph.
            what: ``classes``, ``probabilities`` or ``logits``. None: classes, or values in
                regression.
            threshold: probability from which on a class is predicted, for two classes or
                multilabel. None: the threshold that the run has chosen, or 0.5.
            inference: ``exact``, over all neighbors, or ``sampled``, with the run's sampler.
            unseen: ``refuse`` raises an error for categories of ``graph`` that training lacked,
                ``empty`` reads them as empty cells.

        Returns:
            ``[n]`` int64 classes, or ``[n, num_classes]`` float32. Multilabel classes are
            ``[n, num_classes]`` uint8 zeros and ones.

        Raises:
            ConfigError: an id is no vertex, an option is invalid, ``graph`` has other features, or
                the run predicts edges or edge labels.
            GraphError: the graph or a file of ids is not usable.
        """
        run = self._loaded
        if isinstance(run.trained.model, EdgeModel):
            raise ConfigError("predict: expected a vertex task, got task=edges; use predict_edges")
        if isinstance(run.trained.model, LinkModel):
            raise ConfigError(
                "predict: expected a vertex task, got task=links; use scores for pairs, partners "
                "for the best links of a vertex, or embeddings(layer=-1) for its compared rows"
            )
        if run.trained.signature.predicts_rows:
            return run.task_rows(
                *(rows, vertices, graph),
                what=what,
                inference=inference,
                threshold=threshold,
                unseen=unseen,
            )
        if rows is not None:
            raise ConfigError("rows: expected None for a run that was trained without task rows")
        return run.rows(
            *(vertices, graph),
            layer=-1,
            what=what,
            inference=inference,
            threshold=threshold,
            unseen=unseen,
        )

    @standard_arithmetic()
    def predict_edges(
        self,
        edges: str = "all",
        *,
        pairs: Any = None,
        graph: Any = None,
        what: str | None = None,
        threshold: float | None = None,
        unseen: str = "refuse",
    ) -> Array:
        """Return the model's predictions for labeled edges, in their published order, or for pairs.

        Args:
            edges: ``all``, ``train``, ``valid`` or ``test``.
            pairs: ids of sources and targets ``[n, 2]``, or a file of them, in place of the graph's
                edges; not supported with edge features.
            graph: graph of the edges, as in ``predict``.
            what: ``classes``, ``probabilities`` or ``logits``, as in ``predict``.
            threshold: probability from which on class 1 of two is predicted, as in ``predict``.
            unseen: rule for categories that training lacked, as in ``predict``.

        Returns:
            ``[n]`` int64 classes, or ``[n, num_classes]`` float32.

        Raises:
            ConfigError: the run does not predict edge labels, or there are no such edges.
            GraphError: as in ``predict``.
        """
        check_choice("edges", edges, EDGES)
        run = self._loaded
        model = run.trained.model
        if not isinstance(model, EdgeModel):
            raise ConfigError("predict_edges: expected a run with task=edges")
        kind = output_kind(what, run.trained.signature)
        graph = run.open(graph, unseen)
        ends, rows = find_edges(edges, pairs, run.ends(graph), run.trained.signature)
        predictor = Predictor(model, graph, self.config.evaluation_options)
        chunks = edge_outputs(model, predictor, graph, (ends, rows))
        thresholds = run.trained.thresholds(self.config.threshold, threshold, [kind])
        return np.concatenate(
            [outputs.answer(kind, rows, multilabel=False, thresholds=thresholds) for rows in chunks]
        )

    @standard_arithmetic()
    def embeddings(
        self,
        vertices: Any = None,
        *,
        graph: Any = None,
        layer: int = -2,
        unseen: str = "refuse",
    ) -> Float32Array:
        """Return the rows of a hidden layer over all neighbors, as the next layer's input.

        Args:
            vertices: vertices, as in ``predict``.
            graph: graph of the vertices, as in ``predict``.
            layer: index from the end: -2 is the layer before the last.
            unseen: rule for categories that training lacked, as in ``predict``.

        Returns:
            ``[n, hidden]`` float32, in the order of ``vertices``.

        Raises:
            ConfigError: an id is no vertex, or the model has no such layer.
            GraphError: as in ``predict``.
        """
        return self._loaded.rows(
            *(vertices, graph),
            layer=layer,
            what=outputs.EMBEDDINGS,
            inference="exact",
            unseen=unseen,
        )

    @standard_arithmetic()
    def scores(self, pairs: Any, *, graph: Any = None, unseen: str = "refuse") -> Float32Array:
        """Return the scores of candidate edges in link prediction.

        Args:
            pairs: ids of sources and targets ``[n, 2]``, or a file of them, as the option ``pairs``
                of ``gnnscale predict``. In a graph with types, they are ids of the source and
                destination type of the predicted edge type.
            graph: graph of the vertices, as in ``predict``.
            unseen: rule for categories that training lacked, as in ``predict``.

        Returns:
            ``[n]`` float32; a higher score means a likelier edge.

        Raises:
            ConfigError: the run does not predict links, or an id is no vertex.
            GraphError: as in ``predict``.
        """
        ends, scorer = self._loaded.scorer("scores", graph, unseen)
        return np.concatenate(list(scorer.scores(ends.pairs(pairs))))

    @standard_arithmetic()
    def partners(
        self,
        vertices: Any = None,
        k: int = 10,
        *,
        candidates: Any = None,
        known: str = "include",
        graph: Any = None,
        unseen: str = "refuse",
    ) -> tuple[Array, Float32Array]:
        """Return the ``k`` likeliest targets of an edge from each of ``vertices``.

        A vertex is scored against every candidate but itself.

        Args:
            vertices: sources, as in ``predict``; with types, of the predicted edges' source type.
            k: number of targets.
            candidates: possible targets, given like ``vertices``. None: the candidates that the run
                was trained with, if they are of one kind, else all vertices. In a graph with types,
                they are of the destination type.
            known: ``exclude`` leaves out targets of edges of the graph, held-out edges too;
                ``include`` lists them.
            graph: graph of the vertices, as in ``predict``.
            unseen: rule for categories that training lacked, as in ``predict``.

        Returns:
            Ids ``[n, k]``, best first, and their scores ``[n, k]`` float32.

        Raises:
            ConfigError: the run does not predict links, an id is no vertex, or a vertex has fewer
                than ``k`` candidates.
            GraphError: as in ``predict``.
        """
        check_range("k", k, 1, 1 << 16)
        task = self._loaded.task if graph is None else None
        ends, scorer = self._loaded.scorer("partners", graph, unseen)
        sources, default = ends.sources(vertices), None
        if task is not None and candidates is None:
            default = run_candidates(self.config, self.directory, ends.graph)
        targets = find_candidates(candidates, ends, sources, k, default=default, option="k")
        left_out = find_known(known, ends, sources, task)
        chunks = scorer.partners(sources, targets, k, left_out)
        parts, scores = zip(*check_partners(chunks, "k", refuse=True), strict=True)
        numbers = ends.numbers(np.concatenate(parts).reshape(-1), 1)
        flat = outputs.RowIds(vertices=numbers, user_ids=ends.user_ids)
        return flat.array(0, len(sources) * k).reshape(-1, k), np.concatenate(scores)

    @standard_arithmetic()
    def export(
        self, file: str | Path, *, format: str = "safetensors", force: bool = False
    ) -> weights.ExportedWeights:
        """Write the weights of the best epoch, as ``gnnscale export`` does.

        Args:
            file: output file, ``.safetensors``.
            format: naming of the weights: ``safetensors`` (our names), ``pyg`` or ``dgl``.
            force: whether to overwrite an existing file.

        Returns:
            The file, and a program that loads it.

        Raises:
            ConfigError: the library has no equivalent model, or the file exists.
            GraphError: the graph store is not usable.
            OSError: the file cannot be written.
        """
        config = weights.ExportConfig(
            run=self.directory, format=format, out=Path(file), force=force
        )
        trained, run = self._loaded.trained, self.config
        weighted = trained.is_weighted(run, self.directory)
        return weights.export_trained(config, trained, run.model, run.sampler, weighted=weighted)

    @cached_property
    def _loaded(self) -> LoadedRun:
        return LoadedRun(directory=self.directory, config=self.config)
