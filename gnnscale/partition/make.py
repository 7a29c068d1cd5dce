"""Partitions are made once: foretold, measured, examined and stored; from then on they are read."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from gnnscale.core.errors import ConfigError, check_range
from gnnscale.core.hardware import find_machine
from gnnscale.core.progress import track
from gnnscale.dataset.storage.space import NoSpaceError, size
from gnnscale.graph import Graph
from gnnscale.partition.figures import Measured, Predicted, examine, examine_bytes
from gnnscale.partition.part_store import write_part
from gnnscale.partition.partitioner import MAX_PARTS, Forecast, PartitionerConfig, Parts, problem_of
from gnnscale.partition.peak import PeakMemory, watch_peak
from gnnscale.partition.store import (
    PARTITION,
    Identity,
    Partition,
    check_graph,
    identify,
    partition_place,
    read_meta,
    write_partition,
)

__all__ = ["PARTS_FOLDER", "PICTURE_FILE", "make_partition", "write_parts"]

#: What a report may draw beside a partition.
PICTURE_FILE = "partition.svg"
#: Where the stores of parts are, by their numbers.
PARTS_FOLDER = "parts"

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
        num_parts: K; ``config.num_parts`` is not looked at.
        num_hops: layers of the model that is trained, L.
        num_threads: threads to use; the result does not depend on it.
        force: make it anew in any case.

    Raises:
        ConfigError: the graph cannot be divided so.
        GraphError: ``config.store`` holds something else, or the directory cannot be written.
            Nothing is left.
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


def write_parts(partition: Partition, graph: Graph) -> Path:
    """Write each part as a graph store of its own unless that is done, and return their folder.

    Args:
        partition: of ``graph``, of a kind whose parts have a halo.
        graph: the whole graph.

    Raises:
        ConfigError: its parts have no halo: sampling would leave them.
        GraphError: a store cannot be written.
    """
    if partition.parts.hops is None:
        raise ConfigError(
            f"part_stores=true: parts of {partition.figures.algorithm} are no graphs of their own, "
            "since sampling leaves them; those of partitioner=pagraph are"
        )
    folder = partition.path / PARTS_FOLDER
    folder.mkdir(exist_ok=True)
    for index in range(partition.parts.num_parts):
        if not (folder / str(index)).exists():
            write_part(graph, partition.parts, index, folder / str(index))
    return folder


def _holds_parts(folder: Path) -> bool:
    """Whether ``folder`` is that of the stores of parts, and holds nothing else."""
    return (
        folder.name == PARTS_FOLDER
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
    identity: Identity,
    num_hops: int,
    num_threads: int,
) -> None:
    num_parts = identity.num_parts
    forecast = config.forecast(
        graph, num_parts=num_parts, num_hops=num_hops, num_threads=num_threads
    )
    _announce(forecast, path, graph, identity)
    what = f"partitioning {graph.name} by {config.algorithm}"
    with track(what), watch_peak() as peak:
        began = time.perf_counter()
        parts = config.assign(
            graph, num_parts=num_parts, num_hops=num_hops, num_threads=num_threads
        )
        measured = Measured(seconds=time.perf_counter() - began, peak_rss_bytes=peak.bytes)
    _check_result(parts, graph, identity, num_hops)
    figures = examine(
        graph,
        parts,
        algorithm=config.algorithm,
        measured=measured,
        predicted=_predicted(forecast, peak),
        notes=_notes(peak),
    )
    write_partition(folder, identity, parts, figures)


def _announce(forecast: Forecast, path: Path, graph: Graph, identity: Identity) -> None:
    """Say what making a partition will take, examining it included.

    Raises:
        NoSpaceError: it is far more than this machine has.
    """
    needed = max(forecast.memory_bytes, examine_bytes(graph, identity.num_parts))
    memory = find_machine().memory
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


def _check_result(parts: Parts, graph: Graph, identity: Identity, num_hops: int) -> None:
    """Refuse what a partitioner should not have returned; it may be somebody else's."""
    problem = problem_of(parts, graph)
    if parts.num_parts != identity.num_parts:
        problem = f"{parts.num_parts} parts, not {identity.num_parts}"
    if parts.hops is not None and (identity.num_hops is None or parts.num_hops != num_hops):
        problem = f"counts {parts.num_hops} hops, not {identity.num_hops}"
    if problem is not None:
        raise ConfigError(f"partitioner={identity.algorithm}: {problem}")


def _predicted(forecast: Forecast, peak: PeakMemory) -> Predicted:
    before = peak.before
    return Predicted(
        seconds=forecast.seconds,
        peak_rss_bytes=None if before is None else before + forecast.memory_bytes,
    )


def _notes(peak: PeakMemory) -> tuple[str, ...]:
    if not peak.since_start:
        return ()
    return ("peak memory is that of the process since it was started",)


def _check_fits(path: Path, identity: Identity, graph: Graph) -> None:
    """Refuse a partition of another graph, or one that was made otherwise.

    Raises:
        GraphError: names what differs.
    """
    found = read_meta(path).identity
    check_graph(PARTITION, path, found.graph, graph)
    PARTITION.check_same(path, _named(identity), _named(found))


def _named(identity: Identity) -> dict[str, object]:
    return {
        "partitioner": identity.algorithm,
        "num_parts": identity.num_parts,
        "num_hops": identity.num_hops,
        **identity.options,
    }
