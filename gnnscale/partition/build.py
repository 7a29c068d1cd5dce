"""Building of partitions: forecast, division, measurement, and storage."""

import logging
import time
from pathlib import Path

from gnnscale.core import ConfigError, check_range, hardware, progress, watch_peak
from gnnscale.core.artifact.files import NoSpaceError, check_no_link, size
from gnnscale.graph import Graph
from gnnscale.partition import shard_store, store
from gnnscale.partition.base import MAX_PARTS, Forecast, PartitionerConfig, Parts, problem_of
from gnnscale.partition.metrics import MeasuredCost, PredictedCost, examine, examine_bytes
from gnnscale.partition.store import PARTITION, PartitionIdentity, identify, partition_place

#: Picture that a report may add to a partition's directory.
PICTURE_FILE = "partition.svg"
#: Folders of the parts' stores, by part number: full stores, and stores of feature rows.
PARTS_FOLDER, ROWS_FOLDER = "parts", "rows"
_LOG = logging.getLogger(__name__)
#: Tolerated error of a forecast: a larger multiple of the machine's memory is refused.
_FORECAST_TOLERANCE = 2


def make_partition(
    config: PartitionerConfig,
    graph: Graph,
    *,
    num_parts: int,
    num_hops: int,
    num_threads: int,
    force: bool = False,
) -> Path:
    """Divide ``graph`` by ``config`` unless that partition is stored already; return its directory.

    Vertices of all types are divided together, by the edges of all types.
    ``force`` divides again in any case. Raises ConfigError if the graph cannot be divided in this
    way, GraphError if ``config.store`` has other content or cannot be written, and NoSpaceError if
    the forecast far exceeds this machine's memory. An error leaves no files behind.

    Args:
        graph: of a store or in memory; a graph in memory is identified by a hash of its topology
            and training vertices.
        num_parts: K, used in place of ``config.num_parts``.
        num_hops: L, the layers of the model.
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


def partition_path(
    config: PartitionerConfig, graph: Graph, *, num_parts: int, num_hops: int
) -> Path:
    """Return the directory that ``make_partition`` would return; it may be missing."""
    check_range("partitioner.num_parts", num_parts, 1, MAX_PARTS)
    return partition_place(config, identify(config, graph, num_parts=num_parts, num_hops=num_hops))


def write_parts(partition: store.Partition, graph: Graph) -> Path:
    """Write each part that has no store yet as a graph store, and return the stores' folder.

    ConfigError: the parts have no halo, the vertices that sampling reaches from a part.
    """
    if partition.parts.hops is None:
        raise ConfigError(
            "part_stores=true: expected parts with a halo, which sampling does not leave, got "
            f"those of {partition.figures.algorithm}; partitioner=pagraph makes such parts"
        )
    folder = partition.path / PARTS_FOLDER
    check_no_link(folder)
    folder.mkdir(exist_ok=True)
    for index in range(partition.parts.num_parts):
        if not (folder / str(index)).exists():
            shard_store.write_part(graph, partition.parts, index, folder / str(index))
    return folder


def write_rows(partition: store.Partition, graph: Graph) -> Path:
    """Write the feature rows of each part that has no row store yet; return the stores' folder."""
    folder = partition.path / ROWS_FOLDER
    check_no_link(folder)
    indices = range(partition.parts.num_parts)
    missing = [index for index in indices if not (folder / str(index)).exists()]
    shard_store.write_row_stores(
        graph, partition.parts, folder, partition=partition.content, indices=missing
    )
    return folder


def _holds_parts(folder: Path) -> bool:
    """Whether ``folder`` is a folder of parts' stores, without other entries."""
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
    divided = graph if config.reads_types else graph.without_types()
    forecast = config.forecast(divided, **sizes)
    _announce(forecast, path, graph, identity)
    activity = f"partitioning {graph.name} by {config.algorithm}"
    with progress.track(activity), watch_peak() as peak:
        began = time.perf_counter()
        parts = config.assign(divided, **sizes)
        measured = MeasuredCost(seconds=time.perf_counter() - began, peak_rss_bytes=peak.bytes)
    _check_result(parts, graph, identity, num_hops)
    figures = examine(
        graph,
        parts,
        algorithm=config.algorithm,
        measured=measured,
        predicted=PredictedCost(
            seconds=forecast.seconds,
            peak_rss_bytes=None if peak.initial is None else peak.initial + forecast.memory_bytes,
        ),
        notes=("peak memory is that of the process since it was started",) * peak.since_start,
    )
    store.write_partition(folder, identity, parts, figures)


def _announce(forecast: Forecast, path: Path, graph: Graph, identity: PartitionIdentity) -> None:
    """Log the predicted memory and time of a division, as a warning if free memory is too small.

    NoSpaceError: more than twice the machine's memory is predicted.
    """
    needed = max(forecast.memory_bytes, examine_bytes(graph, identity.num_parts))
    memory = hardware.find_machine().memory
    activity = f"partitioning {graph.name} into {identity.num_parts} parts by {identity.algorithm}"
    if needed > _FORECAST_TOLERANCE * memory.total:
        raise NoSpaceError(
            f"{activity}: needs about {size(needed)} of memory, this machine has "
            f"{size(memory.total)}"
        )
    duration = _duration(forecast.seconds)
    line = f"{activity} in {path}: needs about {size(needed)} of memory and {duration}"
    if needed > memory.available:
        _LOG.warning("%s, but %s are available: it may fail", line, size(memory.available))
    else:
        _LOG.info("%s; %s are available", line, size(memory.available))


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "less than 1 s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _check_result(parts: Parts, graph: Graph, identity: PartitionIdentity, num_hops: int) -> None:
    """Raise ConfigError unless ``parts``, which a user's class may return, are consistent.

    They have to fit ``graph``, the number of parts of ``identity`` and ``num_hops``.
    """
    problem = problem_of(parts, graph)
    if parts.num_parts != identity.num_parts:
        problem = f"expected {identity.num_parts} parts, got {parts.num_parts}"
    if parts.hops is not None and (identity.num_hops is None or parts.num_hops != num_hops):
        problem = f"hops: expected {identity.num_hops}, got {parts.num_hops}"
    if problem is not None:
        raise ConfigError(f"partitioner={identity.algorithm}: {problem}")


def _check_fits(path: Path, identity: PartitionIdentity, graph: Graph) -> None:
    """Raise GraphError, naming a difference, unless ``path`` has the partition of ``identity``."""
    stored = store.read_meta(path).identity
    store.check_graph(PARTITION, path, stored.graph, graph)
    PARTITION.check_same(path, _named(identity), _named(stored))


def _named(identity: PartitionIdentity) -> dict[str, object]:
    return {
        "partitioner": identity.algorithm,
        "num_parts": identity.num_parts,
        "num_hops": identity.num_hops,
        **identity.options,
    }
