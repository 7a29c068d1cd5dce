"""What caches are measured on: runs of several devices over parts of a graph, never trained."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import OmegaConf

from benchmarks.runner import FANOUTS, SEEDS, open_graph
from gnnscale import partition
from gnnscale.cache import CacheDevice, CachePlan, CachePlannerConfig, CacheTask, Presampler
from gnnscale.cache.base import predict_traffic
from gnnscale.graph import Graph
from gnnscale.partition.nvlink import MACHINES, disjoint_cliques, find_links
from gnnscale.planner.device_plan import apportion
from gnnscale.sampling import NeighborSampling, ShuffledOrder, TwoStageOrder

#: Steps that an epoch should have at least, so that it says more than one batch does.
MIN_STEPS = 10
#: Of the machines that are compared. Fewer devices have mini-batches of the same size.
MAX_DEVICES = 8
#: CLS of Legion's eq. 8.
REQUEST_BYTES = 64
#: What is drawn or counted once for a run, whatever its caches.
_SHARED = ("presampled", "foretold", "run_reads", "out_degrees", "first_batches")


def graphs(stores: list[Path]) -> list[Graph]:
    """Open ``stores``; without any R-MAT products, made on first use."""
    return [open_graph(store) for store in stores] if stores else [open_graph(None)]


def cliques_of(machine: str, num_devices: int) -> tuple[tuple[int, ...], ...]:
    return disjoint_cliques(find_links(machine)[:num_devices, :num_devices])


def run_of(
    graph: Graph,
    partitioner: str | None,
    *,
    machine: str = MACHINES[0],
    num_devices: int,
    num_epochs: int = 1,
    num_threads: int,
) -> CacheTask:
    """Return a run whose devices have no caches yet; no partition means a global shuffle."""
    parts, split, seeds = None, [1] * num_devices, SEEDS
    while seeds > 1 and len(graph.train_idx) < MIN_STEPS * seeds * MAX_DEVICES:
        seeds //= 2
    batch = seeds * num_devices
    order: Any = ShuffledOrder(graph.train_idx, batch_size=batch, seed=0)
    if partitioner is not None and num_devices > 1:
        sizes = {"num_parts": num_devices, "num_hops": len(FANOUTS), "num_threads": num_threads}
        known: dict[str, Any] = {"hierarchical": partition.Hierarchical(nvlink=machine)}
        known |= {"pagraph": partition.PaGraph(), "mtkahypar": partition.MtKaHyPar()}
        path = partition.make_partition(known[partitioner], graph, **sizes)
        parts = partition.read_partition(path, graph).parts
        own = parts.train_vertices(graph.train_idx)
        order = TwoStageOrder(own, batch_sizes=apportion(split, batch), seed=0)
    how: Any = {"split": partial(apportion, split), "seed": 0, "num_threads": num_threads}
    draws = Presampler(graph, NeighborSampling(fanouts=FANOUTS), order, **how)
    devices = gpus(range(num_devices), budget_bytes=0)
    return CacheTask(
        graph=graph,
        devices=devices,
        num_devices=num_devices,
        parts=parts,
        draws=draws,
        num_epochs=num_epochs,
        batch_size=batch,
        seed=0,
        cliques=tuple((device.position,) for device in devices),
        fanouts=tuple(FANOUTS),
        aggregated_row_bytes=None,
    )


def gpus(positions: Iterable[int], budget_bytes: int) -> tuple[CacheDevice, ...]:
    same = {"samples": True, "loads": True, "request_bytes": REQUEST_BYTES}
    return tuple(
        CacheDevice(position=each, name=f"gpu{each}", budget_bytes=budget_bytes, **same)
        for each in positions
    )


def with_caches(
    run: CacheTask, ratio: float, cliques: tuple[tuple[int, ...], ...] | None = None
) -> CacheTask:
    """Return ``run`` with caches of ``ratio`` of all rows on each device.

    What was drawn of ``run`` is kept: caches change no batch.
    """
    budget = int(ratio * run.graph.num_vertices) * run.row_bytes
    devices = tuple(replace(device, budget_bytes=budget) for device in run.devices)
    found = replace(run, devices=devices, cliques=run.cliques if cliques is None else cliques)
    vars(found).update({name: vars(run)[name] for name in _SHARED if name in vars(run)})
    return found


def draw(run: CacheTask) -> CacheTask:
    """Draw the epochs of ``run``, and the one that planning looks at, once for all its caches."""
    _ = run.out_degrees, run.run_reads, run.presampled, run.counted
    return run


def policy(name: str, **options: Any) -> CachePlannerConfig:
    file = resources.files("gnnscale.configs") / "cache_planner" / f"{name}.yaml"
    return instantiate(OmegaConf.create(file.read_text()), **options)


def counted_traffic(task: CacheTask, made: CachePlan) -> Any:
    """Return what the devices of a plan read in the run's own batches."""
    return predict_traffic(task, made.devices, made.cliques, task.run_reads)


def hit_rates(traffic: Any) -> dict[str, float]:
    """Return the hit rate of rows over all devices, and the least and most of a device."""
    rows = sum(sum(each.rows) for each in traffic)
    hits = rows - sum(each.rows[-1] for each in traffic)
    each = [device.feature_hit_rate or 0.0 for device in traffic]
    return {"hit_rate": hits / max(rows, 1), "min": min(each), "max": max(each)}
