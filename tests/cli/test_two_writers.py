"""Two commands that write one directory: one of them is refused in a line, or waits."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tiny_runs
from one_line import one_line
from tiny_runs import STORE

from gnnscale import api, train
from gnnscale.run.checkpoint import BEST

pytestmark = pytest.mark.integration

TINY = (*tiny_runs.TINY, "batch_size=64")
#: A device that mostly waits, and leaves the cores to others.
SLOW = (
    "device_plan.devices=[{kind:emulated,macs_per_s:1e10,memory_bandwidth:1e10,"
    "link_bandwidth:1e9,launch_s:0.1,memory_bytes:1000000000}]"
)


@pytest.fixture(scope="module")
def start(environment: dict[str, str]) -> Callable[..., Any]:
    @contextmanager
    def started(directory: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-m", "gnnscale", *map(str, arguments)]
        with subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    return started


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def training(start: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """The directory of a run that trains, and has weights; and the process that writes there."""
    folder = tmp_path_factory.mktemp("training")
    with start(folder, "train", *TINY, SLOW, "epochs=1000000", "output=run") as process:
        wait_for((folder / "run" / BEST).exists)
        yield folder / "run", process.pid


def in_one_line(answer: Any) -> str:
    (line,) = (each for each in answer.stderr.splitlines() if each != "starting")
    assert "Traceback" not in answer.stderr
    return str(line)


REFUSED = (
    ("train", "resume=run"),
    ("train", "output=run", *TINY),
    ("train", "hydra.run.dir=run", *TINY),
    ("evaluate", "run=run"),
    ("export", "run=run"),
    ("export", "run=run", "out=run/checkpoints/model.safetensors", "force=true"),
    ("predict", "run=run", "out=run/rows.npy"),
    ("simulate", "accelerators=[1]", "graph=reddit", "hybrid=false", "output=run"),
)


def test_a_run_that_trains_is_written_by_nobody_else(training, run_lines) -> None:
    directory, pid = training
    names = set(os.listdir(directory))
    for answer in run_lines(REFUSED, directory.parent):
        assert answer.status == 1
        line = in_one_line(answer)
        assert f"run: is being written by process {pid} on " in line
        assert line.startswith(("resume=", "output=", "run="))
    assert names <= set(os.listdir(directory)) <= names | {"metrics.jsonl", "steps.jsonl"}


def test_a_run_that_trains_may_be_read(training: tuple[Path, int], run_lines: Any) -> None:
    directory, _ = training
    (answer,) = run_lines([("predict", "run=run", "out=rows.npy")], directory.parent)
    assert answer.status == 0, answer.stderr
    assert (directory.parent / "rows.npy").exists()


def test_a_program_is_refused_as_a_command_is(training, stores, monkeypatch) -> None:
    directory, pid = training
    monkeypatch.setenv("GNNSCALE_HOME", str(stores))
    sizes = {"num_vertices": 600, "num_edges": 3000, "num_classes": 4, "num_features": 8}
    graph = api.load_input_graph("planted_partition", **sizes)
    for keyword in ("resume", "directory"):
        with one_line("", begins=f"{keyword}={directory}: is being written by process {pid} on "):
            train(graph, **{keyword: directory})


def test_of_two_that_resume_a_run_one_does(gnnscale: Any, run_lines: Any, tmp_path: Path) -> None:
    """The record is that of one run, to the bit, and a third one resumes it."""
    for name, epochs in (("run", 2), ("whole", 8)):
        assert gnnscale("train", *TINY, f"epochs={epochs}", f"output={name}").returncode == 0
    answers = run_lines([("train", "resume=run", "epochs=6")] * 2, tmp_path, at_once=True)
    # The second one may come so late that the first has ended.
    assert {answer.status for answer in answers} in ({0, 1}, {0})
    for answer in answers:
        if answer.status:
            assert "run: is being written by process " in in_one_line(answer)
    assert gnnscale("train", "resume=run", "epochs=8").returncode == 0
    records = [
        [json.loads(each) for each in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("run", "whole")
    ]
    losses = [[(each["epoch"], each["train_loss"]) for each in epochs] for epochs in records]
    assert losses[0] == losses[1]
    assert not (tmp_path / "run" / ".lock").exists()


def moved(directory: Path) -> None:
    directory.rename(directory.with_name("elsewhere"))
    directory.mkdir()


@pytest.mark.parametrize(
    "change", [moved, pytest.param(lambda run: (run / ".lock").unlink(), marks=pytest.mark.long)]
)
def test_a_run_whose_directory_may_be_that_of_another_writes_no_more(
    start: Any, tmp_path: Path, change: Callable[[Path], Any]
) -> None:
    directory = tmp_path / "run"
    with start(tmp_path, "train", *TINY, SLOW, "epochs=1000000", "output=run") as process:
        wait_for((directory / BEST).exists)
        change(directory)
        before = sorted(directory.rglob("*.safetensors"))
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert ": was moved, or lost its .lock, while this command wrote" in errors.splitlines()[-1]
    assert errors.count("was moved, or") == 1
    assert sorted(directory.rglob("*.safetensors")) == before
    assert not (directory / "summary.json").exists()


def test_a_sweep_that_runs_is_written_by_nobody_else(start, run_lines, tmp_path) -> None:
    line = ("train", "-m", *TINY, SLOW, "epochs=1000000", "seed=0,1")
    with start(tmp_path, *line, "output=sweep") as process:
        wait_for((tmp_path / "sweep" / "0" / ".lock").exists)
        others = [(*line, "output=sweep"), ("train", "resume=sweep/0")]
        answers = run_lines([*others, (*line, "hydra.sweep.dir=sweep")], tmp_path)
        for answer, held in zip(answers, ("sweep", "0", "sweep"), strict=True):
            assert answer.status == 1
            assert f"{held}: is being written by process {process.pid} on " in in_one_line(answer)


PARTITION = (
    *("partition", "partitioner=pagraph", "partitioner.num_parts=2", "num_threads=1"),
    *("part_stores=true", "force=false", "partitioner.store={place}"),
)
PLAN = (
    *("plan-cache", "batch_size=64", "num_threads=1", "device_plan=emulated_x4", "force=true"),
    *("sampler.fanouts=[5,3]", "cache_planner.store={place}"),
)
PARTS = ("partition.json", "partition.svg", "parts/0/meta.json", "parts/1/meta.json")


@pytest.mark.parametrize(
    ("arguments", "place", "holds"),
    [
        (
            ("prepare", "dataset.store={place}", "force=true"),
            "store",
            ("meta.json", "features.npy"),
        ),
        (PARTITION, "partition", PARTS),
        (PLAN, "plan", ("cache_plan.json", "cache_plan.svg")),
    ],
    ids=["store", "partition", "plan"],
)
def test_of_two_that_make_an_artifact_one_waits(
    run_lines, tmp_path, arguments, place, holds
) -> None:
    line = [*(each.format(place=place) for each in arguments), *STORE]
    for answer in run_lines([line, line], tmp_path, at_once=True):
        assert answer.succeeded().stdout.splitlines()[-1] == str(tmp_path / place)
    assert all((tmp_path / place / name).exists() for name in holds)
    assert os.listdir(tmp_path) == [place]
    assert not [*(tmp_path / place).rglob(".*")]
