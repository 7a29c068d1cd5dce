"""Partitions are made once: predicted, measured, examined and stored; then they are read."""

import logging
import time
from pathlib import Path

from gnnscale.core import ConfigError, check_range, hardware, progress
from gnnscale.core.artifact.files import NoSpaceError, check_no_link, size
from gnnscale.core.metrics import watch_peak
from gnnscale.graph import Graph
from gnnscale.partition import shard_store as part_store
from gnnscale.partition import shard_store as row_store
from gnnscale.partition import store
from gnnscale.partition.base import MAX_PARTS, Forecast, PartitionerConfig, Parts, problem_of
from gnnscale.partition.metrics import MeasuredCost, PredictedCost, examine, examine_bytes
from gnnscale.partition.store import PARTITION, PartitionIdentity, identify, partition_place

#: What a report may draw beside a partition.
PICTURE_FILE = "partition.svg"
#: Where the stores of parts are, by their numbers; and those that have rows alone.
PARTS_FOLDER, ROWS_FOLDER = "parts", "rows"
_LOG = logging.getLogger(__name__)
#: A forecast may be wrong by this much; what needs more than so many times the memory cannot end.
_CLEARLY = 2


def make_partition(
    config: PartitionerConfig,
    graph: Graph,
    *,
    num_parts: int,
    num_hops: int,
    num_threads: int,
    force: bool = False,
) -> Path:
    """Divide ``graph`` by ``config`` unless that is done already, and return the directory.

    Args:
        config: the partitioner.
        graph: of a store or in memory; one in memory is identified by a hash of its topology and
            training vertices.
        num_parts: K, used in place of ``config.num_parts``.
        num_hops: layers of the model that is trained, L.
        num_threads: does not change the result.
        force: make it anew in any case.

    Raises:
        ConfigError: the graph cannot be divided so.
        GraphError: ``config.store`` holds something else, or the directory cannot be written.
            Nothing is left there.
        NoSpaceError: it needs far more memory than this machine has.
    """
    check_range("partitioner.num_parts", num_parts, 1, MAX_PARTS)
    identity = identify(config, graph, num_parts=num_parts, num_hops=num_hops)
    path = partition_place(config, identity)

    with PARTITION.making(
        path, fits=lambda: _check_fits(path, identity, graph), force=force, holds=_holds_parts
    ) as folder:
        if folder is not None:
            _make(folder, path, config, graph, identity, num_hops, num_threads)
    return path


def place_of(config: PartitionerConfig, graph: Graph, *, num_parts: int, num_hops: int) -> Path:
    """Return the directory of the partition that ``make_partition`` makes, which may be missing.

    Raises:
        ConfigError, GraphError: as ``make_partition``.
    """
    check_range("partitioner.num_parts", num_parts, 1, MAX_PARTS)
    return partition_place(config, identify(config, graph, num_parts=num_parts, num_hops=num_hops))


def write_parts(partition: store.Partition, graph: Graph) -> Path:
    """Write each part as a separate graph store unless that is done, and return their folder.

    Raises:
        ConfigError: its parts have no halo, so sampling would leave them.
        GraphError: a store cannot be written.
    """
    if partition.parts.hops is None:
        raise ConfigError(
            f"part_stores=true: parts of {partition.figures.algorithm} are no graphs of their own, "
            "since sampling leaves them; those of partitioner=pagraph are"
        )
    folder = partition.path / PARTS_FOLDER
    check_no_link(folder)
    folder.mkdir(exist_ok=True)
    for index in range(partition.parts.num_parts):
        if not (folder / str(index)).exists():
            part_store.write_part(graph, partition.parts, index, folder / str(index))
    return folder


def write_rows(partition: store.Partition, graph: Graph) -> Path:
    """Write each part's rows as a store unless that is done, and return the folder of all.

    Raises:
        GraphError: a vertex belongs to no part, or a store cannot be written.
        NoSpaceError: the disk has too little room.
    """
    folder = partition.path / ROWS_FOLDER
    check_no_link(folder)
    every = range(partition.parts.num_parts)
    missing = [index for index in every if not (folder / str(index)).exists()]
    row_store.write_row_stores(
        graph, partition.parts, folder, partition=partition.content, indices=missing
    )
    return folder


