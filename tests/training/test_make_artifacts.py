from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_line import one_line

from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.core.shared_memory import shared_memory_of
from gnnscale.features import HostFeatures
from gnnscale.inference.load_run import open_run_task
from gnnscale.run.artifacts import (
    GRAPH_STORE,
    PREAGGREGATED,
    RunArtifact,
    open_graph,
    open_store,
    open_task,
    with_shared_arrays,
)
from gnnscale.run.checkpoint.file import check_same_graph
from gnnscale.run.checkpoint.writer import graph_identity
from gnnscale.run.config import RunConfig
from gnnscale.training.launcher import launch as launching
from gnnscale.training.make_artifacts import make_artifacts, share_graph
from gnnscale.training.preaggregation import open_aggregated


@pytest.fixture
def config(settings: Any, tmp_path: Path) -> RunConfig:
    return settings(f"dataset.store={tmp_path / 'store'}", "runtime.prefetch=none", "epochs=1")


def test_a_missing_store_is_made_and_opened(config, tmp_path) -> None:
    (artefact,) = made = make_artifacts(config)
    assert (artefact.name, artefact.path) == (GRAPH_STORE, tmp_path / "store")
    assert sorted(file.name for file in artefact.path.glob("*.json")) == ["meta.json"]
    other = RunArtifact(name="partition", path=Path("nowhere"), content="")
    graph = open_store([other, artefact, other])
    assert graph.num_vertices == 600
    assert graph.content == artefact.content
    # It is there now, and is what it was.
    assert make_artifacts(config) == made
    assert share_graph(config, made) == ([], [])  # without a GPU


def test_a_store_replaced_between_launch_and_opening(
    config, settings, observer, tmp_path, monkeypatch
) -> None:
    other = settings(f"dataset.store={tmp_path / 'other'}", "seed=1", "dataset.split_seed=1")

    def make_and_replace(config: RunConfig) -> tuple[RunArtifact, ...]:
        made = make_artifacts(config)
        (replacement,) = make_artifacts(other)
        made[0].path.rename(tmp_path / "before")
        replacement.path.rename(made[0].path)
        return made

    monkeypatch.setattr(launching, "make_artifacts", make_and_replace)
    begins = f"{tmp_path / 'store'}: the graph store in it changed since"
    with one_line(error=Exception, begins=begins):
        launching.launch(config, tmp_path, observer, options={})
    assert observer.events == []
    assert not (tmp_path / "checkpoints").exists()


def test_rows_are_aggregated_before_any_worker(settings, tmp_path, monkeypatch) -> None:
    options = ("features=preaggregated", "model=gin", "sampler.fanouts=[5,-1]")
    config = settings(f"dataset.store={tmp_path / 'store'}", *options)
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))
    made = make_artifacts(config)
    assert [each.name for each in made] == [GRAPH_STORE, PREAGGREGATED]
    assert make_artifacts(config) == made
    graph = open_graph(config.task_inputs, made, open_store(made))
    host = HostFeatures.of(graph)
    assert open_aggregated(made[:1], graph, host) is None
    found = open_aggregated(made, graph, host)
    assert found is not None
    assert (found.num_rows, found.width, found.row_bytes) == (600, 8, 32)
    other = replace(made[1], content="0" * 32)
    changed = "the preaggregated features in it changed since the run was launched"
    with one_line(error=GraphError, begins=f"{other.path}: {changed}"):
        open_aggregated([made[0], other], graph, host)
    (other.path / "rows.npy").write_bytes(b"")
    with pytest.raises(GraphError, match=r"rows\.npy: 0 bytes, .* it is made again$"):
        make_artifacts(config)


@pytest.mark.parametrize(
    ("places", "shared"),
    [
        ("features:host,topology:device", ["features"]),
        ("features:auto,topology:auto,memory_bytes:1073741824", []),
        ("features:auto,topology:auto,memory_bytes:1000", ["features", "indices", "indptr"]),
    ],
)
def test_what_gpus_read_in_host_memory_is_shared(settings, tmp_path, places, shared) -> None:
    gpu = f"{{kind:cuda,host_driven:true,{places}}}"
    plan = f"device_plan.devices=[cpu,{gpu}]"
    config = settings(f"dataset.store={tmp_path / 'store'}", plan)
    made = make_artifacts(config)
    memory, found = share_graph(config, made)
    assert len(memory) == len(found) == len(shared)
    known = open_graph(config.task_inputs, made, open_store(made))
    graph = with_shared_arrays(known, (*made, *found))
    for name in ("features", "indices", "indptr"):
        array = getattr(graph, name)
        assert np.array_equal(array, getattr(known, name))
        assert (shared_memory_of(array) is not None) == (name in shared)


@pytest.mark.long
@pytest.mark.parametrize(
    ("features", "launched_first"), [("degrees", True), ("projections", False)]
)
def test_rows_that_are_made_know_no_edge_that_is_held_out(
    settings, tmp_path, features, launched_first, caplog
) -> None:
    caplog.set_level("INFO", "gnnscale.run.inputs")
    options = ("task=links", "task.test_fraction=0.4", f"features={features}")
    config = settings(f"dataset.store={tmp_path / 'store'}", *options)
    if launched_first:
        made = make_artifacts(config)
        # Rows are made by those who read them.
        assert not [record for record in caplog.records if record.name == "gnnscale.run.inputs"]
        task = open_task(config.task_inputs, made, open_store(made))
    else:
        task = open_run_task(config)
    expected = config.features.make(task.graph, num_threads=1)
    assert np.array_equal(task.graph.features, expected)
    whole = config.features.make(config.dataset.open(), num_threads=1)
    assert not np.array_equal(task.graph.features, whole)
    if features == "degrees":
        in_degrees = np.diff(task.graph.indptr)
        assert np.allclose(np.expm1(task.graph.features[:, 0]), in_degrees, rtol=1e-5)


@pytest.mark.long
def test_weights_of_rows_made_of_all_edges_are_refused(settings, tmp_path) -> None:
    """An earlier release wrote the hash of the divided graph, whatever its rows were made of."""
    options = (f"dataset.store={tmp_path / 'store'}", "task=links")
    task = open_run_task(settings(*options, "features=degrees"))
    divided = open_run_task(settings(*options)).graph
    earlier = graph_identity(task.graph) | {"content": divided.content}
    with pytest.raises(ConfigError, match="train such a run again"):
        check_same_graph(
            tmp_path, earlier, graph=graph_identity(task.graph), option="run", divided=True
        )
    learned = open_run_task(settings(*options, "features=learned")).graph
    assert learned.content == divided.content
