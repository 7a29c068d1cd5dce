"""A GPU beside the processor: exact inference of both, and training together or alone."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.cuda.bench import Bench
from benchmarks.cuda.runs import on_store, plan, train_in_process, trained
from gnnscale.graph import Split

#: Epochs of a run that is long enough for its devices to be rehearsed.
_EPOCHS = 20


def run(bench: Bench) -> None:
    with tempfile.TemporaryDirectory() as folder:
        inference(bench, Path(folder) / "all")
        together(bench, Path(folder))


def inference(bench: Bench, store: Path) -> None:
    """Validate exactly over all vertices that are not trained, by the GPU and by all cores."""
    graph = bench.graph
    train = graph.train_idx[: bench.sizes.seeds]
    rest = np.setdiff1d(np.arange(graph.num_vertices, dtype=np.int32), train)
    split = Split(train_idx=train, valid_idx=rest[8:], test_idx=rest[:8])
    replace(graph, split=split).save(store)
    seconds = {}
    for name, device_plan in (("card", plan(bench)), ("cores", "device_plan=cpu")):
        exact = ("epochs=2", "runtime.eval_every=1", "runtime.inference=exact")
        # The first one compiles, and touches memory.
        ran = trained(device_plan, *on_store(bench, store), *exact)
        seconds[name] = ran.result.history[-1].eval_time_s
    bench.note("inference.card", seconds["card"], "s")
    bench.note("inference.of_cores", seconds["cores"] / seconds["card"])


def together(bench: Bench, folder: Path) -> None:
    """Train on the processor and the GPU, beside the GPU alone; features are at the host."""
    store = folder / "store"
    bench.graph.save(store)
    alone = plan(bench, ",features:host")
    both = alone.replace("devices=[", "devices=[cpu,")
    epochs = 2 if bench.on_host else _EPOCHS
    seconds, left_out = {}, False
    for name, device_plan in (("alone", alone), ("both", both)):
        train_in_process(folder / name, device_plan, *on_store(bench, store), f"epochs={epochs}")
        summary = json.loads((folder / name / "summary.json").read_text())
        seconds[name] = summary["epoch_time_s"]["median"]
        left_out = summary["left_out"] is not None
    bench.note("hybrid.of_alone", seconds["both"] / seconds["alone"])
    bench.note("hybrid.processor_left_out", float(left_out), "1 if so")
