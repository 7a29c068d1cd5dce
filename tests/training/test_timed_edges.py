"""Runs over labels of edges as of their times."""

from pathlib import Path

import numpy as np
import pytest
from devices import accelerator, plan_of
from in_memory import InMemory
from one_line import one_line
from timed_ratings import future_ratings, timed_ratings

import gnnscale
from gnnscale.inference.evaluate import evaluate
from gnnscale.run.commands import EvaluateConfig

OPTIONS = (
    *("task=edges", "model.hidden=16", "model.dropout=0", "sampler.fanouts=[10,5]"),
    *("batch_size=64", "optimizer.lr=0.01", "num_threads=1"),
)
RATINGS = ("model=gin", "task.own_features=false")


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("ratings") / "store"
    timed_ratings().save(path)
    return str(path)


def of_store(store: str, *more: str) -> list[str]:
    options = ["dataset=store", f"dataset.store={store}", *OPTIONS, *RATINGS, "epochs=3"]
    return [*options, *more]


def test_the_past_of_an_edge_tells_its_label(run, tmp_path) -> None:
    data = InMemory(graph=timed_ratings())
    result = run(tmp_path, *OPTIONS, *RATINGS, "epochs=6", dataset=data)
    assert result.graph.split_of == "edges"
    assert result.graph.split == (900, 300, 300)
    assert result.test_metric > 0.9


@pytest.mark.parametrize("by_type", [False, True])
@pytest.mark.parametrize(("time", "least", "most"), [("null", 0.3, 0.7), ("none", 0.97, 1.0)])
def test_the_rule_hides_what_only_the_future_tells(
    run, tmp_path, by_type, time, least, most
) -> None:
    data = InMemory(graph=future_ratings(by_type=by_type))
    model = "model=rsage" if by_type else "model=sage"
    result = run(tmp_path, *OPTIONS, model, "epochs=30", f"sampler.time={time}", dataset=data)
    assert least <= result.test_metric <= most


@pytest.mark.integration
@pytest.mark.parametrize("bound", ["strict", "inclusive"])
def test_the_same_losses_on_any_devices(launched, tmp_path, store, bound) -> None:
    options = of_store(store, "runtime.accumulate=2", f"sampler.bound={bound}")
    one = launched(tmp_path / "one", *options)
    assert one.losses[-1] < one.losses[0]
    for name, plan in {
        "split": ("device_plan=cpu_x2", "device_plan.split=[7,57]", "runtime.drm=false"),
        "moved": ("device_plan=cpu_x2", "runtime.prefetch=two_stage", "num_threads=2"),
        "emulated": (plan_of("cpu", accelerator()),),
        "disk": ("features=disk", "features.memory_bytes=1_000_000"),
    }.items():
        many = launched(tmp_path / name, *options, *plan)
        assert many.losses == pytest.approx(one.losses, rel=1e-4)
        assert many.result.test_metric == pytest.approx(one.result.test_metric, abs=0.02)


@pytest.mark.integration
def test_an_interrupted_run_resumes_bit_for_bit(resumed_and_whole, store) -> None:
    resumed_and_whole(*of_store(store, "device_plan=cpu_x2", "runtime.deterministic=true"))


@pytest.mark.integration
def test_edges_are_evaluated_and_predicted(launched, tmp_path, store) -> None:
    run = launched(tmp_path / "run", *of_store(store))
    measured = evaluate(EvaluateConfig(run=tmp_path / "run", num_threads=1))
    assert (measured.inference, measured.test_metric) == ("exact", run.result.test_metric)
    trained = gnnscale.load(tmp_path / "run")
    answers = trained.predict_edges("test")
    labels = trained.graph.edge_labels
    assert (answers == labels.labels[labels.split.test_idx]).mean() == run.result.test_metric
    every = trained.predict_edges()
    np.testing.assert_array_equal(every[labels.split.test_idx], answers)
    # Edges that are added later change no answer of an earlier one.
    other = trained.predict_edges(graph=timed_ratings(later=200))
    np.testing.assert_array_equal(other[: len(every)], every)
    with one_line("pairs: ", "times"):
        trained.predict_edges(pairs=[[0, 1]])


BAD = {
    "features=degrees": ("features=degrees", "edges by time of ratings"),
    "sampler.time=walk": ("model=GIN", "counts no edges after the cut-offs"),
    "sampler.window=0": ("sampler.window=0", "at least 1"),
    "device_plan=fpga_csim": ("expected devices of kind cpu or emulated",),
}


@pytest.mark.parametrize("option", BAD)
def test_options_that_do_not_fit(run, tmp_path, option) -> None:
    with one_line(*BAD[option]):
        run(tmp_path, *OPTIONS, *RATINGS, option, dataset=InMemory(graph=timed_ratings()))


def test_edges_without_times(run, tmp_path: Path) -> None:
    graph = timed_ratings(timed=False)
    with one_line("sampler.time=seed: expected labeled edges with times", "dataset.edge_time"):
        run(tmp_path, *OPTIONS, "sampler.time=seed", dataset=InMemory(graph=graph))
    with one_line("task.own_features=false: expected labeled edges with times"):
        run(tmp_path, *OPTIONS, *RATINGS, dataset=InMemory(graph=graph))
    with one_line("task.own_features=false", "as of no times"):
        timed = InMemory(graph=timed_ratings())
        run(tmp_path, *OPTIONS, *RATINGS, "sampler.time=none", dataset=timed)
