"""A device plan under test: its runs, and the one that nobody disturbs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from faults.training import Training, start
from faults.watched import Watched

ACCELERATOR = (
    "{kind:emulated,macs_per_s:1e10,memory_bandwidth:5e9,memory_bytes:1073741824,"
    "link_bandwidth:1e9,launch_s:4e-3}"
)
#: Devices of a plan, and their names.
PLANS = {
    "hybrid_emulated": (f"device_plan.devices=[cpu,{ACCELERATOR}]", ("cpu:0", "emulated:1")),
    "cpu_x2": ("device_plan.devices=[cpu,cpu]", ("cpu:0", "cpu:1")),
}
#: The split is kept, so that weights can be compared.
OPTIONS = (
    *("dataset.num_vertices=20000", "dataset.num_edges=200000", "model.hidden=32"),
    *("sampler.fanouts=[10,5]", "batch_size=256", "device_plan.split=[156,100]", "num_threads=2"),
    *("runtime.drm=false", "runtime.prefetch=two_stage", "epochs=24"),
)


@dataclass(kw_only=True)
class Plan:
    """A plan under test: its options, and its undisturbed run.

    Attributes:
        starting: seconds from that run's first worker to its first step.
        training: seconds from there to its end.
    """

    name: str
    options: tuple[str, ...]
    devices: tuple[str, ...]
    folder: Path
    watched: Watched
    whole: Path = Path()
    starting: float = 0.0
    training: float = 0.0

    def start(self, name: str, *options: str) -> Training:
        return self._start(self.folder / name, *self.options, *options)

    def finish(self, directory: Path, *options: str) -> None:
        """Let a run come to its end."""
        run = self._start(directory, *options)
        run.wait_until_gone()
        run.end()
        if run.process.returncode:
            raise RuntimeError(f"{directory}: did not finish: {run.errors.read_text()}")

    def measure(self) -> None:
        """Do the undisturbed run."""
        self.whole = self.folder / "whole"
        run = self.start("whole")
        run.wait_for(run.workers)
        began = time.monotonic()
        run.wait_for((self.whole / "metrics.jsonl").exists)
        self.starting = time.monotonic() - began
        self.training = run.wait_until_gone()
        run.end()
        if run.process.returncode:
            raise RuntimeError(f"{self.name}: {run.errors.read_text()}")

    def _start(self, directory: Path, *options: str) -> Training:
        return start(directory, *options, devices=self.devices, watched=self.watched)


def set_up(folder: Path, name: str) -> Plan:
    """Prepare folders and the graph of one of ``PLANS``, and do the undisturbed run."""
    home, watched = folder / "home", folder / "watched"
    for each in (home, watched):
        each.mkdir(parents=True)
    prepare_home(home)
    devices, names = PLANS[name]
    plan = Plan(
        name=name,
        options=(*OPTIONS, devices),
        devices=names,
        folder=folder,
        watched=Watched(watched, os.environ | {"GNNSCALE_HOME": str(home)}),
    )
    prepared = [option for option in OPTIONS if option.startswith("dataset.")]
    subprocess.run(
        [sys.executable, "-m", "gnnscale", "prepare", *prepared],
        env=plan.watched.environment,
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    plan.measure()
    return plan


def prepare_home(home: Path) -> None:
    """Put figures of a machine into ``GNNSCALE_HOME``, so that no run measures this one."""
    published = resources.files("gnnscale.configs") / "platform" / "epyc7763_a5000_x4.yaml"
    lines = published.read_text().splitlines(keepends=True)
    (home / "platform.yaml").write_text("".join(x for x in lines if not x.startswith("_target_")))
