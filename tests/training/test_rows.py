"""Runs over task rows: vertices as of cut-offs."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet
import pytest
import torch
from devices import accelerator, plan_of
from in_memory import InMemory
from one_line import one_line
from timed_shop import ageing, contacts, future_shop, own_times, timed_shop

import gnnscale
from gnnscale.inference.evaluate import evaluate
from gnnscale.inference.export.predict import PredictConfig, predict
from gnnscale.run.commands import EvaluateConfig

OPTIONS = (
    *("model=rsage", "model.hidden=16", "model.dropout=0", "sampler.fanouts=[8,4]"),
    *("batch_size=64", "optimizer.lr=0.01", "num_threads=1"),
)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("shop") / "store"
    timed_shop().save(path)
    return str(path)


def of_store(store: str, *more: str) -> list[str]:
    return ["dataset=store", f"dataset.store={store}", *OPTIONS, "epochs=2", *more]


def test_rows_are_learned(run, tmp_path) -> None:
    data = InMemory(graph=timed_shop())
    result = run(tmp_path, *OPTIONS, "epochs=15", dataset=data)
    assert result.graph.split_of == "rows"
    assert result.graph.split == (360, 120, 120)
    assert result.test_metric > 0.85


@pytest.mark.parametrize(("time", "least", "most"), [("null", 0.3, 0.7), ("none", 0.99, 1.0)])
def test_the_rule_hides_what_only_the_future_tells(run, tmp_path, time, least, most) -> None:
    data = InMemory(graph=future_shop())
    result = run(tmp_path, *OPTIONS, "epochs=30", f"sampler.time={time}", dataset=data)
    assert least <= result.test_metric <= most


PLANS = {
    "split": ("device_plan=cpu_x2", "device_plan.split=[7,57]", "runtime.drm=false"),
    "moved": ("device_plan=cpu_x2", "runtime.prefetch=two_stage"),
    "emulated": (plan_of("cpu", accelerator()),),
    # Mini-batches are trained in parts.
    "small": (plan_of("cpu", accelerator(memory_bytes=400_000)),),
}


@pytest.mark.integration
def test_the_same_losses_on_any_devices(launched, tmp_path, store) -> None:
    options = of_store(store, "runtime.accumulate=2")
    one = launched(tmp_path / "one", *options)
    assert one.losses[-1] < one.losses[0]
    for name, plan in PLANS.items():
        many = launched(tmp_path / name, *options, *plan)
        assert many.losses == pytest.approx(one.losses, rel=1e-4)
        assert many.result.test_metric == pytest.approx(one.result.test_metric, abs=0.02)


@pytest.mark.integration
@pytest.mark.parametrize(
    "how",
    [
        ("device_plan=cpu_x2", "device_plan.split=[32,32]"),
        (plan_of("cpu", accelerator()), "runtime.prefetch=two_stage"),
    ],
)
def test_parts_train_the_rows_of_their_vertices(launched, tmp_path, store, how) -> None:
    run = launched(tmp_path / "run", *of_store(store, "partitioner=hash", *how))
    assert sum(map(sum, run.seeds[: run.result.steps_per_epoch])) == 360
    assert all(max(seeds) <= 32 for seeds in run.seeds)


@pytest.mark.integration
@pytest.mark.parametrize(
    "caches",
    ["pagraph", "gnnlab", "oracle_static", "belady", "belady_match", "match"],
)
def test_caches_change_no_loss(launched, tmp_path, store, caches) -> None:
    plan = (plan_of("cpu", accelerator()), "device_plan.split=[24,40]", "runtime.drm=false")
    options = of_store(store, *plan)
    plain = launched(tmp_path / "plain", *options)
    cached = launched(
        tmp_path / "cached", *options, f"cache_planner={caches}", "cache_planner.budget_bytes=1000"
    )
    assert cached.losses == pytest.approx(plain.losses, rel=1e-5)
    rows = cached.of_device(1)[-1]["traffic"]["rows"]
    assert rows["hits"] > 0


@pytest.mark.integration
def test_rows_on_disk_change_no_loss(launched, tmp_path) -> None:
    store = str(tmp_path / "store")
    timed_shop(num_items=2000, per_user=40, width=32).save(store)
    small = ("batch_size=8", "epochs=1")
    plain = launched(tmp_path / "plain", *of_store(store, *small))
    for memory in (180_000, 10_000_000):
        options = of_store(store, *small, "features=disk", f"features.memory_bytes={memory}")
        on_disk = launched(tmp_path / str(memory), *options)
        assert on_disk.losses == plain.losses
        assert on_disk.result.test_metric == plain.result.test_metric


@pytest.mark.integration
def test_lists_on_disk_change_no_loss(launched, tmp_path, store) -> None:
    plain = launched(tmp_path / "plain", *of_store(store))
    for memory in (0, 2000):
        options = of_store(store, f"sampler.memory_bytes={memory}")
        assert launched(tmp_path / str(memory), *options).losses == plain.losses


@pytest.mark.integration
def test_an_interrupted_run_resumes_bit_for_bit(resumed_and_whole, store) -> None:
    resumed_and_whole(*of_store(store, "device_plan=cpu_x2", "runtime.deterministic=true"))


@pytest.mark.integration
def test_rows_are_evaluated_and_predicted(launched, tmp_path, store) -> None:
    run = launched(tmp_path / "run", *of_store(store, "epochs=12"))
    directory = tmp_path / "run"
    measured = evaluate(EvaluateConfig(run=directory, num_threads=1))
    assert (measured.inference, measured.test_metric) == ("exact", run.result.test_metric)
    trained = gnnscale.load(directory)
    rows = trained.graph.rows
    answers = trained.predict("test")
    right = answers == rows.labels[rows.split.test_idx]
    assert right.mean() == run.result.test_metric
    # Rows by the user: those of the test in another order, one of them twice, and a later month.
    users, cutoffs = [5, 3, 5, 3], np.array([60, 60, 60, 75])
    np.testing.assert_array_equal(trained.predict(rows=(users, cutoffs))[:3], answers[[5, 3, 5]])
    dates = cutoffs.astype("datetime64[D]")
    table = tmp_path / "rows.csv"
    lines = [f"{user},{date}\n" for user, date in zip(users, dates, strict=True)]
    table.write_text("id,cutoff\n" + "".join(lines))
    out = tmp_path / "predicted.parquet"
    predict(PredictConfig(run=directory, out=out, num_threads=1, rows=str(table)))
    predicted = pyarrow.parquet.read_table(out)
    assert predicted.column_names == ["id", "cutoff", "class", "probabilities"]
    assert predicted["id"].to_pylist() == users
    assert [str(date) for date in predicted["cutoff"].to_pylist()] == list(map(str, dates))
    np.testing.assert_array_equal(predicted["class"].to_numpy()[:3], answers[[5, 3, 5]])
    out = tmp_path / "all.npy"
    predict(PredictConfig(run=directory, out=out, num_threads=1, what="classes"))
    ids = np.load(tmp_path / "all.ids.npy")
    np.testing.assert_array_equal(ids["id"], rows.vertices - trained.graph.schema.vertices(0).start)
    np.testing.assert_array_equal(ids["cutoff"], rows.cutoffs)
    np.testing.assert_array_equal(np.load(out)[rows.split.test_idx], answers)
    sampled = trained.predict("test", inference="sampled")
    assert (sampled == answers).mean() > 0.7
    for selection, *words in (
        (([5, 900, -1], [60, 60, 60]), "rows: 2 of 3 rows are of ids that shop does not", "900"),
        (([5], [-3]), "rows: 1 of 1 cut-offs are before shop begins", "1969-12-29"),
        ((["a"], [60]), "expected ids of int64"),
        (([5], np.array(["2024-01-01T12"], "datetime64[s]")), "whole in", "day"),
        (([5], ["soon"]), "expected cut-offs"),
        ("rows.txt", "expected a table"),
        (([], []), "at least one row"),
    ):
        with one_line(*words):
            trained.predict(rows=selection)
    with one_line("format=pyg", "relative time"):
        trained.export(tmp_path / "weights.safetensors", format="pyg")
    program: dict[str, object] = {}
    exec(trained.export(tmp_path / "weights.safetensors").snippet, program)
    assert program["model"].uses_ages
    with one_line("vertices=", "for a run of task rows"):
        trained.predict([1, 2])
    with one_line("layer=-2", "task rows"):
        trained.embeddings()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (("model=gcn", "sampler.time=walk"), ("model=GCN", "counts no edges after the cut-offs")),
        (("model=sage", "features=degrees"), ("features=degrees", "counts no edges")),
        (
            ("model=sage", "sampler.fanouts=[8,-1]", "features=preaggregated"),
            ("features=preaggregated", "counts no edges"),
        ),
        (("model=sage", "sampler=layerwise"), ("sampler", "LayerSampling")),
        (("model=sage", "device_plan=cuda"), ("device_plan", "cuda")),
        (("model=sage", "task=links"), ("task=links", "task rows")),
        (("model=sage", "task.target=user"), ("task.target=user", "task rows")),
        (("model=sage", "metrics=[roc_auc,rmse]"), ("metrics=rmse", "roc_auc")),
        (("model=sage", "partitioner=p3", "device_plan=cpu_x2"), ("partitioner=p3", "task rows")),
        (("model=sage", "sampler.window=0"), ("sampler.window=0",)),
    ],
)
def test_what_is_refused(run, tmp_path, how, words) -> None:
    users = OPTIONS[1:] if "sampler=layerwise" not in how else (*OPTIONS[1:3], *OPTIONS[4:])
    with one_line(*words):
        run(tmp_path, *users, *how, dataset=InMemory(graph=contacts()))


@pytest.mark.parametrize("option", ["window=5", "bound=strict", "strategy=last"])
def test_options_of_time_need_cutoffs(run, tmp_path, option) -> None:
    with one_line(f"sampler.{option}: expected cut-offs", "got planted-partition without"):
        run(tmp_path, f"sampler.{option}")


def test_degrees_of_types_are_refused(run, tmp_path) -> None:
    with one_line("model.without_features=degrees", "counts no edges after"):
        data = InMemory(graph=timed_shop())
        run(tmp_path, *OPTIONS, "model.without_features=degrees", dataset=data)


@pytest.mark.parametrize("how", [(), ("features=learned", "features.dim=8"), ("model=gat",)])
def test_a_graph_without_types(run, losses, tmp_path, how) -> None:
    options = (*OPTIONS[1:], "model=sage", *how, "epochs=3")
    data = InMemory(graph=contacts())
    steps = losses(tmp_path / "one", *options, dataset=data)
    assert np.isfinite(steps).all()
    assert steps == losses(tmp_path / "again", *options, "num_threads=2", dataset=data)


@pytest.mark.parametrize("encoding", ["none", "linear", "sinusoidal"])
@pytest.mark.parametrize("model", ["sage", "rsage", "rgcn", "rgat", "hgt"])
def test_relative_time_tells_what_no_feature_does(run, tmp_path, model, encoding) -> None:
    """The label of a row is whether its vertex is older than ten days, or about ten years."""
    scale = 365 if encoding == "linear" else 1
    options = ("model.hidden=16", "model.dropout=0", "batch_size=64", "optimizer.lr=0.02")
    options += (f"model={model}", f"model.time_encoding={encoding}", "sampler.fanouts=[2,2]")
    result = run(
        tmp_path, *options, "epochs=20", "num_threads=1", dataset=InMemory(graph=ageing(scale))
    )
    assert (result.test_metric > 0.9) == (encoding != "none")


def test_a_vertex_without_rows_has_its_own_time_as_cutoff(run, tmp_path) -> None:
    graph = own_times()
    options = (*OPTIONS[1:], "model=sage", "epochs=30", "optimizer.lr=0.02")
    for time, least, most in (("null", 0.99, 1.0), ("seed", 0.2, 0.8)):
        how = (*options, f"sampler.time={time}")
        result = run(tmp_path / time, *how, dataset=InMemory(graph=graph))
        assert least <= result.test_metric <= most
        assert result.graph.split_of == ("vertices" if time == "null" else "rows")
    unknown = replace(graph, times=replace(graph.times, vertices=None))
    with one_line("sampler.time=seed", "200 of 200 have none"):
        run(tmp_path, *options, "sampler.time=seed", dataset=InMemory(graph=unknown))


class OwnMean(torch.nn.Module):
    """A module in PyG's form: the mean of the neighbors, twice."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.first = torch.nn.Linear(2 * in_channels, 16)
        self.second = torch.nn.Linear(32, out_channels)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate((self.first, self.second)):
            source, destination = edge_index
            total = torch.zeros_like(x).index_add(0, destination, x[source])
            x = layer(torch.cat([x, total], 1))
            x = x if number else x.relu()
        return x


