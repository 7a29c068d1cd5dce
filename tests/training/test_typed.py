"""Runs on graphs with types: the same losses on any devices, evaluated, resumed, predicted."""

import numpy as np
import pyarrow.parquet
import pytest
from devices import accelerator, plan_of
from one_line import one_line
from same_seeds import OfParts
from typed_graphs import shop

import gnnscale
from gnnscale.core import ConfigError
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.inference.evaluate import evaluate
from gnnscale.inference.export.predict import PredictConfig, predict
from gnnscale.partition import make_partition, read_partition
from gnnscale.run.commands import EvaluateConfig
from gnnscale.run.typed_inputs import check_reads_types

PLANS = {
    "split": ("device_plan=cpu_x2", "device_plan.split=[7,57]", "runtime.drm=false"),
    "moved": ("device_plan=cpu_x2", "runtime.prefetch=two_stage"),
    "emulated": (plan_of("cpu", accelerator()),),
    # Mini-batches are trained in parts.
    "small": (plan_of("cpu", accelerator(memory_bytes=400_000)),),
}


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("shop") / "store"
    shop().save(path)
    return str(path)


def common(store: str, *more: str) -> list[str]:
    options = [
        "dataset=store",
        f"dataset.store={store}",
        "model.hidden=16",
        "sampler.fanouts=[5,3]",
    ]
    return [*options, "batch_size=64", "epochs=3", "num_threads=2", "model.dropout=0.2", *more]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("model", "plans"),
    [
        (("rsage",), ("split", "moved", "emulated", "small")),
        (("rgcn", "model.without_features=degrees"), ("split", "moved", "emulated")),
        (("hgt",), ("split",)),
    ],
)
def test_the_same_losses_on_any_devices(launched, tmp_path, store, model, plans) -> None:
    """Also if processors compute means while they read features, and devices get rows."""
    name, *more = model
    options = common(store, f"model={name}", "optimizer.lr=0.01", "optimizer.weight_decay=0.01")
    options += more
    one = launched(tmp_path / "one", *options)
    assert one.losses[-1] < one.losses[0]
    for plan in plans:
        many = launched(tmp_path / plan, *options, *PLANS[plan])
        assert many.losses == pytest.approx(one.losses, rel=1e-4)
        assert many.result.test_metric == pytest.approx(one.result.test_metric, abs=0.02)


@pytest.mark.integration
@pytest.mark.parametrize("sampler", ["neighbor", "labor", "full"])
def test_what_is_learnt_is_evaluated_and_predicted(launched, tmp_path, store, sampler) -> None:
    fanouts = [] if sampler != "full" else ["sampler.fanouts=[-1,-1]"]
    options = common(store, f"sampler={sampler}", "model=rsage", "epochs=12", *fanouts)
    run = launched(tmp_path / "run", *options)
    assert run.result.test_metric > 0.8
    measured = evaluate(EvaluateConfig(run=tmp_path / "run", num_threads=1))
    assert (measured.inference, measured.test_metric) == ("exact", run.result.test_metric)
    if sampler != "neighbor":
        return
    trained = gnnscale.load(tmp_path / "run")
    assert trained.graph.vertex_types == ["tag", "user", "item"]
    test = trained.graph.test_idx
    answers = trained.predict("test")
    assert (answers == trained.graph.labels[test]).mean() == run.result.test_metric
    assert trained.predict().shape == (600,)
    np.testing.assert_array_equal(trained.predict(test[:3] - 9), answers[:3])
    assert trained.embeddings(("item", [4, 2])).shape == (2, 16)
    out = tmp_path / "users.parquet"
    predict(PredictConfig(run=tmp_path / "run", out=out, num_threads=1))
    table = pyarrow.parquet.read_table(out)
    assert table["id"].to_pylist() == [*range(600)]
    assert table["class"].to_numpy()[test - 9].tolist() == answers.tolist()
    with one_line("vertices", "'thing'"):
        trained.predict(("thing", [1]))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("partitioner", "sizes", "plan"),
    [
        ("pagraph", (7, 57), ("device_plan=cpu_x2", "device_plan.split=[7,57]")),
        ("hash", (32, 32), (plan_of("cpu", accelerator()), "runtime.prefetch=two_stage")),
    ],
)
def test_devices_over_parts_learn_what_one_process_does(
    settings, launched, losses, tmp_path, store, partitioner, sizes, plan
) -> None:
    options = common(store, "model=rgcn", "optimizer.lr=0.01")
    over_parts = [*options, *plan, f"partitioner={partitioner}"]
    config = settings(*over_parts)
    graph = config.dataset.open()
    path = make_partition(config.partitioner, graph, num_parts=2, num_hops=2, num_threads=2)
    owner = read_partition(path, graph).parts.owner
    run = launched(tmp_path / "parts", *over_parts)
    assert run.summary["partition"]["algorithm"] == partitioner
    assert all(seeds[rank] <= sizes[rank] for seeds in run.seeds for rank in (0, 1))
    order = OfParts(owner=owner, batch_sizes=sizes)
    alone = losses(tmp_path / "alone", *options, seed_order=order)
    assert run.losses == pytest.approx(alone, rel=1e-4)
    assert run.losses != pytest.approx(launched(tmp_path / "whole", *options).losses, rel=1e-2)


