"""Checks of a graph store against its options and raw files."""

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gnnscale.core import GraphError
from gnnscale.core.artifact.files import file_sha256, header_text, parse_json, read_file
from gnnscale.core.files import write_atomically
from gnnscale.graph import store_format, store_meta

_LOG = logging.getLogger(__name__)
#: Option of stores whose random split is stratified by class; stores of earlier releases lack it.
STRATIFIED = "stratified"
#: Options of later releases at their defaults.
_LATER = {
    **dict.fromkeys(("categories", "edge_features", "edge_categories", "edge_label"), None),
    **{"edge_label_kind": "auto", "edge_split_column": "split", "edge_split_by": "pair"},
    **{"split_group": None, "unknown_ids": "vertices", "missing": "mean", "decimal": "."},
    **{"standardize": False, "unlabelled": "refuse", "time_unit": "auto"},
    **dict.fromkeys(("time", "edge_time", "times", "valid_from", "test_from"), None),
}


@dataclass(frozen=True, kw_only=True)
class RawFile:
    """Name, size, time and checksum of a raw file, recorded in ``meta.json``."""

    name: str  #: path relative to ``dataset.raw``
    bytes: int
    mtime_ns: int  #: time of the last change, in ns since 1970
    sha256: str


@contextmanager
def raw_records(files: Sequence[Path], root: Path) -> Iterator[Callable[[], list[RawFile]]]:
    """Hash ``files`` in a thread in the block; yield a function that waits for their records.

    Names in the records are relative to ``root``.
    """
    stop = threading.Event()

    def record(file: Path) -> RawFile:
        status = file.stat()
        sha256 = file_sha256(file, stop)
        return RawFile(
            name=_name(file, root), bytes=status.st_size, mtime_ns=status.st_mtime_ns, sha256=sha256
        )

    with ThreadPoolExecutor(1, "gnnscale-checking") as pool:
        records = [pool.submit(record, file) for file in files]
        try:
            yield lambda: [result.result() for result in records]
        finally:
            stop.set()


def changed_file(
    store: Path, meta: store_meta.StoreMeta, files: Sequence[Path], root: Path
) -> Path | None:
    """Return the first of ``files`` whose content changed since ``store`` was written, or None.

    A file with the recorded size and time is unchanged; otherwise the file is hashed. If only the
    time differs, it is recorded if possible, so that the next check needs no hash.
    """
    entry = store_format.GRAPH_STORE.record(_Recorded, meta.entries, store)
    recorded = {file.name: file for file in entry.raw}
    touched: list[RawFile] = []
    for file in files:
        name, status = _name(file, root), file.stat()
        record = recorded.get(name)
        if record and (record.bytes, record.mtime_ns) == (status.st_size, status.st_mtime_ns):
            continue
        candidates = (record,) if record else tuple(recorded.values())
        if status.st_size not in (candidate.bytes for candidate in candidates):
            return file
        sha256 = file_sha256(file)
        same = next((candidate for candidate in candidates if candidate.sha256 == sha256), None)
        if same is None:
            return file
        touched.append(replace(same, name=name, mtime_ns=status.st_mtime_ns))
    if touched:
        _record_anew(store, recorded | {candidate.name: candidate for candidate in touched})
    return None


def _name(file: Path, root: Path) -> str:
    return file.name if file == root else os.path.relpath(file, root)


@dataclass(frozen=True, kw_only=True)
class _Recorded:
    """Entry of ``meta.json`` with the records of the raw files."""

    raw: tuple[RawFile, ...]


def _record_anew(store: Path, records: Mapping[str, RawFile]) -> None:
    """Replace the records of the raw files in ``meta.json``, or do nothing if that fails."""
    with suppress(OSError):  # the record only saves time
        # Another process may replace the directory; the open one stays as it is.
        folder = os.open(store, os.O_RDONLY | os.O_DIRECTORY)
        try:
            meta = Path(f"/proc/self/fd/{folder}/meta.json")
            entries = json.loads(meta.read_text())
            entries["raw"] = [asdict(record) for record in records.values()]
            write_atomically(meta, header_text(entries))
        finally:
            os.close(folder)


def distinctive_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options by which stores differ.

    Those of later releases are left out at their defaults, so that older stores keep their names.
    """
    return {
        name: value
        for name, value in options.items()
        if name not in _LATER or value != _LATER[name]
    }


def check_options(store: Path, meta: store_meta.StoreMeta, options: Mapping[str, Any]) -> None:
    """Raise GraphError, naming the difference, unless a store was prepared with ``options``.

    The random split of an earlier release, which is not stratified, is accepted.
    """
    stored = meta.entries.get("options")
    if not isinstance(stored, dict):
        raise store_format.GRAPH_STORE.refused(store, "options are missing")
    if STRATIFIED not in stored:
        options = {name: value for name, value in options.items() if name != STRATIFIED}
    store_format.GRAPH_STORE.check_same(store, options, stored)


def warn_of_earlier_split(store: Path, options: Mapping[str, Any]) -> None:
    """Warn if the random split at ``store`` is not stratified, and would be with ``options``."""
    meta = store_meta.read_meta(store)
    labels, of_edges = meta.arrays.get("labels"), meta.edge_labels  # None: of several types
    by_class = meta.num_classes > 0 and labels is not None and labels.dtype == "int64"
    by_class = by_class or (of_edges is not None and of_edges.metric != "rmse")
    if by_class and STRATIFIED in options and STRATIFIED not in meta.entries["options"]:
        _LOG.warning(
            "%s: its random split is of an earlier release, not stratified by class; gnnscale "
            "prepare with force=true draws it again",
            store,
        )


def check_replaceable(path: Path) -> None:
    """Raise GraphError if a directory is not a graph store, and so must not be replaced."""
    try:
        entries = parse_json(read_file(path / store_format.GRAPH_STORE.header), source=path)
    except GraphError:
        entries = {}
    if not {"format_version", "arrays"} <= set(entries):
        raise GraphError(
            f"{path}: expected a graph store to replace, got other files; name another "
            "dataset.store, or remove the directory"
        )
    store_format.GRAPH_STORE.check_replaceable(path)
