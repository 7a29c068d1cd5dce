"""What all sections share: the device, sizes, clocks, graphs and the targets."""

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from gnnscale.backend.cuda.engine import CudaEngine, Engine
from gnnscale.backend.cuda.host_engine import HostEngine
from gnnscale.core import usable_cores
from gnnscale.graph import Graph, Split
from gnnscale.planner import Cuda


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured."""

    vertices: int
    edges: int
    features: int
    hidden: int
    seeds: int
    fanouts: tuple[int, ...]
    rows: int  #: of the table that is gathered from
    ids: int  #: rows that a gather reads
    rounds: int
    steps: int  #: of an epoch


_FULL = {"vertices": 2_449_029, "edges": 61_859_140, "features": 100, "hidden": 256, "seeds": 1024}
_FULL |= {"rows": 1 << 20, "ids": 1 << 16, "rounds": 11, "steps": 192}
FULL = Sizes(fanouts=(25, 10), **_FULL)
_TINY = {"vertices": 400, "edges": 4000, "features": 20, "hidden": 16, "seeds": 32}
_TINY |= {"rows": 300, "ids": 64, "rounds": 2, "steps": 4}
TINY = Sizes(fanouts=(4, 3), **_TINY)

#: Each row of the table: what it is, the figure's name, and what it must reach at least (or most).
TARGETS: tuple[tuple[str, str, float, bool], ...] = (
    ("gather over the link, of the pinned copy", "gather.of_pinned_copy", 0.90, True),
    ("gather against CPU gather and copy (paper: 2.39)", "gather.of_cpu_and_copy", 2.4, True),
    ("gather against WholeGraph", "gather.of_wholegraph", 1.0, True),
    ("widths off by 4 to 28 bytes, of aligned ones", "gather.of_aligned", 0.95, True),
    ("gather-mean in device memory, of the device copy", "gather.mean_of_copy", 0.6, True),
    ("sampling, edges a second", "sample.edges_per_s", 2e9, True),
    ("sampling against the native sampler, all cores", "sample.of_native", 10.0, True),
    ("losses against the processor's, relative", "epoch.loss_difference", 1e-4, False),
    ("epoch of 192 steps, seconds", "epoch.seconds", 0.25, False),
    ("epoch against the PyG loop", "epoch.of_pyg", 5.0, True),
    ("command to first step, seconds over the CPU's", "epoch.start_s", 1.5, False),
    ("epoch of 192 recorded steps, all on the card, seconds", "step.epoch", 0.12, False),
    ("the device busy during the epoch", "step.busy", 0.90, True),
    ("losses of recorded steps that differ", "step.differing_losses", 0, False),
    ("host work of a step, us", "profile.host_step", 60, False),
    ("a fifth cached, of max(step on the card, missed bytes / link)", "cache.of_limit", 1.2, False),
    ("reads counted on the device off the plan's", "cache.hits_off", 0, False),
    ("losses of two workers on one card, relative", "together.loss_difference", 1e-5, False),
    ("the same with caches of peers", "peers.loss_difference", 1e-5, False),
    ("a step, of the sum of its parts by measured rates", "step.of_limits", 2.0, False),
    ("epoch of recorded steps against the PyG loop", "step.of_pyg", 10.0, True),
    ("predicted epoch, five configurations, largest error", "step.predicted_error", 0.15, False),
    ("exact inference against all cores", "inference.of_cores", 10.0, True),
    ("processor and GPU, of the GPU alone, features at the host", "hybrid.of_alone", 1.02, False),
)


@dataclass
class Bench:
    """A device that is measured, and what was found."""

    on_host: bool
    index: int
    sizes: Sizes
    figures: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.device = Cuda(index=self.index, host_driven=self.on_host)
        self.engine: Engine = HostEngine(self.device) if self.on_host else CudaEngine(self.device)
        self.name = "host" if self.on_host else torch.cuda.get_device_name(self.index)
        self._graph: Graph | None = None

    def note(self, name: str, value: float, unit: str = "ratio") -> None:
        """Keep a figure, and show it."""
        self.figures[name] = {"value": value, "unit": unit}
        print(f"{name:<32} {value:>14.4g} {unit}", flush=True)

    def missing(self, name: str, reason: str) -> None:
        """Keep why a figure is not there."""
        self.figures[name] = {"value": None, "reason": reason}
        print(f"{name:<32} {reason}", flush=True)

    def value(self, name: str) -> float | None:
        found = self.figures.get(name, {}).get("value")
        return None if found is None else float(found)

    def seconds(self, work: Callable[[], object], *, rounds: int | None = None) -> float:
        """Return the median seconds of ``work`` by the device's clock, warm."""
        times = [self._once(work) for _ in range(2 + (rounds or self.sizes.rounds))]
        return statistics.median(times[2:])

    def _once(self, work: Callable[[], object]) -> float:
        if self.on_host:
            start = time.perf_counter()
            work()
            return time.perf_counter() - start
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    @property
    def cores(self) -> int:
        return usable_cores()

    @property
    def graph(self) -> Graph:
        """A graph of the sizes of ogbn-products with random edges, the worst for any cache."""
        if self._graph is None:
            self._graph = random_graph(self.sizes)
        return self._graph


def random_graph(sizes: Sizes) -> Graph:
    rng = np.random.default_rng(0)
    shares = rng.exponential(size=sizes.vertices)
    degrees = np.maximum((shares * (sizes.edges / shares.sum())).astype(np.int64), 1)
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    indices = rng.integers(0, sizes.vertices, int(indptr[-1]), dtype=np.int32)
    order = rng.permutation(sizes.vertices).astype(np.int32)
    num_train = min(sizes.seeds * sizes.steps, sizes.vertices - 16)
    ends = [0, num_train, num_train + 8, num_train + 16]
    train, valid, test = (np.sort(order[begin:end]) for begin, end in pairwise(ends))
    return Graph(
        name="random",
        indptr=indptr,
        indices=indices,
        features=rng.standard_normal((sizes.vertices, sizes.features), np.float32),
        feature_dtype="float32",
        labels=rng.integers(0, 47, sizes.vertices).astype(np.int64),
        num_classes=47,
        split=Split(train_idx=train, valid_idx=valid, test_idx=test),
    )


def environment() -> dict[str, Any]:
    """Return what the figures depend on beside the device."""
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cores": usable_cores(),
        "pid": os.getpid(),
    }
