import numpy as np
import pytest
import torch

from gnnscale.backend import BackendInputs, open_backend
from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.nn import GraphSAGE
from gnnscale.nn.base import vertex_objective
from gnnscale.planner import Cpu
from gnnscale.sampling import NeighborSampler, NeighborSampling


@pytest.fixture
def graph(random_graph):
    return random_graph()


@pytest.fixture
def new_model(graph):
    """Build a model of ``graph``, with weights that are always the same."""
    sizes = {"num_features": graph.num_features, "num_classes": graph.num_classes}

    def build():
        torch.manual_seed(3)
        return GraphSAGE(hidden=16, dropout=0).build(**sizes)

    return build


@pytest.fixture
def model(new_model):
    return new_model()


@pytest.fixture
def host(graph):
    """Build a host's part of training a model, of ``graph`` unless it is given another one."""

    def build(model, *, of=graph, aggregates=True, dtype=torch.float32, **fields):
        return BackendInputs(
            graph=of,
            model=model,
            objective=vertex_objective(of),
            sampler=NeighborSampler(of, fanouts=[10, 5], seed=1),
            sampling=NeighborSampling(fanouts=[10, 5]),
            seed=1,
            batch_size=300,
            loader=FeatureLoader(
                of, model, num_threads=1, aggregates=aggregates, compute_dtype=dtype
            ),
            **fields,
        )

    return build


@pytest.fixture
def backend(host, new_model):
    """Open a device's backend on a random graph, for a new model unless it is given one."""

    def build(device, model=None):
        return open_backend(device, host(model or new_model(), aggregates=device.host_aggregates))

    return build


@pytest.fixture
def batch(backend):
    return backend(Cpu()).sample(np.arange(0, 300, 5), 0)
