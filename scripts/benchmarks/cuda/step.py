"""A step that the host does not wait for: recorded or not, with caches, by several workers."""

import tempfile
from pathlib import Path

import torch

from benchmarks.cuda.bench import Bench
from benchmarks.cuda.runs import (
    Ran,
    difference,
    losses_of,
    numbers,
    on_store,
    plan,
    train_in_process,
    trained,
)
from gnnscale.core.gpu import GpuMeter

#: Rows of the table beside GraphSAGE's: model, fan-outs, width of a row (None for the graph's).
_KINDS: dict[str, tuple[str, tuple[int, ...], int | None]] = {
    "gat": ("gat", (25, 10), None),
    "gin": ("gin", (25, 10), None),
    "three_layers": ("sage", (15, 10, 5), None),
    "wide": ("sage", (25, 10), 602),
}
_CACHED = 0.2


def run(bench: Bench) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        bench.graph.save(store)
        base = recordings(bench, store)
        kinds(bench, store)
        caches(bench, store, base)
        together(bench, Path(folder))
        energy(bench, store)


def ran(bench: Bench, store: Path, *options: str, device: str = "", epochs: int = 3) -> Ran:
    count = f"epochs={min(epochs, 2) if bench.on_host else epochs}"
    return trained(plan(bench, device), *on_store(bench, store), count, *options)


def recordings(bench: Bench, store: Path) -> Ran:
    """Recorded steps beside the same ones queued operation by operation, and a step's parts."""
    dropout = "model.dropout=0.5"
    recorded = ran(bench, store, dropout)
    plain = ran(bench, store, dropout, device=",captures:false")
    pairs = zip(recorded.losses, plain.losses, strict=True)
    bench.note("step.differing_losses", sum(mine != theirs for mine, theirs in pairs), "losses")
    bench.note("step.of_plain", plain.epoch_s / recorded.epoch_s)
    bench.note("step.epoch", recorded.epoch_s, "s")
    steps = recorded.steps_per_epoch
    for stage, seconds in recorded.stages.items():
        bench.note(f"step.{stage}", seconds / steps * 1e6, "us")
    training = recorded.stages["propagate"] + recorded.stages["sync"]
    reading = recorded.stages["sample"] + recorded.stages["load"]
    # Both overlap, so that the longer one is how long the device is busy at least.
    bench.note("step.busy", max(training, reading) / recorded.result.history[-1].epoch_time_s)
    limits(bench, recorded)
    prediction(bench, "sage", recorded)
    if (pyg := bench.value("epoch.pyg_step")) is not None:
        bench.note("step.of_pyg", pyg * steps / recorded.epoch_s)
    return recorded


def limits(bench: Bench, ran: Ran) -> None:
    """Hold a step against its parts by the rates that the run has measured, one after the other."""
    if (predicted := ran.result.layout.predicted) is not None:
        (stages,) = predicted.by_rates.devices
        parts = stages.sample + stages.load + stages.propagate
        bench.note("step.of_limits", ran.epoch_s / ran.steps_per_epoch / parts)


def prediction(bench: Bench, name: str, ran: Ran) -> None:
    """Note by how much an epoch is mispredicted by rates, and the largest of these so far."""
    if (predicted := ran.result.layout.predicted) is not None:
        error = abs(predicted.by_rates.step_s * ran.steps_per_epoch / ran.epoch_s - 1)
        bench.note(f"step.predicted_{name}", error)
        bench.note("step.predicted_error", max(error, bench.value("step.predicted_error") or 0.0))


def kinds(bench: Bench, store: Path) -> None:
    """Other models, fan-outs and widths."""
    for name, (model, fanouts, width) in _KINDS.items():
        chosen = fanouts if not bench.on_host else tuple(3 for _ in fanouts)
        options = [f"model={model}", f"model.num_layers={len(fanouts)}"]
        options.append(f"sampler.fanouts={numbers(chosen)}")
        if width is not None:
            count = 100 if bench.on_host else bench.sizes.vertices // 10
            options += ["dataset=planted_partition", "dataset.store=null"]
            options.append(f"dataset.num_vertices={count}")
            options += [f"dataset.num_edges={25 * count}", f"dataset.num_features={width}"]
        try:
            found = ran(bench, store, *options, epochs=2)
            bench.note(f"step.{name}_epoch", found.epoch_s, "s")
            prediction(bench, name, found)
        except torch.OutOfMemoryError as error:
            bench.missing(f"step.{name}_epoch", str(error)[:60])


def caches(bench: Bench, store: Path, base: Ran) -> None:
    """Features at the host with a fifth of the rows cached, beside what the link allows."""
    options = ("cache_planner=gnnlab", f"cache_planner.ratio={_CACHED}")
    cached = ran(bench, store, *options, device=",features:host,topology:device", epochs=2)
    last = cached.result.history[-1].devices[0]
    bench.note("cache.hit_rate", last.traffic.rows.hit_rate or 0.0)
    bench.note("cache.epoch", cached.epoch_s, "s")
    link = bench.value("gather.link") or bench.value("ceiling.pinned_copy")
    if link is None:
        bench.missing("cache.of_limit", "needs section gather")
    else:
        limit = max(base.epoch_s, last.traffic.rows.link_bytes / link)
        bench.note("cache.of_limit", cached.epoch_s / limit)
    fixed = ran(bench, store, *options, device=",features:host,topology:device", epochs=1)
    counted = fixed.result.history[0].devices[0].traffic.rows
    planned = fixed.result.layout.cache.predicted
    *hits, misses = planned.rows
    off = abs(counted.hits + counted.peer_hits - sum(hits)) + abs(counted.misses - misses)
    bench.note("cache.hits_off", off)


def together(bench: Bench, folder: Path) -> None:
    """Two workers on one card beside one: emulated, since cards do not share memory."""
    count, num_epochs, seeds = (400, 1, 30) if bench.on_host else (2000, 2, 256)
    common = (
        *(f"epochs={num_epochs}", f"batch_size={seeds}"),
        *(f"dataset.num_vertices={count}", f"dataset.num_edges={10 * count}"),
    )
    links = folder / "links.csv"
    links.write_text("0 1\n1 0\n")
    one = trained(plan(bench), *common).losses
    peers = ("cache_planner=legion", "cache_planner.ratio=0.2", f"cache_planner.nvlink={links}")
    pairs: dict[str, tuple[str, ...]] = {"peers": peers}
    if bench.on_host:
        bench.missing(
            "together.loss_difference", "the host stands for workers with caches of peers"
        )
    else:
        pairs["together"] = ()
    for name, more in pairs.items():
        both = plan(bench, ",features:host" if more else "", count=2)
        train_in_process(folder / name, both, *common, *more)
        off = difference(losses_of(folder / name), one)
        bench.note(f"{name}.loss_difference", off)


def energy(bench: Bench, store: Path) -> None:
    """Joules of an epoch, if the driver counts them."""
    meter, epochs = GpuMeter.of(None if bench.on_host else bench.index), 3
    used = None
    if meter is not None:
        meter.take()
        ran(bench, store, epochs=epochs)
        used = meter.take().energy_j
    if used is None:
        bench.missing("step.joules", "nothing counts them")
    else:
        bench.note("step.joules", used / epochs, "J an epoch")
