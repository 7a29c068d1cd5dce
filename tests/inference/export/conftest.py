from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from composed import composed
from hydra import initialize_config_module
from omegaconf import OmegaConf
from tiny_runs import TINY

from gnnscale.core.config.typed import typed
from gnnscale.core.hardware import usable_cores
from gnnscale.run.config import RunConfig
from gnnscale.training.setup import open_run
from gnnscale.training.train import train

MORE = ("dataset.train_fraction=0.6", "batch_size=64", "epochs=2")

Trained = Callable[..., Path]


class Silent:
    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@pytest.fixture(scope="session")
def export_home(tmp_path_factory, write_figures) -> Path:
    return write_figures(tmp_path_factory.mktemp("home"))


@pytest.fixture(autouse=True)
def stores(export_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(export_home))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, export_home: Path) -> Trained:
    """Return the directory of a tiny run with other options, trained once."""

    @cache
    def run(*overrides: str) -> Path:
        OmegaConf.register_new_resolver("usable_cores", usable_cores, replace=True)
        with initialize_config_module("gnnscale.configs", version_base="1.3"):
            node = composed([*TINY, *MORE, *overrides])
        directory = tmp_path_factory.mktemp("run")
        plain: Any = OmegaConf.to_container(node, resolve=True)
        OmegaConf.save(plain, directory / "config.yaml")
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("GNNSCALE_HOME", str(export_home))
            train(open_run(typed(node, RunConfig), directory, plain), Silent())
        return directory

    return run
