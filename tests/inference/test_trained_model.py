import json
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from learnt import same
from one_line import one_line

from gnnscale.inference.load_run import load_run, open_run_task
from gnnscale.inference.trained_model import load_trained
from gnnscale.run.checkpoint import INPUT_SCHEMA
from gnnscale.run.checkpoint.input_schema import InputSchema

Trained = Callable[..., Path]


@pytest.fixture
def trained(finished: Any, tmp_path: Path) -> Trained:
    def run(*overrides: str) -> Path:
        finished("epochs=1", *overrides)
        return tmp_path

    return run


def change_schema(run: Path, **fields: Any) -> None:
    values = json.loads((run / INPUT_SCHEMA).read_text())
    values.pop("crc32", None)  # as an earlier release wrote it
    (run / INPUT_SCHEMA).write_text(json.dumps(values | fields))


@pytest.mark.long
@pytest.mark.parametrize("model", ["model=gat", "model.norm=batch", "task=links"])
def test_the_model_is_there_without_its_graph(trained: Trained, model: str) -> None:
    run = trained(model)
    config = load_run(run)
    graph = open_run_task(config, run).graph
    expected, found = load_trained(run, config, graph), load_trained(run, config)
    assert found.signature == expected.signature == InputSchema.of(graph)
    assert (found.epoch, found.file) == (1, run / "checkpoints" / "best.safetensors")
    assert same(expected.model.state_dict(), found.model.state_dict())
    assert all(each.requires_grad for each in found.model.parameters())
    assert not any(each.is_meta for each in (*found.model.parameters(), *found.model.buffers()))
    found.check_trained_on(graph)
    with one_line("the graph's name is other, but"):
        found.check_trained_on(replace(graph, name="other"))
    if model == "model=gat":
        other = replace(config, model=replace(config.model, edge_features=True))
        begins = f"{run}/config.yaml: model.edge_features=true: edges"
        with one_line("have no features", begins=begins):
            open_run_task(other, run)


def test_signatures_that_are_not_of_the_run(trained: Trained) -> None:
    run = trained()
    config = load_run(run)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Weights of 1 << 16 features would take 4 GiB.
    change_schema(run, num_features=1 << 16)
    wide = replace(config, model=replace(config.model, hidden=1 << 13))
    for given in (config, wide):
        with one_line("best.safetensors: not weights of this model"):
            load_trained(run, given)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
    change_schema(run, num_classes=0)
    message = "expected signature.num_classes above 0, got 0"
    with one_line(message, begins=str(run / INPUT_SCHEMA)):
        load_trained(run, config)
    # Without any, a run needs its graph.
    (run / INPUT_SCHEMA).unlink()
    assert load_trained(run, config).signature == InputSchema.of(config.dataset.open())
    with one_line("model.module: the run trained a model of gnnscale, and needs no module"):
        load_run(run, {"model.module": "os:system"})


@pytest.mark.long
def test_thresholds_are_those_of_the_runs_rule(trained: Trained, caplog) -> None:
    run = trained("dataset.num_classes=2", "threshold=f1")
    caplog.clear()  # of a store that was prepared first
    config = load_run(run)
    model = load_trained(run, config)
    chosen = model.thresholds("f1", None)
    assert chosen is not None
    assert 0 < chosen[0] < 1
    assert (
        load_trained(run, config, open_run_task(config, run).graph).thresholds("f1", None) == chosen
    )
    assert model.thresholds("f1", 0.25) == (0.25,)
    assert model.thresholds("f1", None, ["probabilities"]) is model.thresholds(None, None) is None
    assert not caplog.messages
    assert model.thresholds("recall_at_precision_0.9", None) is None
    assert "the run was stopped before it chose a threshold" in caplog.text
    for threshold in (0.0, 1.0, float("nan")):
        with one_line(f"threshold={threshold}: expected a probability"):
            model.thresholds("f1", threshold)
    # What a file says is checked.
    for values in ([0.5, 0.5], [1.5], ["x"]):
        change_schema(run, thresholds={"rule": "f1", "values": values, "valid": {}})
        with one_line(str(run / INPUT_SCHEMA), "thresholds"):
            load_trained(run, config)
