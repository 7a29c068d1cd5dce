import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import own_layers
import pytest
import safetensors.torch
import torch
from held_rows import HoldEvenVertices
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from one_line import one_line
from tiny_runs import TINY

from gnnscale import api
from gnnscale.core.config.typed import typed
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.data import Planetoid
from gnnscale.graph import Graph
from gnnscale.inference.evaluate import evaluate
from gnnscale.inference.layerwise import LayerwiseInference
from gnnscale.run.commands import EvaluateConfig
from gnnscale.run.config import RunConfig

Train = Callable[..., api.Training]

pytestmark = pytest.mark.integration


def test_a_run_is_that_of_the_command(train: Train, tmp_path: Path) -> None:
    done = train(platform="cpu_x2", options={"optimizer": "sgd", "optimizer.lr": 0.1, "seed": 3})
    overrides = [
        *(*TINY, "dataset.train_fraction=0.6", "batch_size=64", "num_threads=2"),
        *("device_plan=cpu_x2", "optimizer=sgd", "optimizer.lr=0.1", "seed=3", "epochs=2"),
    ]
    with initialize_config_module("gnnscale.configs", version_base="1.3"):
        options = compose("train", overrides)
    # Options that are not given are those of the command.
    written = OmegaConf.load(done.directory / "config.yaml")
    assert written == OmegaConf.create(OmegaConf.to_container(options, resolve=True))
    names = {each.name for each in done.directory.iterdir()}
    assert {"summary.json", "metrics.jsonl", "steps.jsonl", "report.html", "train.log"} <= names
    assert done.directory.parent == tmp_path / "outputs" / "train"
    assert "epoch 2/2" in (done.directory / "train.log").read_text()
    summary = json.loads((done.directory / "summary.json").read_text())
    assert (summary["status"], summary["model"], summary["seed"]) == ("completed", "GraphSAGE", 3)
    assert done.losses[-1] == summary["train_loss"]
    assert done.metrics[-1] is not None
    assert done.test_metric == summary["test_metric"]
    assert done.figures == "measured"
    # The command takes it from there.
    found = evaluate(EvaluateConfig(run=done.directory, num_threads=1))
    assert found.test_metric == pytest.approx(done.test_metric)


