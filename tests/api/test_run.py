import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from one_line import one_line
from own_modules import OwnBlocks
from safetensors.torch import load_file

import gnnscale
from gnnscale import api
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.data import PlantedPartition
from gnnscale.graph import Graph
from gnnscale.inference.export.predict import PredictConfig, predict
from gnnscale.run.checkpoint import BEST
from gnnscale.sampling import NeighborSampling

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("own_home")]

FEW: dict[str, Any] = {"epochs": 2, "fanouts": [5, 3], "batch_size": 64, "num_threads": 2}
SMALL: dict[str, Any] = FEW | {"hidden": 8}


@pytest.fixture(scope="module")
def home_of_done(tmp_path_factory: Any, write_figures: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("done")
    write_figures(folder / "home")
    return folder


@pytest.fixture(scope="module")
def planted(home_of_done: Path) -> Graph:
    sizes = {"num_vertices": 600, "num_edges": 6000, "num_features": 8, "num_classes": 4}
    store = str(home_of_done / "store")
    return PlantedPartition(name="planted", store=store, **sizes).open()


@pytest.fixture(scope="module")
def done(planted: Graph, home_of_done: Path) -> gnnscale.Result:
    """A run of ``SMALL`` that many tests look at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GNNSCALE_HOME", str(home_of_done / "home"))
        patch.chdir(home_of_done)
        return gnnscale.train(planted, **SMALL)


@pytest.mark.integration
def test_weights_are_those_of_the_command(planted, run_lines, tmp_path) -> None:
    options = {"runtime.deterministic": True, "device_plan": "cpu_x2"}
    done = gnnscale.train(planted, "gcn", **SMALL, seed=3, options=options)
    small = ("epochs=2", "model.hidden=8", "sampler.fanouts=[5,3]", "batch_size=64")
    same = ("num_threads=2", "seed=3", "runtime.deterministic=true", "device_plan=cpu_x2")
    store = ("dataset=store", f"dataset.store={planted.path}", "hydra.run.dir=run")
    home = f"GNNSCALE_HOME={tmp_path / 'home'}"
    (answer,) = run_lines([(home, "train", "model=gcn", *small, *same, *store)], tmp_path)
    answer.succeeded()
    theirs = gnnscale.load(tmp_path / "run")
    assert (done.directory / BEST).read_bytes() != b""
    mine, other = (each.model.state_dict() for each in (done, theirs))
    assert all(torch.equal(mine[name], other[name]) for name in mine)
    losses = [[epoch.train_loss for epoch in each.history] for each in (done, theirs)]
    assert losses[0] == losses[1]
    assert (done.test_metric, done.valid_metric) == (theirs.test_metric, theirs.valid_metric)
    written = [(each.directory / "config.yaml").read_text() for each in (done, theirs)]
    assert written[0] == written[1]


@pytest.mark.long
def test_known_targets_of_partly_known_vertices_count(planted: Graph) -> None:
    """Root mean squared errors are those of all known targets, column by column."""
    targets = np.asarray(planted.features[:, :2], np.float32).copy()
    first, last = planted.train_idx[0], planted.test_idx[:3]
    targets[first, 0] = targets[last, [0, 1, 0]] = targets[planted.test_idx[3]] = np.nan
    graph = replace(planted, labels=targets, num_classes=2, metric="rmse")
    done = gnnscale.train(graph, **(SMALL | {"epochs": 1}))
    errors = done.predict(planted.test_idx) - targets[planted.test_idx]
    by_hand = np.sqrt(np.nanmean(errors.astype(np.float64) ** 2, axis=0)).mean()
    assert done.test_metric == pytest.approx(by_hand, rel=1e-6)


def test_arguments_of_another_kind(planted: Graph) -> None:
    for run in (None, 5, {"run": 1}, np.zeros(3)):
        for read in (gnnscale.load, gnnscale.evaluate):
            with one_line("run: expected a result or a run directory, got"):
                read(run)
    for fanouts in (5, "15,10", {5}, [5.5], torch.tensor(5)):
        with one_line(": expected a list of whole numbers, such", begins="fanouts="):
            gnnscale.train(planted, fanouts=fanouts)


@pytest.mark.long
def test_progress_is_what_the_command_shows(planted: Graph, capfd: Any) -> None:
    logger = logging.getLogger("gnnscale")
    before = (logger.level, [*logger.handlers], logger.propagate)
    with without_handlers():
        done = gnnscale.train(planted, **SMALL, progress=True)
        lines = capfd.readouterr().err.splitlines()
        assert sum(line.startswith("epoch 1/2  loss ") for line in lines) == 1
        gnnscale.train(planted, **SMALL)
        assert "epoch" not in capfd.readouterr().err
    assert (logger.level, [*logger.handlers], logger.propagate) == before
    log = (done.directory / "train.log").read_text()
    assert log.count("epoch 2/2") == 1


@contextmanager
def without_handlers() -> Iterator[None]:
    """Take pytest's own handlers away, as of a program without any."""
    root = logging.getLogger()
    kept, root.handlers = root.handlers, []
    try:
        yield
    finally:
        root.handlers = kept


@pytest.mark.long
def test_a_printed_result_fits_a_screen(done: gnnscale.Result) -> None:
    long = replace(done, history=done.history[:1] * 300)
    for result in (done, long):
        lines = str(result).splitlines()
        assert len(lines) <= 20
        assert all(len(line) <= 100 for line in lines[:-1])
        assert lines[0].startswith(f"GraphSAGE: test accuracy {done.test_metric:.4f}, validation ")
        assert lines[-1] == f"directory: {done.directory}"
        assert len(repr(result).splitlines()) == 1
    assert [line.split()[0] for line in str(done).splitlines()[2:4]] == ["1", "2"]
    undefined = replace(done, history=(), test_metrics={"accuracy": None})
    start = "GraphSAGE: test accuracy not defined, no validation\ndirectory: "
    assert str(undefined).startswith(start)


@pytest.mark.long
def test_a_result_in_a_notebook(done: gnnscale.Result) -> None:
    """The last epochs alone, and no link without a report."""
    long = replace(done, history=done.history[:1] * 300)
    html = long._repr_html_()
    assert html.count("<tr>") == 5 + 1 + 10
    assert f"<td>{done.test_metric:.4f}</td>" in html
    assert html.endswith("report.html</a>")
    gone = replace(done, directory=Path("a<b>"), test_metrics={}, history=())
    html = gone._repr_html_()
    assert html.count("<tr>") == 5
    assert "<td>no test</td>" in html
    assert "<td>a&lt;b&gt;</td>" in html
    assert "<a " not in html


@pytest.mark.integration
def test_code_that_a_function_defines(planted: Graph, caplog: Any) -> None:
    """A module, a loss, a metric and a sampler, of which workers get copies."""
    factor, calls = 2.0, []

    class Local(OwnBlocks):
        def inference_per_layer(self, layer: int, block: Any, x: Any) -> Any:
            return super().inference_per_layer(layer, block, x * factor)

    @dataclass(frozen=True, kw_only=True)
    class Sampling(NeighborSampling):
        more: int = 0

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return factor * torch.nn.functional.cross_entropy(outputs, targets)

    def zero(outputs: Any, labels: Any) -> float:
        return 0.0

    few = {name: value for name, value in FEW.items() if name != "fanouts"} | {"num_threads": 1}
    options = {
        "runtime.deterministic": True,
        "loss": loss,
        "metrics": ["accuracy", zero],
        "sampler": Sampling(fanouts=[5, 3], more=1),
    }
    done = gnnscale.train(planted, Local, **few, hidden=8, options=options)
    assert not calls  # workers have copies
    assert done.config.model.name == "Local"
    name = f"{__name__}:test_code_that_a_function_defines.<locals>"
    values = OmegaConf.load(done.directory / "config.yaml")
    assert values.model.module == f"{name}.Local"
    assert values.metrics == ["accuracy", f"{name}.zero"]
    sampler = values.sampler
    assert (sampler["_target_"], sampler.fanouts, sampler.more) == (f"{name}.Sampling", [5, 3], 1)
    call = f"gnnscale.load('{done.directory}', module=Local)"
    assert call in escape_free((done.directory / "report.html").read_text())
    assert f"{call} opens the run again" in (done.directory / "train.log").read_text()
    with pytest.raises(ConfigError, match=r"names code.* call load\(\.\.\., module=Local\)"):
        gnnscale.load(done.directory)
    loaded = gnnscale.load(done.directory, module=Local)
    assert (loaded.predict() == done.predict()).all()
    measured = gnnscale.evaluate(loaded, metrics=[zero, "accuracy"]).metrics["test"]
    assert measured == {"zero": 0.0, "accuracy": done.test_metric}
    again = gnnscale.train(
        planted, Local, **few | {"epochs": 3}, hidden=8, options=options, resume=done.directory
    )
    assert len(again.history) == 3
    for code in (
        partial(Local, hidden=8),
        lambda num_features, num_classes: Local(num_features, 8, num_classes, 2),
    ):
        assert type(gnnscale.train(planted, code, **FEW | {"epochs": 1}).model) is Local


def escape_free(page: str) -> str:
    return page.replace("&#x27;", "'")


@pytest.mark.long
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
    assert done.predict([5, 2], what="probabilities").sum(axis=1) == pytest.approx(1)
    assert done.predict(what="logits", inference="sampled").shape == (600, 4)
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
    measured = gnnscale.evaluate(loaded, metrics=["macro_f1", "accuracy"])
    html, score = measured._repr_html_(), measured.metrics["test"]["accuracy"]
    assert "<tr><th>metric</th><th>train</th><th>valid</th><th>test</th></tr>" in html
    assert f"<td>{score:.4f}</td></tr>" in html.partition("<td>accuracy</td>")[2]
    assert measured.metric == "macro_f1"
    assert measured.metrics["test"]["accuracy"] == done.test_metric
    with pytest.raises(ConfigError, match="metrics=macro_f2: allowed are"):
        gnnscale.evaluate(loaded, metrics=["macro_f2"])
    with pytest.raises(ConfigError, match="trained a model of gnnscale, and needs no module"):
        gnnscale.load(done.directory, module=OwnBlocks(8, 8, 4, 2))
    more = gnnscale.train(planted, **SMALL | {"epochs": 3}, resume=done.directory)
    assert len(more.history) == 3


@pytest.mark.long
def test_a_mistake_is_one_line(planted: Graph, tmp_path: Path) -> None:
    model = api.gnn_model(api.gnn_computation("GIN"), api.gnn_parameters(L=2, hidden=8))
    for given, message in (
        ({"model": model, "hidden": 16}, r"options: model\.hidden: expected in gnn_model"),
        ({"lr": -1.0}, "optimizer.lr=-1.0: expected"),
        (
            {"model": "gan"},
            "model=gan: allowed are appnp, custom, gat, gatv2, gcn, gin, hgt, rgat, rgcn",
        ),
        ({"epochs": 2, "options": {"epochs": 3}}, "options: epochs: expected once"),
        ({"fanouts": [5]}, "model.num_layers=2: the sampler has 1 hop,"),
        ({"options": {"runtime.checkpoint": False}}, "runtime.checkpoint=false: expected true"),
        ({"model": 5}, "model=5: expected the result of gnn_model"),
        ({"arguments": {"heads": 2}}, "^arguments: expected none without a module"),
        (
            {"model": OwnBlocks, "arguments": {"act": [torch.nn.ReLU()]}},
            "^arguments: act: expected .* OwnBlocks.in_channels, out_channels, act=...",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            gnnscale.train(planted, **given)
    assert not (tmp_path / "outputs").exists()
    for read in (gnnscale.load, gnnscale.evaluate):
        with pytest.raises(ConfigError, match="expected a run directory"):
            read(tmp_path / "none")


def own_metric(outputs: torch.Tensor, labels: torch.Tensor) -> float:
    return 0.25


def own_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return outputs.square().mean()


@pytest.mark.long
def test_every_option_is_a_keyword(planted: Graph) -> None:
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0])
    config = gnnscale.train(
        planted,
        "gat",
        **(SMALL | {"epochs": 1}),
        weight_decay=0.1,
        patience=np.int64(2),
        optimizer="adamw",
        schedule="cosine",
        logger=["csv"],
        loss="cross_entropy",
        class_weights=weights,
        metrics="macro_f1",
        num_heads=2,
        input_dropout=None,
        runtime={"drm": False},
        options={"runtime": {"eval_every": 1, "deterministic": True}, "runtime.prefetch": "none"},
    ).config
    assert (config.optimizer.weight_decay, config.optimizer.schedule) == (0.1, "cosine")
    assert type(config.optimizer).__name__ == "AdamW"
    runtime = config.runtime
    found = (runtime.patience, runtime.drm, runtime.deterministic, runtime.prefetch)
    assert found == (2, False, True, "none")
    assert (config.logger, config.metrics) == ({"csv": True}, ["macro_f1"])
    assert config.loss.class_weights == weights.tolist()  # type: ignore[attr-defined]
    assert config.model.num_heads == 2  # type: ignore[attr-defined]


@pytest.mark.long
def test_partners_are_among_the_candidates_of_the_run(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    edges = rng.integers(50, 100, 400), rng.integers(0, 50, 400)
    graph = gnnscale.from_arrays(edges, rng.normal(size=(100, 4)).astype(np.float32))
    np.save(tmp_path / "candidates.npy", np.arange(50))
    task = {"task": "links", "task.candidates": tmp_path / "candidates.npy"}
    done = gnnscale.train(graph, **(SMALL | {"epochs": 1}), options=task)
    assert done.partners([60, 3], 49)[0].max() < 50
    assert sorted(done.partners([60], 2, candidates=[70, 71])[0][0]) == [70, 71]


@pytest.mark.long
def test_functions_are_metrics_and_losses(planted: Graph) -> None:
    small = SMALL | {"epochs": 1}
    done = gnnscale.train(planted, **small, metrics=[own_metric], loss=own_loss)
    assert (done.metric, done.test_metric) == ("own_metric", 0.25)
    assert gnnscale.evaluate(done, metrics="accuracy").metric == "accuracy"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"weight_dacay": 1}, "weight_dacay: unknown option, did you mean 'weight_decay'"),
        ({"learning_rate": 1}, "learning_rate: unknown option, did you mean 'lr'"),
        ({"alpha": 1}, r"options=\{'model.alpha': ...\} or options=\{'cache_planner.alpha'"),
        (
            {"num_heads": 2},
            "model.num_heads: unknown option, it belongs to model=gat, gatv2, hgt or",
        ),
        ({"label": "y"}, "options: dataset.label: expected in load_input_graph"),
        ({"lr": 1, "optimizer": {"lr": 2}}, "options: optimizer.lr: expected once"),
        ({"options": {"model": "gat"}}, "options: model=gat: expected as argument model"),
        ({"options": 5}, "options=5: expected a mapping"),
        ({"options": {"runtime": {"patince": 1}}}, "did you mean 'runtime.patience'"),
        ({"optimizer": torch.optim.Adam}, "allowed are adam, adamw, sgd"),
    ],
)
def test_a_wrong_keyword_is_one_line(planted: Graph, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        gnnscale.train(planted, **given)


@pytest.mark.long
def test_the_summary_of_a_run_is_not_believed(done, home_of_done, monkeypatch) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(home_of_done / "home"))  # where the run is the user's
    file = done.directory / "summary.json"
    own = file.read_text()
    for text in ("[", "[]", "{}", json.dumps({"test_metric": "0.9"})):
        file.write_text(text)
        with pytest.raises(ConfigError, match=r"summary\.json: expected the summary of a run"):
            gnnscale.load(done.directory)
    file.unlink()
    assert gnnscale.load(done.directory).test_metric is None
    file.write_text(own)


