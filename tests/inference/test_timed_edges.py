"""Exact outputs of edges as of their times, against the sampler edge by edge."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from one_line import one_line
from timed_ratings import future_ratings, timed_ratings

from gnnscale.backend.typed_loading import open_loader
from gnnscale.inference.predictor import Predictor
from gnnscale.inference.timed_edges import edge_outputs, refuse_pairs
from gnnscale.nn.options import GIN
from gnnscale.nn.typed_options import RSAGE
from gnnscale.run.inputs import EvaluationOptions
from gnnscale.run.tasks.base import EdgeTask
from gnnscale.run.tasks.options import EdgePrediction
from gnnscale.run.typed_inputs import read_by_type
from gnnscale.sampling import NeighborSampling


def opened(graph, model):
    task = EdgePrediction(own_features=False)
    graph = task.with_cutoffs(graph, None)
    torch.manual_seed(0)
    graph = read_by_type(model, graph, seed=0)
    return graph, task.build_for(graph, model), EdgeTask(graph=graph, own_features=False)


@pytest.mark.parametrize("bound", [None, "inclusive"])
@pytest.mark.parametrize("by_type", [False, True])
def test_outputs_are_those_of_all_allowed_neighbors(by_type, bound) -> None:
    plain = future_ratings(by_type=True) if by_type else timed_ratings()
    graph, model, task = opened(plain, RSAGE(hidden=8) if by_type else GIN(hidden=8))
    sampler = NeighborSampling(fanouts=[-1, -1], bound=bound)
    options = EvaluationOptions(
        model_name="model",
        inference="exact",
        sampler=sampler,
        batch_size=10,
        seed=0,
        num_threads=1,
        compute_dtype="float32",
    )
    rows = task.labels.split.test_idx[[5, 3, 60, 5]]
    edges = np.asarray(graph.edges.ends[rows]), rows
    (found,) = edge_outputs(model, Predictor(model, graph, options), graph, edges)
    one_by_one = task.sampling(sampler, None).sampler(graph, seed=3, num_threads=1)
    loader = open_loader(graph, model, num_threads=1)
    model.eval()
    for row, output in zip(rows, found, strict=True):
        batch = one_by_one.sample(np.array([row]), 7)
        with torch.no_grad():
            expected = model(batch, loader.load(batch)).numpy()
        np.testing.assert_allclose(output, expected[0], rtol=1e-4, atol=1e-5)


def test_pairs_have_no_times() -> None:
    refuse_pairs(timed_ratings(), "pairs")
    with one_line("pairs: expected edges of a graph", "times"):
        refuse_pairs(replace(timed_ratings(), samples_by_time=True), "pairs")
