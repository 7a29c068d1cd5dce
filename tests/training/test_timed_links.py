"""Link prediction by time, from runs to partners."""

import pytest
from devices import accelerator, plan_of
from one_line import one_line
from timed_visits import timed_visits

import gnnscale
from gnnscale.inference.evaluate import evaluate
from gnnscale.run.commands import EvaluateConfig

OPTIONS = (
    *("task=links", "task.split=time", "model.hidden=16", "model.dropout=0"),
    *("sampler.fanouts=[10,5]", "batch_size=128", "optimizer.lr=0.02", "num_threads=1"),
)
TYPED = ("model=rsage", "task.edge_type=user-visits-place")


@pytest.fixture
def options_of(tmp_path):
    def of(*more: str, **graph) -> list[str]:
        by_type = graph.get("by_type", False)
        timed_visits(**graph).save(tmp_path / "store")
        return [
            *("dataset=store", f"dataset.store={tmp_path / 'store'}", *OPTIONS),
            *(TYPED if by_type else ()),
            *more,
        ]

    return of


@pytest.mark.integration
@pytest.mark.parametrize("by_type", [False, True])
@pytest.mark.parametrize(("habits", "least", "most"), [(True, 0.3, 1.0), (False, 0.02, 0.16)])
def test_the_past_tells_habits_and_nothing_else(
    launched, tmp_path, options_of, by_type, habits, least, most
) -> None:
    """Among 40 candidates, chance has an MRR of 0.1; held-out edges are in the graph."""
    shape = {"by_type": by_type, "habits": habits, "count": 1600 if habits else 800}
    given = options_of("task.num_candidates=40", "epochs=25", **shape)
    run = launched(tmp_path / "run", *given)
    assert run.result.graph.split_of == "edges"
    assert sum(run.result.graph.split) == (1596 if habits else 800)  # copies of one time
    assert least <= run.result.test_metric <= most


@pytest.mark.integration
def test_the_same_losses_on_any_devices_and_resumed(launched, tmp_path, options_of) -> None:
    given = options_of("epochs=2", "runtime.deterministic=true", by_type=True)
    one = launched(tmp_path / "one", *given)
    for name, plan in {
        "split": ("device_plan=cpu_x2", "device_plan.split=[28,100]", "num_threads=2"),
        "emulated": (plan_of("cpu", accelerator()),),
    }.items():
        many = launched(tmp_path / name, *given, *plan)
        assert many.losses == pytest.approx(one.losses, rel=1e-4)
    launched(tmp_path / "part", *given, "epochs=1", "runtime.checkpoint_every_s=0")
    part = launched(
        tmp_path / "part",
        *given,
        "runtime.checkpoint_every_s=0",
        f"resume={tmp_path / 'part'}",
    )
    assert part.result.test_metric == one.result.test_metric


@pytest.mark.integration
def test_evaluated_and_asked_for_partners(launched, tmp_path, options_of) -> None:
    given = options_of("epochs=8", "task.num_candidates=all", "task.k=[5]", by_type=True)
    run = launched(tmp_path / "run", *given)
    measured = evaluate(EvaluateConfig(run=tmp_path / "run", num_threads=1))
    assert measured.metrics["test"]["mrr"] == run.result.test_metrics["mrr"]
    trained = gnnscale.load(tmp_path / "run")
    # As of the end: all edges send messages.
    partners = trained.partners([0, 1], k=5)
    assert partners[0].shape == (2, 5)


BAD = {
    "sampler.bound=inclusive": ("sampler.bound=inclusive: expected strict with task.split=time",),
    "sampler.time=none": ("sampler.time=none: expected a rule of time",),
    "features=degrees": ("features=degrees", "edges by time of visits"),
    "sampler.window=0": ("sampler.window=0", "at least 1"),
    "device_plan=cuda": ("device_plan: expected devices of kind cpu or emulated", "edges by time"),
}


@pytest.mark.parametrize("option", BAD)
def test_options_that_do_not_fit(run, tmp_path, options_of, option) -> None:
    with one_line(*BAD[option]):
        run(tmp_path, *options_of(option, "epochs=1"))


def test_graphs_without_times(run, tmp_path, options_of) -> None:
    with one_line("task.split=time: expected a graph with times, got", "dataset.edge_time"):
        run(tmp_path, *options_of("epochs=1", timed=False))
