"""Runs on graphs with types whose edges have features: learned, evaluated, resumed, predicted."""

import numpy as np
import pytest
from devices import accelerator, plan_of
from one_line import one_line

import gnnscale
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.inference.evaluate import evaluate
from gnnscale.run.commands import EvaluateConfig
from gnnscale.run.inputs import describe_use, graph_read

BUYS, KNOWS = ("user", "buys", "item"), ("user", "knows", "user")
BACK = ("item", "rev_buys", "user")
USERS, ITEMS = 400, 60


def shop(seed: int = 0, *, labels_edges: bool = False) -> gnnscale.Graph:
    """A user likes the items with features near 1 that have edges of feature 1, not -1.

    With ``labels_edges``, the sign is the label of an edge, hidden in the second feature.
    """
    generator = np.random.default_rng(seed)
    src, dst = np.repeat(np.arange(USERS), 6), generator.integers(0, ITEMS, 6 * USERS)
    signs = generator.choice([-1.0, 1], len(src))
    colors = np.where(np.arange(ITEMS) % 2, 1.0, -1.0)
    liked = np.zeros(USERS)
    np.add.at(liked, src[signs > 0], colors[dst[signs > 0]])
    attr = np.stack([signs, generator.standard_normal(len(src))], 1).astype(np.float16)
    order = generator.permutation(len(src))
    labeled = {
        "edge_labels": (BUYS, (signs > 0).astype(np.int64)),
        "edge_split": (order[:1800], order[1800:2100], order[2100:]),
    }
    return from_typed_arrays(
        {"user": np.ones((USERS, 1), np.float32), "item": colors[:, None].astype(np.float32)},
        {
            BUYS: (src, dst),
            BACK: (dst, src),
            KNOWS: generator.integers(0, USERS, (2, 300)),
        },
        None if labels_edges else ("user", (liked > 0).astype(np.int64)),
        split=None if labels_edges else "random",
        edge_features={BUYS: attr, BACK: attr},
        name="likes",
        **(labeled if labels_edges else {}),
    )


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("likes") / "store"
    shop().save(path)
    return str(path)


def common(store: str, *more: str) -> list[str]:
    options = ["dataset=store", f"dataset.store={store}", "model=rgat", "model.hidden=16"]
    options += ["model.num_heads=2", "model.num_layers=1", "sampler.fanouts=[6]", "num_threads=2"]
    return [*options, "batch_size=64", "epochs=3", "model.dropout=0", "optimizer.lr=0.02", *more]


@pytest.mark.integration
def test_only_edges_tell_the_label(launched, tmp_path, store) -> None:
    run = launched(tmp_path / "run", *common(store, "epochs=12"))
    blind = launched(tmp_path / "blind", *common(store, "epochs=12", "model.edge_features=false"))
    assert run.result.test_metric > 0.85
    assert blind.result.test_metric < run.result.test_metric - 0.1
    measured = evaluate(EvaluateConfig(run=tmp_path / "run", num_threads=1))
    assert (measured.inference, measured.test_metric) == ("exact", run.result.test_metric)
    trained, other = gnnscale.load(tmp_path / "run"), shop(seed=1)
    assert (trained.predict(graph=other) == other.labels[:USERS]).mean() > 0.85
    with one_line("likes has 0 features of user-buys-item, and the run was trained on 2"):
        trained.predict(graph=other.without_edge_features())
    assert gnnscale.load(tmp_path / "blind").predict(graph=other).shape == (USERS,)


@pytest.mark.integration
def test_the_same_losses_on_any_devices(launched, resumed_and_whole, tmp_path, store) -> None:
    one = launched(tmp_path / "one", *common(store))
    emulated = plan_of("cpu", accelerator(reads_host_memory="true", link_request_bytes=64))
    for number, plan in enumerate((["device_plan=cpu_x2"], [emulated])):
        many = launched(tmp_path / str(number), *common(store), *plan)
        assert many.losses == pytest.approx(one.losses, rel=1e-4)
    rows = many.of_device(1)[0]["traffic"]["rows"]
    assert rows["link_bytes"] > rows["host_bytes"]
    resumed_and_whole(*common(store), "runtime.deterministic=true")


@pytest.mark.integration
def test_predicted_edges(launched, tmp_path, store) -> None:
    links = ["task=links", "task.edge_type=user-buys-item", "task.num_candidates=20"]
    lines = [
        launched(tmp_path / str(on), *common(store), *links, f"model.edge_features={on}").losses
        for on in ("true", "false")
    ]
    assert lines[0] != lines[1]
    path = tmp_path / "edges"
    shop(labels_edges=True).save(path)
    for model in ("rgat", "rsage"):
        options = [option for option in common(str(path)) if "heads" not in option]
        more = [f"model={model}", "task=edges", "epochs=4"]
        heads = ["model.num_heads=2"] if model == "rgat" else []
        run = launched(tmp_path / model, *options, *more, *heads)
        assert run.result.test_metric > 0.95
        found = gnnscale.load(tmp_path / model).predict_edges("test")
        graph = gnnscale.Graph.open(path)
        expected = graph.edge_labels.labels[graph.edge_labels.split.test_idx]
        assert (found == expected).mean() == run.result.test_metric
        with one_line("pairs: the model reads features of edges, which pairs have not"):
            gnnscale.load(tmp_path / model).predict_edges(pairs=[[0, USERS]])


def test_what_a_run_says_of_features_of_edges(settings, store) -> None:
    def line(*options: str) -> str | None:
        config = settings(*common(store, *options))
        graph = config.dataset.open()
        return describe_use(config.task_inputs, graph)

    features = "features of edges (2 of user-buys-item, 2 of item-rev_buys-user)"
    assert line() == f"likes: RGAT reads {features}"
    rsage = [option for option in common(store) if "heads" not in option]
    config = settings(*rsage, "model=rsage")
    graph = config.dataset.open()
    told = describe_use(config.task_inputs, graph)
    assert told == f"likes: RSAGE does not read the {features}; layers of model=rgat do"
    assert graph_read(config.task_inputs, graph).edges.by_type is None
    config = settings(*common(store, "model.edge_features=true"))
    with one_line("model.edge_features=true: edges of", "have no features"):
        graph_read(config.task_inputs, graph.without_edge_features())
