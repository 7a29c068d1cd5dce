from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from gnnscale.core.artifact.npy import map_npy
from gnnscale.core.config.typed import typed
from gnnscale.features import HostFeatures
from gnnscale.graph import Graph
from gnnscale.run.config import RunConfig
from gnnscale.run.records import TrainResult
from gnnscale.training.setup import open_run
from gnnscale.training.train import train


@pytest.fixture
def finished(options, tmp_path, observer) -> Callable[..., TrainResult]:
    """Train to the end in ``tmp_path``, with overrides as on the command line."""

    def run(*overrides: str) -> TrainResult:
        node = options(*overrides)
        plain: Any = OmegaConf.to_container(node, resolve=True)
        OmegaConf.save(plain, tmp_path / "config.yaml")
        return train(open_run(typed(node, RunConfig), tmp_path, plain), observer)

    return run


@pytest.fixture
def on_disk(tmp_path: Path) -> Callable[[Graph], tuple[Graph, HostFeatures]]:
    """Move the features of a graph to a file, and return a store that reads them there."""

    def move(graph: Graph) -> tuple[Graph, HostFeatures]:
        np.save(tmp_path / "features.npy", graph.features)
        graph = replace(graph, features=map_npy(tmp_path / "features.npy"))
        width, dtype = graph.num_features, graph.feature_dtype
        return graph, HostFeatures(graph.features, dtype, num_features=width, from_disk=True)

    return move
