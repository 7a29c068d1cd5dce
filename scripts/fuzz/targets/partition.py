"""Stored partitions: damaged ones are read, shown and drawn, and asked for again."""

from __future__ import annotations

import io
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from gnnscale.config import ConfigError
from gnnscale.graph import Graph, GraphError
from gnnscale.partition import (
    P3,
    UNREACHED,
    Hash,
    Partition,
    PartitionerConfig,
    Parts,
    Random,
    make_partition,
    read_partition,
)
from gnnscale.partition.figures.edges import cut_matrix
from gnnscale.partition.figures.examine import Predicted
from gnnscale.partition.storage.identity import identify
from gnnscale.partition.storage.store import write_partition

from ..case import Input, Outcome, case_rng
from ..verdict import WrongResultError, guarded, strange_files
from .readers import damaged
from .stored import agreeing, small_graph, without_times

__all__ = ["Partitions"]

_NUM_VERTICES, _NUM_EDGES, _NUM_PARTS, _NUM_HOPS = 60, 300, 3, 2
#: Options of the command, with which each valid partition was made.
_CONFIGS: tuple[PartitionerConfig, ...] = (Hash(), Random(seed=3), P3())


class Partitions:
    """``read_partition``, the table and the picture, and ``make_partition`` where it lies."""

    name = "partition"
    batch = 64
    limit_s = 20.0
    uses_files = True

    def __init__(self) -> None:
        self._graph = small_graph(_NUM_VERTICES, _NUM_EDGES)
        self._valid: list[tuple[PartitionerConfig, Parts, dict[str, bytes]]] = []

    def prepare(self) -> None:
        """Make the valid partitions that are damaged later; one says which vertices it reaches."""
        import gnnscale.report.partition  # noqa: F401

        with tempfile.TemporaryDirectory(prefix="gnnscale-fuzz-") as folder:
            os.environ["GNNSCALE_HOME"] = folder
            for number, config in enumerate((*_CONFIGS, Hash())):
                made = read_partition(_made(config, self._graph), self._graph)
                parts = made.parts
                if number == len(_CONFIGS):
                    parts = _with_hops(parts, self._graph)
                files = _written(Path(folder, str(number)), config, parts, made, self._graph)
                self._valid.append((config, parts, files))

    def make(self, key: str, number: int, keep: frozenset[int] | None = None) -> Input:
        """Damage a partition's files; partition.json may then be made to agree with the arrays."""
        rng = case_rng(key, number)
        which = number % len(self._valid)
        valid = self._valid[which][2]
        files, edits = damaged(valid, key, number, rng.choice((0, 1, 1, 1, 2, 3)), keep)
        agrees = rng.random() < 0.4
        if agrees:
            files = agreeing(files, "partition")
        # What is as it was is left out, so that a kept case follows when the format moves on.
        changed = {name: content for name, content in files.items() if content != valid[name]}
        without = sorted(valid.keys() - files.keys())
        options = {"which": which, "without": without, "agreeing": agrees}
        kind = rng.choice(("kept", "named"))
        return Input(kind=kind, options=options, files=changed, edits=tuple(edits))

    def run(self, made: Input, folder: Path) -> Outcome:
        """Read and draw; what is read has to be what was written, or at least possible."""
        config, parts, valid = self._valid[made.options["which"]]
        files = {**valid, **made.files}
        for name in made.options["without"]:
            del files[name]
        path = folder / "store"
        Input(kind="", files=files).write(path)
        os.environ["GNNSCALE_HOME"] = str(folder / "home")
        place = type(config)(**{**vars(config), "store": str(path)})

        def body() -> None:
            if made.kind == "named":
                _made(place, self._graph)
            found = read_partition(path, self._graph)
            _check(found, self._graph)
            if not made.options["agreeing"] and not _same(found.parts, parts):
                raise WrongResultError("other parts than were written")
            _show(found)

        outcome = guarded(body, (GraphError, ConfigError), [str(path)])
        if outcome.is_finding:
            return outcome
        left = {path.name: path.read_bytes() for path in path.iterdir()}
        if files and left != files:
            return Outcome("wrong result", "the partition that lay there was changed")
        return strange_files(folder, {"store"}) or outcome


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
    files = {each.name: each.read_bytes() for each in sorted(folder.iterdir())}
    return {**files, "partition.npz": without_times(files["partition.npz"])}


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