def test_a_module_of_ones_own(tmp_path, stores, monkeypatch) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(stores))
    options = {"sampler.fanouts": [4, 4], "optimizer.lr": 0.02, "runtime.prefetch": "none"}
    result = gnnscale.train(
        *(contacts(), OwnMean),
        epochs=3,
        batch_size=64,
        num_threads=1,
        options=options,
        directory=tmp_path / "run",
    )
    assert result.predict("test").shape == (80,)


def test_values_of_rows(run, tmp_path) -> None:
    shop = timed_shop()
    rows = replace(shop.rows, labels=shop.rows.labels.astype(np.float32), num_classes=1)
    graph = replace(shop, rows=replace(rows, metric="mae"))
    result = run(tmp_path, *OPTIONS, "epochs=20", dataset=InMemory(graph=graph))
    assert result.measures == ("mae",)
    assert result.test_metric < 0.35
    assert result.valid_metric == min(epoch.valid_metric for epoch in result.history)
    result = run(
        *(tmp_path, *OPTIONS, "metrics=[rmse,mae]", "epochs=2"), dataset=InMemory(graph=graph)
    )
    assert list(result.test_metrics) == ["rmse", "mae"]


def test_rows_that_train_after_others_are_measured(run, tmp_path, caplog) -> None:
    shop = timed_shop()
    split = replace(shop.rows.split, test_idx=np.arange(100), train_idx=np.arange(100, 360))
    graph = replace(shop, rows=replace(shop.rows, split=split))
    run(tmp_path, *OPTIONS, "epochs=1", dataset=InMemory(graph=graph))
    assert "100 of 100 test rows have earlier cut-offs" in caplog.text


def test_auc_of_rows(run, tmp_path) -> None:
    options = (*OPTIONS, "epochs=10", "metrics=[roc_auc,accuracy]", "loss=cross_entropy")
    options += ("loss.class_weights=balanced", "sampler.check_times=true")
    for sampler in ("labor", "full"):
        chosen = [option for option in options if "fanouts" not in option or sampler == "labor"]
        chosen += ["sampler.fanouts=[-1,-1]"] if sampler == "full" else []
        directory = tmp_path / sampler
        result = run(directory, f"sampler={sampler}", *chosen, dataset=InMemory(graph=timed_shop()))
        assert result.test_metric > 0.85
