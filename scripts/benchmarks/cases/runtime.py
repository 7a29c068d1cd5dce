"""The runtime against what it replaces: its cost, what prefetching brings, where the split settles.

``overhead`` holds one cpu worker against a plain loop, ``prefetch`` has load : transfer : propagate
= 1 : 1 : 1, and ``drm`` holds a bad split against the best of a sweep. Accelerators are emulated.
"""

import argparse
import os
import statistics
from itertools import count, pairwise
from typing import Any

from benchmarks.runner import composed, in_subprocess, show, tell, timed, train
from gnnscale.planner.cost_model.equations import sync_seconds

Steps = list[dict[str, Any]]
_NO_VALIDATION = ("runtime.checkpoint=false",)
_BATCH = 1024


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=list(WORK))
    parser.add_argument("--rounds", type=int, default=5, help="of overhead")
    parser.add_argument("--graph", default="", help="of overhead: only graphs that begin so")
    parser.add_argument("--seconds", type=float, default=0.06, help="of an emulated stage")
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2, 4], help="of prefetch")


def step_seconds(steps: Steps) -> list[float]:
    """Seconds of each step, from the times at which they ended in their epoch."""
    ends = [0.0, *(step["seconds"] for step in steps)]
    return [end - (before if end > before else 0.0) for before, end in pairwise(ends)]


def plain_loop(overrides: list[str], epochs: int) -> list[float]:
    """Seconds of each epoch of the loop that anyone would write: no worker, no pipeline."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    from gnnscale.backend.feature_loading import FeatureLoader
    from gnnscale.nn.base import seed_loss
    from gnnscale.ops import keep_freed_memory
    from gnnscale.sampling import ShuffledOrder

    config, _ = composed(*overrides)
    torch.set_num_threads(config.num_threads)
    keep_freed_memory()
    graph = config.dataset.open()
    torch.manual_seed(config.seed)
    model = config.model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    sampler = config.sampler.sampler(graph, seed=config.seed, num_threads=config.num_threads)
    loader = FeatureLoader(graph, model, num_threads=config.num_threads)
    optimizer = config.optimizer.build(model)
    order = ShuffledOrder(graph.train_idx, batch_size=config.batch_size, seed=0)
    step = count()

    def epoch(number: int) -> None:
        for each in order.epoch(number):
            batch = sampler.sample(each.seeds, next(step))
            loss = seed_loss(graph, model(batch, loader.load(batch)), batch.seeds)
            loss.backward()
            loss.item()
            optimizer.step()
            optimizer.zero_grad()

    return [timed(epoch, number)[0] for number in range(epochs)]


def overhead(options: argparse.Namespace) -> dict[str, Any]:
    """One cpu worker against the plain loop, interleaved, medians of epoch times."""
    found = {}
    narrow = ["model=gcn", "model.hidden=16", "sampler.fanouts=[25,20]", "batch_size=512"]
    for name, chosen, epochs in (
        ("default graph", [], 10),
        ("narrow GCN on it, [25, 20]", narrow, 10),
        ("R-MAT products, [25, 10]", ["config=rmat_products_sage"], 2),
    ):
        if not name.startswith(options.graph):
            continue
        times: dict[str, list[float]] = {"plain": [], "worker": []}
        only = (f"epochs={epochs}", f"runtime.eval_every={epochs}", "runtime.inference=sampled")
        for number in range(options.rounds):
            tell(f"{name}: round {number + 1} of {options.rounds}")
            times["plain"] += in_subprocess(plain_loop, chosen, epochs)[1:]
            records = train(*chosen, *_NO_VALIDATION, *only).epochs[1:]
            times["worker"] += [record["epoch_time_s"] for record in records]
        found[name] = {key: statistics.median(each) for key, each in times.items()}
    rows = [
        [name, f"{e['plain']:.3f}", f"{e['worker']:.3f}", f"{e['worker'] / e['plain']:.3f}"]
        for name, e in found.items()
    ]
    columns = ["graph", "plain loop", "worker", "worker / plain"]
    show("One cpu worker against the plain loop, seconds an epoch", columns, rows)
    return found


def sizes(num_seeds: int) -> dict[str, float]:
    """Bytes read and moved, and eq. 10's seconds at unit rates, of a slice of the default graph."""
    from gnnscale.backend.feature_loading import FeatureLoader
    from gnnscale.backend.host import link_bytes
    from gnnscale.planner.cost_model.equations import BatchSize, trainer_seconds
    from gnnscale.planner.cost_model.stage_work import propagation_work
    from gnnscale.planner.cost_model.workload import unmeasured_workload

    config, _ = composed()
    graph = config.dataset.open()
    model = config.model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    sampler = config.sampler.sampler(graph, seed=0, num_threads=1)
    batch = sampler.sample(graph.train_idx[:num_seeds], 0)
    loader = FeatureLoader(graph, model, num_threads=1)
    # Aggregation at a byte, update at a MAC a second, would say too little of their balance.
    rates = {"memory_bandwidth": 4.0, "macs_per_s": 8.0}
    work = propagation_work(unmeasured_workload(graph, model), BatchSize.of(batch))
    weights = 4 * sum(parameter.numel() for parameter in model.parameters())
    moved = {"read": loader.bytes_read(batch), "moved": sum(link_bytes(batch, loader.load(batch)))}
    seconds = trainer_seconds(work, pipelined=False, **rates)
    return {"weights": weights, **moved, "work": seconds, **rates}