@pytest.mark.long
def test_ids_and_names_of_the_users_own(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    raw = tmp_path / "raw"
    raw.mkdir()
    rng = np.random.default_rng(0)
    labels, parts = ("dog", "cat"), ("train", "valid", "test")
    rows = [f"v{v},{labels[v % 2]},{parts[v % 3]},{v % 2},{'ab'[v % 2]}" for v in range(120)]
    (raw / "vertices.csv").write_text("\n".join(["id,label,split,x,y", *rows]) + "\n")
    ends = [f"v{a},v{b}" for a, b in rng.integers(0, 120, (400, 2))]
    (raw / "edges.csv").write_text("\n".join(["source,target", *ends]) + "\n")
    done = gnnscale.train(api.load_input_graph("tables", raw), **SMALL | {"epochs": 1})
    assert done.class_names == ["cat", "dog"]
    given: dict[str, Any] = {"run": done.directory, "num_threads": 1}
    table = parquet.read_table(predict(PredictConfig(out=tmp_path / "p.parquet", **given)))
    assert sorted(table["id"].to_pylist()) == sorted(f"v{v}" for v in range(120))
    assert set(table["class"].to_pylist()) <= {"cat", "dog"}
    given |= {"what": "classes", "vertices": ["v7", "v100"]}
    some = predict(PredictConfig(out=tmp_path / "p.npy", **given))
    assert np.load(tmp_path / "p.ids.npy").tolist() == ["v7", "v100"]
    assert (np.load(some) == done.predict(["v7", "v100"])).all()
    with pytest.raises(ConfigError, match="v120 is no id of a vertex"):
        done.predict(["v120"])
    # New vertices, without labels: classes keep their names.
    (raw / "vertices.csv").write_text("id,x,y\nn1,0,b\nn2,1,c\nn3,1,b\n")
    (raw / "edges.csv").write_text("source,target\nn1,n2\nn2,n1\n")
    new = api.load_input_graph("tables", raw, label=None)
    with pytest.raises(ConfigError, match="unseen=empty"):
        done.predict(["n2"], graph=new)
    assert done.predict(["n2"], graph=new, unseen="empty").shape == (1,)
    given = {"run": done.directory, "num_threads": 1, "graph": new.config, "unseen": "empty"}
    table = parquet.read_table(predict(PredictConfig(out=tmp_path / "n.parquet", **given)))
    assert table["id"].to_pylist() == ["n1", "n2", "n3"]
    assert set(table["class"].to_pylist()) <= {"cat", "dog"}
    (raw / "vertices.csv").write_text("id,y,x\nn1,a,1\nn2,b,1\n")
    turned = api.load_input_graph("tables", raw, label=None)
    with pytest.raises(ConfigError, match=r"have another order.*set dataset.features=\[x,y\]"):
        done.predict(graph=turned)


@pytest.mark.long
def test_a_run_whose_graph_is_gone(planted: Graph, tmp_path: Path) -> None:
    """Its model is there all the same, for other graphs of the same features."""
    planted.save(tmp_path / "store")
    done = gnnscale.train(tmp_path / "store", **SMALL | {"epochs": 1})
    expected = done.predict()
    (tmp_path / "store").rename(tmp_path / "moved")
    loaded = gnnscale.load(done.directory)
    with pytest.raises((ConfigError, GraphError), match="no such graph store"):
        loaded.predict()
    assert (loaded.predict(graph=tmp_path / "moved") == expected).all()
    assert loaded.export(tmp_path / "w.safetensors").file.is_file()
    (done.directory / "checkpoints" / "signature.json").unlink()
    with pytest.raises((ConfigError, GraphError), match="no such graph store"):
        gnnscale.load(done.directory).predict(graph=tmp_path / "moved")


@pytest.mark.long
@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_pyg_says_the_same_of_a_graph_that_was_not_seen(planted, tmp_path, model) -> None:
    pytest.importorskip("torch_geometric")
    done = gnnscale.train(planted, model, **SMALL | {"epochs": 1})
    rng = np.random.default_rng(2)
    rows, src = rng.standard_normal((60, 8), np.float32), rng.integers(0, 60, 400)
    edges = np.stack([src, (src + rng.integers(1, 60, 400)) % 60])  # PyG replaces self loops
    other = gnnscale.from_arrays(tuple(edges), rows)
    found = done.predict(graph=other, what="logits")
    exported = done.export(tmp_path / "weights.safetensors", format="pyg")
    names = {"x": torch.from_numpy(rows), "edge_index": torch.from_numpy(edges)}
    with torch.no_grad():
        exec(exported.snippet, names)
    torch.testing.assert_close(torch.from_numpy(found), names["logits"], rtol=1e-5, atol=1e-5)


@pytest.mark.long
def test_vertices_of_another_graph(done: gnnscale.Result) -> None:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((50, 8), np.float32)
    edges = rng.integers(0, 50, (2, 300))
    other = gnnscale.from_arrays(tuple(edges), rows, np.zeros(50, np.int64))
    classes = done.predict(graph=other)
    logits = done.predict(graph=other, what="logits")
    assert classes.shape == (50,)
    assert (classes == logits.argmax(axis=1)).all()
    # Plain tensors say the same, and nothing is written of the graph.
    with torch.no_grad():
        plain = done.model(torch.from_numpy(rows), torch.from_numpy(edges))
    assert np.allclose(plain, logits, atol=1e-5)
    assert done.embeddings([3, 1], graph=other).shape == (2, 8)
    assert done.predict([49], graph=other) == classes[49]
    wide = gnnscale.from_arrays(tuple(edges), np.ones((50, 9), np.float32), np.zeros(50, np.int64))
    with pytest.raises(ConfigError, match=r"has 9 features, .* trained on 8 of planted"):
        done.predict(graph=wide)
    with pytest.raises(ConfigError, match="50 is no vertex"):
        done.predict([50], graph=other)


@pytest.mark.long
def test_weights_of_another_graph_are_as_those_of_the_run(planted, done) -> None:
    rows, edges = np.ones((3, 8), np.float32), ([0, 1], [1, 2])
    weighted = gnnscale.from_arrays(edges, rows, edge_weights=[1.0, 9.0])
    with pytest.raises(ConfigError, match="have weights, and the run was trained on planted w"):
        done.predict(graph=weighted)
    uses_none = gnnscale.train(planted, "gat", **SMALL | {"epochs": 1})
    expected = uses_none.predict(graph=gnnscale.from_arrays(edges, rows), what="logits")
    assert (uses_none.predict(graph=weighted, what="logits") == expected).all()


@pytest.mark.long
@pytest.mark.parametrize("built", [False, True])
def test_a_module_of_ones_own(planted, tmp_path, caplog, built) -> None:
    own = OwnBlocks(8, 8, 4, 2)
    options = {"runtime.deterministic": True}
    given = (own, FEW) if built else (OwnBlocks, SMALL)
    done = gnnscale.train(planted, given[0], **given[1], options=options)
    # Training has to say so, and not what has such a module.
    warnings = [each for each in caplog.messages if "does not build it again" in each]
    assert len(warnings) == built
    assert all("model.hidden: required" in each for each in warnings)
    assert all("gnnscale.load(run, module=...)" in each for each in warnings)
    caplog.clear()
    assert type(done.model) is OwnBlocks
    assert done.predict("test", what="probabilities").shape == (len(planted.test_idx), 4)
    assert gnnscale.evaluate(done).test_metric == done.test_metric
    exported = done.export(tmp_path / "own.safetensors")
    own.load_state_dict(load_file(exported.file))
    # A directory that was found imports nothing.
    with pytest.raises(ConfigError, match=r"names code.* load\(\.\.\., module='own_mod"):
        gnnscale.load(done.directory)
    again: list[dict[str, Any]] = [
        {"module": OwnBlocks(8, 8, 4, 2)},
        {"module": OwnBlocks, "arguments": {"hidden": 8}},
        {"module": "own_modules:OwnBlocks", "arguments": {"hidden": 8}},
    ]
    if not built:  # the arguments of one that was built are nowhere
        again += [{"module": OwnBlocks}, {"module": "own_modules:OwnBlocks"}]
    else:
        with pytest.raises(ConfigError, match=r"model\.hidden: required, .* takes hidden"):
            gnnscale.load(done.directory, module=OwnBlocks)
    for each in again:
        assert np.array_equal(gnnscale.load(done.directory, **each).predict(), done.predict())
    assert not [each for each in caplog.messages if "does not build it again" in each]
    with pytest.raises(ConfigError, match="not weights of this model"):
        gnnscale.load(done.directory, module=OwnBlocks(8, 9, 4, 2))
    for arguments, message in (
        ({"hidden": 16}, "not weights of this model"),
        ({"hiden": 8, "hidden": 8}, r"model\.arguments\.hiden: .*, did you mean 'hidden'"),
    ):
        with pytest.raises(ConfigError, match=message):
            gnnscale.load(done.directory, module=OwnBlocks, arguments=arguments)


#: Options of two devices that share a mini-batch evenly.
EVENLY = {"runtime.drm": False, "device_plan.split": [1, 1]}


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("sage", {}),
        *(
            pytest.param(model, options, marks=pytest.mark.integration)
            for model, options in (
                ("gat", {"device_plan": "hybrid_emulated", **EVENLY}),
                ("gcn", {"device_plan": "cpu_x2", "partitioner": "p3"}),
            )
        ),
    ],
)
def test_batch_normalization_trains_slices_of_one_row(model: str, options: dict[str, Any]) -> None:
    """A directed star: nobody sends messages to a vertex but 0, so that a seed is one row."""
    ids, rows = np.arange(17), np.random.default_rng(0).standard_normal((17, 4), np.float32)
    split = {"train_idx": ids[1:6], "valid_idx": ids[6:11], "test_idx": ids[11:]}
    star = gnnscale.from_arrays((ids[1:], np.zeros(16, np.int64)), rows, ids % 2, **split)
    small = {"epochs": 2, "hidden": 8, "fanouts": [3, 3], "batch_size": 2, "num_threads": 2}
    done = gnnscale.train(star, model, **small, options={"model.norm": "batch", **options})
    assert np.isfinite([each.train_loss for each in done.history]).all()
    assert np.isfinite(done.predict(what="logits")).all()
    buffers = dict(done.model.named_buffers())
    assert all(torch.isfinite(each).all() for each in buffers.values())
    # With two devices every slice has one row at most.
    trained = buffers["norms.0.running_var"].ne(1).any()
    assert trained == ("device_plan" not in options)


