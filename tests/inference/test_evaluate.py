import os
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from one_line import one_line

from gnnscale.inference.evaluate import evaluate
from gnnscale.inference.load_run import load_run
from gnnscale.inference.predictor import Predictor
from gnnscale.run.checkpoint import BEST
from gnnscale.run.checkpoint.file import load_checkpoint, save_checkpoint
from gnnscale.run.commands import EvaluateConfig


def evaluated(run: Path, **options: Any) -> Any:
    return evaluate(EvaluateConfig(run=run, num_threads=1, **options))


@pytest.mark.parametrize("inference", ["exact", "sampled"])
def test_evaluation_equals_the_runs_own_test(finished: Any, tmp_path: Path, inference: str) -> None:
    result = finished(f"runtime.inference={inference}")
    evaluation = evaluated(tmp_path)
    assert (evaluation.inference, evaluation.epoch) == (inference, result.best_epoch)
    for name in ("test_metric", "valid_metric", "ceiling"):
        assert getattr(evaluation, name) == getattr(result, name)


def test_all_metrics_of_the_run_are_measured(finished: Any, tmp_path: Path) -> None:
    result = finished("metrics=[macro_f1,accuracy]")
    assert result.metric == "macro_f1"
    assert result.valid_metric == result.valid_metrics["macro_f1"]
    best = max(each.valid_metrics["macro_f1"] for each in result.history)
    assert result.valid_metric == best
    evaluation = evaluated(tmp_path)
    assert evaluation.metrics["test"] == result.test_metrics
    assert evaluation.metrics["valid"] == result.valid_metrics
    assert list(evaluation.metrics["train"]) == ["macro_f1", "accuracy"]
    assert evaluation.test_metric == result.test_metric == result.test_metrics["macro_f1"]


def test_inference_may_be_chosen(finished: Any, tmp_path: Path) -> None:
    finished("sampler.fanouts=[1,1]")
    exact, sampled = evaluated(tmp_path), evaluated(tmp_path, inference="sampled")
    assert sampled.inference == "sampled"
    assert sampled.train_metric != exact.train_metric


def test_sampled_predictions_do_not_depend_on_their_company(settings: Any) -> None:
    config = settings("runtime.inference=sampled", "sampler.fanouts=[2,2]")
    graph = config.dataset.open()
    torch.manual_seed(0)
    model = config.model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    predictor = Predictor(model, graph, config.evaluation_options)
    together = predictor.logits(graph.test_idx)
    alone = predictor.logits(graph.test_idx[70:71])
    assert together[70:71] == pytest.approx(alone, abs=1e-5)
    left, right = (
        settings("sampler.fanouts=[-1,-1]", f"runtime.inference={inference}").evaluation_options
        for inference in ("sampled", "exact")
    )
    exact = Predictor(model, graph, right).logits(graph.test_idx)
    assert Predictor(model, graph, left).logits(graph.test_idx) == pytest.approx(exact, abs=1e-4)


def test_folders_that_are_no_run_are_refused(finished: Any, tmp_path: Path) -> None:
    with one_line("run=", "none: expected a run directory, it has no config.yaml"):
        evaluated(tmp_path / "none")
    file = tmp_path / "config.yaml"
    for text, message in (
        ("seed: [1", "not valid YAML in line 2"),
        ("- 1", "expected a mapping of options"),
        ("seed: 1", ": required"),
        ("dataset: {_target_: os.system}", "expected a class of gnnscale"),
    ):
        file.write_text(text)
        with one_line(message, str(file)):
            load_run(tmp_path)
    finished("epochs=1")
    os.truncate(tmp_path / BEST, 100)
    with one_line("best.safetensors: not a readable checkpoint"):
        evaluated(tmp_path)
    (tmp_path / BEST).unlink()
    with one_line("best.safetensors: no such checkpoint"):
        evaluated(tmp_path)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("model.hidden", 16, "best.safetensors: not weights of this model"),
        ("dataset.seed", 7, "run: the graph's "),
    ],
)
def test_weights_of_another_model_or_graph(finished, tmp_path, option, value, message) -> None:
    finished("epochs=1")
    changed = OmegaConf.load(tmp_path / "config.yaml")
    OmegaConf.update(changed, option, value)
    OmegaConf.save(changed, tmp_path / "config.yaml")
    with one_line(message, "best.safetensors"):
        evaluated(tmp_path)
    save_checkpoint(tmp_path / BEST, {**load_checkpoint(tmp_path / BEST), "graph": None})
    with one_line("best.safetensors: not weights of a run (its graph"):
        evaluated(tmp_path)