def _holds_parts(folder: Path) -> bool:
    """Whether ``folder`` is that of the stores of parts, and holds nothing else."""
    return (
        folder.name in (PARTS_FOLDER, ROWS_FOLDER)
        and folder.is_dir()
        and all(
            entry.name.lstrip(".").partition(".")[0].isdigit() and entry.is_dir()
            for entry in folder.iterdir()
        )
    )


def _make(
    folder: Path,
    path: Path,
    config: PartitionerConfig,
    graph: Graph,
    identity: PartitionIdentity,
    num_hops: int,
    num_threads: int,
) -> None:
    sizes = {"num_parts": identity.num_parts, "num_hops": num_hops, "num_threads": num_threads}
    forecast = config.forecast(graph, **sizes)
    _announce(forecast, path, graph, identity)
    what = f"partitioning {graph.name} by {config.algorithm}"
    with progress.track(what), watch_peak() as peak:
        began = time.perf_counter()
        parts = config.assign(graph, **sizes)
        measured = MeasuredCost(seconds=time.perf_counter() - began, peak_rss_bytes=peak.bytes)
    _check_result(parts, graph, identity, num_hops)
    figures = examine(
        graph,
        parts,
        algorithm=config.algorithm,
        measured=measured,
        predicted=PredictedCost(
            seconds=forecast.seconds,
            peak_rss_bytes=None if peak.before is None else peak.before + forecast.memory_bytes,
        ),
        notes=("peak memory is that of the process since it was started",) * peak.since_start,
    )
    store.write_partition(folder, identity, parts, figures)


def _announce(forecast: Forecast, path: Path, graph: Graph, identity: PartitionIdentity) -> None:
    """Log the forecast, examining included; raise NoSpaceError if it is far beyond this machine."""
    needed = max(forecast.memory_bytes, examine_bytes(graph, identity.num_parts))
    memory = hardware.find_machine().memory
    what = f"partitioning {graph.name} into {identity.num_parts} parts by {identity.algorithm}"
    if needed > _CLEARLY * memory.total:
        raise NoSpaceError(
            f"{what}: needs about {size(needed)} of memory, this machine has {size(memory.total)}"
        )
    line = (
        f"{what} in {path}: needs about {size(needed)} of memory and {_duration(forecast.seconds)}"
    )
    if needed > memory.available:
        _LOG.warning("%s, but %s are available: it may fail", line, size(memory.available))
    else:
        _LOG.info("%s; %s are available", line, size(memory.available))


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "less than 1 s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _check_result(parts: Parts, graph: Graph, identity: PartitionIdentity, num_hops: int) -> None:
    """Raise ConfigError if parts are wrong, as those of the user's partitioner may be."""
    problem = problem_of(parts, graph)
    if parts.num_parts != identity.num_parts:
        problem = f"{parts.num_parts} parts, not {identity.num_parts}"
    if parts.hops is not None and (identity.num_hops is None or parts.num_hops != num_hops):
        problem = f"counts {parts.num_hops} hops, not {identity.num_hops}"
    if problem is not None:
        raise ConfigError(f"partitioner={identity.algorithm}: {problem}")


def _check_fits(path: Path, identity: PartitionIdentity, graph: Graph) -> None:
    """Raise GraphError, naming the difference, if a partition has another graph or options."""
    found = store.read_meta(path).identity
    store.check_graph(PARTITION, path, found.graph, graph)
    PARTITION.check_same(path, _named(identity), _named(found))


def _named(identity: PartitionIdentity) -> dict[str, object]:
    return {
        "partitioner": identity.algorithm,
        "num_parts": identity.num_parts,
        "num_hops": identity.num_hops,
        **identity.options,
    }
