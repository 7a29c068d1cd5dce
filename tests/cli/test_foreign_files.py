"""Files of others, with code in every place that YAML and Hydra offer: none of it runs."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from gnnscale.cli.config_files import translate
from gnnscale.core.errors import ConfigError
from gnnscale.inference.load_run import load_run

TINY = {"seed": 0, "epochs": 1, "batch_size": 64, "num_threads": 1, "resume": None}
RAN = "ran"


def code(place: Path) -> dict[str, str]:
    return {"_target_": "os.mkdir", "path": str(place / RAN)}


def texts(place: Path) -> dict[str, str]:
    made = place / RAN
    writes = {"handlers": {"x": {"class": "logging.FileHandler", "filename": str(made)}}}
    hydra = {
        "callback": {"callbacks": {"x": code(place)}},
        "launcher": {"launcher": code(place)},
        "sweeper": {"sweeper": code(place)},
        "logging": {"job_logging": {"version": 1, **writes, "root": {"handlers": ["x"]}}},
        "search path": {"searchpath": [f"file://{place}"]},
        "run dir": {"run": {"dir": str(made)}},
    }
    found = {what: OmegaConf.to_yaml({**TINY, "hydra": each}) for what, each in hydra.items()}
    yaml = OmegaConf.to_yaml(TINY)
    return found | {
        "python object": f"{yaml}x: !!python/object/apply:os.mkdir ['{made}']\n",
        "python object in an option": f"dataset: !!python/object/new:os.mkdir ['{made}']\n",
        "package": "# @package hydra\n" + OmegaConf.to_yaml({"callbacks": {"x": code(place)}}),
        "package in a comment": "# @package hydra.callbacks.x\n" + OmegaConf.to_yaml(code(place)),
        "defaults with a package": yaml + "defaults:\n- override /optimizer@hydra: sgd\n",
        "defaults of hydra": yaml + "defaults:\n- override /hydra/launcher: basic\n",
        "defaults with a path": yaml + f"defaults:\n- override /model: ../../{place}\n",
        "defaults with a file": yaml + f"defaults:\n- {place}/other\n",
        "defaults by interpolation": yaml + "defaults:\n- override /model: ${oc.env:HOME}\n",
        "resolver": "seed: ${oc.env:HOME}\n",
        "resolver inside": "model:\n  hidden: ${oc.decode:${oc.env:HOME}}\n",
        "hydra's resolver": "batch_size: ${hydra:runtime.cwd}\n",
        "dotted key": f"hydra.run.dir: {made}\n",
        "list": "- seed: 1\n",
        "nothing known": "callbacks: {}\n",
        "laughter": "seed: &a [1, 1]\nepochs: [*a, *a]\n",
    }


def found_run(run: Path, **values: Any) -> Path:
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.yaml").write_text(OmegaConf.to_yaml({**TINY, **values}))
    return run


def test_nothing_runs(run_lines: Any, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("seed: 5\n")
    lines: list[list[str]] = []
    for number, (name, text) in enumerate(texts(tmp_path).items()):
        run = tmp_path / "runs" / name.replace(" ", "_").replace("'", "")
        run.mkdir(parents=True)
        (run / "config.yaml").write_text(text)
        # Another option is refused as well: it is too late where anything ran before.
        lines += [["train", f"config={run}/config.yaml", "model.hidden=0"]]
        # Who resumes a run and who evaluates it read its options in one place.
        resume = ["train", f"resume={run}", "model.hidden=0"]
        lines += [resume if number % 2 else ["evaluate", f"run={run}"]]
    for line, answer in zip(lines, run_lines(lines), strict=True):
        assert "config.yaml: " in answer.line, line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.yaml", "runs"]
    for run in (tmp_path / "runs").iterdir():
        assert [path.name for path in run.iterdir()] == ["config.yaml"]


def test_what_a_file_of_ones_own_may_say(run_lines: Any, tmp_path: Path) -> None:
    file = tmp_path / "my run.yaml"
    file.write_text(
        "# @package hydra.job\n"
        "defaults:\n- cora_gcn\n- override /optimizer: sgd\n- _self_\n"
        "seed: 11\nbatch_size: ${seed}\nnum_threads: ${usable_cores:}\n"
        "optimizer: {lr: 1e-3, momentum: '${optimizer.lr}'}\n"
    )
    other = tmp_path / "sub" / "my run.yaml"
    other.parent.mkdir()
    other.write_text("seed: 12\n")
    show = ["--cfg", "job", "--resolve"]
    lines = [["train", f"config={each}", *show] for each in (file, other)]
    answer, second = run_lines(lines)
    assert answer.status == 0
    shown = OmegaConf.create(answer.stdout)
    assert (shown.seed, shown.batch_size, shown.epochs) == (11, 11, 200)
    assert (shown.optimizer.lr, shown.optimizer.momentum) == (1e-3, 1e-3)
    assert "seed: 12" in second.stdout


def test_options_of_a_run_are_composed_as_they_stand(run_lines: Any, tmp_path: Path) -> None:
    values = {**TINY, "dataset": {"name": "1e5", "raw": "yes"}, "model": {"hidden": 8}}
    run = found_run(tmp_path / "it's a run", **values)
    line = ["train", f"resume={run}", "epochs=3", "model.hidden=16", "--cfg", "job"]
    (answer,) = run_lines([line])
    assert answer.status == 0, answer.stderr
    shown = OmegaConf.create(answer.stdout)
    assert shown == values | {"epochs": 3, "model": {"hidden": 16}, "resume": str(run)}
    assert os.listdir(run) == ["config.yaml"]


def test_a_store_is_not_made_because_a_run_says_so(run_lines: Any, tmp_path: Path) -> None:
    store = tmp_path / "run" / "store"
    run = found_run(store.parent, dataset={"store": str(store)})
    lines = [["train", f"resume={run}"], ["train", f"resume={run}", f"dataset.store={store}"]]
    first, second = run_lines(lines)
    assert f"dataset.store={store}: no such graph store" in first.line
    assert "no such graph store" not in second.stderr


def test_a_run_that_names_code_must_be_named_it_again(tmp_path: Path) -> None:
    model = {"_target_": "gnnscale.nn.options.CustomModel", "module": "mine:Net"}
    run = found_run(tmp_path / "my run", model=model)
    with pytest.raises(ConfigError) as error:
        translate("train", [f"resume={run}"])
    assert str(error.value) == (
        f"{run}/config.yaml: model.module: names code, and nothing is imported because a file that "
        "was found says so; if you trust it, add model.module=mine:Net (and model.arguments."
        "NAME=VALUE if the class needs more arguments)"
    )
    with pytest.raises(ConfigError, match=r"if you trust it, add model.module=mine:Net \("):
        load_run(run)
    with pytest.raises(ConfigError, match=r"load\(\.\.\., module='mine:Net'\) \(and arguments="):
        load_run(run, in_program=True)
    again = ["model.module=mine:Net", f"resume={run}"]
    assert f"resume='{run}'" in translate("train", again).arguments
    # It is what is taken, and what is refused next.
    with pytest.raises(ConfigError, match=r"yaml: model\.module=Net: expected MODULE:NAME"):
        load_run(run, {"model.module": "Net"})


@pytest.mark.long
def test_a_run_on_files_of_ones_own_goes_on_in_one_line(run_lines: Any, tmp_path: Path) -> None:
    """The user's own run is; a copy is one that was found, until its files are named again."""
    rng = np.random.default_rng(0)
    vertices = {"features": rng.random((60, 4), np.float32), "labels": rng.integers(0, 3, 60)}
    np.savez(tmp_path / "mine.npz", edge_index=rng.integers(0, 60, (2, 300)), **vertices)
    tiny = ["model.hidden=8", "sampler.fanouts=[5,3]", "batch_size=16", "num_threads=1"]
    mine = ["dataset=arrays", "dataset.raw=mine.npz", "dataset.split=random"]
    lines = [
        ["train", *mine, *tiny, "epochs=1", "output=mine"],
        ["evaluate", "run=mine", "num_threads=1"],
        ["export", "run=mine"],
        ["train", "resume=mine", "epochs=2"],
        ["predict", "run=mine", "out=p.npy", "num_threads=1"],
    ]
    for answer in run_lines(lines, tmp_path):
        assert answer.status == 0, answer.stderr
    shutil.copytree(tmp_path / "mine", tmp_path / "copy")
    lines = [
        ["evaluate", "run=copy", "num_threads=1"],
        ["train", "resume=copy", "epochs=3"],
        ["evaluate", "run=copy", "num_threads=1", "dataset.raw=mine.npz"],
        ["predict", "run=copy", "num_threads=1", "dataset.raw=mine.npz", "out=q.npy"],
        ["train", "resume=copy", "epochs=3", "dataset.raw=mine.npz"],
        # The user's own train has now written what it says.
        ["evaluate", "run=copy", "num_threads=1"],
    ]
    refused, not_resumed, *done = run_lines(lines, tmp_path)
    assert refused.stderr == not_resumed.stderr
    assert refused.stderr.startswith("copy/config.yaml: dataset.raw=/")
    assert "because a file that was found says so" in refused.stderr
    assert refused.stderr.endswith(f"; if you trust it, add dataset.raw={tmp_path}/mine.npz\n")
    for answer in done:
        assert answer.status == 0, answer.stderr
    assert (np.load(tmp_path / "p.npy") == np.load(tmp_path / "q.npy")).all()
    # A graph store does as well, without the files that it was made of.
    shutil.copytree(tmp_path / "mine", tmp_path / "other")
    (made,) = run_lines([["prepare", *mine, "dataset.store=store"]], tmp_path)
    assert made.status == 0, made.stderr
    (tmp_path / "mine.npz").unlink()
    lines = [["evaluate", "run=other", "num_threads=1", "dataset.store=store"]]
    lines += [["train", "resume=other", "epochs=3", "dataset.store=store"]]
    for answer in run_lines(lines, tmp_path):
        assert answer.status == 0, answer.stderr
