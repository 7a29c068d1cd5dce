"""Options in files: how they are written, and runs that their ``config.yaml`` repeats."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from one_line import one_line
from tiny_runs import TINY

from gnnscale.cli.config_files import translate
from gnnscale.core.config.compose import compose
from gnnscale.core.errors import ConfigError
from gnnscale.run import parse_run_options


def options(*arguments: str) -> Any:
    translated = translate("train", arguments)
    return parse_run_options(compose(translated.config, translated.overrides)[0])


WRONG = {
    "model.hidden: 8": "model.hidden: expected the name of an option; write model: {hidden: 8}",
    "a.b.c: 8": "a.b.c: expected the name of an option; write a: {b: {c: 8}}",
    "batch-size: 8": "batch-size: expected the name of an option; write batch_size",
    "hidden: 8": "hidden: 8: unknown option here; write model: {hidden: 8}",
    "n_epochs: 8": "n_epochs: 8: unknown option here; write epochs: 8",
    "learning_rate: 1": "unknown option here; write optimizer: {lr: 1}",
    "alpha: 1": "write model: {alpha: 1} or cache_planner: {alpha: 1}",
    "model: gat": "model: gat: expected a mapping of options; write "
    "defaults: [override /model: gat]",
    "model: [gat]": "expected a mapping of options",
    "model: null": "expected a mapping of options",
    "experiment: cora_gcn": "write defaults: [cora_gcn]",
    "defaults: [sage]": "defaults: sage: not allowed; write defaults: [override /model: sage]",
    "defaults: sage": "expected a list; write defaults: [override /model: sage]",
    "defaults: [model/gat]": "write defaults: [override /model: gat]",
    "defaults: [{db: mysql}]": "not allowed; expected '_self_', 'override /GROUP: NAME'",
    "defaults: [{model: gat}, {override /model: gcn}]": "model: expected one choice, got several",
    "sed: 1": "sed: unknown option, did you mean 'seed'?",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_written_in_another_way_is_shown(text: str, tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(text)
    with one_line(WRONG[text], begins=f"{file}: "):
        translate("train", [f"config={file}"])


@pytest.mark.long
def test_an_option_of_another_choice(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("model: {num_heads: 2}")
    with one_line(
        "it belongs to model=gat, gatv2, hgt or rgat; a file chooses one by defaults: [override /"
    ):
        options(f"config={file}")
    for entry in ("override /model: gat", "model: gat", "/model: gat", "override model: gat"):
        file.write_text(f"defaults: [{{{entry}}}]\nmodel: {{num_heads: 2}}")
        assert options(f"config={file}").model.num_heads == 2
    # A class in place of a choice; what it lacks is its default.
    file.write_text("model: {_target_: gnnscale.nn.options.GAT, num_heads: 2}")
    assert options(f"config={file}").model.name == "GAT"
    assert options(f"config={file}", "model=gcn", "model.hidden=3").model.hidden == 3
    file.write_text("optimizer: {_target_: gnnscale.nn.optim.options.Adam, weight_decay: 1}")
    assert (options(f"config={file}").optimizer.lr, options().optimizer.lr) == (0.003, 0.003)
    file.write_text("defaults: [override /algorithm: p3]\nlogger: {csv: true}")
    assert options(f"config={file}").partitioner.algorithm == "p3"
    assert options(f"config={file}").logger == {"csv": True}
    assert options(f"config={file}", "logger=none").logger == {}


@pytest.mark.long
def test_names_of_files_have_any_character(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a,b.yaml", "ü (1)/it's = #.yml", "~x.yaml", "$a.yaml"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("seed: 7")
        assert options(f"config={name}").seed == 7
    for name, said in (("none", "no such experiment"), ("no/ne", "no such file or folder")):
        with one_line(said, begins=f"config={name}: "):
            options(f"config={name}")
    Path("sweep/3").mkdir(parents=True)
    Path("sweep/3/config.yaml").write_text("seed: 5")
    with one_line("got a folder without config.yaml; it holds a sweep, config=sweep/3 is a job"):
        options("config=sweep")
    assert options("config=sweep/3").seed == 5


def test_the_code_of_a_run_is_named_again(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    model = {"_target_": "gnnscale.nn.options.CustomModel", "module": "mine.py:Net"}
    values = {"model": model, "dataset": {"store": "/elsewhere"}}
    (run / "config.yaml").write_text(OmegaConf.to_yaml(values))
    # A file of the user's own may name code, and paths.
    translate("train", ["config=run/config.yaml"])
    (run / "metrics.jsonl").write_text("")
    with one_line("run/config.yaml: model.module: names code, and nothing is imported because"):
        translate("train", ["config=run"])
    translate("train", ["config=run", "model.module=mine.py:Net"])


@pytest.mark.long
def test_a_run_of_an_earlier_release_gives_its_options() -> None:
    runs = sorted(
        (Path(__file__).parents[1] / "core" / "config" / "release_0_2").glob("*/config.yaml")
    )
    assert len(runs) == 4
    for run in runs:
        stored: Any = OmegaConf.to_container(OmegaConf.load(run))
        assert options(f"config={run.parent}") == parse_run_options(OmegaConf.create(stored))


@pytest.mark.integration
def test_runs_are_repeated_from_any_folder(gnnscale, tmp_path, monkeypatch) -> None:
    ends, labels = np.arange(60), np.arange(60) % 2
    edges, features = np.stack([ends, np.roll(ends, 1)]), np.eye(60, 4, dtype=np.float32)
    raw = tmp_path / "${mine}.npz"  # no reference, as \\${ says
    np.savez(raw, edge_index=edges, features=features, labels=labels)
    arrays = ("dataset=arrays", r"dataset.raw=\${mine}.npz", "dataset.split=random")
    small = ("epochs=1", "model.hidden=8", "sampler.fanouts=[2,2]", "num_threads=1")
    other = ("model=gin", "optimizer=sgd", "logger=csv", "features=degrees")
    gnnscale("train", *arrays, *small, *other, "output=a/run").succeeded()
    gnnscale("train", "-m", *TINY, "epochs=1", "model=gat,gcn", "output=a/jobs").succeeded()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for number, run in enumerate(("run", "jobs/0", "jobs/1")):
        folder = tmp_path / "a" / run
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["command"] == f"gnnscale train config={folder}/config.yaml"
        line = shlex.split(summary["command"])[1:]
        gnnscale(*line, f"output=b/{number}").succeeded()
        again = tmp_path / "b" / str(number)
        assert (again / "config.yaml").read_text() == (folder / "config.yaml").read_text()
        found = json.loads((again / "summary.json").read_text())
        assert found["test_metric"] == summary["test_metric"]
    assert OmegaConf.load(tmp_path / "a" / "run" / "config.yaml").dataset.raw == str(raw)
    gnnscale("train", "resume=a/run", "epochs=2").succeeded()
    gnnscale("evaluate", "run=a/run").succeeded()
    shutil.move(tmp_path / "a" / "run", elsewhere)
    monkeypatch.chdir(elsewhere)
    assert options("config=run").dataset.raw == str(raw)
    with pytest.raises(ConfigError, match="no such file or folder"):
        options(f"config={tmp_path}/a/run")