def device(size: dict[str, float], *, load: Any, transfer: Any, propagate: float) -> str:
    """Options of an emulated device whose stages take these seconds for a slice of ``size``.

    ``propagate`` includes the gradients' way out and the weights' way in, as T_prop of eq. 9.
    """
    if transfer is not None:
        propagate -= sync_seconds(size["weights"], size["moved"] / transfer, 0)
    if propagate <= 0:
        raise SystemExit("the link needs longer for the weights than the device may compute")
    scale = size["work"] / propagate
    options: dict[str, Any] = {"kind": "emulated", "memory_bytes": 1 << 30}
    options |= {n: f"{size[n] * scale:.0f}.0" for n in ("macs_per_s", "memory_bandwidth")}
    for name, what, seconds in (("link", "moved", transfer), ("host", "read", load)):
        rate = "null" if seconds is None else f"{size[what] / seconds:.0f}.0"
        options[f"{name}_bandwidth"] = rate
    return "{" + ",".join(f"{key}:{value}" for key, value in options.items()) + "}"


def eq_6(steps: Steps, stage: str) -> float:
    """Mean seconds of a stage on the device that was slowest in it; propagation as in eq. 9."""
    times = [[device["stage_s"] for device in step["devices"]] for step in steps]
    full = [each for each in times if all(stage in t for t in each)]
    longest = statistics.fmean(max(t[stage] for t in each) for each in full)
    if stage != "propagate":
        return longest
    synced = [each for each in full if all("sync" in t for t in each)]
    return longest + statistics.fmean(min(t["sync"] for t in each) for each in synced)


def prefetch(options: argparse.Namespace) -> dict[str, Any]:
    found, seconds = {}, options.seconds
    for num in options.devices:
        slice_size = _BATCH // num
        each = device(sizes(slice_size), load=seconds, transfer=seconds, propagate=seconds)
        for mode in ("none", "one_stage", "two_stage"):
            tell(f"{num} devices, {mode}")
            epochs, steps, _ = train(
                *_NO_VALIDATION,
                f"device_plan.devices=[{','.join([each] * num)}]",
                f"device_plan.split={[slice_size] * num}".replace(" ", ""),
                *(f"batch_size={_BATCH}", "epochs=3", "runtime.eval_every=3", "runtime.drm=false"),
                f"runtime.prefetch={mode}",
            )
            per_epoch = len(steps) // len(epochs)
            times = enumerate(step_seconds(steps))
            inner = [each for i, each in times if 5 <= i % per_epoch < per_epoch - 1]
            stages = ("sample", "load", "transfer", "propagate")
            late = (d["counters"]["late_stages"] for e in epochs for d in e["devices"])
            found[f"{num} {mode}"] = {
                **{"step_s": statistics.median(inner), "mean_step_s": statistics.fmean(inner)},
                "slowest_stage_s": max(eq_6(steps[5:], stage) for stage in stages),
                "late_stages": max(late),
            }
    rows = []
    for name, each in found.items():
        none, mean = found[f"{name.split()[0]} none"]["mean_step_s"], each["mean_step_s"]
        shares = (f"{part / mean:.1%}" for part in (seconds, each["slowest_stage_s"]))
        cells = (f"{mean * 1e3:.1f}", f"{none / mean:.2f}x", *shares, f"{each['late_stages']:.0f}")
        rows.append([name.replace(" ", " emulated, "), *cells])
    columns = ["devices, prefetch", "ms a step", "over none", "of the configured bound"]
    columns += ["of the slowest stage", "late stages"]
    show(f"load : transfer : propagate = 1 : 1 : 1, {seconds * 1e3:.0f} ms each", columns, rows)
    return found


