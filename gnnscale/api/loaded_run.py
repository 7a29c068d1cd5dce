"""Model and graph of a trained run, read when they are first used."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnscale.api.hitgnn.input_graph import as_graph
from gnnscale.core import ConfigError, check_choice, standard_arithmetic
from gnnscale.core.types import Array
from gnnscale.data.tables.categories import UNSEEN_POLICIES
from gnnscale.data.tables.selection import select_vertices
from gnnscale.data.tables.vertex_ids import read_ids
from gnnscale.graph import Graph
from gnnscale.inference.export import outputs
from gnnscale.inference.export.link_ends import LinkEnds
from gnnscale.inference.export.task_rows import find_rows
from gnnscale.inference.load_run import open_run_task
from gnnscale.inference.predictor import PairScorer, Predictor
from gnnscale.inference.row_predictor import RowPredictor
from gnnscale.inference.trained_model import TrainedModel, load_trained, open_other
from gnnscale.nn import LinkModel
from gnnscale.run.checkpoint.input_schema import InputSchema
from gnnscale.run.config import RunConfig
from gnnscale.run.runtime_config import INFERENCE
from gnnscale.run.tasks.base import Task


@dataclass(frozen=True, kw_only=True)
class LoadedRun:
    """Model and graph of a run, read on first use, and inference with both."""

    directory: Path
    config: RunConfig

    @cached_property
    @standard_arithmetic()
    def trained(self) -> TrainedModel:
        """Model with the weights of the best epoch, in evaluation mode."""
        # Building a model draws random weights, which must not change the program's generator.
        with torch.random.fork_rng(devices=[]):
            trained = load_trained(self.directory, self.config)
        trained.model.eval()
        return trained

    @cached_property
    def task(self) -> Task:
        """The run's task, without candidates of links."""
        return open_run_task(self.config, self.directory)

    @cached_property
    @standard_arithmetic()
    def graph(self) -> Graph:
        """The graph that the run samples, with any learned feature rows written into its features.

        ConfigError: it is not the graph of the run's training.
        """
        graph = self.task.graph
        self.trained.check_trained_on(graph)
        self.trained.give_rows(graph)
        return graph

    def open(self, graph: Any, unseen: str) -> Graph:
        """Return ``graph``, opened and checked to fit the model. None: the run's own graph.

        ``unseen`` is one of ``UNSEEN_POLICIES``.
        """
        check_choice("unseen", unseen, UNSEEN_POLICIES)
        if graph is None:
            return self.graph
        return open_other(self.config, self.trained, as_graph(graph), unseen=unseen)

    def ends(self, graph: Graph) -> LinkEnds:
        """Return the sources and destinations in ``graph`` between which the run predicts edges."""
        return LinkEnds(graph, self.config.task.edge_type_in(graph))

    def scorer(self, method: str, graph: Any, unseen: str) -> tuple[LinkEnds, PairScorer]:
        """Return the ends of edges in ``graph`` (None: the run's own), and the scorer of its pairs.

        ConfigError, naming ``method`` of ``TrainedRun``: the run does not predict links.
        """
        model = self.trained.model
        if not isinstance(model, LinkModel):
            raise ConfigError(f"{method}: expected a run with task=links")
        graph = self.open(graph, unseen)
        predictor = Predictor(model, graph, self.config.evaluation_options)
        return self.ends(graph), PairScorer(model, predictor, graph)

    def rows(
        self,
        vertices: Any,
        graph: Any,
        *,
        layer: int,
        what: str | None,
        inference: str,
        unseen: str,
        threshold: float | None = None,
    ) -> Array:
        """Return the outputs of layer ``layer`` for ``vertices``, converted to the kind ``what``.

        ``what`` is that of ``predict``, or embeddings. ``layer`` counts from the end: -1 is the
        last layer. ``graph`` and ``unseen`` are as in ``open``. ``inference``: ``exact``, over all
        neighbors, or ``sampled``. ``threshold`` is of classes.
        """
        check_choice("inference", inference, INFERENCE)
        graph, trained = self.open(graph, unseen), self.trained
        if trained.signature.predicts_rows:
            raise ConfigError(
                f"layer={layer}: expected a run of vertices, got one of task rows, which gives "
                "outputs as of cut-offs"
            )
        selected = select_vertices(vertices, graph, read_ids(graph), trained.signature.target)
        if layer == -1:
            trained = trained.of_target(selected.vertex_type)
        model, schema = trained.model, trained.signature
        kind = what if what == outputs.EMBEDDINGS else output_kind(what, schema)
        thresholds = trained.thresholds(self.config.threshold, threshold, [kind])
        option = None if kind in (outputs.EMBEDDINGS, outputs.VALUES) else kind
        depth = outputs.num_layers_of(model)
        num_layers = outputs.check_layer(layer, depth, inference=inference, what=option)
        width = outputs.width_of(model, schema, num_layers)
        config = replace(self.config, runtime=replace(self.config.runtime, inference=inference))
        predictor = Predictor(model, graph, config.evaluation_options, num_layers=num_layers)
        chunks = (rows[:, :width] for rows in predictor.rows(selected.vertices_of(graph)))
        return np.concatenate(
            [
                outputs.answer(kind, rows, multilabel=schema.multilabel, thresholds=thresholds)
                for rows in chunks
            ]
        )

    def task_rows(
        self,
        rows: Any,
        part: Any,
        graph: Any,
        *,
        what: str | None,
        inference: str,
        threshold: float | None,
        unseen: str,
    ) -> Array:
        """Return the outputs of ``rows``, or of a ``part`` of the graph's own rows.

        Both are as ``find_rows`` takes them; other arguments are those of the method ``rows``.
        """
        check_choice("inference", inference, INFERENCE)
        graph, trained = self.open(graph, unseen), self.trained
        kind = output_kind(what, trained.signature)
        thresholds = trained.thresholds(self.config.threshold, threshold, [kind])
        selected = find_rows(rows, part, graph, trained.signature.target)
        config = replace(self.config, runtime=replace(self.config.runtime, inference=inference))
        predictor = RowPredictor(trained.model, graph, config.evaluation_options)
        predicted = predictor.outputs(selected.vertices, selected.cutoffs)
        return outputs.answer(kind, predicted, multilabel=False, thresholds=thresholds)


def output_kind(what: str | None, schema: InputSchema) -> str:
    """Return the kind of output: values in regression, otherwise ``what``, or classes for None.

    ConfigError: ``what`` is given in regression.
    """
    outputs.check_labels(what, schema)
    return outputs.VALUES if schema.regression else what or "classes"
