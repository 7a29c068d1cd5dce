from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import pytest
import torch

from gnnscale.backend import Backend, HostParts, open_backend
from gnnscale.backend.loading import FeatureLoader
from gnnscale.graph import Graph
from gnnscale.model import GNN, GraphSAGE
from gnnscale.model.trainable import vertex_objective
from gnnscale.plan import Cpu, Device
from gnnscale.sampler import MiniBatch, NeighborSampler

SEEDS = np.arange(0, 300, 5)


class OpenBackend(Protocol):
    def __call__(self, device: Device, *, model: GNN | None = None) -> Backend: ...


@pytest.fixture
def graph(random_graph: Callable[..., Graph]) -> Graph:
    return random_graph()


@pytest.fixture
def new_model(graph: Graph) -> Callable[[], GNN]:
    """Build a model of ``graph``, with weights that are always the same."""

    def build() -> GNN:
        torch.manual_seed(3)
        return GraphSAGE(hidden=16, dropout=0).build(
            num_features=graph.num_features, num_classes=graph.num_classes
        )

    return build


@pytest.fixture
def backend(graph: Graph, new_model: Callable[[], GNN]) -> OpenBackend:
    """Open a device's backend on a random graph, for a new model unless it is given one."""

    def build(device: Device, *, model: GNN | None = None) -> Backend:
        model = model or new_model()
        sampler = NeighborSampler(graph, fanouts=[10, 5], seed=1)
        loader = FeatureLoader(graph, model, num_threads=1, aggregates=device.host_aggregates)
        parts = HostParts(
            graph=graph,
            model=model,
            objective=vertex_objective(graph),
            sampler=sampler,
            loader=loader,
        )
        return open_backend(device, parts)

    return build


@pytest.fixture
def batch(backend: OpenBackend) -> MiniBatch:
    return backend(Cpu()).sample(SEEDS, 0)
