from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_modules import OwnBlocks
from safetensors.torch import load_file

import gnnscale
from gnnscale import api
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.dataset import PlantedPartition
from gnnscale.graph import Graph
from gnnscale.report.export.predict import PredictConfig, predict
from gnnscale.runtime.checkpoint.file import BEST

pytestmark = pytest.mark.timeout(180)

SMALL: dict[str, Any] = {
    **{"epochs": 2, "hidden": 8, "fanouts": [5, 3], "batch_size": 64, "num_threads": 2},
}


@pytest.fixture(autouse=True)
def home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_figures: Callable[[Path], Path]
) -> Path:
    found = write_figures(tmp_path / "home")
    monkeypatch.setenv("GNNSCALE_HOME", str(found))
    monkeypatch.chdir(tmp_path)
    return found


@pytest.fixture
def planted() -> Graph:
    return PlantedPartition(
        name="planted", num_vertices=600, num_edges=6000, num_features=8, num_classes=4
    ).open()


@pytest.mark.parametrize("plan", [pytest.param("cpu", marks=pytest.mark.long), "cpu_x2"])
def test_weights_are_those_of_the_command_bit_for_bit(
    planted: Graph, tmp_path: Path, plan: str
) -> None:
    options = {"runtime.deterministic": True, "device_plan": plan}
    done = gnnscale.train(planted, "gcn", **SMALL, seed=3, options=options)
    command = [
        *(sys.executable, "-m", "gnnscale", "train", "model=gcn", "epochs=2", "model.hidden=8"),
        *("sampler.fanouts=[5,3]", "batch_size=64", "num_threads=2", "seed=3"),
        *("runtime.deterministic=true", f"device_plan={plan}", "hydra.run.dir=run"),
        *("dataset=store", f"dataset.store={planted.path}"),
    ]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    theirs = gnnscale.load(tmp_path / "run")
    assert (done.directory / BEST).read_bytes() != b""
    mine, other = (each.model.state_dict() for each in (done, theirs))
    assert all(torch.equal(mine[name], other[name]) for name in mine)
    assert [each.train_loss for each in done.history] == [
        each.train_loss for each in theirs.history
    ]
    assert done.test_metric == theirs.test_metric
    assert done.valid_metric == theirs.valid_metric
    written = [each.directory / "config.yaml" for each in (done, theirs)]
    assert written[0].read_text() == written[1].read_text()


def test_what_a_result_says(planted: Graph) -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    done = gnnscale.train(planted, **SMALL)
    assert not done.model.training
    classes = done.predict()
    assert torch.equal(torch.rand(2), expected), "the program's random numbers are its own"
    test = done.predict("test")
    assert np.mean(test == planted.labels[planted.test_idx]) == done.test_metric
    assert done.predict([5, 2]).tolist() == classes[[5, 2]].tolist()
    probabilities = done.predict([5, 2], what="probabilities")
    assert probabilities.sum(axis=1) == pytest.approx(1)
    sampled = done.predict(what="logits", inference="sampled")
    assert sampled.shape == (600, 4)
    assert done.embeddings([5, 2]).shape == (2, 8)
    assert [each.epoch for each in done.history] == [1, 2]
    assert done.best_epoch in (1, 2)
    found = gnnscale.evaluate(done)
    assert (found.test_metric, found.valid_metric) == (done.test_metric, done.valid_metric)
    exported = done.export("w.safetensors", format="pyg")
    assert exported.file.is_file()
    assert "GraphSAGE(8, 8, 2, 4, dropout=0.5)" in exported.snippet
    loaded = gnnscale.load(done.directory)
    assert loaded.history == done.history
    assert (loaded.test_metric, loaded.best_epoch) == (done.test_metric, done.best_epoch)
    assert (loaded.embeddings() == done.embeddings()).all()
    more = gnnscale.train(planted, **SMALL | {"epochs": 3}, resume=done.directory)
    assert len(more.history) == 3


