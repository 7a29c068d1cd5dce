"""A GPU's backend, with the host in its place: outcomes, and what is wrong with data."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale.backend import BackendInputs, DeviceStepInputs
from gnnscale.backend.cuda.backend import CudaBackend
from gnnscale.backend.cuda.host_engine import HostEngine
from gnnscale.core import ConfigError, GraphError
from gnnscale.graph import Graph
from gnnscale.nn import GNN
from gnnscale.planner import Cuda
from gnnscale.planner.cost_model.equations import BatchSize

PLACES = ("device", "host")


@pytest.fixture
def opened(
    host: Callable[..., BackendInputs], new_model: Callable[[], GNN]
) -> Iterator[Callable[..., CudaBackend]]:
    """Open a device that owns its steps."""
    made: list[CudaBackend] = []

    def build(of: Graph, place: str = "device", **fields: Any) -> CudaBackend:
        model = new_model()

        def sgd(of: Any) -> torch.optim.Optimizer:
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


def train(backend: CudaBackend, seeds: Any, step: int = 0) -> Any:
    return backend.train(np.asarray(seeds), step, num_seeds=len(seeds), rate=0.1, updates=True)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"indices": (7, 1 << 29)}, "536870912 is no vertex"),
        ({"indptr": (50, 1 << 40)}, "neighbours of vertex 49"),
    ],
)
def test_a_damaged_graph_is_named(
    graph: Graph, opened: Any, place: str, damage: dict[str, tuple[int, int]], message: str
) -> None:
    ((name, (at, value)),) = damage.items()
    array = np.array(getattr(graph, name))
    array[at::7] = value
    backend = opened(replace(graph, **{name: array}), place)
    pending = train(backend, range(300))
    with pytest.raises(GraphError, match=message):
        pending.read()


@pytest.mark.parametrize("seeds", [[1, 999], [-1, 2]])
def test_a_seed_that_is_no_vertex(graph: Graph, opened: Any, seeds: list[int]) -> None:
    with pytest.raises(ValueError, match="is not a vertex, the graph has 300"):
        train(opened(graph), seeds)


def test_a_seed_that_comes_twice(graph: Graph, opened: Any) -> None:
    pending = train(opened(graph), [5, 7, 5])
    with pytest.raises(ValueError, match="5 appears twice"):
        pending.read()


def test_a_sampling_that_kernels_do_not_know(graph: Graph, opened: Any) -> None:
    with pytest.raises(ConfigError, match="or device_plan=cpu"):
        opened(graph, sampling=object())


def test_an_outcome_has_the_samples_sizes_and_is_read_once(graph: Graph, opened: Any) -> None:
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
