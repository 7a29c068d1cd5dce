from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.core.errors import GraphError
from gnnscale.feature import HostFeatures
from gnnscale.runtime.checkpoint.artefacts import (
    GRAPH_STORE,
    PREAGGREGATED,
    Artefact,
    make_artefacts,
    open_aggregated,
    open_graph,
)
from gnnscale.runtime.processes import launch as launching
from gnnscale.runtime.settings import TrainConfig


@pytest.fixture
def config(settings: Callable[..., TrainConfig], tmp_path: Path) -> TrainConfig:
    return settings(f"dataset.store={tmp_path / 'store'}", "runtime.prefetch=none", "epochs=1")


def test_a_missing_store_is_made_and_opened(config: TrainConfig, tmp_path: Path) -> None:
    (artefact,) = made = make_artefacts(config)
    assert (artefact.name, artefact.path) == (GRAPH_STORE, tmp_path / "store")
    assert sorted(file.name for file in artefact.path.glob("*.json")) == ["meta.json"]
    graph = open_graph(made)
    assert graph.num_vertices == 600
    assert graph.content == artefact.content
    # It is there now, and is what it was.
    assert make_artefacts(config) == made


def test_others_among_the_artefacts_are_none_of_the_graphs(config: TrainConfig) -> None:
    (artefact,) = make_artefacts(config)
    other = Artefact(name="partition", path=Path("nowhere"), content="")
    assert open_graph([other, artefact, other]).content == artefact.content


def test_a_store_that_holds_another_graph_is_refused(config: TrainConfig) -> None:
    (artefact,) = make_artefacts(config)
    wanted = replace(artefact, content="0" * len(artefact.content))
    with pytest.raises(GraphError) as error:
        open_graph([wanted])
    assert str(error.value) == (
        f"{artefact.path}: the graph store in it changed since the run was launched"
    )


def test_a_store_replaced_between_launch_and_opening(
    config: TrainConfig,
    settings: Callable[..., TrainConfig],
    observer: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = settings(f"dataset.store={tmp_path / 'other'}", "seed=1", "dataset.split_seed=1")

    def make_and_replace(config: TrainConfig) -> tuple[Artefact, ...]:
        made = make_artefacts(config)
        (replacement,) = make_artefacts(other)
        made[0].path.rename(tmp_path / "before")
        replacement.path.rename(made[0].path)
        return made

    monkeypatch.setattr(launching, "make_artefacts", make_and_replace)
    with pytest.raises(Exception, match="the graph store in it changed since") as error:
        launching.launch(config, tmp_path, observer, options={})
    assert str(error.value).startswith(f"{tmp_path / 'store'}: ")
    assert "\n" not in str(error.value)
    assert observer.events == []
    assert not (tmp_path / "checkpoints").exists()


def test_a_damaged_store_is_refused_before_any_worker(config: TrainConfig, tmp_path: Path) -> None:
    make_artefacts(config)
    labels = np.load(tmp_path / "store" / "labels.npy")
    np.save(tmp_path / "store" / "labels.npy", labels[:-1])
    with pytest.raises(GraphError, match=r"labels") as error:
        open_graph(make_artefacts(config))
    assert "\n" not in str(error.value)


def test_rows_are_aggregated_before_any_worker(
    settings: Callable[..., TrainConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(
        *(f"dataset.store={tmp_path / 'store'}", "features=preaggregated", "model=gin"),
        "sampler.fanouts=[5,-1]",
    )
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))
    made = make_artefacts(config)
    assert [each.name for each in made] == [GRAPH_STORE, PREAGGREGATED]
    assert make_artefacts(config) == made
    graph = open_graph(made)
    host = HostFeatures.of(graph)
    assert open_aggregated(made[:1], graph, host) is None
    found = open_aggregated(made, graph, host)
    assert found is not None
    assert (found.num_rows, found.width, found.row_bytes) == (600, 8, 32)
    other = replace(made[1], content="0" * 32)
    with pytest.raises(GraphError) as error:
        open_aggregated([made[0], other], graph, host)
    assert str(error.value) == (
        f"{other.path}: the preaggregated features in it changed since the run was launched"
    )
    (other.path / "rows.npy").write_bytes(b"")
    with pytest.raises(GraphError, match=r"rows\.npy: 0 bytes, .* it is made again$"):
        make_artefacts(config)
