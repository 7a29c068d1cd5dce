"""Whole epochs by the public interface, beside the processor and PyG's own loop."""

import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.cuda.bench import Bench
from benchmarks.cuda.runs import difference, on_store, plan, trained
from benchmarks.runner import first_steps
from gnnscale.sampling import NeighborSampler

_EPOCHS = 5
_MODELS = ("gcn", "sage", "gat", "gin")


def run(bench: Bench) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        bench.graph.save(store)
        seconds = epochs(bench, store)
        pyg(bench, seconds)
        losses(bench)
        starts(bench, Path(folder))


def epochs(bench: Bench, store: Path) -> float:
    """Return the median seconds of an epoch of GraphSAGE, the first left out."""
    options, count = on_store(bench, store), 2 if bench.on_host else _EPOCHS
    on_card = trained(plan(bench), *options, f"epochs={count}")
    bench.note("epoch.seconds", on_card.epoch_s, "s")
    for stage, found in on_card.stages.items():
        bench.note(f"epoch.stage_{stage}", found, "s")
    on_cpu = trained("device_plan=cpu", *options, "epochs=2")
    bench.note("epoch.of_cpu", on_cpu.epoch_s / on_card.epoch_s)
    return on_card.epoch_s


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
    for model in _MODELS[1:3] if bench.on_host else _MODELS:
        options = (
            *(f"dataset.num_vertices={count}", f"dataset.num_edges={10 * count}", f"model={model}"),
            *(f"epochs={num_epochs}", "model.dropout=0.5", "model.hidden=32"),
            *("sampler.fanouts=[10,5]", f"batch_size={seeds}"),
            *("runtime.checkpoint=false", "runtime.deterministic=true"),
        )
        known = trained("device_plan.devices=[{kind:cpu,host_aggregates:false}]", *options)
        off = difference(trained(plan(bench), *options).losses, known.losses)
        bench.note(f"epoch.loss_{model}", off)
        worst = max(worst, off)
    bench.note("epoch.loss_difference", worst)


def starts(bench: Bench, folder: Path) -> None:
    """Measure the command to its first step, of the second of two runs; on the host of one."""
    times = {}
    for name, device_plan in (("cpu", "device_plan=cpu"), ("cuda", plan(bench))):
        for number in range(1 if bench.on_host else 2):
            times[name] = _to_first_step(bench, device_plan, folder / f"{name}{number}")
    bench.note("epoch.start_s", times["cuda"] - times["cpu"], "s")


def _to_first_step(bench: Bench, device_plan: str, directory: Path) -> float:
    command = [sys.executable, "-m", "gnnscale", "train", device_plan, "epochs=1"]
    count = 200 if bench.on_host else 2000
    command += [f"dataset.num_vertices={count}", f"dataset.num_edges={10 * count}"]
    command += [f"hydra.run.dir={directory}", "runtime.eval_every=1"]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        first_steps(directory, 1, [process], look_every_s=0.005)
        seconds = time.perf_counter() - start
        assert process.wait() == 0, command
    return seconds
