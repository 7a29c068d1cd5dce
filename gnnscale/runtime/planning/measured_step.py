"""A step of a model whose layers do not state their cost, measured on the host before a plan."""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from gnnscale.backend.loading import FeatureLoader
from gnnscale.graph import Graph
from gnnscale.model import TrainableModel
from gnnscale.model.trainable import vertex_objective
from gnnscale.plan.perf.equations import BatchSize
from gnnscale.plan.perf.predict import Host
from gnnscale.plan.perf.workload import Workload
from gnnscale.plan.platform import Platform
from gnnscale.runtime.planning.profile import restored
from gnnscale.runtime.settings import TrainConfig
from gnnscale.sampler import SeedOrder

__all__ = ["with_measured_step"]

#: Steps that are timed after one to warm up, and the seconds after which no more are.
_STEPS, _BUDGET_S = 3, 0.5


def with_measured_step(
    workload: Workload,
    config: TrainConfig,
    graph: Graph,
    model: TrainableModel,
    order: SeedOrder,
    platform: Platform,
) -> Workload:
    """Return ``workload`` with the factor between what was counted of a step and what it takes.

    A slice as large as a device's is propagated forward and backward a few times. Weights and
    random numbers stay as they are. The rehearsal corrects what is left.

    Args:
        workload: of a model that is counted.
        config: the run's options.
        graph: that is trained on.
        model: the model.
        order: of the seeds.
        platform: the host's rates.
    """
    assert workload.counted is not None
    count = max(1, config.batch_size // len(config.device_plan.devices))
    seeds = next(iter(order.epoch(0))).seeds[:count]
    threads = config.host_threads
    batch = config.trained_sampler.sampler(graph, seed=config.seed, num_threads=threads).sample(
        seeds, 0
    )
    inputs = FeatureLoader(graph, model, num_threads=threads).load(batch)
    objective = vertex_objective(graph, config.loss)
    seconds: list[float] = []
    with restored(model):
        for _ in range(1 + _STEPS):
            start = time.perf_counter()
            objective(model(batch, inputs), batch).backward()  # type: ignore[no-untyped-call]
            model.zero_grad(set_to_none=True)
            seconds.append(time.perf_counter() - start)
            if sum(seconds) > _BUDGET_S and len(seconds) > 1:
                break
    host = Host(processor=platform.processor, num_workers=1, emulates=False)
    active = torch.get_num_threads()
    expected = host.propagate(workload, BatchSize.of(batch), active, active)
    factor = min(seconds[1:]) / expected
    return replace(workload, counted=replace(workload.counted, host_factor=factor))
