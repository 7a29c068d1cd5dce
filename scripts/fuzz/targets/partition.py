"""Stored partitions: damaged ones are read, shown and drawn, and asked for again."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np

from gnnscale.graph import Graph
from gnnscale.partition import (
    P3,
    UNREACHED,
    Given,
    Hash,
    Partition,
    PartitionerConfig,
    Parts,
    Random,
    make_partition,
    read_partition,
)
from gnnscale.partition.figures import Predicted, cut_matrix
from gnnscale.partition.store import identify, write_partition

from ..case import Input
from ..verdict import WrongResultError
from .artefact import Valid
from .stored import Stored, files_of, small_graph

__all__ = ["Partitions"]

_NUM_VERTICES, _NUM_EDGES, _NUM_PARTS, _NUM_HOPS = 60, 300, 3, 2
_OWNERS = "owners.npy"
#: Options of the command, with which each valid partition was made.
_CONFIGS: tuple[PartitionerConfig, ...] = (Hash(), Random(seed=3), P3())


class Partitions(Stored):
    """``read_partition``, the table and the picture, and ``make_partition`` where it lies."""

    name = "partition"
    record = "partition.json"
    checksums = True
    kinds = ("kept", "named")
    leaves = frozenset({"home"})

    def __init__(self) -> None:
        super().__init__()
        self._graph = small_graph(_NUM_VERTICES, _NUM_EDGES)

    def valid(self, folder: Path) -> list[Valid]:
        """Make partitions; one says which vertices it reaches."""
        import gnnscale.report.partition  # noqa: F401

        found = []
        for number, config in enumerate((*_CONFIGS, Hash())):
            made = read_partition(_made(config, self._graph), self._graph)
            parts = made.parts
            if number == len(_CONFIGS):
                parts = _with_hops(parts, self._graph)
            files = _written(folder / str(number), config, parts, made, self._graph)
            found.append(Valid(files, (config, parts)))
        np.save(folder / _OWNERS, found[0].made_for[1].owner)
        owners = {_OWNERS: (folder / _OWNERS).read_bytes()}
        return [*found, Valid(owners, (Given(owners=_OWNERS), found[0].made_for[1]))]

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        """Read and draw; what is read has to be what was written, or at least possible."""
        config, parts = valid.made_for
        if isinstance(config, Given):
            path = _made(Given(owners=str(path / config.owners)), self._graph)
        elif made.kind == "named":
            _made(type(config)(**{**vars(config), "store": str(path)}), self._graph)
        found = read_partition(path, self._graph)
        _check(found, self._graph)
        told_apart = not (made.options["agreeing"] or isinstance(config, Given))
        if told_apart and not _same(found.parts, parts):
            raise WrongResultError("other parts than were written")
        _show(found)


def _made(config: PartitionerConfig, graph: Graph) -> Path:
    return make_partition(config, graph, num_parts=_NUM_PARTS, num_hops=_NUM_HOPS, num_threads=1)


def _with_hops(parts: Parts, graph: Graph) -> Parts:
    """Return the parts with the hops to what each of them reaches."""
    assert parts.owner is not None
    hops = np.full((_NUM_PARTS, graph.num_vertices), UNREACHED, np.uint8)
    hops[parts.owner[graph.train_idx], graph.train_idx] = 0
    for far in range(_NUM_HOPS):
        for part, vertex in np.argwhere(hops == far):
            sources = graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]]
            hops[part, sources] = np.minimum(hops[part, sources], far + 1)
    return replace(parts, hops=hops, num_hops=_NUM_HOPS)


def _written(
    folder: Path, config: PartitionerConfig, parts: Parts, made: Partition, graph: Graph
) -> dict[str, bytes]:
    """Return the files of a partition, without the times and the memory that it took."""
    took = Predicted(seconds=1.5, peak_rss_bytes=1 << 20)
    figures = replace(made.figures, seconds=1.5, peak_rss_bytes=1 << 20, predicted=took)
    identity = identify(config, graph, num_parts=_NUM_PARTS, num_hops=_NUM_HOPS)
    if parts.hops is not None:
        identity = replace(identity, num_hops=_NUM_HOPS)
    folder.mkdir()
    write_partition(folder, identity, parts, figures)
    return files_of(folder)


def _check(found: Partition, graph: Graph) -> None:
    """Use the parts as a run would.

    Raises:
        WrongResultError: no graph can be divided so.
    """
    if found.parts.owner is None:
        columns = [column for pair in found.parts.columns or () for column in range(*pair)]
        if columns and columns != list(range(graph.num_features)):
            raise WrongResultError("columns are missing, or twice")
        return
    cut_matrix(graph, found.parts.owner, found.parts.num_parts)
    trained = found.parts.train_vertices(graph.train_idx)
    if not all(map(len, trained)) or sum(map(len, trained)) != len(graph.train_idx):
        raise WrongResultError("a part trains nothing, or a vertex is trained nowhere")


def _same(found: Parts, written: Parts) -> bool:
    pairs = ((found.owner, written.owner), (found.hops, written.hops))
    return all(
        (one is None) == (other is None) and (one is None or np.array_equal(one, other))
        for one, other in pairs
    )


def _show(found: Partition) -> None:
    from rich.console import Console

    from gnnscale.report.partition import draw, print_partition

    stream = io.StringIO()
    print_partition(found, graph="fuzzed", console=Console(file=stream))
    if "\x1b" in stream.getvalue() or "\x1b" in draw(found, graph="fuzzed"):
        raise WrongResultError("control characters are shown")
