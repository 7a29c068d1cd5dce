"""Links and edge labels of graphs with types: no leak, equal losses anywhere, ranks, partners."""

from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from devices import accelerator, plan_of
from one_line import one_line
from typed_graphs import shop

import gnnscale
from gnnscale.core import ConfigError
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.inference.evaluate import evaluate
from gnnscale.inference.export.predict import PredictConfig, predict
from gnnscale.run.commands import EvaluateConfig

pytestmark = pytest.mark.integration

BUYS = "task.edge_type=user-buys-item"
CANDIDATES = 50


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("shop") / "store"
    shop().save(path)
    return str(path)


def links(store: str, *more: str) -> list[str]:
    return [
        *("task=links", "dataset=store", f"dataset.store={store}", "model=rsage"),
        *("model.hidden=16", "sampler.fanouts=[5,3]", "batch_size=256", "epochs=3"),
        *(f"task.num_candidates={CANDIDATES}", "model.dropout=0", *more),
    ]


PLANS = {
    "two": ("device_plan=cpu_x2", "device_plan.split=[100,156]"),
    "emulated": (plan_of("cpu", accelerator()),),
}


@pytest.mark.parametrize(("model", "plans"), [("rsage", ("two", "emulated")), ("hgt", ("two",))])
def test_the_same_losses_on_any_devices(launched, tmp_path, store, model, plans) -> None:
    options = links(store, BUYS, f"model={model}", "epochs=1")
    options += ["task.negatives=popular", "task.loss=softmax"]
    one = launched(tmp_path / "one", *options, "num_threads=2")
    for plan in plans:
        many = launched(tmp_path / plan, *options, *PLANS[plan], "num_threads=2")
        assert many.losses == pytest.approx(one.losses, rel=1e-4)
        assert many.result.test_metric == pytest.approx(one.result.test_metric, abs=1e-2)


def test_learned_links_are_ranked_above_popular_ones(launched, tmp_path, store, caplog) -> None:
    caplog.set_level("INFO")
    ranks_all = ("task.num_candidates=all", "task.k=[5]", "task.hits=[50]", "epochs=12")
    done = launched(tmp_path / "run", *links(store, BUYS, "optimizer.lr=0.01", *ranks_all))
    assert any("its reverse is held out with it: item-bought-by-user" in x for x in caplog.messages)
    metrics, popularity = done.summary["test_metrics"], done.summary["test_popularity"]
    assert list(metrics) == ["recall@5", "map@5", "ndcg@5", "mrr", "hits@50"]
    assert all(metrics[name] > 1.5 * popularity[name] for name in metrics)
    measured = evaluate(EvaluateConfig(run=tmp_path / "run", num_threads=1))
    assert (measured.inference, measured.popularity) == ("exact", popularity)
    assert measured.metrics["test"] == pytest.approx(metrics)
    _check_predictions(tmp_path, store)


def _check_predictions(tmp_path: Any, store: str) -> None:
    """Sources are users and partners items, each counted from 0."""
    run = gnnscale.load(tmp_path / "run")
    ids, scores = run.partners([3, 599, 0], 4)
    assert ids.max() < 200
    pairs = np.stack([np.repeat([3, 599, 0], 4), ids.reshape(-1)], axis=1)
    np.testing.assert_allclose(run.scores(pairs), scores.reshape(-1), rtol=1e-5)
    full = run.scores([[3, item] for item in range(200)])
    assert ids[0].tolist() == np.argsort(-full, kind="stable")[:4].tolist()
    graph = gnnscale.Graph.open(store)
    bought = {(int(u) - 9, int(i) - 609) for u, i in _edges(graph)}
    new, _ = run.partners([3], 5, known="exclude")
    assert not bought & {(3, item) for item in new[0].tolist()}
    only, _ = run.partners(("user", [3]), 2, candidates=[7, 100])
    assert set(only[0].tolist()) == {7, 100}
    for wrong in ({"vertices": ("item", [1])}, {"candidates": "user"}):
        with one_line("expected vertices of type", "user-buys-item"):
            run.partners(**{"k": 1, **wrong})
    out = tmp_path / "top.parquet"
    predict(PredictConfig(run=tmp_path / "run", out=out, num_threads=1, vertices=[3, 599], top=4))
    table = pyarrow.parquet.read_table(out)
    assert table["source"].to_pylist() == [3] * 4 + [599] * 4
    assert table["target"].to_pylist() == ids[:2].reshape(-1).tolist()
    (tmp_path / "pairs.csv").write_text("source,target\n3,7\n599,199\n")
    named = PredictConfig(
        run=tmp_path / "run", out=out, num_threads=1, pairs=str(tmp_path / "pairs.csv"), force=True
    )
    predict(named)
    table = pyarrow.parquet.read_table(out)
    assert table["target"].to_pylist() == [7, 199]
    assert table["score"].to_numpy() == pytest.approx(run.scores([[3, 7], [599, 199]]), rel=1e-5)


