"""Runs of ``gnnscale train`` that sections measure."""

import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cuda.bench import Bench
from benchmarks.runner import composed
from gnnscale import Observer
from gnnscale.training.setup import open_run
from gnnscale.training.train import train


@dataclass(frozen=True)
class Ran:
    """A run, and its losses."""

    result: Any
    losses: list[float]

    @property
    def epoch_s(self) -> float:
        """Median seconds of an epoch, the first left out."""
        return statistics.median(each.epoch_time_s for each in self.result.history[1:])

    @property
    def steps_per_epoch(self) -> float:
        return len(self.losses) / len(self.result.history)

    @property
    def stages(self) -> dict[str, float]:
        """Seconds of each stage in the last epoch, by the device's clock."""
        times = self.result.history[-1].stage_times_s
        return {name: each for name, each in times.items() if each is not None}


def trained(*overrides: str) -> Ran:
    """Train in this process."""
    config, values = composed(*overrides)
    losses: list[float] = []

    class Losses(Observer):
        def stepped(self, record: Any) -> None:
            losses.append(record.loss)

    with tempfile.TemporaryDirectory() as folder:
        run = open_run(config, Path(folder), values | {"resume": None})
        return Ran(train(run, Losses()), losses)


def train_in_process(directory: Path, *options: str) -> None:
    """Train by the command."""
    command = [sys.executable, "-m", "gnnscale", "train", *options, f"output={directory}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def losses_of(directory: Path) -> list[float]:
    lines = (directory / "steps.jsonl").read_text().splitlines()
    return [json.loads(each)["loss"] for each in lines]


def difference(found: list[float], known: list[float]) -> float:
    """Return the largest relative difference of a loss."""
    return max(abs(mine - theirs) / abs(theirs) for mine, theirs in zip(found, known, strict=True))


def plan(bench: Bench, more: str = "", *, count: int = 1) -> str:
    """Return the option of a plan of the measured device, ``count`` times."""
    options = f"kind:cuda,index:{bench.index},host_driven:{str(bench.on_host).lower()}{more}"
    return f"device_plan.devices=[{','.join([f'{{{options}}}'] * count)}]"


def numbers(values: tuple[int, ...]) -> str:
    return str(list(values)).replace(" ", "")


def graphsage(bench: Bench) -> tuple[str, ...]:
    """Return the options of GraphSAGE with the sizes that are measured."""
    sizes = bench.sizes
    return (
        *("model=sage", f"model.hidden={sizes.hidden}", f"model.num_layers={len(sizes.fanouts)}"),
        *(f"sampler.fanouts={numbers(sizes.fanouts)}", f"batch_size={sizes.seeds}"),
        *("runtime.inference=sampled", "runtime.checkpoint=false", f"num_threads={bench.cores}"),
    )


def on_store(bench: Bench, store: Path) -> tuple[str, ...]:
    """Return the same with a graph store, without validation."""
    dataset = ("dataset=store", f"dataset.store={store}", "runtime.eval_every=100")
    return (*graphsage(bench), *dataset)
