"""Rows that a run learns, or makes of the structure, in place of features."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learnt import same, weights
from run_fixtures import with_tiny

from gnnscale.api import run as api
from gnnscale.core.errors import ConfigError, GraphError
from gnnscale.core.hardware import read_memory
from gnnscale.data import ExistingStore
from gnnscale.features import LearnedFeaturesConfig
from gnnscale.inference.evaluate import evaluate
from gnnscale.inference.export.predict import PredictConfig, predict
from gnnscale.planner.simulator.simulate import measured_task
from gnnscale.run import inputs as vertex_features
from gnnscale.run.checkpoint import BEST, LAST
from gnnscale.run.checkpoint.file import load_checkpoint, save_checkpoint
from gnnscale.run.commands import EvaluateConfig
from gnnscale.run.inputs import with_features
from gnnscale.training.build.cache_problem import plan_caches
from gnnscale.training.make_artifacts import make_artifacts

TWO = ("device_plan=cpu_x2", "num_threads=2")
LEARNED = ("features=learned", "features.dim=12", "features.lr=0.05", "optimizer.lr=0.01")


def losses(result: Any) -> list[float]:
    return [each.train_loss for each in result.history]


def test_first_rows_and_rates() -> None:
    config = LearnedFeaturesConfig(dim=3)
    rows = config.draw(5, seed=1)
    assert rows.dtype == np.float32
    assert np.array_equal(rows, config.draw(9, seed=1)[:5])
    assert not np.array_equal(rows, config.draw(5, seed=2))
    many = config.draw(20_000, seed=0)
    assert np.abs(many).max() <= 0.1
    assert abs(many.mean()) < 1e-3
    assert many.std() == pytest.approx(0.1 / 3**0.5, rel=0.01)
    for options, rate in (({}, 0.1), ({"optimizer": "adam"}, 0.02), ({"lr": 0.5}, 0.5)):
        assert LearnedFeaturesConfig(**options).rate_factor(0.02) * 0.02 == pytest.approx(rate)


@pytest.mark.long
def test_prefetching_and_threads_change_nothing(run: Any, tmp_path: Path) -> None:
    ways = {
        "none": ("runtime.prefetch=none", "num_threads=1"),
        "ahead": ("runtime.prefetch=two_stage", "runtime.prefetch_depth=3", "num_threads=2"),
    }
    found = {
        name: run(tmp_path / name, *LEARNED, "runtime.checkpoint_every_s=0", *way)
        for name, way in ways.items()
    }
    assert losses(found["none"]) == losses(found["ahead"])
    assert same(*(weights(tmp_path / name) for name in ways))
    assert losses(found["none"])[-1] < losses(found["none"])[0]


@pytest.mark.long
def test_the_losses_are_those_of_a_plain_loop(settings: Any, run: Any, tmp_path: Path) -> None:
    """A dense table and ``SparseAdam``, in a loop without any of the runtime."""
    how = (*LEARNED, "features.optimizer=adam", "features.lr=null")
    how = (*how, "model.dropout=0", "epochs=2", "model=gcn")
    result = run(tmp_path, *how)
    config = settings(*how)
    graph = with_features(config.features, config.dataset.open(), num_threads=1, seed=config.seed)
    torch.manual_seed(config.seed)
    model = config.model.build(num_features=12, num_classes=graph.num_classes)
    table = torch.nn.Parameter(torch.from_numpy(graph.features))
    of_rows = torch.optim.SparseAdam([table], lr=0.01)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sampler = config.sampler.sampler(graph, seed=config.seed, num_threads=1)
    order = config.seed_order.order(graph.train_idx, batch_size=64, num_devices=1, seed=config.seed)
    expected, number = [], 0
    for epoch in range(2):
        each = []
        for step in order.epoch(epoch):
            batch = sampler.sample(step.seeds, number)
            ids = torch.from_numpy(batch.input_vertices).long()
            x = table.detach()[ids].requires_grad_()
            degrees = np.diff(graph.indptr)[batch.input_vertices].astype(np.float32)
            out = model(batch, api_inputs(x, degrees))
            labels = torch.from_numpy(graph.labels[step.seeds])
            loss = torch.nn.functional.cross_entropy(out, labels)
            optimizer.zero_grad()
            loss.backward()
            table.grad = torch.sparse_coo_tensor(
                ids[None], x.grad, size=table.shape, check_invariants=False
            )
            optimizer.step()
            of_rows.step()
            each.append(loss.item())
            number += 1
        expected.append(each)
    means = [float(np.average(each, weights=seeds_of(order, len(each)))) for each in expected]
    assert losses(result) == pytest.approx(means, rel=1e-4)


def api_inputs(x: torch.Tensor, degrees: Any) -> Any:
    from gnnscale.nn import Inputs

    return Inputs(x=x, aggregated=False, degrees=degrees)


def seeds_of(order: Any, num_steps: int) -> list[int]:
    return [len(each.seeds) for each in order.epoch(0)][:num_steps]


@pytest.mark.long
@pytest.mark.parametrize(("optimizer", "of_rows"), [("adam", "adagrad"), ("sgd", "adam")])
def test_a_resumed_run_learns_the_same_bits(run, tmp_path, optimizer, of_rows) -> None:
    how = (*LEARNED, f"optimizer={optimizer}", f"features.optimizer={of_rows}")
    how = (*how, "runtime.checkpoint_every_s=0")
    whole = run(tmp_path / "whole", *how, "epochs=4")
    part = tmp_path / "part"
    run(part, *how, "epochs=2")
    resumed = run(part, *how, "epochs=4", f"resume={part}")
    assert losses(resumed) == losses(whole)
    assert same(weights(part), weights(tmp_path / "whole"))
    assert resumed.test_metric == whole.test_metric
    saved = load_checkpoint(part / LAST)
    assert saved["model"]["vertex_rows.weight"].shape == (600, 12)


@pytest.mark.integration
def test_an_interrupted_run_goes_on_inside_its_epoch(resumed_and_whole: Any) -> None:
    how = ("features.optimizer=adagrad", *TWO)
    resumed_and_whole(*LEARNED, *how, "runtime.deterministic=true")


@pytest.mark.integration
def test_another_plan_continues_with_the_rows(launched: Any, run: Any, tmp_path: Path) -> None:
    """One process resumes what two have begun, and two what one has."""
    common = (*LEARNED, "runtime.drm=false", "model.dropout=0.5", "features.lr=0.02")
    whole = run(tmp_path / "whole", *common, "epochs=4")
    one, two = tmp_path / "one", tmp_path / "two"
    run(one, *common, "epochs=2")
    launched(two, *common, *TWO, "epochs=2")
    results = (
        launched(one, *common, *TWO, "epochs=4", f"resume={one}").result,
        run(two, *common, "epochs=4", f"resume={two}"),
    )
    for directory, result in zip((one, two), results, strict=True):
        assert losses(result) == pytest.approx(losses(whole), rel=1e-5)
        for name, tensor in weights(tmp_path / "whole").items():
            torch.testing.assert_close(weights(directory)[name], tensor, rtol=1e-3, atol=1e-4)


def test_a_run_is_used_with_the_rows_of_its_best_epoch(run: Any, tmp_path: Path) -> None:
    trained = run(tmp_path / "run", *LEARNED)
    write_config(tmp_path / "run", LEARNED)
    found = evaluate(EvaluateConfig(run=tmp_path / "run", num_threads=1))
    assert found.test_metric == pytest.approx(trained.test_metric)
    result = api.load(tmp_path / "run")
    exported = result.export(tmp_path / "model.safetensors")
    assert exported.note.endswith("gnnscale.load(DIR).graph.features has them")
    names: dict[str, Any] = {}
    exec(exported.snippet, names)
    table = load_checkpoint(tmp_path / "run" / BEST)["model"]["vertex_rows.weight"]
    assert table.shape == (600, 12)
    assert np.array_equal(result.graph.features, table)
    assert result.predict([3, 5]).shape == (2,)
    with pytest.raises(ConfigError, match=r"^dataset: the run has learned rows for vertices of"):
        result.predict(graph=result.graph)
    # Before the other graph is read, which may have other faults.
    gone = ExistingStore(store=str(tmp_path / "gone"))
    config = PredictConfig(run=tmp_path / "run", out=tmp_path / "p.npy", num_threads=1, graph=gone)
    with pytest.raises(ConfigError, match=r"^dataset: the run has learned rows for vertices of"):
        predict(config)


def write_config(directory: Path, overrides: Any) -> None:
    from composed import composed
    from omegaconf import OmegaConf

    from gnnscale.core.config.run_directory import CONFIG_FILE

    node = composed(with_tiny(overrides))
    (directory / CONFIG_FILE).write_text(OmegaConf.to_yaml(node, resolve=True))


@pytest.mark.long
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("features.dim=0", "features.dim=0: must be at least 1"),
        ("features.optimizer=sgd", "features.optimizer=sgd: allowed are adagrad, adam"),
        ("features.lr=0", "features.lr=0.0: expected a number above 0, or null for the default"),
        ("device_plan=emulated_x4", "expected devices of kind cpu, .* got emulated:0,"),
        ("partitioner=hash", "partitioner=hash"),
        ("runtime.accumulate=2", "runtime.accumulate=2: expected 1 with"),
        ("runtime.clip_norm=1", "runtime.clip_norm=1.0: expected null with"),
    ],
)
def test_what_does_not_fit_learned_rows_is_refused(settings: Any, given: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings("features=learned", given)


def test_tables_that_memory_does_not_hold_are_refused(settings: Any, monkeypatch: Any) -> None:
    graph = settings().dataset.open()
    huge = replace(graph, indptr=np.broadcast_to(np.int64(0), (1 << 40,)))
    with pytest.raises(ConfigError, match=r"features.dim=128: expected tables of at most .* GiB"):
        with_features(LearnedFeaturesConfig(), huge, num_threads=1)
    # One table of 600 rows of 12 fits, and two do not.
    memory = read_memory()
    small = replace(memory, available=40_000)
    monkeypatch.setattr(vertex_features, "read_memory", lambda: small)
    make_artifacts(settings(*LEARNED))
    with pytest.raises(ConfigError, match=r"features.dim=12: .* for 600 vertices in 2 processes"):
        make_artifacts(settings(*LEARNED, "device_plan=cpu_x2"))


@pytest.mark.long
def test_other_rows_than_those_of_the_run_are_refused(run: Any, tmp_path: Path) -> None:
    how = (*LEARNED, "features.optimizer=adagrad", "runtime.checkpoint_every_s=0")
    again = ("epochs=4", f"resume={tmp_path}")
    run(tmp_path, *how)
    for given in (
        ("features=host", "optimizer.lr=0.01"),
        (*how, "features.dim=8"),
        (*how, "features.optimizer=adam"),
    ):
        with pytest.raises(ConfigError, match=r"^resume: features"):
            run(tmp_path, *given, *again)
    # Whatever the options of a checkpoint say: updates trust the sizes.
    saved = load_checkpoint(tmp_path / LAST)
    number, kept = next(each for each in saved["optimizer"].items() if "sum" in each[1])
    damages = (
        ({"sum": torch.zeros(599), "step": kept["step"]}, "the optimizer's sum is \\[599\\]"),
        ({"exp_avg": kept["sum"], "step": kept["step"]}, "the optimizer's state is another's"),
    )
    for damaged, message in damages:
        saved["optimizer"][number] = damaged
        save_checkpoint(tmp_path / LAST, saved)
        with pytest.raises(ConfigError, match=f"last.*{message}"):
            run(tmp_path, *how, *again)


STRUCTURAL = {
    "degrees": ("features=degrees",),
    "projections": ("features=projections", "features.dim=16", "features.hops=2"),
}


@pytest.mark.integration
@pytest.mark.parametrize("name", STRUCTURAL)
def test_rows_of_the_structure_take_part_in_any_plan(launched, run, tmp_path, name) -> None:
    how = (*STRUCTURAL[name], "dataset.num_features=0", "runtime.drm=false")
    one = run(tmp_path / "one", *how)
    write_config(tmp_path / "one", how)
    found = evaluate(EvaluateConfig(run=tmp_path / "one", num_threads=1))
    assert found.test_metric == pytest.approx(one.test_metric)
    again = run(tmp_path / "again", *how, "num_threads=2", "runtime.prefetch=two_stage")
    assert losses(again) == losses(one)
    several = launched(tmp_path / "two", *how, *TWO)
    assert losses(several.result) == pytest.approx(losses(one), rel=1e-5)


@pytest.mark.long
def test_structure_is_learnt_from(run: Any, tmp_path: Path) -> None:
    """Classes are communities, and vertices have no features: chance is a quarter."""
    sizes = ("dataset.num_features=0", "dataset.within=0.9", "dataset.num_edges=6000")
    found = {
        name: run(tmp_path / name, *how, *sizes, "epochs=12", "optimizer.lr=0.01").test_metric
        for name, how in (("learned", LEARNED), ("projections", STRUCTURAL["projections"]))
    }
    assert min(found.values()) > 0.7, found


def test_what_does_not_go_with_graphs_without_features_is_refused(settings, run, tmp_path) -> None:
    config = settings("dataset.num_features=0", "device_plan=emulated_x4", "cache_planner=pagraph")
    graph = config.dataset.open()
    with pytest.raises(GraphError, match="its vertices have no features"):
        plan_caches(config, graph, None)
    options: Any = {"batch_size": 64, "seed": 0, "cores": 1, "same_machine": False}
    with pytest.raises(GraphError, match="its vertices have no features"):
        measured_task(config.dataset, config.model, config.sampler, **options)
    with pytest.raises(ConfigError, match=r"^features=degrees: expected partitioner=none"):
        settings("features=degrees", "partitioner=p3", "device_plan=cpu_x2")
    with pytest.raises(ConfigError, match=r"features.hops=0: must be at least 1"):
        settings("features=projections", "features.hops=0")
    with pytest.raises(GraphError, match=r"its vertices have no features; features=learned"):
        run(tmp_path, "dataset.num_features=0")
