"""Checkpoints that are whole files, and still none of the run that is to go on."""

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from changed import Change, drop, put
from omegaconf import OmegaConf
from one_line import one_line

from gnnscale.core.config.typed import typed
from gnnscale.core.errors import ConfigError
from gnnscale.inference.evaluate import evaluate
from gnnscale.run.checkpoint import BEST, LAST
from gnnscale.run.checkpoint.file import load_checkpoint, pack, save_checkpoint
from gnnscale.run.commands import EvaluateConfig
from gnnscale.run.config import RunConfig
from gnnscale.training.setup import open_run
from gnnscale.training.train import train


@pytest.fixture
def prefetch() -> str:
    """How stages run ahead; without that a single device has no resources to manage."""
    return "none"


@pytest.fixture
def resume(options, observer, tmp_path, prefetch) -> Callable[[Change], None]:
    node = options("epochs=1", f"runtime.prefetch={prefetch}")
    plain: Any = OmegaConf.to_container(node, resolve=True)
    OmegaConf.save(plain, tmp_path / "config.yaml")
    config = typed(node, RunConfig)
    train(open_run(config, tmp_path, plain), observer)
    whole = load_checkpoint(tmp_path / LAST)

    def go_on(change: Change) -> None:
        content = dict(whole)
        change(content)
        save_checkpoint(tmp_path / LAST, content)
        again = replace(config, epochs=2, resume=tmp_path)
        train(open_run(again, tmp_path, plain | {"epochs": 2}), observer)

    return go_on


WEIGHT = "layers.0.linear.weight"
ONES = torch.ones(3)
CHANGES: list[tuple[Change, str]] = [
    *((drop(name), "") for name in ("epoch", "model", "optimizer", "records", "workers", "graph")),
    (put("epoch", 0), "0 epochs"),
    (put("epoch", 5), "record of epoch 5"),
    (put("step", 3), "3 steps in 1 epochs"),
    (put("step", 10**30), "checkpoint.step: Expected `int` <= 9223372036854775807"),
    (put("model", WEIGHT, ONES), "not weights of this model"),
    (put("model", WEIGHT, 5), "checkpoint.model[...]: Expected `Tensor`, got `int`"),
    (put("best_model", WEIGHT, torch.ones(8, 16).double()), "not weights of this model"),
    (put("optimizer", {99: {}}), "the optimizer's state is another's"),
    (put("optimizer", {0: {"step": torch.tensor(1.0)}}), "the optimizer's state is another's"),
    (put("optimizer", "0", "exp_avg", ONES), "the optimizer's exp_avg is [3]"),
    (put("optimizer", "0", "step", torch.ones(1)), "the optimizer's step is [1]"),
    (put("optimizer", "0", "step", 1), "checkpoint.optimizer[...][...]: Expected `Tensor`"),
    (put("torch_rng", torch.zeros(10, dtype=torch.uint8)), "random generator"),
    (put("records", []), "no records of its epochs"),
    (lambda content: content.update(records=content["records"] * 2), "no records of its epochs"),
    (put("records", 0, "lr", "x"), "checkpoint.records[0].lr: Expected `float`, got `str`"),
    (put("records", 0, "epoch_time_s", 0.0), "record of epoch 1"),
    (put("records", 0, "epoch", 7), "record of epoch 1"),
    (put("records", 0, "valid_metric", 0.5), "record of epoch 1"),
    (put("records", 0, "stage_times_s", {}), "record of epoch 1"),
    (put("records", 0, "train_loss", math.nan), "records[0].train_loss: Expected a finite number"),
    (put("sums", {}), "checkpoint.sums: Object missing required field `num_batches`"),
    (put("plan", 5), "checkpoint.plan: Expected `array | null`, got `int`"),
    (put("plan", []), "plan: expected 1 shares, got 0"),
    (put("plan", 0, {"num_seeds": 64}), "plan[0]: Object missing required field `threads`"),
    (put("plan", 0, "num_seeds", 10**12), "plan[0]: num_seeds=1000000000000"),
    (put("plan", 0, "num_seeds", 5), "its plan has 5 seeds"),
    (put("plan", 0, "threads", "load", 10**6), "threads.load=1000000"),
    (put("plan", 0, "prefetch", "x"), "prefetch=x"),
    (put("management", {"a": ONES}), "no plain options"),
    (put("config", "seed", ONES), "no plain options"),
    (put("config", "seed", 5), "resume: seed is 0, but"),
    (put("config", "model", "x" * 10**6), "resume: model is"),
    (put("graph", "num_edges", 5), "the graph's num_edges is"),
]


@pytest.mark.long
def test_a_checkpoint_of_something_else_is_one_line(resume: Any, tmp_path: Path) -> None:
    for change, message in CHANGES:
        with one_line(str(tmp_path / LAST), message, shorter_than=700):
            resume(change)
    resume(lambda content: None)


@pytest.mark.long
@pytest.mark.parametrize("prefetch", ["two_stage"])
def test_resource_management_of_something_else(resume: Any, tmp_path: Path, caplog: Any) -> None:
    begins = f"{tmp_path / LAST}: not a checkpoint of this run"
    with one_line("(drm.damping.gain: Expected `float`, got `str`)", begins=begins):
        resume(put("management", "damping", "gain", "x"))
    caplog.set_level(logging.INFO)
    resume(lambda content: None)
    told = "resume: the checkpoint has no resource management, which begins anew"
    assert told not in caplog.messages
    resume(drop("management"))  # as a run without it leaves it
    assert told in caplog.messages


@pytest.mark.long
def test_best_weights_of_something_else(resume: Any, tmp_path: Path) -> None:
    some = ({"model": {}}, {"epoch": "x", "model": {}}, {"epoch": 1, "model": 5})
    for content in (*some, {"epoch": 1, "model": {"a": 1}}):
        (tmp_path / BEST).write_bytes(pack({"format_version": 5, **content}))
        with pytest.raises(ConfigError, match=r"best\.safetensors: not weights of"):
            evaluate(EvaluateConfig(run=tmp_path, num_threads=1))
