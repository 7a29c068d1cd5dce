"""P3 against data parallelism: losses, seconds and bytes of a step.

``losses`` trains some steps both ways, in turn. ``bytes`` lets processes trade mini-batches as a
run does, and reads the bytes of the loopback device, which nothing else may use.
"""

import argparse
import json
import os
import statistics
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from benchmarks.runner import FANOUTS, interrupted, open_graph, seeds_of, show, together

MODELS, HIDDEN, DROPOUT = ("sage", "gcn"), 256, 0.5


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("losses", "bytes"))
    parser.add_argument("--steps", type=int, default=25)


def losses(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    fanouts = f"sampler.fanouts={FANOUTS}".replace(" ", "")
    common = [
        *("dataset=rmat_products", "batch_size=1024", fanouts, "runtime.checkpoint=false"),
        *(f"model.hidden={HIDDEN}", f"model.dropout={DROPOUT}"),
    ]
    ways: dict[str, list[str]] = {"data_parallel": [], "p3": ["partitioner=p3"]}
    for model, devices in product(MODELS, (2, 4)):
        plan = [*common, f"model={model}", f"device_plan=cpu_x{devices}"]
        runs = {
            way: interrupted([*plan, *chosen], options.steps)[0] for way, chosen in ways.items()
        }
        pairs = zip(*([step["loss"] for step in steps] for steps in runs.values()), strict=True)
        found[f"{model}, {devices} devices"] = {
            "max_difference": max(abs(b / a - 1) for a, b in pairs),
            **{f"{way}_step_s": step_seconds(steps) for way, steps in runs.items()},
        }
    rows = []
    for name, each in found.items():
        seconds = (each[f"{way}_step_s"] for way in ("data_parallel", "p3"))
        cells = (f"{1000 * step_s:.0f} ms" for step_s in seconds)
        rows.append([name, f"{each['max_difference']:.1e}", *cells])
    title = f"{options.steps} steps, dropout {DROPOUT}, R-MAT products"
    columns = ["model", "max relative difference of losses", "data-parallel step", "P3 step"]
    show(title, columns, rows)
    return found


def step_seconds(steps: list[dict[str, Any]]) -> float:
    return statistics.median(b["seconds"] - a["seconds"] for a, b in pairwise(steps))


def sent_bytes() -> int:
    """Bytes that the loopback device has sent since the machine started."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[8])
    raise SystemExit("/proc/net/dev has no loopback device")


def trade(rank: int, size: int, meeting: str, model_name: str, num_steps: int) -> None:
    """Train mini-batches as one of ``size`` devices; rank 0 prints what was moved."""
    import torch

    from gnnscale.backend.feature_loading import FeatureLoader
    from gnnscale.core.stages import Traffic
    from gnnscale.distributed.process_group import join
    from gnnscale.nn import GCN, GraphSAGE
    from gnnscale.nn.base import seed_loss
    from gnnscale.planner.cost_model.equations import BatchSize
    from gnnscale.sampling import NeighborSampler
    from gnnscale.training.p3.split_run import SplitRun

    torch.set_num_threads(1)
    graph = open_graph(None)
    kind = {"sage": GraphSAGE, "gcn": GCN}[model_name]
    with join(rank, size, Path(meeting), backend="gloo") as group:
        torch.manual_seed(0)
        widths = {"num_features": graph.num_features, "num_classes": graph.num_classes}
        whole = kind(hidden=HIDDEN, dropout=DROPOUT).build(**widths)
        bounds = [graph.num_features * part // size for part in range(size + 1)]
        split = SplitRun(whole, list(pairwise(bounds)), group)
        loader = FeatureLoader(graph, split.model, num_threads=1, store=split.store(graph))
        exchange = split.exchange(loader)
        sampler = NeighborSampler(graph, fanouts=FANOUTS)
        total, sizes = Traffic(), []
        group.barrier()
        before = sent_bytes()
        for step in range(num_steps):
            seeds = seeds_of(graph, step)
            cuts = [len(seeds) * part // size for part in range(size + 1)]
            batch = sampler.sample(seeds[cuts[rank] : cuts[rank + 1]], step)
            inputs = exchange.trade(batch, loader.load(batch))
            seed_loss(graph, split.model(batch, inputs), batch.seeds).backward()
            split.model.zero_grad()
            total += inputs.traffic
            sizes.append(BatchSize.of(batch))
        group.barrier()
        moved = sent_bytes() - before
        mine = {
            "counted": total.rows.peer_bytes + total.lists.peer_bytes,
            "sizes": [[list(each.vertices), list(each.edges)] for each in sizes],
        }
        every = [json.loads(each) for each in group.gather(json.dumps(mine).encode())]
        figures: dict[str, float] = {}
        if group.is_rank0:
            counted = sum(each["counted"] for each in every) / num_steps
            figures = {"kernel": moved / num_steps, "counted": counted}
            figures |= computed_bytes(whole, [each["sizes"] for each in every])
    print(json.dumps(figures), flush=True)
    # A thread of gloo may still let go of a tensor, for which it needs an interpreter.
    os._exit(0)


def computed_bytes(model: Any, sizes: list[list[list[list[int]]]]) -> dict[str, float]:
    """Return the computed bytes of a step, the mean over steps.

    ``sizes`` has vertices and edges of the mini-batch of each device and step.
    """
    from gnnscale.planner.cost_model.equations import BatchSize
    from gnnscale.planner.cost_model.stage_work import step_bytes

    first, computed = model.layer(0).linear.weight.numel(), []
    layers: Any = {"widths": model.widths, "feature_bytes": 4, "num_first_weights": first}
    for of_devices in zip(*sizes, strict=True):
        batches = [BatchSize(vertices=tuple(v), edges=tuple(e)) for v, e in of_devices]
        computed.append(step_bytes(batches, **layers))
    names = {"computed": "p3", "data_parallel": "data_parallel"}
    return {k: statistics.fmean(getattr(e, name) for e in computed) for k, name in names.items()}


def moved_bytes(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for model, devices in product(MODELS, (2, 4)):
        found[f"{model}, {devices} devices"] = together(trade, devices, model, options.steps)
    rows = []
    for name, each in found.items():
        cells = [f"{each[key] / 1e6:.2f}" for key in ("kernel", "counted", "computed")]
        cells.append(f"{each['kernel'] / each['computed']:.4f}")
        rows.append([name, *cells, f"{each['data_parallel'] / 1e6:.2f}"])
    title = "MB that a step moves between devices, R-MAT products, 1,024 seeds"
    columns = ["model", "kernel", "counted", "computed", "kernel / computed", "data-parallel"]
    show(title, columns, rows)
    return found


def run(options: argparse.Namespace) -> Any:
    return losses(options) if options.what == "losses" else moved_bytes(options)