def test_a_mistake_is_one_line(planted: Graph, tmp_path: Path) -> None:
    for given, message in (
        ({"lr": -1.0}, "optimizer.lr=-1.0: must be"),
        ({"model": "sgc"}, "model=sgc: allowed are custom, gat, gcn, gin, sage"),
        ({"options": {"model.hiden": 3}}, "model.hiden: unknown option, did you mean"),
        ({"epochs": 2, "options": {"epochs": 3}}, "options: epochs: is given by a keyword too"),
        ({"fanouts": [5]}, "sampler: picks neighbours for 1 layers"),
        ({"options": {"runtime.checkpoint": False}}, "runtime.checkpoint=false: the trained"),
        ({"model": 5}, "model=5: must be what gnn_model returns"),
    ):
        with pytest.raises(ConfigError, match=message):
            gnnscale.train(planted, **given)
    assert not (tmp_path / "outputs").exists()
    model = api.gnn_model(api.gnn_computation("GIN"), api.gnn_parameters(L=2, hidden=8))
    with pytest.raises(ConfigError, match=r"options: model\.hidden: is given by gnn_model"):
        gnnscale.train(planted, model, hidden=16)
    with pytest.raises(ConfigError, match="not a run directory"):
        gnnscale.load(tmp_path / "none")
    with pytest.raises(ConfigError, match="not a run directory"):
        gnnscale.evaluate(tmp_path)


def test_the_summary_of_a_run_is_not_believed(planted: Graph) -> None:
    done = gnnscale.train(planted, **SMALL | {"epochs": 1})
    file = done.directory / "summary.json"
    for text in ("[", "[]", "{}", json.dumps({"test_metric": "0.9"})):
        file.write_text(text)
        with pytest.raises(ConfigError, match=r"summary\.json: not the summary of a run"):
            gnnscale.load(done.directory)
    file.unlink()
    assert gnnscale.load(done.directory).test_metric is None


PROGRAM = """
import numpy as np, gnnscale
rng = np.random.default_rng(0)
src, dst = rng.integers(0, 300, (2, 2000))
labels = np.arange(300) % 3
graph = gnnscale.from_arrays(
    (src, dst), np.eye(3, dtype=np.float32)[labels], labels, train_idx=np.arange(200),
    valid_idx=np.arange(200, 250), test_idx=np.arange(250, 300),
)
done = gnnscale.train(
    graph, epochs=1, hidden=8, fanouts=[3, 3], batch_size=64, num_threads=2,
    options={"device_plan": "cpu_x2"},
)
print("predicted", len(done.predict()))
"""