@pytest.mark.long
def test_embeddings_of_predicted_edges(planted: Graph, tmp_path: Path) -> None:
    done = gnnscale.train(planted, "sage", **SMALL, options={"task": "links"})
    assert done.metric == "mrr"
    rows = predict(PredictConfig(run=done.directory, out=tmp_path / "rows.npy", num_threads=1))
    found = np.load(rows)
    assert found.shape == (planted.num_vertices, 8)
    assert np.allclose(found, done.embeddings(layer=-1), atol=1e-6)
    ids, scores = done.partners([4, 2], 3)
    assert ids.shape == scores.shape == (2, 3)
    pairs = [[4, ids[0, 0]], [2, ids[1, 0]]]
    assert np.allclose(done.scores(pairs), scores[:, 0], atol=1e-5)
    few, _ = done.partners([4], 1, candidates=[4, 5], graph=planted)
    assert few.tolist() == [[5]]
    with pytest.raises(ConfigError, match="k=2: expected at most 1 of 2 candidates; a cand"):
        done.partners([4, 2], 2, candidates=[4, 5])
    ids, _ = done.partners([4], 20, known="exclude")
    neighbors = planted.indices[planted.indptr[4] : planted.indptr[5]]
    assert not np.isin(ids, neighbors).any()
    with pytest.raises(
        ConfigError, match=r"k=\d+: expected \d+ candidates or more without a known"
    ):
        done.partners([4], planted.num_vertices - 1, known="exclude")
    both, _ = done.partners([2], 2, candidates=[4, 5])
    assert sorted(both[0]) == [4, 5]
    for what in (None, "classes", "logits"):
        with pytest.raises(ConfigError, match=r"predict: expected .*, got task=links; use scores"):
            done.predict([4], what=what)
    with pytest.raises(ConfigError, match="k=0"):
        done.partners([4], 0)
    with pytest.raises(ConfigError, match="expected at least one pair, got none"):
        done.scores([])


@pytest.mark.long
def test_a_run_without_a_summary_is_measured_by_its_graph(planted: Graph) -> None:
    dst = np.repeat(np.arange(planted.num_vertices), np.diff(planted.indptr))
    features, targets = np.array(planted.features), np.array(planted.labels, np.float32)
    split = {name: getattr(planted, name) for name in ("train_idx", "valid_idx", "test_idx")}
    graph = gnnscale.from_arrays((planted.indices, dst), features, targets, **split)
    done = gnnscale.train(graph, "sage", **{**SMALL, "epochs": 3}, lr=0.05)
    (done.directory / "summary.json").unlink()
    found = gnnscale.load(done.directory)
    assert (found.metric, found.test_metric) == ("rmse", None)
    values = [epoch.valid_metric for epoch in found.history]
    assert None not in values
    assert len(set(values)) == 3
    assert found.valid_metric == min(each for each in values if each is not None)
