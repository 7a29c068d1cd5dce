"""A sampler and a device that fail in the middle of a run, importable by the run's workers."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from copying_device import Copying, CopyingBackend

from gnnscale.backend import DeviceBatch
from gnnscale.planner import register_device
from gnnscale.sampling import MiniBatch, NeighborSampler, NeighborSampling

FAILURES: dict[str, BaseException] = {
    "RuntimeError": RuntimeError("the sampler is broken\nand says so in two lines"),
    "MemoryError": MemoryError(),
}


class FaultySampler(NeighborSampler):
    note: Path
    failure: str

    def sample(self, seeds: Any, step: int) -> MiniBatch:
        if step == 67 and len(seeds) == 24:
            self.note.touch()
            if self.failure == "hang":
                threading.Event().wait()
            raise FAILURES[self.failure]
        return super().sample(seeds, step)


@dataclass(frozen=True, kw_only=True)
class FaultySampling(NeighborSampling):
    """Fails on the device whose slice has 24 seeds, later than any rehearsal; touches ``note``."""

    note: Path
    failure: str

    def sampler(self, graph: Any, *, seed: int, num_threads: int) -> FaultySampler:
        sampler = FaultySampler(graph, fanouts=self.fanouts, seed=seed, num_threads=num_threads)
        sampler.note, sampler.failure = self.note, self.failure
        return sampler


@dataclass(frozen=True, kw_only=True)
class Failing(Copying):
    """Fails in its own thread, while the host waits for it, and touches ``note``."""

    kind: ClassVar[str] = "failing"

    note: str


class FailingBackend(CopyingBackend):
    """Fails later than any rehearsal."""

    count = 0

    def _compute(self, batch: DeviceBatch, weight: float) -> float:
        self.count += 1
        if self.count == 67:
            Path(self.device.note).touch()
            raise RuntimeError("the board is gone")
        return super()._compute(batch, weight)


register_device(Failing, "faulty:FailingBackend")
