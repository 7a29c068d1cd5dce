"""Link prediction by the runtime: the same losses on any devices, resumed, and evaluated."""

import numpy as np
import pytest
from devices import accelerator, plan_of
from learnt import same, weights

from gnnscale.core.errors import ConfigError
from gnnscale.data import from_arrays
from gnnscale.inference.evaluate import evaluate
from gnnscale.run.commands import EvaluateConfig

pytestmark = pytest.mark.integration

LINKS = (
    *("task=links", "batch_size=256", "epochs=3", "runtime.prefetch=none"),
    *("task.num_candidates=20", "model.hidden=16"),
)


@pytest.mark.parametrize(
    ("devices", "decoder"),
    [
        (("device_plan=cpu_x2",), ()),
        (("device_plan=cpu_x2", "device_plan.split=[100,156]"), ("task.decoder=mlp",)),
        ((plan_of("cpu", accelerator(host_bandwidth=1e9)),), ()),
        (("device_plan=cpu_x2",), ("model=sgc", "task.negatives=popular", "task.loss=softmax")),
    ],
)
def test_the_same_losses_on_any_devices(launched, tmp_path, devices, decoder) -> None:
    one = launched(tmp_path / "one", *LINKS, *decoder)
    many = launched(tmp_path / "many", *LINKS, *decoder, *devices, "num_threads=2")
    assert many.losses == pytest.approx(one.losses, rel=1e-4)
    assert many.result.metric == "mrr"
    assert many.result.test_metric == pytest.approx(one.result.test_metric, abs=1e-3)
    assert one.result.history[-1].train_loss < one.result.history[0].train_loss


def test_resumed_and_evaluated(launched, tmp_path) -> None:
    common = (*LINKS, "runtime.deterministic=true", "runtime.checkpoint_every_s=0")
    whole = launched(tmp_path / "whole", *common, "epochs=4")
    launched(tmp_path / "part", *common)
    part = launched(tmp_path / "part", *common, "epochs=4", f"resume={tmp_path / 'part'}")
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "part"))
    assert part.result.test_metric == whole.result.test_metric
    measured = evaluate(EvaluateConfig(run=tmp_path / "whole", num_threads=1))
    assert (measured.metric, measured.test_metric) == ("mrr", whole.result.test_metric)


def test_ranked_among_all_and_beside_popularity(launched, tmp_path) -> None:
    ranks_all = ("task.num_candidates=all", "task.hits=[1,50]", "task.k=[5,20]", "epochs=1")
    done = launched(tmp_path / "run", *LINKS, *ranks_all)
    names = [f"{metric}@{k}" for k in (5, 20) for metric in ("recall", "map", "ndcg")]
    assert list(done.summary["test_metrics"]) == [*names, "mrr", "hits@1", "hits@50"]
    assert done.result.metric == "recall@5"
    popularity = done.summary["test_popularity"]
    assert 0 < popularity["recall@5"] <= popularity["recall@20"] < 1
    assert "test, by popularity alone" in done.page
    measured = evaluate(EvaluateConfig(run=tmp_path / "run", num_threads=1))
    assert measured.popularity == popularity
    assert measured.metrics["test"] == pytest.approx(done.summary["test_metrics"])


def test_what_does_not_go_together(settings) -> None:
    for given, message in (
        ("partitioner=hash device_plan=cpu_x2", "partitioner=none"),
        ("cache_planner=pagraph device_plan=emulated_x4", "cache_planner=none"),
        ("device_plan=fpga_csim", "does not train on edges"),
        ("features=preaggregated sampler=full", "expected features=host"),
        ("task.candidate_kind=film", "expected task.candidate_column with it"),
        ("task.k=20", r"task.k=\[20\]: expected task.num_candidates=all with it"),
    ):
        with pytest.raises(ConfigError, match=message):
            settings("task=links", *given.split())


def test_candidates_of_the_destinations_kind(launched, tmp_path, caplog) -> None:
    """Users and films; among films alone a model that knows no user is at chance."""
    caplog.set_level("WARNING")
    generator = np.random.default_rng(0)
    source, target = generator.integers(300, size=4000), generator.integers(300, 600, size=4000)
    rows = np.repeat(np.eye(2, dtype=np.float32), 300, axis=0)  # the kind of a vertex
    from_arrays((source, target), rows).save(tmp_path / "store")
    table = tmp_path / "kinds.csv"
    lines = (f"{vertex},{'user' if vertex < 300 else 'film'}" for vertex in range(600))
    table.write_text("\n".join(["id,kind", *lines]))
    np.save(tmp_path / "films.npy", np.arange(300, 600))
    common = (*LINKS, "dataset=store", f"dataset.store={tmp_path / 'store'}", "epochs=8")
    common = (*common, "sampler.fanouts=[5,5]", "optimizer.lr=0.02")
    by_kind = (f"task.candidates={table}", "task.candidate_column=kind")
    measured = {}
    for name, given in {
        "all": (),
        "kind": by_kind,
        "file": (f"task.candidates={tmp_path / 'films.npy'}",),
    }.items():
        caplog.clear()
        measured[name] = launched(tmp_path / name, *common, *given).result.test_metric
        assert any("bipartite" in each.message for each in caplog.records) == (name == "all")
    chance = np.mean(1 / np.arange(1, 22))
    assert measured["all"] > 1.3 * chance
    assert measured["kind"] == measured["file"] == pytest.approx(chance, abs=0.02)


def test_a_run_goes_on_with_the_same_candidates(launched, run, settings, tmp_path) -> None:
    """The file of candidates is no part of the run directory."""
    num_vertices = settings(*LINKS).dataset.open().num_vertices
    table, ids = tmp_path / "kinds.csv", range(num_vertices)
    table.write_text("\n".join(["id,kind", *(f"{vertex},one" for vertex in ids)]))
    common = (*LINKS, f"task.candidates={table}", "task.candidate_column=kind")
    launched(tmp_path / "part", *common, "epochs=1")
    table.write_text("\n".join(["id,kind", *(f"{vertex},{vertex % 2}" for vertex in ids)]))
    with pytest.raises(ConfigError, match=r"the graph's candidates is .* was written with"):
        run(tmp_path / "part", *common, f"resume={tmp_path / 'part'}")
