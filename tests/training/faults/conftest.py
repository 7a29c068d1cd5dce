import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from devices import accelerator, plan_of
from fault_injection.plan import PLANS as OF_THE_FAULTS
from fault_injection.training import Training, start
from fault_injection.watched import Watched
from run_fixtures import TINY

LONGER = (
    *(*TINY, "model.dropout=0", "num_threads=2", "epochs=20"),
    *("runtime.drm=false", "runtime.prefetch=two_stage"),
)
PROGRAM = Path(__file__).parents[1] / "programs" / "with_copying_device.py"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Two devices; ``options`` of a run, and the ``program`` that Python runs."""

    options: Sequence[str]
    devices: Sequence[str]
    program: Sequence[str] = ("-m", "gnnscale")


(OPTION,), DEVICES = OF_THE_FAULTS["hybrid_emulated"]
PLANS = {
    "hybrid": Plan(options=(OPTION, "device_plan.split=[40,24]"), devices=DEVICES),
    # The same with a kind of device from outside the package, which computes in its own thread.
    "own": Plan(
        options=(plan_of("cpu", accelerator("copying", busy_s=4e-3)), "device_plan.split=[40,24]"),
        devices=("cpu:0", "copying:1"),
        program=(str(PROGRAM),),
    ),
}
#: One processor.
PLANS["alone"] = Plan(options=("device_plan=cpu",), devices=("cpu:0",))
#: Two GPUs, for which the host stands, and which sum their gradients by themselves.
PLANS["cuda_x2"] = Plan(
    options=(plan_of(*(f"{{kind:cuda,host_driven:true,index:{i}}}" for i in (0, 1))),),
    devices=("cuda:0", "cuda:1"),
)
#: Two processors, each with some columns of the features.
PLANS["p3"] = Plan(
    options=("algorithm=p3", "device_plan=cpu_x2", "device_plan.split=[32,32]"),
    devices=("cpu:0", "cpu:1"),
)


class Runs:
    """Starts runs of ``PLANS``, and leaves none behind."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self._all: list[Training] = []

    def options(self, plan: str) -> tuple[str, ...]:
        return (*LONGER, *PLANS[plan].options)

    def devices(self, plan: str) -> Sequence[str]:
        """Names of the devices, in the order of ranks."""
        return PLANS[plan].devices

    def start(self, directory: Path, *options: str, plan: str = "hybrid") -> Training:
        if "resume" not in options:
            options = (*self.options(plan), *options)
        found = {"devices": self.devices(plan), "program": PLANS[plan].program}
        run = start(directory, *options, watched=self.watched, **found)
        self._all.append(run)
        return run

    def until_started(self, directory: Path, *, plan: str = "hybrid") -> Training:
        """A run whose workers are all there."""
        run = self.start(directory, plan=plan)
        run.wait_for(run.has_all_workers)
        run.watch()
        return run

    def until_trained(self, directory: Path, *options: str, plan: str = "hybrid") -> Training:
        """A run that has written its first checkpoint, and goes on."""
        run = self.start(directory, *options, plan=plan)
        run.wait_for((directory / "checkpoints" / "last.safetensors").exists)
        run.watch()
        assert run.has_all_workers()
        assert run.sockets or len(self.devices(plan)) == 1
        return run

    def finish(self, directory: Path, *options: str) -> None:
        self.ended(self.start(directory, *options), 0)

    def ended(self, run: Training, status: int) -> str:
        """Assert that a run ends and leaves nothing, and return its last line."""
        run.wait_until_gone()
        assert run.process.returncode == status, run.errors.read_text()
        assert run.left_behind() == []
        assert "Traceback" not in run.errors.read_text()
        return str(run.last_line())

    def end(self) -> None:
        for run in self._all:
            run.watch()
            run.end()


@pytest.fixture
def runs(stores: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    folder = tmp_path_factory.mktemp("watched")
    found = Runs(Watched(folder, os.environ | {"GNNSCALE_HOME": str(stores)}))
    yield found
    found.end()