def _edges(graph: gnnscale.Graph) -> list[tuple[int, int]]:
    names = [str(edges) for edges in graph.schema.edge_types]
    rows = graph.schema.rows(names.index("user-buys-item"))
    found = []
    for row in range(rows.start, rows.stop, rows.step):
        item = int(graph.schema.vertex_of(np.array([row]))[0])
        found += [(int(u), item) for u in graph.indices[graph.indptr[row] : graph.indptr[row + 1]]]
    return found


def noise(kind: str) -> gnnscale.Graph:
    """Random edges, with all that could reveal them: reverses in other edge types, and mutual."""
    generator = np.random.default_rng(1)
    sizes = {"user": 700, "item": 300, "tag": 20}
    buys = generator.integers(0, 700, 3500), generator.integers(0, 300, 3500)
    knows = generator.integers(0, 700, (2, 3500))
    if kind == "mutual":
        knows = np.concatenate([knows, knows[::-1]], axis=1)
    twice = np.tile(np.array(buys)[::-1], 2)  # copies are no other edges
    features: dict[str, Any] = {
        "user": None,
        "item": generator.standard_normal((300, 4)).astype(np.float32),
        "tag": None,
    }
    edges = {
        ("user", "knows", "user"): knows,
        ("user", "known-by", "user"): knows[::-1],
        ("user", "buys", "item"): buys,
        ("item", "bought-by", "user"): twice,
        ("tag", "of", "item"): (generator.integers(0, 20, 300), np.arange(300)),
        ("item", "has", "tag"): (np.arange(300), generator.integers(0, 20, 300)),
    }
    return from_typed_arrays(features, edges, num_vertices=sizes, name="noise")


@pytest.mark.parametrize(
    ("kind", "choices"),
    [
        ("directed", (BUYS, "model=rsage")),
        ("directed", (BUYS, "model=rsage", "sampler=full")),
        ("directed", (BUYS, "model=rgcn", "model.without_features=degrees", "sampler=labor")),
        ("directed", ("task.edge_type=user-known-by-user", "task.directed=true", "model=rgat")),
        ("mutual", ("task.edge_type=user-knows-user", "model=rsage")),
    ],
)
def test_noise_is_predicted_by_chance(run, tmp_path, kind, choices) -> None:
    noise(kind).save(tmp_path / "store")
    fanouts = [] if "sampler=full" in choices else ["sampler.fanouts=[5,5]"]
    common = [x for x in links(str(tmp_path / "store")) if "fanouts" not in x and "model=" not in x]
    result = run(
        tmp_path / "run",
        *(*common, *choices, *fanouts, "task.valid_fraction=0.05", "task.test_fraction=0.35"),
        *("epochs=6", "runtime.prefetch=none", "optimizer.lr=0.01"),
    )
    reciprocal = 1 / np.arange(1, CANDIDATES + 2)
    error = reciprocal.std() / np.sqrt(0.35 * 3500)
    assert reciprocal.mean() / 2 < result.test_metric < reciprocal.mean() + 3 * error


def labeled() -> gnnscale.Graph:
    """Users rate items: the label of an edge is one of the item, and of the user's bias."""
    generator = np.random.default_rng(2)
    rates = generator.integers(0, 90, 2000), generator.integers(0, 60, 2000)
    features = {
        "tag": generator.standard_normal((5, 2)).astype(np.float32),
        "user": generator.standard_normal((90, 3)).astype(np.float32),
        "item": generator.standard_normal((60, 3)).astype(np.float32),
    }
    labels = features["user"][rates[0], 0] + features["item"][rates[1], 1] > 0
    edges = {
        ("tag", "of", "item"): (generator.integers(0, 5, 60), np.arange(60)),
        ("user", "rates", "item"): rates,
        ("item", "rated-by", "user"): rates[::-1],
    }
    return from_typed_arrays(
        features,
        edges,
        edge_labels=(("user", "rates", "item"), labels.astype(np.int64)),
        split="random",
        name="ratings",
    )