def drm(options: argparse.Namespace) -> dict[str, Any]:
    """A bad initial split under resource management, against every sixteenth of the batch."""
    size, seconds = sizes(_BATCH), options.seconds
    processor = device(size, load=None, transfer=None, propagate=4 * seconds)
    accelerator = device(size, load=None, transfer=seconds / 2, propagate=4 * seconds / 3)

    def steps_of(mine: int, *more: str) -> Steps:
        tell(f"split {mine} : {_BATCH - mine} {' '.join(more)}")
        return train(
            *(*_NO_VALIDATION, f"device_plan.devices=[{processor},{accelerator}]"),
            *(f"batch_size={_BATCH}", "epochs=3", "runtime.eval_every=3"),
            *("runtime.prefetch=two_stage", f"device_plan.split=[{mine},{_BATCH - mine}]", *more),
        ).steps

    static = {}
    for mine in range(0, _BATCH + 1, _BATCH // 16):
        static[f"{mine}:{_BATCH - mine}"] = _typical(steps_of(mine, "runtime.drm=false")[30:])
    best = min(static, key=lambda split: static[split])
    managed = {}
    for bad in (960, 64, 512):
        steps = steps_of(bad)
        last = full(steps)[-1]["devices"]
        managed[f"{bad}:{_BATCH - bad}"] = {
            "after_30_s": _typical(steps[30:]),
            "settled_after": _settled(steps),
            "within_5_after": _within(steps, 1.05 * static[best]),
            "moves": sum(step["decision"] is not None for step in steps),
            "split": f"{last[0]['seeds']}:{last[1]['seeds']}",
        }
    rows = [[k, f"{v * 1e3:.1f}", f"{v / static[best]:.3f}"] for k, v in static.items()]
    columns = ["split", "ms a step", "over the best"]
    show("Static splits, processor : accelerator", columns, rows)
    columns = ["from", "ms a step after 30", "over the best", "within 5 % from step"]
    columns += ["split within 2 % from step", "moves", "to"]
    rows = []
    for name, each in managed.items():
        took, keys = each["after_30_s"], ("within_5_after", "settled_after", "moves", "split")
        cells = (f"{took * 1e3:.1f}", f"{took / static[best]:.3f}")
        rows.append([name, *cells, *(str(each[key]) for key in keys)])
    show(f"Resource management, best static {best} with {static[best] * 1e3:.1f} ms", columns, rows)
    return {"static": static, "managed": managed}


def full(steps: Steps) -> Steps:
    """The steps with a full mini-batch: the last of an epoch has fewer seeds."""
    sizes = [sum(device["seeds"] for device in step["devices"]) for step in steps]
    return [step for step, size in zip(steps, sizes, strict=True) if size == max(sizes)]


def _typical(steps: Steps) -> float:
    return statistics.median(step_seconds(steps)[1:])


def _within(steps: Steps, limit: float) -> int:
    """The first step from which the median of any ten in a row stays below ``limit``."""
    times = step_seconds(steps)
    medians = [statistics.median(times[i : i + 10]) for i in range(len(times) - 10)]
    above = [i for i, each in enumerate(medians) if each > limit]
    return above[-1] + 1 if above else 0


def _settled(steps: Steps) -> int:
    """The first step with a split from which no later one differs by over 2 % of the batch."""
    first = [step["devices"][0]["seeds"] for step in full(steps)]
    near = [abs(seeds - first[-1]) <= 0.02 * _BATCH for seeds in first]
    return len(near) - next((i for i, same in enumerate(reversed(near)) if not same), len(near))


WORK = {"overhead": overhead, "prefetch": prefetch, "drm": drm}


def run(options: argparse.Namespace) -> Any:
    return WORK[options.what](options)
