"""Runs of a device plan under test, and the one that nobody disturbs."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from fault_injection.training import Training, start
from fault_injection.watched import Watched

ACCELERATOR = (
    "{kind:emulated,macs_per_s:1e10,memory_bandwidth:5e9,memory_bytes:1073741824,"
    "link_bandwidth:1e9,launch_s:4e-3}"
)
HYBRID = f"device_plan.devices=[cpu,{ACCELERATOR}]"
#: Options of a plan, and the names of its devices. Those of the disk hold a part of its rows.
PLANS = {
    "hybrid_emulated": ((HYBRID,), ("cpu:0", "emulated:1")),
    "cpu_x2": (("device_plan.devices=[cpu,cpu]",), ("cpu:0", "cpu:1")),
    "disk": (
        ("device_plan.devices=[cpu,cpu]", "features=disk", "features.memory_bytes=8e6"),
        ("cpu:0", "cpu:1"),
    ),
}
#: The split is kept, so that weights can be compared.
OPTIONS = (
    *("dataset.num_vertices=20000", "dataset.num_edges=200000", "model.hidden=32"),
    *("sampler.fanouts=[10,5]", "batch_size=256", "device_plan.split=[156,100]", "num_threads=2"),
    *("runtime.drm=false", "runtime.prefetch=two_stage", "epochs=24"),
)


class Plan:
    """Runs of one device plan, below a folder of their own; ``whole`` is the undisturbed one."""

    starting = training = 0.0  #: seconds of the undisturbed run: to its first step, and to its end

    def __init__(
        self, folder: Path, name: str, options: Sequence[str], devices: Sequence[str]
    ) -> None:
        self.name, self.options, self.devices = name, options, devices
        self.folder = folder / name
        self.whole = self.folder / "whole"
        home, watched = self.folder / "home", self.folder / "watched"
        for each in (home, watched):
            each.mkdir(parents=True)
        prepare_home(home)
        self.watched = Watched(watched, os.environ | {"GNNSCALE_HOME": str(home)})

    def start(self, place: str | Path, *options: str) -> Training:
        """Begin a run in a directory, or go on with the one that is there."""
        directory = self.folder / place
        begun = (directory / "config.yaml").exists()
        chosen = ("resume",) if begun else (*self.options, *options)
        return start(directory, *chosen, devices=self.devices, watched=self.watched)

    def finish(self, place: str | Path) -> None:
        self._end(self.start(place))

    def measure(self) -> None:
        prepared = [option for option in self.options if option.startswith("dataset.")]
        command = [sys.executable, "-m", "gnnscale", "prepare", *prepared]
        place = {"env": self.watched.environment, "cwd": self.folder}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **place)
        run = self.start(self.whole)
        run.wait_for(run.workers)
        began = time.monotonic()
        run.wait_for((self.whole / "metrics.jsonl").exists)
        self.starting = time.monotonic() - began
        self.training = self._end(run)

    def _end(self, run: Training) -> float:
        seconds = run.wait_until_gone()
        run.end()
        if run.process.returncode:
            raise RuntimeError(f"{run.directory}: did not finish: {run.errors.read_text()}")
        return seconds


def prepare_home(home: Path) -> None:
    """Put figures of a machine into ``GNNSCALE_HOME``, so that no run measures this one."""
    published = resources.files("gnnscale.configs") / "platform" / "epyc7763_a5000_x4.yaml"
    lines = published.read_text().splitlines(keepends=True)
    (home / "platform.yaml").write_text("".join(x for x in lines if not x.startswith("_target_")))
