"""Simulated training tasks: of a graph store, or of a published graph's sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gnnscale.cache.hotness.degree import out_degree
from gnnscale.core import ConfigError
from gnnscale.data import GraphSource
from gnnscale.nn import ModelConfig
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.cost_model.workload import KnownSlices, Workload, measure_workload
from gnnscale.planner.graphs import Degrees, PublishedGraph
from gnnscale.sampling import NeighborSampling, SamplerConfig, ShuffledOrder

#: Number of slice sizes to derive for a published graph, each four times the next smaller.
_NUM_SLICES = 6


@dataclass(frozen=True, kw_only=True)
class SimulatedTask:
    """Graph and workload of a simulated training run."""

    name: str  #: name of the graph
    num_vertices: int
    num_train: int  #: training vertices
    degrees: Degrees | None  #: exact degrees. None: only mean and skew are known
    workload: Workload  #: untimed for published graphs and other machines

    def size(self, num_seeds: float) -> BatchSize:
        """Return the expected sizes of the mini-batch of ``num_seeds`` seeds, at least one."""
        return self.workload.size(max(round(num_seeds), 1))


def published_task(
    name: str, graph: PublishedGraph, model: ModelConfig, sampler: SamplerConfig, *, batch_size: int
) -> SimulatedTask:
    """Return the task of training on a published graph called ``name``, for neighbor sampling."""
    if not isinstance(sampler, NeighborSampling):
        raise ConfigError("sampler: expected neighbor sampling without a dataset")
    return SimulatedTask(
        name=name,
        num_vertices=graph.num_vertices,
        num_train=graph.num_train,
        degrees=graph.exact_degrees,
        workload=published_workload(graph, model, sampler.fanouts, batch_size=batch_size),
    )


def published_workload(
    graph: PublishedGraph, model: ModelConfig, fanouts: Sequence[int], *, batch_size: int
) -> Workload:
    """Return the workload of training ``model`` on ``graph``; its sampling is untimed."""
    built = model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    num_seeds = sorted({max(1, batch_size // 4**step) for step in range(_NUM_SLICES)})
    return Workload(
        slices=KnownSlices(
            num_seeds=tuple(num_seeds),
            sizes=tuple(graph.size(fanouts, count) for count in num_seeds),
        ),
        layers=built.layer_costs,
        counted=built.counted,
        num_weights=sum(parameter.numel() for parameter in built.parameters()),
        num_vertices=graph.num_vertices,
        uses_degrees=built.uses_degrees,
    )


def measured_task(
    source: GraphSource,
    model: ModelConfig,
    sampler: SamplerConfig,
    *,
    batch_size: int,
    seed: int,
    cores: int,
    same_machine: bool,
) -> SimulatedTask:
    """Return the task of training on a graph store, whose mini-batches are sampled.

    The times of the sampler are kept only if the simulated machine is the ``same_machine``. Raises
    GraphError if the graph store is not usable.
    """
    graph = model.graph_read(source.open())
    graph.check_features()
    torch.manual_seed(seed)
    workload = measure_workload(
        graph,
        model.build(
            num_features=graph.num_features,
            num_classes=graph.num_classes,
            num_edge_features=graph.num_edge_features,
        ),
        sampler,
        ShuffledOrder(graph.train_idx, batch_size=batch_size, seed=seed),
        seed=seed,
        cores=cores,
    )
    return SimulatedTask(
        name=graph.name,
        num_vertices=graph.num_vertices,
        num_train=len(graph.train_idx),
        degrees=Degrees.from_arrays(np.diff(graph.indptr), out_degree(graph)),
        workload=workload if same_machine else workload.untimed(),
    )
