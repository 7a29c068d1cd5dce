import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_runs
import torch
from fault_injection.processes import end_with_parent
from tiny_runs import STORE

from gnnscale.cli.arguments import HYDRA_FLAGS, HYDRA_FLAGS_WITH_VALUE, REFUSED_FLAGS
from gnnscale.cli.command import COMMANDS, _run, interruption
from gnnscale.planner.calibration import calibrate

pytestmark = pytest.mark.integration

TINY = (*tiny_runs.TINY, "batch_size=64", "epochs=2")
Answer = Any
Command = Callable[..., Answer]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, run_lines) -> tuple[Path, Answer]:
    """A directory in which a run of ``TINY`` was trained, and what that said."""
    directory = tmp_path_factory.mktemp("trained")
    return directory, run_lines([("train", *TINY)], directory)[0]


def path_written(answer: Answer) -> Path:
    assert answer.returncode == 0, answer.stderr
    return Path(answer.stdout.splitlines()[-1])


def one_line(answer: Answer, *parts: str) -> None:
    assert answer.returncode != 0
    assert answer.stdout == ""
    *others, line = answer.stderr.splitlines()
    # What a command says that has had to be silent for two seconds.
    assert others in ([], ["starting"])
    for part in parts:
        assert part in line


def test_help_lists_the_commands_without_torch(command_in: Any, tmp_path: Path) -> None:
    gnnscale = command_in(tmp_path)
    answer = gnnscale("--help", PYTHONPROFILEIMPORTTIME="1")
    imported = {line.rpartition("|")[2].strip() for line in answer.stderr.splitlines()}
    assert "gnnscale.cli" in imported
    assert "torch" not in imported
    for command in COMMANDS:
        assert f"\n  {command} " in answer.stdout
    assert gnnscale("--version").stdout.startswith("gnnscale ")
    assert gnnscale().returncode == 2


def test_help_and_configuration_of_a_command(gnnscale: Command) -> None:
    answer = gnnscale("train", "--help")
    assert "\nexperiment\n  choices: " in answer.stdout
    assert "cora_gcn" in answer.stdout
    assert "epochs=16   " in answer.stdout
    model = gnnscale("train", "--help", "model", "model=gat").stdout
    assert model.startswith("model=gat\n")
    assert "optimizer" not in model
    assert "\nseed: 7\n" in gnnscale("train", "--cfg", "job", "seed=7").stdout
    assert "\nepochs: 200\n" in gnnscale("train", "--cfg", "job", "config=cora_gcn").stdout


