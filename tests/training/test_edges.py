"""Labels of edges by the runtime: the same losses on any devices, resumed, evaluated, predicted."""

from pathlib import Path

import numpy as np
import pytest
import torch
from devices import accelerator, plan_of
from learnt import same, weights
from one_line import one_line
from safetensors.torch import load_file

import gnnscale
from gnnscale.core.errors import GraphError
from gnnscale.data import from_arrays
from gnnscale.graph import Graph
from gnnscale.inference.evaluate import evaluate
from gnnscale.inference.export.predict import PredictConfig, predict
from gnnscale.run.commands import EvaluateConfig

pytestmark = pytest.mark.integration

NUM_VERTICES, NUM_EDGES = 120, 900


def labelled(*, values: bool = False, with_features: bool = True, seed: int = 0) -> Graph:
    """A graph whose edges' labels follow from one feature of the edge and one of its source."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, NUM_VERTICES, (2, NUM_EDGES))
    rows = rng.standard_normal((NUM_VERTICES, 6)).astype(np.float32)
    features = rng.standard_normal((NUM_EDGES, 3)).astype(np.float32)
    score = rows[src, 0] + (features[:, 1] if with_features else 0)
    return from_arrays(
        (src, dst),
        rows,
        edge_features=features if with_features else None,
        edge_labels=score.astype(np.float32) if values else (score > 0).astype(np.int64),
        edge_split=tuple(np.split(rng.permutation(NUM_EDGES), [600, 750])),
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("labelled") / "store"
    labelled().save(path)
    return path


def options(store: Path) -> tuple[str, ...]:
    return (
        *("task=edges", "dataset=store", f"dataset.store={store}", "batch_size=100", "epochs=6"),
        *("model.hidden=16", "model.dropout=0.2", "sampler.fanouts=[5,5]"),
        *("optimizer.lr=0.02", "runtime.prefetch=none"),
    )


@pytest.mark.parametrize(
    ("model", "devices"),
    [
        ("gatv2", ("device_plan=cpu_x2", "device_plan.split=[30,70]")),
        ("sage", (plan_of("cpu", accelerator()),)),
        ("appnp", (plan_of("cpu", accelerator()), "epochs=12")),
    ],
)
def test_the_same_losses_on_any_devices(launched, tmp_path, store, model, devices) -> None:
    given = (*options(store), f"model={model}")
    one = launched(tmp_path / "one", *given, *(each for each in devices if "epochs" in each))
    many = launched(tmp_path / "many", *given, *devices, "num_threads=2")
    assert many.losses == pytest.approx(one.losses, rel=1e-4)
    assert many.result.test_metric == pytest.approx(one.result.test_metric, abs=0.02)
    # Guessing is right half of the time.
    assert one.result.metric == "accuracy"
    assert one.result.test_metric > 0.7


def test_resumed_and_evaluated(launched, tmp_path, store) -> None:
    common = (*options(store), "runtime.deterministic=true", "runtime.checkpoint_every_s=0")
    whole = launched(tmp_path / "whole", *common, "epochs=4")
    launched(tmp_path / "part", *common, "epochs=2")
    part = launched(tmp_path / "part", *common, "epochs=4", f"resume={tmp_path / 'part'}")
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "part"))
    assert part.result.test_metric == whole.result.test_metric
    measured = evaluate(EvaluateConfig(run=tmp_path / "whole", num_threads=1))
    assert (measured.metric, measured.test_metric) == ("accuracy", whole.result.test_metric)


SMALL = {"epochs": 4, "batch_size": 100, "fanouts": [5, 5], "hidden": 16, "lr": 0.02}


def test_predictions_are_what_was_measured() -> None:
    graph = labelled()
    done = gnnscale.train(graph, **SMALL, options={"task": "edges"})
    test = graph.edge_labels.split.test_idx
    found = done.predict_edges("test")
    assert (found == graph.edge_labels.labels[test]).mean() == pytest.approx(done.test_metric)
    every = done.predict_edges(what="probabilities")
    assert every.shape == (NUM_EDGES, 2)
    assert (every[test].argmax(axis=1) == found).all()
    # Next month's edges, whose labels nobody knows.
    other = labelled(seed=1)
    assert (done.predict_edges(graph=other) == other.edge_labels.labels).mean() > 0.7
    with one_line("pairs: the model reads features of edges"):
        done.predict_edges(pairs=[[0, 1]])
    with one_line("predict: expected a vertex task, got task=edges"):
        done.predict()
    asked = PredictConfig(run=done.directory, out=Path("x.npy"), num_threads=1, vertices="test")
    with one_line("vertices=test: expected all for a run that predicts edge labels; use"):
        predict(asked)
    with one_line("features of each edge"):
        done.predict_edges(graph=labelled(with_features=False))


def test_values_and_pairs_without_features() -> None:
    graph = labelled(values=True, with_features=False)
    done = gnnscale.train(graph, **SMALL, options={"task": "edges"})
    assert done.metric == "rmse"
    assert done.test_metric < 0.9  # that of the mean is 1
    every = done.predict_edges()
    pairs = np.asarray(graph.edges.ends[:7])
    assert done.predict_edges(pairs=pairs) == pytest.approx(every[:7], abs=1e-5)
    with one_line("predict_edges: expected a run with task=edges"):
        gnnscale.train(_vertices(), **SMALL).predict_edges()


@pytest.mark.parametrize(("model", "task"), [("sgc", "edges"), ("appnp", "links")])
def test_what_hops_say_of_edges_is_said_by_the_whole_graph(model, task) -> None:
    """A trained model in plain tensors gives rows, whose comparison is what was predicted."""
    graph = labelled(with_features=False)
    chosen = {"epochs": 2, "batch_size": 100, "fanouts": [5, 5, 5], "hidden": 8, "model": model}
    done = gnnscale.train(graph, **chosen, options={"task": task, "model.num_layers": 3})
    sent = done.graph  # of links, without those that are held out
    targets = np.repeat(np.arange(sent.num_vertices), np.diff(sent.indptr))
    edge_index = torch.from_numpy(np.stack([sent.indices, targets]).astype(np.int64))
    with torch.no_grad():
        rows = done.model(torch.from_numpy(np.array(sent.features)), edge_index)
        assert rows.shape == (NUM_VERTICES, 8)
        pairs = np.array([[0, 1], [5, 5], [17, 80], [99, 3]])
        ends = rows[pairs[:, 0]], rows[pairs[:, 1]]
        if task == "links":
            expected, found = (ends[0] * ends[1]).sum(1), done.scores(pairs)
        else:
            expected = done.model.network(*ends, None)
            found = done.predict_edges(pairs=pairs, what="logits")
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


def _vertices() -> Graph:
    rng = np.random.default_rng(3)
    return from_arrays(
        tuple(rng.integers(0, 50, (2, 300))),
        rng.standard_normal((50, 4)).astype(np.float32),
        rng.integers(0, 2, 50),
        train_idx=np.arange(30),
        valid_idx=np.arange(30, 40),
        test_idx=np.arange(40, 50),
    )


def test_what_does_not_go_together(settings) -> None:
    for given, message in (
        ("partitioner=hash device_plan=cpu_x2", "partitioner=none"),
        ("cache_planner=pagraph device_plan=emulated_x4", "cache_planner=none"),
        ("device_plan=fpga_csim", "does not train on edges"),
        ("device_plan=cuda", "devices of kind cpu or emulated"),
        ("model=custom model.module=a:B", "expected model=sage"),
    ):
        with one_line(message):
            settings("task=edges", *given.split())
    with one_line("edge_labels is missing; from_arrays takes edge_labels", error=GraphError):
        gnnscale.train(_vertices(), **SMALL, options={"task": "edges"})


def test_exported_weights(tmp_path) -> None:
    done = gnnscale.train(labelled(), **SMALL | {"epochs": 1}, options={"task": "edges"})
    whole = done.export(tmp_path / "ours.safetensors")
    assert "network.output.weight" in load_file(whole.file)
    rows = done.export(tmp_path / "pyg.safetensors", format="pyg")
    assert "network over both ends' rows is left out" in rows.note
