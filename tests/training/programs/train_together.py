"""One of several processes that train, again and again, as the workers of a run.

``FOLDER/runs.json`` has the overrides of each run, by name; ``seam.OPTION=MODULE:CLASS`` names a
class of tests/fakes. What follows a ``+`` in a name tells runs in one directory apart, of which the
later resumes the earlier. The first process leaves losses, splits and decisions of the steps, where
each device found the rows that it read, and what is told of epochs in ``FOLDER/NAME.json``, the
others their weights in ``FOLDER/NAME.RANK.pt``. A run named ``kept`` has a checkpoint behind every
step, each of which is also left in a directory of its own, ``FOLDER/after-STEP``.
"""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from hydra import initialize_config_module
from omegaconf import OmegaConf

sys.path.insert(0, str(Path(__file__).parents[2] / "fakes"))

import copying_device  # noqa: F401
from composed import composed
from few_bytes import read_few_bytes

from gnnscale import Observer
from gnnscale.core.config.typed import typed
from gnnscale.core.hardware import usable_cores
from gnnscale.distributed.process_group import Group, join
from gnnscale.nn import GNN
from gnnscale.nn.optim import Adam
from gnnscale.run.checkpoint import LAST
from gnnscale.run.checkpoint import writer as run_checkpoint
from gnnscale.run.checkpoint.writer import RunCheckpoint
from gnnscale.run.config import RunConfig
from gnnscale.training.setup import open_run
from gnnscale.training.train import train

read_few_bytes()


class Notes(Observer):
    """An observer that keeps what a step did: loss, split, threads, decision, rows found where."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.splits: list[list[int]] = []
        self.found: list[list[list[int]]] = []
        self.threads: list[int] = []
        self.decisions: list[str | None] = []
        self.epochs: list[list[Any]] = []

    def stepped(self, record: Any) -> None:
        self.losses.append(record.loss)
        self.decisions.append(record.decision)
        self.splits.append([device.num_seeds for device in record.devices])
        rows = [device.traffic.rows for device in record.devices]
        self.found.append([[each.hits, each.peer_hits, each.misses] for each in rows])
        self.threads = [device.threads.propagate for device in record.devices]

    def finished_epoch(self, record: Any) -> None:
        told = [record.train_loss, record.num_edges, record.num_vertices, record.valid_metric]
        parts = [[each.batch_share, each.traffic.counts()] for each in record.devices]
        # Counters are those of devices; how late one was is a matter of the clock.
        self.epochs.append([*told, parts, [sorted(each.counters) for each in record.devices]])


#: Models that were trained, the last one last.
models: list[GNN] = []


@dataclass(frozen=True, kw_only=True)
class Watched(Adam):
    """Adam, of which the test knows the model."""

    def build(self, model: GNN) -> torch.optim.Optimizer:
        models.append(model)
        return super().build(model)


def chosen(fakes: list[str]) -> dict[str, Any]:
    """Return the options that ``seam.OPTION=MODULE:CLASS`` names, of modules in tests/fakes."""
    pairs = (each.removeprefix("seam.").split("=") for each in fakes)
    named = ((option, target.split(":")) for option, target in pairs)
    return {option: getattr(import_module(module), cls)() for option, (module, cls) in named}


@contextmanager
def keeping(folder: Path) -> Iterator[None]:
    """Begin a checkpoint behind every step, and keep each."""
    write, due = run_checkpoint.save_checkpoint, RunCheckpoint.is_due

    def keep(file: Path, content: Any) -> None:
        write(file, content)
        if file.name == LAST.name:
            write(folder / f"after-{content['step']}" / LAST, content)

    run_checkpoint.save_checkpoint = keep
    RunCheckpoint.is_due = property(lambda self: self.wait() is None)  # type: ignore[assignment]
    try:
        yield
    finally:
        run_checkpoint.save_checkpoint = write
        RunCheckpoint.is_due = due  # type: ignore[method-assign]


def train_once(name: str, overrides: list[str], folder: Path, group: Group) -> None:
    fakes = [each for each in overrides if each.startswith("seam.")]
    plain: Any = None
    if group.is_rank0:
        node = composed([each for each in overrides if each not in fakes])
        plain = OmegaConf.to_container(node, resolve=True)
    plain = group.broadcast_object(plain)
    options = OmegaConf.create(plain)
    config = typed(options, RunConfig)
    config = replace(config, optimizer=Watched(**vars(config.optimizer)), **chosen(fakes))
    notes = Notes()
    directory = folder / name.partition("+")[0]
    with keeping(folder) if name == "kept" else nullcontext():
        train(open_run(config, directory, plain | {"resume": None}, group), notes, group)
    threads = group.broadcast_object(notes.threads)
    assert torch.get_num_threads() == max(threads[group.rank], 1)
    assert not [each for each in threading.enumerate() if each.name.startswith("gnnscale-")]
    if group.is_rank0:
        told = ("losses", "splits", "found", "decisions", "epochs")
        result = {each: getattr(notes, each) for each in told}
        (folder / f"{name}.json").write_text(json.dumps(result))
    else:
        torch.save(models[-1].state_dict(), folder / f"{name}.{group.rank}.pt")


def run(rank: int, size: int, meeting: Path, directory: str) -> None:
    folder = Path(directory)
    OmegaConf.register_new_resolver("usable_cores", usable_cores)
    runs = json.loads((folder / "runs.json").read_text())
    with (
        initialize_config_module("gnnscale.configs", version_base="1.3"),
        join(rank, size, meeting, backend="gloo") as group,
    ):
        for name, overrides in runs.items():
            train_once(name, overrides, folder, group)