def test_labels_of_edges(launched, tmp_path) -> None:
    graph = labeled()
    graph.save(tmp_path / "store")
    options = [x for x in links(str(tmp_path / "store"), "epochs=12") if "task" not in x]
    options += ["task=edges", "optimizer.lr=0.02", "num_threads=2"]
    one = launched(tmp_path / "run", *options)
    assert one.result.test_metric > 0.85
    two = launched(tmp_path / "two", *options, "device_plan=cpu_x2", "epochs=1")
    assert two.losses == pytest.approx(one.losses[: len(two.losses)], rel=1e-4)
    measured = evaluate(EvaluateConfig(run=tmp_path / "run", num_threads=1))
    assert measured.test_metric == one.result.test_metric
    run = gnnscale.load(tmp_path / "run")
    answers = run.predict_edges("test")
    rows = graph.edge_labels.split.test_idx
    assert (answers == graph.edge_labels.labels[rows]).mean() == one.result.test_metric
    ends = graph.edges.ends[rows] - [5, 95]  # ids within their types
    np.testing.assert_array_equal(run.predict_edges(pairs=ends), answers)
    out = tmp_path / "edges.parquet"
    predict(PredictConfig(run=tmp_path / "run", out=out, num_threads=1, edges="test"))
    table = pyarrow.parquet.read_table(out)
    assert table["source"].to_pylist() == ends[:, 0].tolist()
    assert table["target"].to_pylist() == ends[:, 1].tolist()
    with one_line("pairs", "60 is no vertex"):
        run.predict_edges(pairs=[[0, 60]])


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ((), ("task.edge_type=null", "tag-of-item")),
        (("task.edge_type=user-likes-item",), ("user-likes-item", "one of", "user-buys-item")),
        ((BUYS, "task.candidate_column=kind"), ("task.candidate_column=kind", "have types")),
        (("task.edge_type=tag-of-item", "task.test_fraction=0.001"), ("no test edge of 200",)),
        ((BUYS, "task.candidates=ITEMS"), ("task.candidates=", "destinations of predicted edges")),
        (("dataset=planted_partition", BUYS), ("task.edge_type=user-buys-item: expected null",)),
    ],
)
def test_what_does_not_fit_the_graph(run, tmp_path, store, choices, words) -> None:
    np.save(tmp_path / "items.npy", np.arange(150))
    options = links(store, *(x.replace("ITEMS", str(tmp_path / "items.npy")) for x in choices))
    if "dataset=planted_partition" in choices:
        options = [x for x in options if "store" not in x]
    with one_line(*words, error=ConfigError):
        run(tmp_path / "run", *options)


def test_candidates_are_items_of_a_file(launched, tmp_path, store) -> None:
    np.save(tmp_path / "items.npy", np.arange(200)[::-1])
    chosen = launched(
        tmp_path / "run", *links(store, BUYS, "epochs=1", f"task.candidates={tmp_path}/items.npy")
    )
    whole = launched(tmp_path / "whole", *links(store, BUYS, "epochs=1"))
    assert chosen.losses == whole.losses
    assert gnnscale.load(tmp_path / "run").partners([0], 200)[0].shape == (1, 200)


def test_a_graph_without_types(launched, tmp_path) -> None:
    """A model of types reads it with a type of vertices and edges; its reverses are no messages."""
    options = ["task=links", "model=rsage", "model.hidden=16", "batch_size=256", "epochs=2"]
    done = launched(tmp_path / "run", *options, "task.num_candidates=20")
    assert done.losses[-1] < done.losses[0]
    run = gnnscale.load(tmp_path / "run")
    ids, scores = run.partners([5], 3)
    pairs = [[5, partner] for partner in ids[0].tolist()]
    np.testing.assert_allclose(run.scores(pairs), scores[0], rtol=1e-5)
