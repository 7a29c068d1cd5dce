"""Runs on features of int8 and int4: what is learnt is what decoded rows would teach."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import accelerator, plan_of
from learnt import same, weights
from omegaconf import OmegaConf
from one_line import one_line

from gnnscale.api import run as api
from gnnscale.core.config.run_directory import CONFIG_FILE
from gnnscale.core.config.typed import typed
from gnnscale.graph.dtypes import as_float32
from gnnscale.inference.evaluate import evaluate
from gnnscale.run.commands import EvaluateConfig
from gnnscale.run.config import RunConfig
from gnnscale.run.inputs import check_feature_dtype

#: An emulated device that has a cache.
DEVICE = (plan_of(accelerator(host_aggregates=False)), "cache_planner.ratio=0.3")
CACHES, AHEAD = ((*DEVICE, "cache_planner=pagraph"), (*DEVICE, "cache_planner=belady_match"))


@pytest.fixture
def graphs(options: Any, tmp_path: Path) -> Any:
    """The tiny graph's store with rows of a lossy type, and one of the decoded rows."""

    def stored(dtype: str) -> dict[str, str]:
        overrides = (f"dataset.feature_dtype={dtype}", "dataset.num_features=9")
        graph = typed(options(*overrides), RunConfig).dataset.open()
        assert (graph.feature_dtype, graph.num_features) == (dtype, 9)
        plain = as_float32(np.asarray(graph.features), dtype, 9)
        replace(graph, features=plain, feature_dtype="float32").save(tmp_path / "plain")
        return {"lossy": str(graph.path), "plain": str(tmp_path / "plain")}

    return stored


@pytest.mark.long
@pytest.mark.parametrize(
    ("dtype", "how"),
    [
        ("int4", ("model=gcn", "runtime.inference=sampled")),
        ("int4", ("runtime.compute_dtype=bfloat16", "num_threads=2")),
        ("int8", ("model=gat",)),
        ("int4", ("sampler.fanouts=[5,-1]", "features=preaggregated")),
        ("int8", CACHES),
        ("int4", AHEAD),
    ],
)
def test_a_run_learns_what_decoded_rows_teach(run, graphs, tmp_path, dtype, how) -> None:
    results = {
        name: run(tmp_path / name, "dataset=store", f"dataset.store={store}", *how)
        for name, store in graphs(dtype).items()
    }
    lossy, plain = results["lossy"], results["plain"]
    assert [each.train_loss for each in lossy.history] == [
        each.train_loss for each in plain.history
    ]
    assert same(weights(tmp_path / "lossy"), weights(tmp_path / "plain"))
    assert lossy.test_metric == plain.test_metric


@pytest.mark.long
def test_accuracy_and_what_follows_a_run(run, options, tmp_path) -> None:
    how = ("epochs=8", "optimizer.lr=0.02")
    plain = run(tmp_path / "plain", *how)
    lossy = run(tmp_path / "lossy", *how, "dataset.feature_dtype=int4")
    assert plain.graph.feature_dtype == "float32"
    assert lossy.graph.feature_dtype == "int4"
    assert plain.test_metric > 0.5
    assert lossy.test_metric > plain.test_metric - 0.1
    node = options(*how, "dataset.feature_dtype=int4")
    (tmp_path / "lossy" / CONFIG_FILE).write_text(OmegaConf.to_yaml(node, resolve=True))
    found = evaluate(EvaluateConfig(run=tmp_path / "lossy", num_threads=1))
    assert found.test_metric == pytest.approx(lossy.test_metric)
    result = api.load(tmp_path / "lossy")
    assert result.predict([3, 5]).shape == (2,)
    # Predictions of another graph read its rows as they are, or scaled.
    assert np.array_equal(result.predict([3, 5], graph=result.graph), result.predict([3, 5]))


def test_p3_does_not_read_them(run, tmp_path) -> None:
    words = ("features are stored as int8", "partitioner=p3 divides rows", "feature_dtype=float16")
    with one_line(*words):
        run(tmp_path, "dataset.feature_dtype=int8", "device_plan=cpu_x2", "partitioner=p3")


def test_gpus_do_not_read_them(settings) -> None:
    config = settings("device_plan=cuda", "dataset.feature_dtype=int4")
    with one_line("dataset: features are stored as int4", "cuda", "has no kernels for them"):
        check_feature_dtype(config.task_inputs, config.partitioner, "int4")
    check_feature_dtype(config.task_inputs, config.partitioner, "float16")
    # Rows that take their place are float32.
    replaced = settings("device_plan=cuda", "features=degrees")
    check_feature_dtype(replaced.task_inputs, replaced.partitioner, "int4")
