"""What a run trains on: the graph, the order of its seeds, and what was made of it beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnnscale.cache import CachePlan, StoredPlan
from gnnscale.graph import Graph
from gnnscale.partition import Partition
from gnnscale.runtime.checkpoint.artefacts import (
    Artefact,
    make_of_graph,
    open_cache_plan,
    open_graph,
    open_partition,
    open_task,
)
from gnnscale.runtime.order import checked_order
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.sync.group import Group
from gnnscale.sampler import SeedOrder
from gnnscale.task.base import Task

__all__ = ["Data"]


@dataclass(frozen=True, kw_only=True)
class Data:
    """What the workers of a run read.

    Attributes:
        task: what is predicted, of the graph that is trained on.
        order: the seeds of every step.
        partition: the devices' parts of the graph; None if it is whole.
        cache_plan: what the devices keep in their own memory; None for nothing.
        made: what was made of the graph.
    """

    task: Task
    order: SeedOrder
    partition: Partition | None
    cache_plan: StoredPlan | None
    made: Sequence[Artefact]

    @classmethod
    def open(cls, config: TrainConfig, group: Group, artefacts: Sequence[Artefact]) -> Data:
        """Open what the launching process has made; without, one process a machine makes it.

        Raises:
            ConfigError: the options do not fit the graph.
            GraphError: a store is not usable.
        """
        graph = open_graph(artefacts) if artefacts else _prepare(config, group)
        made = artefacts or _make(config, graph, group)
        partition, cache_plan = open_partition(made, graph), open_cache_plan(made, graph)
        task = open_task(config, made, graph)
        order = checked_order(config, task.seeds, None if partition is None else partition.parts)
        return cls(task=task, order=order, partition=partition, cache_plan=cache_plan, made=made)

    @property
    def graph(self) -> Graph:
        """The graph that is trained on."""
        return self.task.graph

    @property
    def caches(self) -> CachePlan | None:
        """The caches of all devices; None if there are none."""
        return None if self.cache_plan is None else self.cache_plan.plan

    @property
    def columns(self) -> Sequence[tuple[int, int]] | None:
        """Columns of the features that each device has (P3); None if they are not divided."""
        return None if self.partition is None else self.partition.parts.columns


def _prepare(config: TrainConfig, group: Group) -> Graph:
    """Open the graph store; one process of each machine prepares it if it is missing."""
    if group.local_rank == 0:
        graph = config.dataset.open()
    group.barrier()
    return graph if group.local_rank == 0 else config.dataset.open()


def _make(config: TrainConfig, graph: Graph, group: Group) -> Sequence[Artefact]:
    """Return what a run needs of the graph; one process of each machine makes what is missing."""
    if not config.needs_more_than_graph:
        return ()
    if group.local_rank == 0:
        made = make_of_graph(config, graph)
    group.barrier()
    return made if group.local_rank == 0 else make_of_graph(config, graph)
