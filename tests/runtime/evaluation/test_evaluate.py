from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from gnnscale.core.errors import ConfigError
from gnnscale.options.config import typed
from gnnscale.runtime.checkpoint.file import BEST, load_checkpoint, save_checkpoint
from gnnscale.runtime.command_options import EvaluateConfig
from gnnscale.runtime.evaluation.evaluate import evaluate, load_run
from gnnscale.runtime.evaluation.predictor import Predictor
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.telemetry.records import TrainResult
from gnnscale.runtime.train import train

Compose = Callable[..., DictConfig]


def finished(options: Compose, directory: Path, observer: Any, *overrides: str) -> TrainResult:
    node = options(*overrides)
    plain: Any = OmegaConf.to_container(node, resolve=True)
    OmegaConf.save(plain, directory / "config.yaml")
    return train(typed(node, TrainConfig), directory, observer, options=plain)


@pytest.mark.parametrize("inference", ["exact", "sampled"])
def test_evaluation_equals_the_runs_own_test(
    options: Compose, observer: Any, tmp_path: Path, inference: str
) -> None:
    result = finished(options, tmp_path, observer, f"runtime.inference={inference}")
    evaluation = evaluate(EvaluateConfig(run=tmp_path, num_threads=1))
    assert evaluation.inference == inference
    assert evaluation.test_metric == result.test_metric
    assert evaluation.valid_metric == result.valid_metric
    assert evaluation.epoch == result.best_epoch
    assert evaluation.ceiling == result.ceiling


def test_all_metrics_of_the_run_are_measured(
    options: Compose, observer: Any, tmp_path: Path
) -> None:
    result = finished(options, tmp_path, observer, "metrics=[macro_f1,accuracy]")
    assert result.metric == "macro_f1"
    assert result.valid_metric == result.valid_metrics["macro_f1"]
    best = max(each.valid_metrics["macro_f1"] for each in result.history)
    assert result.valid_metric == best
    evaluation = evaluate(EvaluateConfig(run=tmp_path, num_threads=1))
    assert evaluation.metrics["test"] == result.test_metrics
    assert evaluation.metrics["valid"] == result.valid_metrics
    assert list(evaluation.metrics["train"]) == ["macro_f1", "accuracy"]
    assert evaluation.test_metric == result.test_metric == result.test_metrics["macro_f1"]


def test_inference_may_be_chosen(options: Compose, observer: Any, tmp_path: Path) -> None:
    finished(options, tmp_path, observer, "sampler.fanouts=[1,1]")
    exact = evaluate(EvaluateConfig(run=tmp_path, num_threads=1))
    sampled = evaluate(EvaluateConfig(run=tmp_path, num_threads=1, inference="sampled"))
    assert sampled.inference == "sampled"
    assert sampled.train_metric != exact.train_metric


def test_sampled_predictions_do_not_depend_on_their_company(settings: Any) -> None:
    config = settings("runtime.inference=sampled", "sampler.fanouts=[2,2]")
    graph = config.dataset.open()
    torch.manual_seed(0)
    model = config.model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    predictor = Predictor(model, graph, config)
    together = predictor.logits(graph.test_idx)
    alone = predictor.logits(graph.test_idx[70:71])
    assert together[70:71] == pytest.approx(alone, abs=1e-5)
    full = settings("sampler.fanouts=[-1,-1]", "runtime.inference=sampled")
    exact = settings("sampler.fanouts=[-1,-1]")
    left, right = (Predictor(model, graph, each).logits(graph.test_idx) for each in (full, exact))
    assert left == pytest.approx(right, abs=1e-4)


def test_what_is_no_run(options: Compose, observer: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run=.*: not a run directory, it has no config\.yaml"):
        evaluate(EvaluateConfig(run=tmp_path / "none", num_threads=1))
    file = tmp_path / "config.yaml"
    for text, message in (
        ("seed: [1", "not valid YAML in line 2"),
        ("- 1", "holds no options"),
        ("seed: 1", "required, and not given"),
        ("dataset: {_target_: os.system}", "not a class of gnnscale"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=message) as error:
            load_run(tmp_path)
        assert str(file) in str(error.value)
        assert "\n" not in str(error.value)
    finished(options, tmp_path, observer, "epochs=1")
    os.truncate(tmp_path / BEST, 100)
    with pytest.raises(ConfigError, match=r"best\.safetensors: not a readable checkpoint"):
        evaluate(EvaluateConfig(run=tmp_path, num_threads=1))
    (tmp_path / BEST).unlink()
    with pytest.raises(ConfigError, match=r"best\.safetensors: no such checkpoint"):
        evaluate(EvaluateConfig(run=tmp_path, num_threads=1))


def test_weights_of_another_model(options: Compose, observer: Any, tmp_path: Path) -> None:
    finished(options, tmp_path, observer, "epochs=1")
    changed = OmegaConf.load(tmp_path / "config.yaml")
    changed.model.hidden = 16
    OmegaConf.save(changed, tmp_path / "config.yaml")
    with pytest.raises(ConfigError, match=r"best\.safetensors: not weights of this model") as error:
        evaluate(EvaluateConfig(run=tmp_path, num_threads=1))
    assert "\n" not in str(error.value)


def test_weights_of_another_graph(options: Compose, observer: Any, tmp_path: Path) -> None:
    finished(options, tmp_path, observer, "epochs=1")
    changed = OmegaConf.load(tmp_path / "config.yaml")
    changed.dataset.seed = 7
    OmegaConf.save(changed, tmp_path / "config.yaml")
    with pytest.raises(ConfigError, match=r"run: the graph's \w+ is .*best\.safetensors") as error:
        evaluate(EvaluateConfig(run=tmp_path, num_threads=1))
    assert "\n" not in str(error.value)
    weights = load_checkpoint(tmp_path / BEST)
    save_checkpoint(tmp_path / BEST, {**weights, "graph": None})
    with pytest.raises(ConfigError, match=r"best\.safetensors: not weights of a run \(its graph"):
        evaluate(EvaluateConfig(run=tmp_path, num_threads=1))
