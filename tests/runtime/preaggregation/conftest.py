from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gnnscale.graph import Graph
from gnnscale.runtime.settings import TrainConfig


@pytest.fixture
def home(
    settings: Callable[..., TrainConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A ``GNNSCALE_HOME`` with nothing in it; that of ``settings`` is all tests'."""
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def graph(home: Path, settings: Callable[..., TrainConfig], tmp_path: Path) -> Graph:
    """A graph of 600 vertices with 8 features, in a store."""
    return settings(f"dataset.store={tmp_path / 'graph'}").dataset.open()
