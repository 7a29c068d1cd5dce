"""Commands replace nothing that they are not asked to, and write through no link."""

import os
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import STORE, TINY

pytestmark = pytest.mark.integration

#: What is not to be touched.
PRECIOUS = "precious\n"
GENERATE = ("generate", "model.hidden=16")
SIMULATE = ("simulate", "accelerators=[1]", "graph=reddit", "hybrid=false")
RUN = (*TINY, "epochs=1", "batch_size=100")
#: A command with a folder as its output, and files that it writes there.
COMMANDS: dict[tuple[str, ...], tuple[str, ...]] = {
    (*GENERATE, "output=out"): ("Makefile", "include", "README.md", "design.json"),
    (*SIMULATE, "output=out"): ("simulation.json", "scaling.svg", ".hydra"),
    ("doctor", "output=out"): ("doctor.json", ".hydra"),
    ("train", *RUN, "output=out"): ("train.log", "report.html", "checkpoints", "config.yaml"),
    ("train", *RUN, "-m", "seed=0", "output=out"): ("0", "7", "multirun.yaml", "results.csv"),
}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "file").write_text(PRECIOUS)
    return folder


def untouched(folder: Path) -> bool:
    return os.listdir(folder) == ["file"] and (folder / "file").read_text() == PRECIOUS


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join((words[0], words[-2])))
def test_what_is_in_a_folder_is_refused(command, run_lines, tmp_path, elsewhere) -> None:
    out = tmp_path / "out"
    out.mkdir()
    targets = (elsewhere, elsewhere / "file", elsewhere / "missing", None)
    for name, target in zip(cycle(COMMANDS[command]), targets, strict=False):
        place = out / name
        if target is None:
            place.write_text(PRECIOUS)
        else:
            place.symlink_to(target)
        forced = [(*command, "force=true")] if command[0] == "generate" and target else []
        for answer in run_lines([command, *forced], tmp_path):
            assert "out" in answer.last_line
        assert os.listdir(out) == [name]
        assert untouched(elsewhere)
        place.unlink()


def test_an_address_is_no_folder(run_lines) -> None:
    lines = [
        *[(*command[:-1], "output=s3://bucket/out") for command in COMMANDS],
        ("train", *RUN, "hydra.run.dir=s3://bucket/out"),
        ("train", *RUN, "-m", "seed=0", "hydra.sweep.dir=gs://bucket/out"),
        ("predict", "run=run", "out=s3://bucket/out.parquet"),
    ]
    for answer in run_lines(lines):
        assert "expected a path of this machine, got an address" in answer.last_line
        assert answer.left == []


def test_a_sweep_in_a_folder_of_another_writes_through_no_link(
    run_lines: Callable[..., Any], tmp_path: Path, elsewhere: Path
) -> None:
    for name in ("0", "0/.hydra", "0/train.log", "multirun.yaml"):
        place = tmp_path / "out" / name
        place.parent.mkdir(exist_ok=True, parents=True)
        place.symlink_to(elsewhere)
        (answer,) = run_lines([("train", *RUN, "-m", "seed=0", "hydra.sweep.dir=out")], tmp_path)
        assert "neither a file nor a folder" in answer.last_line
        assert untouched(elsewhere)
        place.unlink()


def test_a_design_is_replaced_by_force_alone(gnnscale: Any, tmp_path: Path) -> None:
    design = tmp_path / "out"
    assert gnnscale(*GENERATE, "output=out").returncode == 0
    made = sorted(os.listdir(design))
    (design / "Makefile").write_text(PRECIOUS)
    refused = gnnscale(*GENERATE, "output=out").refused()
    assert refused.stderr.splitlines()[-1].endswith("name another folder, or add force=true")
    assert (design / "Makefile").read_text() == PRECIOUS
    assert gnnscale(*GENERATE, "output=out", "force=true").returncode == 0
    assert (design / "Makefile").read_text() != PRECIOUS
    assert sorted(os.listdir(design)) == made
    (design / "build").mkdir()
    refused = gnnscale(*GENERATE, "output=out", "force=true")
    assert "holds build, which is not of this command" in refused.stderr.splitlines()[-1]


def test_files_of_a_run_are_replaced_by_force_alone(gnnscale, tmp_path, elsewhere) -> None:
    gnnscale("train", *RUN, "output=run").succeeded()
    commands = (("predict", "p.npy", "missing"), ("export", "m.safetensors", "file"))
    for command, name, target in commands:
        (tmp_path / name).symlink_to(elsewhere / target)
        refused = gnnscale(command, "run=run", f"out={name}").refused()
        assert refused.stderr.splitlines()[-1].endswith("force=true overwrites it")
        gnnscale(command, "run=run", f"out={name}", "force=true").succeeded()
        assert not (tmp_path / name).is_symlink()
        assert untouched(elsewhere)
    (tmp_path / "run" / "evaluation.json").symlink_to(elsewhere / "file")
    refused = gnnscale("evaluate", "run=run")
    assert "neither a file nor a folder" in refused.stderr.splitlines()[-1]
    assert untouched(elsewhere)


def test_stores_partitions_and_plans_replace_nothing(
    run_lines: Callable[..., Any], gnnscale: Any, tmp_path: Path, elsewhere: Path
) -> None:
    plan = ("plan-cache", *TINY, "cache_planner.store=elsewhere")
    commands = [
        ("prepare", *STORE, "dataset.store=elsewhere"),
        ("partition", *STORE, "partitioner=hash", "partitioner.store=elsewhere"),
        plan,
    ]
    lines = [(*command, *more) for command in commands for more in ((), ("force=true",))]
    for answer in run_lines(lines, tmp_path):
        assert answer.status == 1, answer
        assert untouched(elsewhere)
    partition = ("partition", *STORE, "partitioner=hash", "partitioner.store=parts")
    assert gnnscale(*partition).returncode == 0
    (tmp_path / "parts" / "rows").symlink_to(elsewhere)
    (refused,) = run_lines([(*partition, "part_stores=rows")], tmp_path)
    assert refused.status == 1
    assert untouched(elsewhere)