@pytest.mark.integration
def test_an_interrupted_run_resumes_bit_for_bit(resumed_and_whole, store) -> None:
    options = [
        "model=rgcn",
        "model.norm=batch",
        "device_plan=cpu_x2",
        "optimizer.weight_decay=0.01",
    ]
    resumed_and_whole(*common(store), *options, "runtime.deterministic=true")


@pytest.mark.integration
def test_a_run_over_parts_resumes_bit_for_bit(resumed_and_whole, store) -> None:
    options = ["model=rsage", "partitioner=pagraph", "device_plan=cpu_x2"]
    resumed_and_whole(*common(store), *options, "runtime.deterministic=true")


@pytest.mark.integration
def test_rows_of_types_without_features(launched, tmp_path, store) -> None:
    for rows in ("degrees", "constant"):
        options = common(store, "model=rgcn", "epochs=12", f"model.without_features={rows}")
        run = launched(tmp_path / rows, *options)
        assert run.result.test_metric > 0.8
        other = gnnscale.load(tmp_path / rows).predict(graph=shop(num_users=50))
        assert other.shape == (50,)
    known = {("user", "knows", "user"): (np.array([0]), np.array([1]))}
    another = from_typed_arrays({"user": None}, known, num_vertices={"user": 2})
    with one_line("has the vertex types user, and the run was trained on"):
        gnnscale.load(tmp_path / "degrees").predict(graph=another)
    learned = launched(tmp_path / "learned", *common(store, "model=rgcn"))
    assert np.isfinite(learned.losses).all()
    with one_line("the run has learned rows for vertices of shop"):
        gnnscale.load(tmp_path / "learned").predict(graph=shop(num_users=50))


@pytest.mark.integration
def test_a_relation_that_is_left_out_is_not_read(launched, tmp_path, store) -> None:
    """Without what users have bought, their own rows say nothing of their class."""
    options = common(store, "model=rsage", "epochs=8", "model.without_features=constant")
    run = launched(tmp_path / "run", *options, "sampler.edge_fanouts={item-bought-by-user:[0,0]}")
    assert run.result.test_metric < 0.5


@pytest.mark.integration
def test_a_graph_without_types_has_one_of_each(launched, tmp_path) -> None:
    options = ["dataset=planted_partition", "dataset.num_vertices=600", "dataset.num_edges=4000"]
    options += [
        "dataset.num_classes=3",
        "model=rsage",
        "model.hidden=16",
        "batch_size=64",
        "epochs=8",
        "num_threads=2",
    ]
    run = launched(tmp_path / "run", *options)
    assert run.result.test_metric > 0.5
    evaluated = evaluate(EvaluateConfig(run=tmp_path / "run", num_threads=1))
    assert evaluated.test_metric == run.result.test_metric


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        (["task=links", "cache_planner=pagraph", "device_plan=cpu_x2"], ("cache_planner=none",)),
        (["partitioner=p3", "device_plan=cpu_x2"], ("got RSAGE", "hash, metis and pagraph")),
        (["features=degrees"], ("features=host or disk", "model.without_features")),
        (["features=disk", "cache_planner=gnnlab"], ("rows in memory", "cache_planner=none")),
        (["device_plan=fpga_csim"], ("model=rsage", "fpga:0")),
        (["runtime.compute_dtype=bfloat16"], ("float32",)),
        (["sampler.edge_fanouts={a-b-c:[1]}"], ("sampler.edge_fanouts.a-b-c=[1]", "2 hops")),
        (["sampler.edge_fanouts={a-b-c:[1,-2]}"], ("-2 is not a fan-out", "0 for none")),
        (["model.without_features=zeros"], ("learned", "degrees", "constant")),
    ],
)
def test_what_does_not_go_together(settings, store, choices, words) -> None:
    with one_line(*words):
        settings(*common(store), "model=rsage", *choices)


def test_a_model_that_reads_no_types(settings, store) -> None:
    layerwise = [
        "sampler=layerwise",
        *(option for option in common(store) if "fanouts" not in option),
    ]
    with one_line("expected sampler=neighbor, labor, weighted or full"):
        settings(*layerwise, "model=rsage")
    config = settings(*common(store), "model=sage")
    with one_line("expected rgcn, rsage, rgat, hgt or custom", "(tag, user, item)", "GraphSAGE"):
        check_reads_types(config.model, "shop", shop().vertex_types)
    config = settings(*common(store), "model=rsage", "sampler.edge_fanouts={a-b-c:[1,2]}")
    with one_line("a-b-c is no edge type of shop", "user-buys-item", error=ConfigError):
        config.sampler.sampler(shop(), seed=0, num_threads=1)
