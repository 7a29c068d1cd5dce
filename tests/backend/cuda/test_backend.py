from dataclasses import replace

import numpy as np
import pytest
import torch

from gnnscale.backend import DeviceStepInputs
from gnnscale.backend.cuda.backend import CudaBackend
from gnnscale.backend.cuda.host_engine import HostEngine
from gnnscale.core import ConfigError, GraphError
from gnnscale.planner import Cuda
from gnnscale.planner.cost_model.equations import BatchSize


@pytest.fixture
def opened(host, new_model):
    """Open a device that owns its steps."""
    made: list[CudaBackend] = []

    def build(of, place="device", **fields):
        model = new_model()

        def sgd(of):
            return torch.optim.SGD(of.parameters(), lr=0.1, fused=True)

        own = DeviceStepInputs(build_optimizer=sgd, host_optimizer=sgd(model), clip_norm=None)
        parts = replace(host(model, step_inputs=own), graph=of, **fields)
        device = Cuda(host_driven=True, features=place, topology=place, name="card")
        made.append(CudaBackend(device, parts, HostEngine(device)))
        made[-1].load_state()
        return made[-1]

    yield build
    for each in made:
        each.close()


def train(backend, seeds, step=0):
    return backend.train(np.asarray(seeds), step, num_seeds=len(seeds), rate=0.1, updates=True)


@pytest.mark.parametrize(
    ("place", "name", "at", "value", "message"),
    [
        ("device", "indices", 7, 1 << 29, "536870912 is no vertex"),
        ("host", "indptr", 50, 1 << 40, "neighbours of vertex 49"),
    ],
)
def test_a_damaged_graph_is_named(graph, opened, place, name, at, value, message):
    array = np.array(getattr(graph, name))
    array[at::7] = value
    pending = train(opened(replace(graph, **{name: array}), place), range(300))
    with pytest.raises(GraphError, match=message):
        pending.read()


def test_seeds_and_samplings_that_are_refused(graph, opened):
    backend = opened(graph)
    for seeds in ([1, 999], [-1, 2]):
        with pytest.raises(ValueError, match="is not a vertex, the graph has 300"):
            train(backend, seeds)
    pending = train(opened(graph), [5, 7, 5])
    with pytest.raises(ValueError, match="5 appears twice"):
        pending.read()
    with pytest.raises(ConfigError, match="or device_plan=cpu"):
        opened(graph, sampling=object())


def test_an_outcome_has_the_samples_sizes_and_is_read_once(graph, opened):
    backend = opened(graph, "host")
    pending = [train(backend, range(step, 90, 3), step) for step in range(3)]
    for step, each in enumerate(pending):
        outcome = each.read()
        assert each.ready
        assert each.read() is outcome
        known = backend._host.sampler.sample(np.arange(step, 90, 3, dtype=np.int32), step)
        assert outcome.size == BatchSize.of(known)
        assert outcome.loss > 0
        assert set(outcome.seconds) == {"sample", "load", "propagate", "sync"}
        assert outcome.traffic.rows.host_bytes == len(known.input_vertices) * 80