def test_the_model_is_the_one_that_was_tested(train, graph, tmp_path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    computation = api.gnn_computation("customize", own_layers.MaxPooling)
    done = train(computation, epochs=3)
    assert torch.equal(torch.rand(2), expected), "the program's random numbers are its own"
    assert not done.model.training
    opened = graph.config.open()
    logits = LayerwiseInference(done.model, opened, num_threads=1).logits(opened.test_idx)
    correct = logits.argmax(1).numpy() == opened.labels[opened.test_idx]
    assert correct.mean() == pytest.approx(done.test_metric)

    file = tmp_path / "weights.safetensors"
    api.save_model(done, file)
    saved = safetensors.torch.load_file(file)
    torch.testing.assert_close(saved, dict(done.model.state_dict()), rtol=0, atol=0)
    done.model.load_state_dict(saved)


def test_a_resumed_training_ends_as_one_never_stopped(train: Train, tmp_path: Path) -> None:
    computation = api.gnn_computation("customize", own_layers.PairSum)
    # Bit for bit by the same threads.
    options = {"num_threads": 1, "runtime.prefetch": "none", "runtime.drm": False}
    given: dict[str, Any] = {"computation": computation, "options": options}
    whole = train(epochs=3, directory=tmp_path / "whole", **given)
    train(epochs=1, directory=tmp_path / "part", **given)
    files = contents(tmp_path / "part")
    with one_line(f"directory={tmp_path}/part: holds a run; resume={tmp_path}/part "):
        train(epochs=1, directory=tmp_path / "part", **given)
    assert contents(tmp_path / "part") == files
    resumed = train(epochs=3, resume=tmp_path / "part", **given)
    assert resumed.directory == tmp_path / "part"
    assert resumed.losses == whole.losses
    assert resumed.test_metric == whole.test_metric
    # A layer of a user's comes from the program alone, and from no file.
    with pytest.raises(ConfigError, match=r"_target_=own_layers\.PairSum: expected a class of"):
        evaluate(EvaluateConfig(run=resumed.directory, num_threads=1))
    with pytest.raises(ConfigError, match=r"resume: model\._target_ is .*GraphSAGE, but"):
        train(epochs=3, resume=tmp_path / "part", options=options)


def contents(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def halves(graph: Graph, num_parts: int) -> Any:
    assert num_parts == 2
    return np.arange(graph.num_vertices) * 2 // graph.num_vertices


def test_parts_by_name_and_by_a_function(train: Train, tmp_path: Path) -> None:
    named = train(platform="cpu_x2", partition=api.graph_partition("range"))
    own = train(platform="cpu_x2", partition=api.graph_partition(halves))
    # The same parts, and so the same seeds in every step.
    assert own.losses == pytest.approx(named.losses, rel=1e-6)
    again = train(platform="cpu_x2", partition=api.graph_partition(lambda *given: halves(*given)))
    assert again.losses == own.losses
    assert len(list((tmp_path / "home" / "owners").iterdir())) == 1
    assert len(list((tmp_path / "home" / "partitions").glob("*given*"))) == 1
    options = OmegaConf.load(own.directory / "config.yaml")
    assert options.partitioner._target_ == "gnnscale.partition.simple.FromFile"
    # What the command resumes it with.
    assert typed(options, RunConfig).partitioner.algorithm == "given"


def test_a_store_of_ones_own(train: Train) -> None:
    whole = train(platform="cpu_x2")
    held = train(platform="cpu_x2", features=api.feature_storing(HoldEvenVertices()))
    assert held.losses == pytest.approx(whole.losses, rel=1e-5)
    written = (held.directory / "config.yaml").read_text()
    assert "_target_: held_rows:HoldEvenVertices" in written
    summary = json.loads((held.directory / "summary.json").read_text())
    assert summary["devices"][0]["feature_hit_rate"] > 0


#: Owners of three vertices, and owners that are the four classes.
THREE = api.OwnerFunction(function=lambda graph, parts: np.zeros(3, int))
LABELS = api.OwnerFunction(function=lambda graph, parts: graph.labels)
COLUMNS = {
    "partition": api.graph_partition("p3"),
    "computation": api.gnn_computation("customize", own_layers.MaxPooling),
}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"options": {"optimiser.lr": 1}}, "optimiser: unknown option, did you mean 'optimizer'"),
        ({"options": {"optimizer": "adm"}}, "optimizer=adm: allowed are adam, adamw, sgd"),
        ({"options": {"model.hidden": 3}}, r"options: model\.hidden: expected in gnn_model"),
        ({"options": {"seed": object}}, "seed: .*object"),
        ({"epochs": 0}, "epochs=0: must be at least 1"),
        ({"partition": "hash"}, "^partition=hash: expected the result of graph_partition"),
        ({"features": "host"}, "^features=host: expected the result of feature_storing"),
        ({"directory": "/proc/nowhere"}, "^/proc/nowhere: No such file or directory"),
        ({"resume": "nowhere"}, "resume=nowhere: expected a run directory"),
        ({"partition": THREE}, r"n: <lambda>: expected an integer for .* got int64 of shape \[3\]"),
        ({"partition": LABELS}, "n: <lambda>: expected owners from 0 to 0, .* got 0 to 3"),
        ({**COLUMNS, "platform": "cpu_x2"}, "partitioner=p3"),
    ],
)
def test_bad_arguments(train: Train, tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        train(**given)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "outputs").exists()


def test_what_other_functions_make_is_asked_for(graph, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = api.gnn_model(api.gnn_computation("GCN"), api.gnn_parameters(2, 8))
    for call, given, message in (
        (api.start_training, (None, graph), "^model=None: expected the result of gnn_model"),
        (api.start_training, (model, model), "^graph=.*: expected the result of load_input"),
        (api.start_training, (model, graph, "cpu"), "^platform=cpu: expected the result"),
        (api.save_model, (None, "weights.safetensors"), "^training=None: expected the result"),
    ):
        with pytest.raises(ConfigError, match=message):
            call(*given)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))
    graph = api.load_input_graph("planetoid", tmp_path / "nowhere", name="cora")
    assert isinstance(graph.config, Planetoid)
    model = api.gnn_model(api.gnn_computation("GCN"), api.gnn_parameters(2, 8))
    with pytest.raises(GraphError, match="nowhere: no such file or folder"):
        api.start_training(model, graph, directory=tmp_path / "a" / "run")
    assert not (tmp_path / "a").exists()
