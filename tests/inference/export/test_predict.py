import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loaded_run import loaded

from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.core.metrics import score
from gnnscale.inference.evaluate import evaluate
from gnnscale.inference.export.predict import PredictConfig, predict
from gnnscale.run.commands import EvaluateConfig

Trained = Callable[..., Path]


def predicted(run: Path, out: Path, **options: Any) -> Path:
    return predict(PredictConfig(run=run, out=out, num_threads=2, **options))


@pytest.mark.long
@pytest.mark.parametrize("inference", ["exact", "sampled"])
def test_predictions_have_the_metric_of_evaluation(trained, tmp_path, inference) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    run = trained()
    file = predicted(run, tmp_path / "p.parquet", inference=inference)
    table = parquet.read_table(file)
    graph, _ = loaded(run)
    assert table["id"].to_pylist() == list(range(600))
    classes = table["class"].to_numpy()
    probabilities = np.array(table["probabilities"].to_pylist())
    assert (probabilities.argmax(axis=1) == classes).all()
    measured = evaluate(EvaluateConfig(run=run, num_threads=1, inference=inference))
    found = np.mean(classes[graph.test_idx] == graph.labels[graph.test_idx])
    assert found == measured.test_metric


def test_some_vertices_in_their_order(trained: Trained, tmp_path: Path) -> None:
    run = trained()
    every = np.load(predicted(run, tmp_path / "all.npy", what="logits"))
    assert not (tmp_path / "all.ids.npy").exists()
    some = np.load(predicted(run, tmp_path / "some.npy", what="logits", vertices=[500, 3, 7]))
    assert np.load(tmp_path / "some.ids.npy").tolist() == [500, 3, 7]
    assert some == pytest.approx(every[[500, 3, 7]], abs=1e-5)
    default = np.load(predicted(run, tmp_path / "default.npy", vertices="test"))
    assert default.sum(axis=1) == pytest.approx(1)
    graph, _ = loaded(run)
    ids = np.load(tmp_path / "default.ids.npy")
    assert (ids == graph.test_idx).all()
    measured = evaluate(EvaluateConfig(run=run, num_threads=1))
    assert score(graph.metric, default, graph.labels[ids]) == measured.test_metric


@pytest.mark.long
def test_embeddings_are_inputs_of_the_last_layer(trained: Trained, tmp_path: Path) -> None:
    run = trained("model=gin")
    rows = np.load(predicted(run, tmp_path / "e.npy", layer=-2))
    assert rows.shape == (600, 8)
    assert (rows >= 0).all()
    graph, model = loaded(run)
    # GIN's last layer by hand: the sum over in-neighbours and the vertex, then two products.
    dst = np.repeat(np.arange(600), np.diff(graph.indptr))
    sums = rows.astype(np.float64)
    np.add.at(sums, dst, rows[graph.indices])
    last = model.layers[1].double()
    with torch.no_grad():
        logits = last.second(last.first(torch.from_numpy(sums)).relu()).numpy()
    expected = np.load(predicted(run, tmp_path / "l.npy", what="logits"))
    assert logits == pytest.approx(expected, abs=1e-4)


def test_refused_options(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, out = trained(), tmp_path / "p.npy"
    for options, message in (
        ({"layer": -3}, "layer=-3: expected -2 to -1 for a model of 2 layers"),
        ({"vertices": [600]}, "600 is no vertex"),
        ({"inference": "fast"}, "inference=fast: allowed"),
    ):
        with pytest.raises(ConfigError, match=message):
            predicted(run, out, **options)
    with pytest.raises(ConfigError, match=r"run=.*: expected a run directory"):
        predicted(tmp_path, out)
    full = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(GraphError, match=r"out=.*p\.npy: needs .* of disk, and .* are free"):
        predicted(run, out)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []
