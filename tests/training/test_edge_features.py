"""Runs on graphs whose edges have features: the same losses on any devices, evaluated, resumed."""

import numpy as np
import pytest
from devices import accelerator, plan_of
from one_line import one_line

from gnnscale.data import from_arrays
from gnnscale.inference.evaluate import evaluate
from gnnscale.inference.load_run import load_run
from gnnscale.inference.trained_model import load_trained
from gnnscale.run.commands import EvaluateConfig
from gnnscale.run.inputs import describe_use, graph_read

SIZE, NUM_EDGES = 600, 4000
PLANS = {
    "cpu_x2": ("device_plan=cpu_x2", "device_plan.split=[7,57]", "runtime.drm=false"),
    "reads": (plan_of("cpu", accelerator(reads_host_memory="true", link_request_bytes=64)),),
    "cached": (
        plan_of("cpu", accelerator(host_bandwidth=1e9)),
        *("cache_planner=pagraph", "cache_planner.budget_bytes=4000"),
    ),
}


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What an edge has decides the class of its destination; vertices have noise."""
    generator = np.random.default_rng(0)
    src, dst = generator.integers(0, SIZE, (2, NUM_EDGES))
    attr = generator.standard_normal((NUM_EDGES, 3), np.float32)
    sums = np.zeros(SIZE)
    np.add.at(sums, dst, attr[:, 0])
    order = generator.permutation(SIZE)
    graph = from_arrays(
        (src, dst),
        generator.standard_normal((SIZE, 4), np.float32),
        (sums > 0).astype(np.int64),
        train_idx=order[:400],
        valid_idx=order[400:500],
        test_idx=order[500:],
        edge_features=attr,
        name="edgy",
    )
    path = tmp_path_factory.mktemp("edgy") / "store"
    graph.save(path)
    return str(path)


def common(store: str) -> list[str]:
    options = ["dataset=store", f"dataset.store={store}", "model.hidden=8", "sampler.fanouts=[5,3]"]
    return [*options, "batch_size=64", "epochs=2", "num_threads=2", "model.dropout=0.2"]


@pytest.mark.integration
@pytest.mark.parametrize(("model", "plans"), [("gat", ("cpu_x2", "cached")), ("gin", ("reads",))])
def test_the_same_losses_on_any_devices(launched, tmp_path, store, model, plans) -> None:
    given = [*common(store), f"model={model}"]
    one = launched(tmp_path / "one", *given)
    for plan in plans:
        many = launched(tmp_path / plan, *given, *PLANS[plan])
        assert many.losses == pytest.approx(one.losses, rel=1e-4)
        assert many.result.test_metric == pytest.approx(one.result.test_metric, abs=0.02)
        if plan != "cpu_x2":
            rows = many.of_device(1)[0]["traffic"]["rows"]
            of_edges = rows["link_bytes"] - rows["host_bytes"]
            assert of_edges > 0
            assert of_edges % (3 * 4) == 0


@pytest.mark.integration
def test_what_is_learnt_is_evaluated_and_resumed(
    launched, resumed_and_whole, tmp_path, store
) -> None:
    given = [*common(store), "model=gin", "epochs=8", "sampler.fanouts=[-1,5]"]
    run = launched(tmp_path / "run", *given)
    plain = launched(tmp_path / "plain", *given, "model.edge_features=false")
    assert run.result.test_metric > plain.result.test_metric + 0.15
    found = evaluate(EvaluateConfig(run=tmp_path / "run", num_threads=1))
    assert (found.inference, found.test_metric) == ("exact", run.result.test_metric)
    trained = load_trained(tmp_path / "run", load_run(tmp_path / "run"))
    assert trained.signature.num_edge_features == 3
    resumed_and_whole(*common(store), "model=gat", "runtime.deterministic=true")


@pytest.mark.integration
def test_edges_that_are_predicted_have_features_too(launched, tmp_path, store) -> None:
    given = [*common(store), "task=links", "batch_size=512", "task.num_candidates=20"]
    plain = launched(tmp_path / "plain", *given, "model=gat", "model.edge_features=false")
    one = launched(tmp_path / "one", *given, "model=gat")
    many = launched(tmp_path / "many", *given, "model=gat", "device_plan=cpu_x2")
    assert many.losses == pytest.approx(one.losses, rel=1e-4)
    assert plain.losses != one.losses


@pytest.mark.long
def test_what_does_not_go_together(settings, store) -> None:
    ready = ("model=gin", "features=preaggregated", "sampler.fanouts=[5,-1]")
    for given, message in (
        (("model=gat", "device_plan=fpga_csim"), "GAT reads features of edges, which fpga:0 does"),
        (ready, "cannot be aggregated before training"),
    ):
        config = settings(*common(store), *given)
        graph = config.dataset.open()
        with one_line(message):
            graph_read(config.task_inputs, graph)
        left_out = settings(*common(store), *given, "model.edge_features=false")
        assert graph_read(left_out.task_inputs, graph).num_edge_features == 0


def test_what_a_run_says_of_features_of_edges(settings, store) -> None:
    lines = {}
    for model in ("gat", "gcn"):
        config = settings(*common(store), f"model={model}")
        graph = config.dataset.open()
        lines[model] = describe_use(config.task_inputs, graph)
        assert describe_use(config.task_inputs, graph.without_edge_features()) is None
    assert lines["gat"] == "edgy: GAT reads 3 features of each edge"
    assert lines["gcn"].startswith("edgy: GCN does not read the 3 features of each edge")
    config = settings(*common(store), "model=gcn", "model.edge_features=false")
    assert describe_use(config.task_inputs, graph) is None
    config = settings(*common(store), "model=gat", "model.edge_features=true")
    with one_line("edges of ", " have no features"):
        graph_read(config.task_inputs, graph.without_edge_features())
