"""Merged trees against a tree for each row, on validation of a task of rel-f1.

Both take the rows of validation by mini-batches, in the order of cut-offs. Merged, rows of one
cut-off share their vertices. Exit status 1: outputs of one model differ by more than 1e-5.
"""

import argparse
import time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.cases.accuracy_rows import TASKS
from benchmarks.runner import data_folder, show, take

#: Largest difference of outputs, relative to the largest output.
_TOLERANCE = 1e-5
FANOUTS = {"all": [-1, -1], "128, 64": [128, 64]}


class Pass(NamedTuple):
    """Size and time of all mini-batches, and their outputs."""

    vertices: int  #: input rows
    edges: int
    sampling_s: float
    computing_s: float  #: loading and the model
    outputs: Any  #: ``[num_rows, width]``


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the case."""
    parser.add_argument("--task", choices=list(TASKS), default="driver-dnf")
    parser.add_argument("--batch-size", type=int, default=64, help="rows of a mini-batch (64)")
    take(parser, threads=1, rounds=3, data=data_folder())


def run(options: argparse.Namespace) -> Any:
    """Pass over validation both ways with each fan-out, and print a table."""
    import torch

    from gnnscale.nn import RSAGE

    graph = opened(options)
    torch.manual_seed(0)
    config = RSAGE(hidden=128)
    model = config.build_for(graph.input_types, num_classes=max(2, graph.rows.num_classes))
    config.add_time_encoders(model, graph.timed_types)
    rows, results, missed = [], {}, []
    for name, fanouts in FANOUTS.items():
        found = [measured(graph, model, fanouts, options, disjoint=way) for way in (False, True)]
        merged, disjoint = found
        scale = np.abs(disjoint.outputs).max()
        difference = float(np.abs(merged.outputs - disjoint.outputs).max() / scale)
        missed += [f"{name}: outputs differ"] if difference > _TOLERANCE else []
        for way, each in zip(("merged", "disjoint"), found, strict=True):
            rows.append([f"{name}: {way}", *cells(each)])
            results[f"{name}: {way}"] = each._replace(outputs=None)._asdict()
        results[f"{name}: difference"] = difference
    columns = ["neighbors", "input rows", "edges", "sampling ms", "loading, model ms"]
    show(f"Validation of {options.task}, {options.batch_size} rows a mini-batch", columns, rows)
    return {"passes": results, "missed": missed}


def opened(options: argparse.Namespace) -> Any:
    """Return rel-f1 with the rows of the task."""
    from gnnscale.data.readers.relational.rel_f1 import RelF1

    raw = (options.data / "relational" / "rel_f1").resolve()
    return RelF1(raw=str(raw), task=options.task).open()


def measured(
    graph: Any, model: Any, fanouts: list[int], options: argparse.Namespace, *, disjoint: bool
) -> Pass:
    """Return the pass whose times are medians of ``options.rounds``."""
    passes = [
        one_pass(graph, model, fanouts, options, disjoint=disjoint) for _ in range(options.rounds)
    ]
    sampling, computing = (
        float(np.median([getattr(each, name) for each in passes]))
        for name in ("sampling_s", "computing_s")
    )
    return passes[0]._replace(sampling_s=sampling, computing_s=computing)


def one_pass(
    graph: Any, model: Any, fanouts: list[int], options: argparse.Namespace, *, disjoint: bool
) -> Pass:
    """Pass once over the rows of validation."""
    import torch

    from gnnscale.backend.typed_loading import open_loader
    from gnnscale.sampling import TimedSampler, TimeRule
    from gnnscale.sampling.timed import distinct_units

    sampler = TimedSampler(graph, fanouts=fanouts, rule=TimeRule(), num_threads=options.threads)
    loader = open_loader(graph, model, num_threads=options.threads)
    torch.set_num_threads(options.threads)
    task_rows, outputs = graph.rows, []
    chosen = task_rows.split.valid_idx
    ordered = chosen[np.argsort(task_rows.cutoffs[chosen], kind="stable")]
    sizes, seconds = np.zeros(2, np.int64), np.zeros(2)
    model.eval()
    for first in range(0, len(ordered), options.batch_size):
        part = ordered[first : first + options.batch_size]
        units, positions = distinct_units(task_rows.vertices[part], task_rows.cutoffs[part])
        began = time.perf_counter()
        batch = sampler.sample_units(*units, first, disjoint=disjoint)
        sampled = time.perf_counter()
        with torch.no_grad():
            out = model(batch, loader.load(batch))
        seconds += (sampled - began, time.perf_counter() - sampled)
        sizes += (len(batch.input_vertices), batch.num_edges)
        outputs.append(out.numpy()[positions])
    return Pass(*sizes.tolist(), *seconds.tolist(), np.concatenate(outputs))


def cells(each: Pass) -> list[str]:
    """Return the figures of a pass for people."""
    times = [f"{1e3 * seconds:,.0f}" for seconds in (each.sampling_s, each.computing_s)]
    return [f"{each.vertices:,}", f"{each.edges:,}", *times]
