from collections.abc import Callable
from typing import Any

import pytest

from gnnscale import api

#: Options of runs that take a moment.
SMALL: dict[str, Any] = {"sampler.fanouts": [5, 3], "batch_size": 64, "num_threads": 2}


@pytest.fixture
def graph() -> api.OptionGroup[Any]:
    sizes = {"num_vertices": 600, "num_edges": 3000, "num_features": 8, "num_classes": 4}
    return api.load_input_graph("planted_partition", train_fraction=0.6, **sizes)


@pytest.fixture
def own_home(tmp_path, monkeypatch, write_figures) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(write_figures(tmp_path / "home")))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def train(graph: api.OptionGroup[Any], own_home: None) -> Callable[..., api.Training]:
    def start(
        computation: api.Computation | None = None, platform: Any = "cpu", **given: Any
    ) -> api.Training:
        computation = computation or api.gnn_computation("GraphSAGE")
        model = api.gnn_model(computation, api.gnn_parameters(L=2, hidden=[8]))
        given["options"] = SMALL | given.get("options", {})
        given.setdefault("epochs", 2)
        return api.start_training(model, graph, api.platform_metadata(platform), **given)

    return start
