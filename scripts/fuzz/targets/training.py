"""What is done with a graph that was let in: every sampler, and one step of training."""

from typing import Any

import numpy as np
import torch

from gnnscale.artifact.graph_store import FEATURE_DTYPES, METRICS
from gnnscale.backend.loading import FeatureLoader
from gnnscale.graph import Graph
from gnnscale.model import GAT, GCN, GIN, GraphSAGE, ModelConfig, TrainableModel
from gnnscale.model.trainable import seed_loss
from gnnscale.sampler import LayerSampler, MiniBatch, NeighborSampler

from ..case import WrongResultError

MODELS: dict[str, type[ModelConfig]] = {"gcn": GCN, "sage": GraphSAGE, "gat": GAT, "gin": GIN}
SPLITS = ("train", "valid", "test")
_BATCH = 16


def check_graph(graph: Graph) -> None:
    n = graph.num_vertices
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    wrong = {
        "indptr": indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any(),
        "indices": len(indices) and not 0 <= indices.min() <= indices.max() < n,
        "features": graph.features.shape[0] != n or graph.features.ndim != 2,
        "feature_dtype": FEATURE_DTYPES.get(graph.feature_dtype) != graph.features.dtype,
        "labels": len(graph.labels) != n or not _labels_hold(graph),
        "metric": graph.metric not in METRICS,
    }
    for part in SPLITS if graph.num_classes else ():  # else nothing is labelled, nor split
        ids = np.asarray(getattr(graph, f"{part}_idx"))
        wrong[f"{part}_idx"] = not len(ids) or not 0 <= ids.min() <= ids.max() < n
    if graph.feature_dtype != "bfloat16":
        wrong["finite features"] = not np.isfinite(graph.features).all()
    for name, is_wrong in wrong.items():
        if is_wrong:
            raise WrongResultError(f"{name} of the store cannot be right")


def _labels_hold(graph: Graph) -> bool:
    if graph.regression:  # NaN if one is unknown
        return not np.isinf(graph.labels).any()
    low, high = int(graph.labels.min()), int(graph.labels.max())
    if graph.labels.ndim == 2:
        return graph.labels.shape[1] == graph.num_classes and 0 <= low <= high <= 1
    return -1 <= low <= high < graph.num_classes


def train_step(graph: Graph, model_name: str) -> None:
    if not graph.num_classes:
        return  # for its edges
    torch.manual_seed(0)
    heads: dict[str, Any] = {"num_heads": 2} if model_name == "gat" else {}
    config = MODELS[model_name](hidden=4, num_layers=2, **heads)
    model = config.build(num_features=graph.num_features, num_classes=graph.num_classes)
    train_on(graph, model)
    torch.optim.SGD(model.parameters(), lr=0.01).step()


def batch_of(graph: Graph) -> MiniBatch:
    return NeighborSampler(graph, fanouts=[3, 2]).sample(np.asarray(graph.train_idx[:_BATCH]), 0)


def train_on(graph: Graph, model: TrainableModel) -> None:
    batch = batch_of(graph)
    inputs = FeatureLoader(graph, model, num_threads=1).load(batch)
    seed_loss(graph, model(batch, inputs), batch.seeds).backward()


def sample_all(graph: Graph) -> None:
    """Draw a mini-batch with every sampler, and look at the ids in it."""
    seeds = np.asarray(graph.train_idx[:_BATCH])
    samplers = (
        NeighborSampler(graph, fanouts=[2, 2], replace=True),
        NeighborSampler(graph, fanouts=[-1, -1], num_threads=2),
        LayerSampler(graph, layer_sizes=[5, 5]),
    )
    for sampler in samplers:
        vertices = sampler.sample(seeds, 1).input_vertices
        if not 0 <= vertices.min() <= vertices.max() < graph.num_vertices:
            raise WrongResultError(f"{type(sampler).__name__} drew a vertex that is none")
