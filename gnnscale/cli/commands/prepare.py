"""Tasks that make artifacts from data: graph stores, partitions and cache plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnscale.core.config.typed import typed
from gnnscale.core.hardware import let_idle_threads_sleep
from gnnscale.core.locks import sole_maker

if TYPE_CHECKING:
    from omegaconf import DictConfig


def prepare(options: DictConfig) -> None:
    """Convert raw files to a graph store."""
    from gnnscale.run.commands import PrepareConfig

    config = typed(options, PrepareConfig)
    print(config.dataset.prepare(force=config.force))


def partition(options: DictConfig) -> None:
    """Partition a graph, print the partition, and draw ``partition.svg`` into its directory."""
    from rich.console import Console

    from gnnscale import partition as parts
    from gnnscale.core.files import write_atomically
    from gnnscale.report.partition import draw, print_partition
    from gnnscale.run.commands import PartitionConfig

    config = typed(options, PartitionConfig)
    graph = config.dataset.open()
    sizes = {"num_parts": config.num_parts, "num_hops": config.num_hops}
    # The lock also covers the stores of parts and the picture, which belong to the partition.
    with sole_maker(parts.partition_path(config.partitioner, graph, **sizes)):
        path = parts.make_partition(
            config.partitioner, graph, **sizes, num_threads=config.num_threads, force=config.force
        )
        stored = parts.read_partition(path, graph)
        print_partition(stored, graph=graph.name, console=Console())
        if not (path / parts.PICTURE_FILE).exists():
            write_atomically(path / parts.PICTURE_FILE, draw(stored, graph=graph.name))
        if config.part_stores:
            (parts.write_rows if config.part_stores == "rows" else parts.write_parts)(stored, graph)
    print(path)


def plan_cache(options: DictConfig) -> None:
    """Plan the caches of a run, print the plan, and draw ``cache_plan.svg`` into its directory."""
    let_idle_threads_sleep()

    from rich.console import Console

    from gnnscale.cache import PICTURE_FILE, read_plan
    from gnnscale.core.files import write_atomically
    from gnnscale.report.cache_plan import draw, print_plan
    from gnnscale.run.artifacts import open_partition
    from gnnscale.run.commands import PlanCacheConfig
    from gnnscale.training.build.cache_problem import plan_caches
    from gnnscale.training.make_artifacts import divide

    config = typed(options, PlanCacheConfig)
    graph = config.dataset.open()
    divided = () if config.partitioner.divides == "nothing" else (divide(config, graph),)
    path = plan_caches(config, graph, open_partition(divided, graph), force=config.force)
    stored = read_plan(path, graph)
    print_plan(stored, graph=graph.name, console=Console())
    if not (path / PICTURE_FILE).exists():
        write_atomically(path / PICTURE_FILE, draw(stored, graph=graph.name))
    print(path)