def test_every_flag_of_hydra_is_known() -> None:
    program = 'import hydra; hydra.main(version_base="1.3")(lambda config: None)()'
    command = [sys.executable, "-c", program, "--hydra-help"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = re.findall(r"^(-\S+) : ", answer.stdout, re.MULTILINE)
    flags = {flag for line in lines for flag in line.split(",")}
    assert flags == {*HYDRA_FLAGS, *HYDRA_FLAGS_WITH_VALUE, *REFUSED_FLAGS}


def test_completion(gnnscale: Command) -> None:
    def complete(line: str) -> list[str]:
        return gnnscale("-sc", "query=bash", COMP_LINE=line).stdout.split()

    assert "gnnscale" in gnnscale("--shell-completion", "install=bash").stdout
    assert "gnnscale" in gnnscale("train", "--shell-completion", "install=bash").stdout
    assert complete("gnnscale ") == list(COMMANDS)
    assert complete("gnnscale tr") == ["train"]
    known = [f"optimizer={name}" for name in ("adam", "adamw", "sgd")]
    assert complete("gnnscale train optimizer=") == known
    assert "model.hidden=" in complete("gnnscale train optimizer=sgd model.hi")
    assert "config=cora_gcn" in complete("gnnscale train config=co")
    assert complete("gnnscale evaluate inf") == ["inference="]
    assert "partitioner=hash" in complete("gnnscale partition partitioner=")


def test_prepare_and_partition_print_what_they_made(gnnscale: Command) -> None:
    store = path_written(gnnscale("prepare", *STORE))
    assert (store / "meta.json").is_file()
    before = (store / "meta.json").stat().st_mtime_ns
    assert path_written(gnnscale("prepare", *STORE, "force=true")) == store
    assert (store / "meta.json").stat().st_mtime_ns != before
    options = (*STORE, "num_threads=1", "partitioner=random")
    answer = gnnscale("partition", *options, "partitioner.num_parts=3")
    path = path_written(answer)
    assert set(os.listdir(path)) == {"partition.json", "owner.npy", "partition.svg"}
    said = json.loads((path / "partition.json").read_text())
    assert (said["algorithm"], said["num_parts"]) == ("random", 3)
    assert "3 parts by random" in answer.stdout
    assert f"replication factor {said['replication_factor']:.2f}" in answer.stdout
    assert "into 3 parts by random in " in answer.stderr
    again = gnnscale("partition", *options, "partitioner.num_parts=3")
    assert again.stdout == answer.stdout
    assert again.stderr == ""
    four = path_written(gnnscale("partition", *options))
    assert json.loads((four / "partition.json").read_text())["num_parts"] == 4


def test_a_sweep_over_partitioners(gnnscale: Command, environment: dict[str, str]) -> None:
    sweep = ("-m", "partitioner=hash,range", "partitioner.num_parts=2,700")
    answer = gnnscale("partition", *STORE, "num_threads=1", *sweep).refused()
    assert answer.stderr.count("partitioner.num_parts=700: ") == 2
    assert "Traceback" not in answer.stderr
    assert "2 parts by hash" in answer.stdout
    assert "2 parts by range" in answer.stdout
    folder = Path(environment["GNNSCALE_HOME"]) / "partitions"
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_train_then_evaluate(gnnscale: Command, trained: tuple[Path, Answer]) -> None:
    started_in, answer = trained
    directory = path_written(answer)
    assert directory.parent == started_in / "outputs" / "train"
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["status"] == "completed"
    assert summary["ceiling"] is not None
    assert f"test accuracy {summary['test_metric']:.4f} of" in answer.stdout
    assert "epoch 2/2" in (directory / "train.log").read_text()
    assert len((directory / "metrics.jsonl").read_text().splitlines()) == 2
    kept = {"best.safetensors", "last.safetensors", "signature.json"}
    assert set(os.listdir(directory / "checkpoints")) == kept
    file = path_written(gnnscale("evaluate", f"run={directory}"))
    assert file == directory / "evaluation.json"
    evaluation = json.loads(file.read_text())
    assert evaluation["test_metric"] == summary["test_metric"]
    assert evaluation["valid_metric"] == summary["valid_metric"]
    assert evaluation["epoch"] == summary["best_epoch"]


def test_an_unknown_command_and_a_file_with_a_mistake(gnnscale: Command, tmp_path: Path) -> None:
    for text, line in (
        ("sed: 11\n", "sed: unknown option, did you mean 'seed'?"),
        ("seed: [1\n", "my run.yaml: not valid YAML in line 2"),
    ):
        (tmp_path / "my run.yaml").write_text(text)
        one_line(gnnscale("train", "config=my run.yaml"), line)
    one_line(gnnscale("trian"), "trian: unknown command, did you mean 'train'?")
    known = "prepare, partition, plan-cache, train, evaluate, predict, export, simulate, generate"
    one_line(gnnscale("xyz"), f"commands are {known}, doctor")


def start(directory: Path, environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    options: dict[str, Any] = {"cwd": directory, "env": environment, "text": True}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "gnnscale", *arguments]
    return subprocess.Popen(command, preexec_fn=end_with_parent, **streams, **options)


def limited(
    blocks: int, directory: Path, environment: dict[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    line = ["bash", "-c", f'ulimit -f {blocks}; exec "$@"', "-", sys.executable, "-m", "gnnscale"]
    options: dict[str, Any] = {"capture_output": True, "text": True}
    return subprocess.run([*line, *arguments], cwd=directory, env=environment, **options)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_run_goes_on_with_other_devices(gnnscale, trained, tmp_path) -> None:
    run = tmp_path / "run"
    shutil.copytree(path_written(trained[1]), run)
    others = ("device_plan=hybrid_emulated", "logger=[csv]")
    answer = gnnscale("train", f"resume={run}", "epochs=3", *others)
    assert path_written(answer) == run
    assert len((run / "metrics.csv").read_text().splitlines()) == 4
    summary = json.loads((run / "summary.json").read_text())
    assert summary["epochs"] == 3
    assert [device["kind"] for device in summary["devices"]] == ["cpu", "emulated"]
    answer = gnnscale("train", f"resume={run}", "epochs=4", "device_plan=cpus_x2")
    one_line(answer, "device_plan=cpus_x2: no such device plan, did you mean 'cpu_x2'?")
    answer = gnnscale("train", f"resume={run}", "epochs=4", "logger=[csv,mlfow]")
    one_line(answer, "logger=mlfow: no such logger, did you mean 'mlflow'?")


def test_interrupting_a_run(gnnscale: Command, tmp_path: Path, environment: dict[str, str]) -> None:
    run = tmp_path / "the run"
    process = start(tmp_path, environment, "train", *TINY, "epochs=100000", f"output={run}")
    epochs = run / "metrics.jsonl"
    wait_for(lambda: epochs.exists() and epochs.stat().st_size > 0)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    told, line = errors.splitlines()[-2:]
    assert told == "interrupted; this goes on with the run:"
    assert "Traceback" not in errors
    summary = json.loads((run / "summary.json").read_text())
    assert summary["status"] == "interrupted"
    assert summary["epochs"] > 0
    assert summary["test_metric"] is None
    # The line is for copying.
    program, *arguments = shlex.split(line)
    assert program == "gnnscale"
    epochs = f"epochs={summary['epochs'] + 1}"
    assert path_written(gnnscale(*arguments, epochs)) == run


def test_a_partitioner_ends(gnnscale: Command, tmp_path: Path, environment: dict[str, str]) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    pid = modules / "pid"
    # A tool that never answers, in the place of Mt-KaHyPar.
    (modules / "mtkahypar.py").write_text(
        "import os, signal, time\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
        f"print(os.getpid(), file=open({str(pid)!r}, 'w'), flush=True)\n"
        "time.sleep(1000)\n"
    )
    path = os.pathsep.join([str(modules), environment.get("PYTHONPATH", "")])
    temporary = {"PYTHONPATH": path, "TMPDIR": str(tmp_path)}
    line = ("partition", *STORE, "partitioner=mtkahypar")
    process = start(tmp_path, environment | temporary, *line)
    wait_for(lambda: pid.exists() and pid.read_text().endswith("\n"))
    process.kill()
    process.communicate(timeout=120)
    wait_for(lambda: not Path("/proc", pid.read_text().strip()).exists())
    path_written(gnnscale("partition", *STORE, "num_threads=1", "partitioner=hash"))


def test_a_full_temporary_folder_is_named(gnnscale, tmp_path, environment) -> None:
    pytest.importorskip("mtkahypar")
    path_written(gnnscale("prepare", *STORE))
    line = ("partition", *STORE, "num_threads=1", "partitioner=mtkahypar")
    answer = limited(4, tmp_path, environment | {"TMPDIR": str(tmp_path)}, *line)
    assert answer.returncode == 1
    *_, line = answer.stderr.splitlines()
    assert line.startswith(f"{tmp_path}: expected space for the graph on its way ")
    assert not list(tmp_path.iterdir())


def test_links_in_a_pipe_are_refused(gnnscale: Command, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "links")
    hierarchical = ("partitioner=hierarchical", f"partitioner.nvlink={tmp_path}/links")
    path_written(gnnscale("prepare", *STORE))
    answer = gnnscale("partition", *STORE, "num_threads=1", *hierarchical)
    one_line(answer, "partitioner.nvlink=", ": expected a regular file")


def test_a_sweep_ends_with_a_table(gnnscale: Command, tmp_path: Path) -> None:
    answer = gnnscale("train", *TINY, "-m", "seed=0,1", "epochs=1", "batch_size=0,64").refused()
    assert answer.stderr.count("batch_size=0: must be at least 1") == 2
    assert "Traceback" not in answer.stderr
    file = Path(answer.stdout.splitlines()[-1])
    assert file.parent.parent == tmp_path / "outputs" / "sweep"
    results = json.loads(file.read_text())
    assert [job["status"] for job in results["jobs"]] == ["failed"] * 2 + ["completed"] * 2
    assert results["jobs"][3]["options"] == {"seed": "1", "batch_size": "64"}
    (group,) = results["over_seeds"]
    assert group["num_seeds"] == 2
    assert "over 2 seeds" in answer.stdout
    assert len((file.parent / "results.csv").read_text().splitlines()) == 5


def test_doctor_writes_what_it_finds(gnnscale: Command) -> None:
    answer = gnnscale("doctor", COLUMNS="120")
    findings = json.loads(path_written(answer).read_text())
    assert findings["machine"]["cores"] >= 1
    assert findings["packages"]["torch"] == torch.__version__
    assert findings["features"][0]["ready"]
    assert "What each feature still needs" in answer.stdout


@pytest.mark.parametrize("layout", ["heco", "typed_partition"])
def test_graphs_with_types_are_prepared_and_checked(
    layout: str, gnnscale: Command, test_data: Path
) -> None:
    options = {
        "heco": (f"dataset.raw={test_data / 'relational' / 'acm'}", "dataset.labels_per_class=60"),
        "typed_partition": ("dataset.num_vertices=400",),
    }
    answer = gnnscale("prepare", f"dataset={layout}", *options[layout])
    line = {
        "heco": "acm: author-to-paper   13,407 edges  3.3 per paper",
        "typed_partition": "typed-partition: tag    20 vertices  no features",
    }
    assert line[layout] in answer.stderr.splitlines()
    report = gnnscale("doctor", f"store={path_written(answer)}")
    assert report.returncode == 0, report.stdout
    assert "neighbors in range and sorted" in report.stdout


@pytest.mark.parametrize("code_fails", [False, True])
def test_a_calibration_that_is_interrupted_leaves_nothing(
    code_fails, tmp_path, monkeypatch
) -> None:
    """The flag is none of Hydra, which would make the folder of the output."""

    def interrupt(*_: Any) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            if code_fails:
                raise UnboundLocalError("a file that was not opened")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(interruption, "interrupt_on_signals", lambda: None)
    monkeypatch.setattr(calibrate, "calibrate", interrupt)
    assert _run("doctor", ["--calibrate"]) == 130
    assert not [*tmp_path.iterdir()]


def test_a_full_disk(gnnscale: Command, tmp_path: Path, environment: dict[str, str]) -> None:
    path_written(gnnscale("prepare", *STORE))
    run = tmp_path / "run"
    line = ("train", *TINY, "model.hidden=512", f"hydra.run.dir={run}")
    answer = limited(64, tmp_path, environment, *line)
    assert answer.returncode == 1
    *_, line = answer.stderr.splitlines()
    assert f"worker cpu:0: {run}/checkpoints/last.safetensors: File too large" in line
    assert "Traceback" not in answer.stderr
    assert list((run / "checkpoints").iterdir()) == []
    assert json.loads((run / "summary.json").read_text())["status"] == "failed"


@pytest.mark.long
def test_a_device_that_is_short_of_memory(gnnscale: Command) -> None:
    """Parts fix its seeds: fewer mini-batches are in flight."""
    device = (
        "device_plan.devices=[cpu,{kind:emulated,macs_per_s:1e10,memory_bandwidth:1e10,"
        "link_bandwidth:1e9,launch_s:5e-3,host_aggregates:false,memory_bytes:180000}]"
    )
    legion = ("algorithm=legion", "cache_planner.ratio=0.1", "runtime.prefetch=two_stage")
    wide = ("dataset.num_features=64", "num_threads=2", "sampler.fanouts=[5,3]")
    line = ("train", *TINY, *legion, *wide, "batch_size=64", "epochs=2")
    answer = gnnscale(*line, device).succeeded()
    assert "emulated:1: its memory holds " in answer.stderr
    summary = json.loads((path_written(answer) / "summary.json").read_text())
    assert summary["epochs"] == 2
