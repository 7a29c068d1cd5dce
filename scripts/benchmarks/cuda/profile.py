"""What a step is made of: launches, kernels that take the longest, and the host's part."""

import time
from typing import Any

from torch.profiler import ProfilerActivity, profile

from benchmarks.cuda.bench import Bench
from benchmarks.cuda.runs import graphsage, plan
from benchmarks.runner import composed
from gnnscale.distributed.process_group import SINGLE_PROCESS
from gnnscale.training.open_device import open_device
from gnnscale.training.pipeline.device_step import MAX_LATE
from gnnscale.training.setup import open_inputs
from gnnscale.training.worker.model_state import ModelState

_STEPS = 20
_STEPS_ON_HOST = 4


def run(bench: Bench) -> None:
    """Profile steps of the runtime's own backend."""
    backend, graph = _backend(bench)
    seeds, steps = bench.sizes.seeds, _STEPS_ON_HOST if bench.on_host else _STEPS
    batches = [graph.train_idx[i * seeds :][:seeds] for i in range(steps + 5)]
    batches = [each for each in batches if len(each)]

    def train(step: int) -> Any:
        chosen = batches[step % len(batches)]
        return backend.train(chosen, step, num_seeds=len(chosen), rate=0.01, updates=True)

    for step in range(5):
        train(step).read()
    with profile(activities=[ProfilerActivity.CPU, *_cuda(bench)]) as found:
        pending: list[Any] = []
        begin, host = time.perf_counter(), 0.0
        for step in range(5, 5 + steps):
            start = time.perf_counter()
            pending.append(train(step))
            host += time.perf_counter() - start
            if len(pending) > MAX_LATE:
                pending.pop(0).read()
        for each in pending:
            each.read()
        whole = time.perf_counter() - begin
    bench.note("profile.host_step", host / steps * 1e6, "us")
    bench.note("profile.step", whole / steps * 1e6, "us")
    events = found.key_averages()
    launches = sum(each.count for each in events if "aunchKernel" in each.key)
    bench.note("profile.launches", launches / steps, "a step, with the profiler on")
    time_of = "self_cuda_time_total" if _cuda(bench) else "self_cpu_time_total"
    print(events.table(sort_by=time_of, row_limit=20))
    backend.close()


def _cuda(bench: Bench) -> list[Any]:
    return [] if bench.on_host else [ProfilerActivity.CUDA]


def _backend(bench: Bench) -> tuple[Any, Any]:
    vertices, edges = (600, 3000) if bench.on_host else (200_000, 2_000_000)
    config, _ = composed(
        *(plan(bench), *graphsage(bench)),
        *(f"dataset.num_vertices={vertices}", f"dataset.num_edges={edges}"),
    )
    data = open_inputs(config, SINGLE_PROCESS)
    parts = (config.model, config.task, config.optimizer, config.features)
    learning = ModelState.build(*parts, data, SINGLE_PROCESS)
    opened = open_device(config, data, learning, SINGLE_PROCESS)
    opened.backend.load_state()
    return opened.backend, data.graph
