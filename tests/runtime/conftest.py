from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf

from gnnscale.config import typed
from gnnscale.hardware import usable_cores
from gnnscale.runtime.settings import TrainConfig

TINY = (
    *("dataset.num_vertices=600", "dataset.num_edges=3000", "dataset.num_classes=4"),
    *("dataset.num_features=8", "model.hidden=8", "sampler.fanouts=[5,3]"),
    *("dataset.train_fraction=0.6", "batch_size=64", "epochs=3", "num_threads=1"),
)


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def options(stores: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., DictConfig]]:
    """Compose ``train.yaml`` for a tiny graph, with overrides as on the command line."""
    monkeypatch.setenv("GNNSCALE_HOME", str(stores))
    OmegaConf.register_new_resolver("usable_cores", usable_cores, replace=True)
    with initialize_config_module("gnnscale.configs", version_base="1.3"):
        yield lambda *overrides: compose("train", [*TINY, *overrides])


@pytest.fixture
def settings(options: Callable[..., DictConfig]) -> Callable[..., TrainConfig]:
    return lambda *overrides: typed(options(*overrides), TrainConfig)


class Silent:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def started(self, run: Any) -> None:
        self.events.append(("started", run))

    def stepped(self, record: Any) -> None:
        self.events.append(("stepped", record))

    def trained(self) -> None:
        self.events.append(("trained", None))

    def finished_epoch(self, record: Any) -> None:
        self.events.append(("finished_epoch", record))


@pytest.fixture
def observer() -> Silent:
    return Silent()
