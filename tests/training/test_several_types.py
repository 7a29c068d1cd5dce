"""Runs that learn labels of several vertex types at once, from data to predictions."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import torch
from one_line import one_line
from safetensors.torch import load_file

import gnnscale
from gnnscale import Graph
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.inference.evaluate import evaluate
from gnnscale.inference.export.predict import PredictConfig, predict
from gnnscale.run.commands import EvaluateConfig

BUYS, BOUGHT = ("user", "buys", "item"), ("item", "bought-by", "user")
TAGS = ([0, 1], [2, 3])


def shop(num_users: int = 300) -> Graph:
    """Return users of the class of their items, whose class has a feature and gives a value."""
    generator = np.random.default_rng(0)
    tastes, kinds = generator.integers(3, size=num_users), np.arange(90) % 3
    users = np.repeat(np.arange(num_users), 6)
    items = generator.integers(30, size=len(users)) * 3 + tastes[users]
    shown = np.eye(3)[kinds] + generator.normal(size=(90, 3)) / 3
    return from_typed_arrays(
        {"tag": None, "user": None, "item": shown.astype(np.float32)},
        {
            BUYS: (users, items),
            BOUGHT: (items, users),
            ("tag", "of", "item"): TAGS,
            ("item", "has", "tag"): TAGS[::-1],
        },
        {"user": np.array(["a", "b", "c"])[tastes].tolist(), "item": kinds * np.float32(2) + 1},
        num_vertices={"tag": 4, "user": num_users},
        split="random",
        name="shop",
    )


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("several") / "store"
    shop().save(path)
    return str(path)


def common(store: str, *more: str) -> list[str]:
    options = ["dataset=store", f"dataset.store={store}", "model=rsage", "model.hidden=16"]
    options += ["sampler.fanouts=[5,3]", "batch_size=64", "num_threads=2", "optimizer.lr=0.02"]
    return [*options, "model.without_features=constant", *more]


@pytest.mark.integration
def test_two_types_are_learned_evaluated_and_predicted(
    launched: Any, tmp_path: Path, store: str
) -> None:
    run = launched(tmp_path / "run", *common(store, "epochs=12"))
    metrics = run.result.test_metrics
    assert list(metrics) == ["mean_of_types", "user.accuracy", "item.rmse"]
    assert metrics["user.accuracy"] > 0.9
    assert metrics["item.rmse"] < 0.8  # the values 1, 3 and 5 deviate by 1.6
    config = EvaluateConfig(run=tmp_path / "run", num_threads=1)
    assert evaluate(config).metrics["test"] == metrics
    with one_line("threshold=0.3: expected null with labels of several vertex types (user, item)"):
        evaluate(replace(config, threshold=0.3))
    trained = gnnscale.load(tmp_path / "run")
    assert trained.class_names == {"user": ["a", "b", "c"], "item": None}
    users, items = trained.graph.of_target("user"), trained.graph.of_target("item")
    answers = trained.predict(("user", "test"))
    assert np.mean(answers == users.labels[users.test_idx]) == metrics["user.accuracy"]
    errors = trained.predict(("item", "test"))[:, 0] - items.labels[items.test_idx]
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(metrics["item.rmse"], rel=1e-5)
    assert trained.predict("user", what="probabilities").shape == (300, 3)
    assert trained.predict(("user", [5]), inference="sampled").shape == (1,)
    assert trained.predict("user", graph=shop(20)).shape == (20,)
    for name, column, size in (("user", "class", 300), ("item", "values", 90)):
        out = tmp_path / f"{name}.parquet"
        options: Any = {"run": tmp_path / "run", "out": out, "num_threads": 1}
        predict(PredictConfig(**options, vertices=name))
        table = pyarrow.parquet.read_table(out)
        assert (table.num_rows, table.column_names[1]) == (size, column)
    assert set(pyarrow.parquet.read_table(tmp_path / "user.parquet")["class"].to_pylist()) == {
        *("a", "b", "c")
    }
    assert trained.embeddings("tag").shape == (4, 16)
    with one_line("vertices=test: expected a vertex type of shop", "{tag: test}"):
        trained.predict("test")
    with one_line("vertices=tag: expected a type that the run has learned, user or item"):
        trained.predict("tag")
    with one_line("what=classes: expected null"):
        trained.predict("item", what="classes")


@pytest.mark.integration
def test_what_plans_options_and_one_type_learn(launched: Any, tmp_path: Path, store: str) -> None:
    one = launched(tmp_path / "one", *common(store, "epochs=2"))
    two = launched(
        tmp_path / "two",
        *common(store, "epochs=2", "device_plan=cpu_x2", "device_plan.split=[7,57]"),
        "runtime.drm=false",
    )
    assert two.losses == pytest.approx(one.losses, rel=1e-4)
    users = launched(tmp_path / "users", *common(store, "epochs=2", "task.target=user"))
    assert list(users.result.test_metrics) == ["accuracy"]
    assert gnnscale.load(tmp_path / "users").predict().shape == (300,)
    for options, words in (
        (["threshold=f1"], ["threshold=f1: expected null with labels of several vertex types"]),
        (["metrics=[roc_auc]"], ["metrics=roc_auc: expected accuracy", "shop: user, 3 classes"]),
        (["loss=cross_entropy"], ["expected one label per vertex, got shop: item with numbers"]),
        (["task.target=tag"], ["task.target=tag: expected a vertex type of shop", "user, item"]),
    ):
        with one_line(*words):
            launched(tmp_path / "refused", *common(store, "epochs=1", *options))


@pytest.mark.integration
def test_links_ignore_labels(launched: Any, tmp_path: Path, store: str) -> None:
    options = ["task=links", "task.edge_type=user-buys-item", "task.num_candidates=5", "epochs=1"]
    launched(tmp_path / "links", *common(store, *options))
    trained = gnnscale.load(tmp_path / "links")
    assert trained.scores([[0, 1], [2, 3]]).shape == (2,)
    assert trained.embeddings("tag", layer=-1).shape == (4, 16)
    assert "first columns" not in trained.export(tmp_path / "own.safetensors").note


@pytest.mark.integration
def test_an_interrupted_run_resumes_bit_for_bit(resumed_and_whole: Any, store: str) -> None:
    resumed_and_whole(*common(store), "runtime.deterministic=true")


@pytest.mark.integration
def test_exported_programs_give_the_outputs_of_each_type(
    launched: Any, tmp_path: Path, store: str
) -> None:
    launched(tmp_path / "run", *common(store, "epochs=1", "model=hgt"))
    trained = gnnscale.load(tmp_path / "run")
    exported = trained.export(tmp_path / "own.safetensors")
    assert "logits are the first columns: 3 of user, 1 of item" in exported.note
    assert load_file(exported.file)["outputs.1.weight"].shape == (3, 16)
    exported = trained.export(tmp_path / "pyg.safetensors", format="pyg")
    data = gnnscale.to_pyg(trained.graph)
    rows = {"x_dict": {}, "edge_index_dict": data.edge_index_dict}
    for number, name in enumerate(trained.graph.vertex_types):
        matrix = trained.graph.features.matrices[number]
        rows["x_dict"][name] = torch.from_numpy(np.array(matrix.rows))
    names: dict[str, Any] = {"data": type("Data", (), rows)}
    exec(exported.snippet, names)
    logits = names["logits"]["user"][:, :3].detach().numpy()
    expected = trained.predict("user", what="logits")
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
