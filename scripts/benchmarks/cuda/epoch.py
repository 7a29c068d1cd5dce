"""Whole epochs by the public interface, beside the processor and PyG's own loop."""

import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.cuda.bench import Bench
from benchmarks.runner import composed
from gnnscale import Observer
from gnnscale.sampling import NeighborSampler
from gnnscale.training.setup import open_run
from gnnscale.training.train import train

_EPOCHS = 5
_MODELS = ("gcn", "sage", "gat", "gin")


class Losses(Observer):
    """Keeps each step's loss."""

    def __init__(self) -> None:
        self.steps: list[float] = []

    def stepped(self, record: Any) -> None:
        self.steps.append(record.loss)


def run(bench: Bench) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        bench.graph.save(store)
        seconds = epochs(bench, store)
        pyg(bench, seconds)
        losses(bench)
        starts(bench, Path(folder))


def plan(bench: Bench) -> str:
    options = f"index:{bench.index},host_driven:{str(bench.on_host).lower()}"
    return f"device_plan.devices=[{{kind:cuda,{options}}}]"


def trained(*overrides: str) -> tuple[Any, Losses]:
    """Train in this process."""
    config, values = composed(*overrides)
    watching = Losses()
    with tempfile.TemporaryDirectory() as folder:
        result = train(open_run(config, Path(folder), values | {"resume": None}), watching)
    return result, watching


def epochs(bench: Bench, store: Path) -> float:
    """Return the median seconds of an epoch of GraphSAGE, the first left out."""
    sizes = bench.sizes
    count = 2 if bench.on_host else _EPOCHS
    options = (
        *("dataset=store", f"dataset.store={store}", "model=sage", f"model.hidden={sizes.hidden}"),
        *("model.num_layers=2", f"sampler.fanouts={list(sizes.fanouts)}", f"epochs={count}"),
        *(f"batch_size={sizes.seeds}", "runtime.eval_every=100", "runtime.checkpoint=false"),
        *("runtime.inference=sampled", f"num_threads={bench.cores}"),
    )
    options = tuple(each.replace(" ", "") for each in options)
    on_card, _ = trained(plan(bench), *options)
    seconds = statistics.median([each.epoch_time_s for each in on_card.history[1:]])
    bench.note("epoch.seconds", seconds, "s")
    last = on_card.history[-1]
    for stage, found in last.stage_times_s.items():
        if found is not None:
            bench.note(f"epoch.stage_{stage}", found, "s")
    on_cpu, _ = trained("device_plan=cpu", *options, "epochs=2")
    bench.note("epoch.of_cpu", on_cpu.history[-1].epoch_time_s / seconds)
    return seconds


def pyg(bench: Bench, seconds: float) -> None:
    """Train PyG's SAGEConv on the card, fed by this project's sampler on the processor."""
    if importlib.util.find_spec("torch_geometric") is None:
        bench.missing("epoch.of_pyg", "torch_geometric is not installed")
        return
    from torch_geometric.nn import SAGEConv

    from gnnscale.nn.adapters import to_adjacencies

    sizes, device, graph = bench.sizes, bench.engine.device, bench.graph
    widths = [(sizes.features, sizes.hidden), (sizes.hidden, graph.num_classes)]
    convs = torch.nn.ModuleList(SAGEConv(*each) for each in widths).to(device)
    optimizer = torch.optim.Adam(convs.parameters())
    features = torch.from_numpy(graph.features).to(device)
    labels = torch.from_numpy(graph.labels).to(device)
    sampler = NeighborSampler(graph, fanouts=list(sizes.fanouts), num_threads=bench.cores)
    steps = min(sizes.steps, 24)
    start = time.perf_counter()
    for step in range(steps):
        if step == 2:
            _wait(bench)
            start = time.perf_counter()
        batch = sampler.sample(graph.train_idx[step * sizes.seeds :][: sizes.seeds], step)
        x = features[torch.from_numpy(batch.input_vertices).to(device)]
        for index, (edges, _, size) in enumerate(to_adjacencies(batch)):
            x = convs[index]((x, x[: size[1]]), edges.to(device))
            x = x.relu() if index == 0 else x
        seeds = torch.from_numpy(batch.seeds).long().to(device)
        loss = torch.nn.functional.cross_entropy(x, labels[seeds])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _wait(bench)
    each = (time.perf_counter() - start) / max(steps - 2, 1)
    bench.note("epoch.pyg_step", each, "s")
    bench.note("epoch.of_pyg", each * sizes.steps / seconds)


def _wait(bench: Bench) -> None:
    if not bench.on_host:
        torch.cuda.synchronize()


def losses(bench: Bench) -> None:
    """Compare losses of three epochs, of one on the host, with the processor's, with dropout."""
    worst, (count, seeds, num_epochs) = 0.0, (240, 24, 1) if bench.on_host else (2000, 250, 3)
    for model in _MODELS:
        options = (
            *(f"dataset.num_vertices={count}", f"dataset.num_edges={10 * count}", f"model={model}"),
            *(f"epochs={num_epochs}", "model.dropout=0.5", "model.hidden=32"),
            *("sampler.fanouts=[10,5]", f"batch_size={seeds}"),
            *("runtime.checkpoint=false", "runtime.deterministic=true"),
        )
        _, known = trained("device_plan.devices=[{kind:cpu,host_aggregates:false}]", *options)
        _, found = trained(plan(bench), *options)
        pairs = zip(found.steps, known.steps, strict=True)
        difference = max(abs(mine - theirs) / abs(theirs) for mine, theirs in pairs)
        bench.note(f"epoch.loss_{model}", difference)
        worst = max(worst, difference)
    bench.note("epoch.loss_difference", worst)


def starts(bench: Bench, folder: Path) -> None:
    """Measure the command to its first step, of the second of two runs; on the host of one."""
    times = {}
    for name, device_plan in (("cpu", "device_plan=cpu"), ("cuda", plan(bench))):
        for number in range(1 if bench.on_host else 2):
            times[name] = _to_first_step(device_plan, folder / f"{name}{number}")
    bench.note("epoch.start_s", times["cuda"] - times["cpu"], "s")


def _to_first_step(device_plan: str, directory: Path) -> float:
    command = [sys.executable, "-m", "gnnscale", "train", device_plan, "epochs=1"]
    command += ["dataset.num_vertices=2000", "dataset.num_edges=20000"]
    command += [f"hydra.run.dir={directory}", "runtime.eval_every=1"]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        steps = directory / "steps.jsonl"
        while process.poll() is None and not (steps.is_file() and steps.stat().st_size):
            time.sleep(0.005)
        seconds = time.perf_counter() - start
        assert process.wait() == 0, command
    return seconds