@pytest.mark.parametrize("how", [pytest.param("script", marks=pytest.mark.long), "notebook"])
def test_programs_need_no_guard(tmp_path: Path, how: str) -> None:
    # A notebook's cells are in no file, as what comes from standard input is.
    (tmp_path / "program.py").write_text(PROGRAM)
    arguments, text = (["program.py"], "") if how == "script" else (["-i"], PROGRAM)
    done = subprocess.run(
        [sys.executable, *arguments],
        check=False,
        input=text.replace("\n    ", " ").replace("\n)", ")"),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=dict(os.environ),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "predicted 300" in done.stdout, done.stderr


def test_ids_and_names_of_the_users_own(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    raw = tmp_path / "raw"
    raw.mkdir()
    rng = np.random.default_rng(0)
    rows = [
        f"v{v},{'cat' if v % 2 else 'dog'},{('train', 'valid', 'test')[v % 3]},{v % 2},1"
        for v in range(120)
    ]
    (raw / "vertices.csv").write_text("\n".join(["id,label,split,x,y", *rows]) + "\n")
    ends = [f"v{a},v{b}" for a, b in rng.integers(0, 120, (400, 2))]
    (raw / "edges.csv").write_text("\n".join(["source,target", *ends]) + "\n")
    graph = api.load_input_graph("tables", raw)
    done = gnnscale.train(graph, **SMALL | {"epochs": 1})
    file = predict(PredictConfig(run=done.directory, out=tmp_path / "p.parquet", num_threads=1))
    table = parquet.read_table(file)
    ids = table["id"].to_pylist()
    assert sorted(ids) == sorted(f"v{v}" for v in range(120))
    assert set(table["class"].to_pylist()) <= {"cat", "dog"}
    some = predict(
        PredictConfig(
            run=done.directory,
            out=tmp_path / "p.npy",
            num_threads=1,
            what="classes",
            vertices=["v7", "v100"],
        )
    )
    assert np.load(tmp_path / "p.ids.npy").tolist() == ["v7", "v100"]
    assert (np.load(some) == done.predict(["v7", "v100"])).all()
    with pytest.raises(ConfigError, match="v120 is no id of a vertex"):
        done.predict(["v120"])


def test_a_run_whose_graph_is_gone(planted: Graph, tmp_path: Path) -> None:
    planted.save(tmp_path / "store")
    done = gnnscale.train(tmp_path / "store", **SMALL | {"epochs": 1})
    (tmp_path / "store").rename(tmp_path / "moved")
    with pytest.raises((ConfigError, GraphError), match="no such graph store"):
        gnnscale.load(done.directory)


@pytest.mark.parametrize("built", [False, True])
def test_a_module_of_ones_own(planted: Graph, tmp_path: Path, built: bool) -> None:
    own = OwnBlocks(8, 8, 4, 2)
    options = {"runtime.deterministic": True}
    small = {name: value for name, value in SMALL.items() if not built or name != "hidden"}
    done = gnnscale.train(planted, own if built else OwnBlocks, **small, options=options)
    assert type(done.model) is OwnBlocks
    assert done.predict("test", what="probabilities").shape == (len(planted.test_idx), 4)
    assert gnnscale.evaluate(done).test_metric == done.test_metric
    exported = done.export(tmp_path / "own.safetensors")
    own.load_state_dict(load_file(exported.file))
    # A directory that was found imports nothing.
    with pytest.raises(ConfigError, match=r"model\.module: names code"):
        gnnscale.load(done.directory)
    if not built:  # the arguments of one that was built are nowhere
        named = gnnscale.load(done.directory, module="own_modules:OwnBlocks")
        assert np.array_equal(named.predict(), done.predict())


def test_arguments_are_of_ones_own_module_alone(planted: Graph) -> None:
    with pytest.raises(ConfigError, match=r"^arguments: are of a module of your own"):
        gnnscale.train(planted, "sage", arguments={"heads": 2})


def test_embeddings_of_predicted_edges(planted: Graph, tmp_path: Path) -> None:
    done = gnnscale.train(planted, "sage", **SMALL, options={"task": "links"})
    assert done.metric == "mrr"
    rows = predict(PredictConfig(run=done.directory, out=tmp_path / "rows.npy", num_threads=1))
    found = np.load(rows)
    assert found.shape == (planted.num_vertices, 8)
    assert np.allclose(found, done.embeddings(layer=-1), atol=1e-6)


def test_a_run_without_a_summary_is_measured_by_its_graph(planted: Graph) -> None:
    """Of an error, the lowest is the best."""
    graph = gnnscale.from_arrays(
        (planted.indices, np.repeat(np.arange(planted.num_vertices), np.diff(planted.indptr))),
        np.array(planted.features),
        np.array(planted.labels, np.float32),
        train_idx=planted.train_idx,
        valid_idx=planted.valid_idx,
        test_idx=planted.test_idx,
    )
    done = gnnscale.train(graph, "sage", **{**SMALL, "epochs": 3}, lr=0.05)
    (done.directory / "summary.json").unlink()
    found = gnnscale.load(done.directory)
    assert (found.metric, found.test_metric) == ("rmse", None)
    values = [epoch.valid_metric for epoch in found.history]
    assert None not in values
    assert len(set(values)) == 3
    assert found.valid_metric == min(each for each in values if each is not None)
