import json
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from one_line import one_line

from gnnscale.core.config.typed import typed
from gnnscale.inference.load_run import load_run, load_trained, open_run_task
from gnnscale.run.checkpoint import INPUT_SCHEMA
from gnnscale.run.checkpoint.input_schema import InputSchema
from gnnscale.run.config import RunConfig
from gnnscale.training.setup import open_run
from gnnscale.training.train import train

Trained = Callable[..., Path]


@pytest.fixture
def trained(options: Any, tmp_path: Path, observer: Any) -> Trained:
    def run(*overrides: str) -> Path:
        node = options("epochs=1", *overrides)
        plain: Any = OmegaConf.to_container(node, resolve=True)
        OmegaConf.save(plain, tmp_path / "config.yaml")
        train(open_run(typed(node, RunConfig), tmp_path, plain), observer)
        return tmp_path

    return run


@pytest.mark.parametrize(
    "model",
    [*("model=gcn", "model=gin", "model=gat", "model=sage"), "model.norm=batch", "task=links"],
)
def test_the_model_is_there_without_its_graph(trained: Trained, model: str) -> None:
    run = trained(model)
    config = load_run(run)
    graph = open_run_task(config, run).graph
    known, found = load_trained(run, config, graph), load_trained(run, config)
    assert found.signature == known.signature == InputSchema.of(graph)
    assert (found.epoch, found.file) == (1, run / "checkpoints" / "best.safetensors")
    for (name, each), other in zip(
        known.model.state_dict().items(), found.model.state_dict().values(), strict=True
    ):
        assert torch.equal(each, other), name
    assert all(each.requires_grad for each in found.model.parameters())
    assert not any(each.is_meta for each in (*found.model.parameters(), *found.model.buffers()))
    found.check_own(graph)
    with one_line("the graph's name is other, but"):
        found.check_own(replace(graph, name="other"))


def test_options_that_do_not_go_with_the_graph_are_of_the_run(trained: Trained) -> None:
    run = trained("model=gat")
    config = load_run(run)
    other = replace(config, model=replace(config.model, edge_features=True))
    with one_line("have no features", begins=f"{run}/config.yaml: model.edge_features=true: edges"):
        open_run_task(other, run)


def test_a_signature_of_other_sizes_takes_no_memory(trained: Trained) -> None:
    run = trained()
    config = load_run(run)
    file = run / INPUT_SCHEMA
    values = json.loads(file.read_text())
    del values["crc32"]  # as an earlier release wrote it
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Weights of 1 << 16 features would take 4 GiB.
    file.write_text(json.dumps(values | {"num_features": 1 << 16}))
    wide = replace(config, model=replace(config.model, hidden=1 << 13))
    for given in (config, wide):
        with one_line("best.safetensors: not weights of this model"):
            load_trained(run, given)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_a_signature_of_no_classes_is_refused(trained: Trained) -> None:
    run = trained()
    file = run / INPUT_SCHEMA
    values = json.loads(file.read_text())
    del values["crc32"]  # as an earlier release wrote it
    file.write_text(json.dumps(values | {"num_classes": 0}))
    with one_line("expected signature.num_classes above 0, got 0", begins=str(file)):
        load_trained(run, load_run(run))


def test_a_run_without_a_signature_needs_its_graph(trained: Trained) -> None:
    run = trained()
    (run / INPUT_SCHEMA).unlink()
    config = load_run(run)
    assert load_trained(run, config).signature == InputSchema.of(config.dataset.open())


def test_a_module_for_a_model_of_ours(trained: Trained) -> None:
    with one_line("model.module: the run trained a model of gnnscale, and needs no module"):
        load_run(trained(), {"model.module": "os:system"})
