"""Edge lists, an edge per line, as SNAP, KONECT and networkx write them, and their base."""

import logging
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from gnnscale import ops
from gnnscale.core import Array, GraphError, brief, check_choice, pyarrow
from gnnscale.core.artifact import check_array, map_npy
from gnnscale.core.config.untrusted import names
from gnnscale.core.sorted_sets import distinct
from gnnscale.data import base, raw_paths
from gnnscale.data.formats.text import COMMENTS, csv_columns, head_lines, refuse_lone_cr
from gnnscale.data.storage.writer import StoreWriter
from gnnscale.data.structure_only import Structure
from gnnscale.data.tables.batch import text_buffers
from gnnscale.graph.store_format import METRICS
from gnnscale.graph.store_writer import write_ids

_LOG = logging.getLogger(__name__)
_COMMA = re.compile(r"\s*[^\s,]+\s*,")
_WHOLE = re.compile(r"[+-]?\d+")
_FRACTION = re.compile(r"[+-]?\d+\.\d*(e[+-]?\d+)?", re.IGNORECASE)
_SEPARATED = re.compile(r"\s*\w+\s*([^\s\w.,+-])\s*\w+.*")
#: Names of the first column, by which a line of names is known above ids that are texts.
_SOURCES = ("from", "fromnodeid", "source", "src", "u", "node1", "node_1", "id1", "id_1", "head")
#: Lines of the head in which lists of neighbors are looked for.
_SAMPLE_LINES = 1000
#: Distinct ids gathered before repetitions are dropped.
_MAX_REPEATED = 1 << 22
#: Ids: an integer array, or an Arrow array of texts.
_Ids: TypeAlias = Any


@dataclass(frozen=True, kw_only=True)
class EdgeText:
    """Edge list in a text file, or a .gz; blanks and tabs, or a comma, separate the columns.

    Ids are whole numbers, or texts if those of the first edge are. Lines that begin with # or % are
    comments.
    """

    file: Path
    delimiter: str  #: comma, blank or tab; blank and tab stand for any run of both
    skip_lines: int  #: lines before the first edge
    first: tuple[str, ...]  #: columns of the first edge
    id_type: str  #: int64 or string

    @classmethod
    def open(cls, file: Path) -> "EdgeText":
        """Read the head of ``file``; a line of names before the first edge is left out, and logged.

        GraphError: there is no edge, or the file is no edge list.
        """
        lines = head_lines(file, source=file)
        if lines and lines[0].startswith("%%MatrixMarket"):
            raise GraphError(
                f"{file}: expected an edge list, got a Matrix Market file; dataset=matrix_market "
                "reads it"
            )
        edges = (
            number
            for number, line in enumerate(lines)
            if line.strip() and not line.lstrip().startswith(COMMENTS)
        )
        first = next(edges, None)
        if first is None:
            raise GraphError(f"{file}: has no edges")
        for number, line in enumerate(lines[: first + 1], 1):
            refuse_lone_cr(line, number, file)
        second = next(edges, first)
        _refuse_lists(lines[first : first + _SAMPLE_LINES], file)
        ids = _columns(lines[first])[:2]
        if not any(map(_is_number, ids)) and (
            all(map(_is_number, _columns(lines[second])[:2]))
            or (second > first and ids[0].lower() in _SOURCES)
        ):
            _LOG.info("%s: line %d, '%s', names columns", file, first + 1, brief(lines[first]))
            first = second
        line = lines[first]
        columns = _columns(line)
        delimiter = " " if " " in line.strip() and "\t" not in line.strip() else "\t"
        return cls(
            file=file,
            delimiter="," if _COMMA.match(line) else delimiter,
            skip_lines=first,
            first=tuple(columns),
            id_type=_id_type(columns[:2], line, f"{file}: line {first + 1} is '{brief(line)}'"),
        )

    def columns(self, further: tuple[str, ...] = ()) -> Iterator[list[Any]]:
        """Yield ids, and columns of the types ``further``, in blocks; GraphError, with the line."""
        types = (self.id_type, self.id_type, *further)
        form: dict[str, Any] = {"delimiter": self.delimiter, "skip_lines": self.skip_lines}
        return csv_columns(self.file, types, source=self.file, **form)

    def ids(self) -> _Ids:
        """Return the distinct vertex ids of all edges, ascending; GraphError: one is negative."""
        waiting, num_distinct, num_waiting = [], 0, 0
        for ends in self.columns():
            waiting.append(_distinct(ends))
            num_waiting += len(waiting[-1])
            if num_waiting > max(num_distinct, _MAX_REPEATED):
                waiting, num_waiting = [_distinct(waiting)], 0
                num_distinct = len(waiting[0])
        ids = _distinct(waiting)
        if self.id_type == "int64" and ids[0] < 0:
            raise GraphError(f"{self.file}: vertex id {ids[0]} is negative")
        return ids


def _distinct(ids: list[_Ids]) -> _Ids:
    """Return the distinct ids in several arrays, ascending."""
    if isinstance(ids[0], np.ndarray):
        return distinct(np.concatenate(ids))
    texts = pyarrow.concat_arrays(ids).unique()
    return texts.take(pyarrow.compute.sort_indices(texts))


def _vertices_of(ids: _Ids) -> Callable[[_Ids], Array]:
    """Return a function from an array of ids to their vertices, the places in ascending ``ids``."""
    if isinstance(ids, np.ndarray):
        return lambda ends: np.asarray(np.searchsorted(ids, ends))
    table = ops.TextIds(*text_buffers(ids))
    return lambda ends: table.find(*text_buffers(ends), num_threads=1)[0]


def _columns(line: str) -> list[str]:
    if _COMMA.match(line):
        return [text.strip() for text in line.split(",")]
    return (
        [text.strip() for text in line.split("\t") if text.strip()]
        if _is_tabbed(line)
        else (line.split())
    )


def _is_tabbed(line: str) -> bool:
    """Whether tabs separate texts that may have blanks; numbers have none."""
    return "\t" in line.strip() and not _WHOLE.fullmatch(line.split()[0])


def _is_number(text: str) -> bool:
    return bool(_WHOLE.fullmatch(text) or _FRACTION.fullmatch(text))


def _id_type(ids: list[str], line: str, what: str) -> str:
    """Return the type of the ids of the first edge; GraphError, begun by ``what``: neither."""
    if len(ids) == 2 and all(map(_WHOLE.fullmatch, ids)):
        return "int64"
    if any(map(_FRACTION.fullmatch, ids)):
        raise GraphError(
            f"{what}: expected whole numbers as ids; numpy.savetxt(FILE, edges, fmt='%d') writes "
            "them"
        )
    if len(ids) < 2 and (separated := _SEPARATED.fullmatch(line)) is not None:
        raise GraphError(
            f"{what}: expected blanks, tabs or a comma between ids, got '{separated[1]}'"
        )
    if not all(map(str.isprintable, ids)):
        raise GraphError(f"{what}: expected whole numbers or texts as ids")
    if "," in line and not _COMMA.match(line) and not _is_tabbed(line) and "{" not in line:
        raise GraphError(
            f"{what}: expected blanks or commas between ids, got both; dataset=tables reads a .csv "
            "whose ids have blanks"
        )
    return "string"


def _refuse_lists(lines: list[str], file: Path) -> None:
    """Raise GraphError if lines are lists of neighbors: different numbers of whole numbers."""
    rows = [
        line.split() for line in lines if line.strip() and not line.lstrip().startswith(COMMENTS)
    ]
    counts = set(map(len, rows))
    if len(counts) > 1 and max(counts) > 3 and all(map(_WHOLE.fullmatch, chain(*rows))):
        raise GraphError(
            f"{file}: lines have {min(counts)} to {max(counts)} whole numbers, as lists of "
            "neighbors have; networkx.read_adjlist(FILE) reads them, and "
            "networkx.write_edgelist(graph, FILE, data=False) writes an edge per line"
        )


@dataclass(frozen=True, kw_only=True)
class EdgeFormat(base.Dataset):
    """Base of the layouts of one file of edges, with features and labels in .npy files.

    Attributes:
        features_file: .npy file ``[num_vertices, num_features]`` or ``[num_vertices]``. None:
            vertices have no features.
        labels_file: .npy file of classes, targets or zeros and ones, one row per vertex. None:
            vertices have no labels.
        metric: one of ``METRICS``. None: the default of the labels.
        weighted: whether the third column holds the edges' weights.
    """

    features_file: str | None = field(default=None, metadata=names("place", unless="store"))
    labels_file: str | None = field(default=None, metadata=names("place", unless="store"))
    metric: str | None = None
    weighted: bool = False
    split: str = "random"

    has_split: ClassVar[bool] = False
    _is_users: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric is not None:
            check_choice("dataset.metric", self.metric, METRICS)

    @abstractmethod
    def read_edges(self, file: Path, num_rows: int | None, writer: StoreWriter) -> None:
        """Push the number of vertices, then the edges of ``file``; each layout implements it.

        ``num_rows`` are the rows of features or labels. None: there are neither. GraphError: the
        edges have other vertices.
        """

    def raw_files(self) -> list[Path]:
        """Return the file of edges, and those of features and labels, if any."""
        path = self.raw_path()
        if path.is_dir():
            raise GraphError(f"dataset.raw={self.raw}: expected {self._raw_form}, got a folder")
        return [path, *filter(None, (self._file("features_file"), self._file("labels_file")))]

    def read(self, writer: StoreWriter) -> None:
        """Push the edges, and features and labels of the .npy files."""
        edges = self.raw_files()[0]
        feature_file, label_file = self._file("features_file"), self._file("labels_file")
        features, labels = _mapped(feature_file), _mapped(label_file)
        rows = [len(array) for array in (features, labels) if array is not None]
        if len(set(rows)) > 1:
            raise GraphError(f"{label_file}: {rows[1]} labels for {rows[0]} rows of {feature_file}")
        writer.edges.counts_repeated = True
        self.read_edges(edges, rows[0] if rows else None, writer)
        if features is None:
            writer.set_featureless(source=edges)
        else:
            matrix = features[:, None] if features.ndim == 1 else features
            writer.write_matrix(matrix, source=feature_file)
        if labels is None or not self._has_labels:
            writer.set_unlabeled()
        else:
            writer.set_labels(labels, metric=self.metric, source=label_file)

    def _file(self, option: str) -> Path | None:
        """Return the file that an option names, or None; GraphError: no existing .npy file."""
        name = getattr(self, option)
        if name is None:
            return None
        file = raw_paths.existing_path(name, f"dataset.{option}")
        if file.suffix != ".npy":
            raise GraphError(
                f"dataset.{option}={name}: expected a .npy file, as numpy.save writes it; "
                "dataset=arrays reads a .npz file"
            )
        return file


def _mapped(file: Path | None) -> Array | None:
    """Return the mapped array of a file of numbers or booleans, of 1 or 2 axes."""
    if file is None:
        return None
    array = map_npy(file)
    check_array(array, axes=(1, 2), kinds="biuf", source=file)
    if not len(array):
        raise GraphError(f"{file}: expected a row per vertex, got none")
    return array


@dataclass(frozen=True, kw_only=True)
class EdgeList(EdgeFormat):
    """Text file, or a .gz, with an edge per line; lines that begin with # or % are comments.

    Blanks and tabs, or a comma, separate source, destination and, if ``weighted``, weight. Ids are
    whole numbers or texts. With features or labels, ids are their rows, from 0; texts, and ids with
    gaps or another start, must be as many as the rows, and row ``i`` is the ``i``-th smallest id.
    The file is read twice.
    """

    _raw_form: ClassVar[str] = "the text file of edges"

    def read_edges(self, file: Path, num_rows: int | None, writer: StoreWriter) -> None:
        """Push the number of vertices, then the edges; a line ``a b`` is an edge from a to b.

        Ids that are not 0, 1, 2 and so on are stored, for predictions.
        """
        text = EdgeText.open(file)
        further = self._further_types(text)
        ids = text.ids()
        whole = text.id_type == "int64"
        is_row = whole and ids[-1] < (len(ids) if num_rows is None else num_rows)
        if not is_row and num_rows not in (None, len(ids)):
            raise GraphError(
                f"{file}: {len(ids)} different ids, {brief(ids[0])} to {brief(ids[-1])}, for "
                f"{num_rows} rows of features or labels; expected the numbers of the rows, from 0, "
                "or as many ids as rows"
            )
        writer.set_num_vertices(num_rows or len(ids), source=file)
        if not is_row:
            writer.notes["ids"] = write_ids(writer.path, pyarrow.array(ids) if whole else ids)
            _LOG.log(
                logging.INFO if whole or num_rows is None else logging.WARNING,
                *("%s: vertex i has the i-th smallest id, %s to %s", file),
                *(brief(ids[0]), brief(ids[-1])),
            )
        elif ids[0] > 0 and num_rows is not None:
            _LOG.warning(
                "%s: ids count as numbers of rows from 0, and the smallest is %d", file, ids[0]
            )
        vertices = _vertices_of(ids)
        for src, dst, *weights in text.columns(further):
            ends = (src, dst) if is_row else (vertices(src), vertices(dst))
            writer.add_edges(*ends, weights=weights[0] if weights else None, source=file)

    def _further_types(self, text: EdgeText) -> tuple[str, ...]:
        """Return the types of columns after the ids; GraphError: there are no weights to read."""
        further = text.first[2:]
        if not self.weighted:
            if further:
                _LOG.info(
                    "%s: columns after the first two are not read; dataset.weighted=true reads the "
                    "third as weights",
                    text.file,
                )
            return ()
        if not further or further[0].startswith("{"):
            got = f"'{brief(further[0])}'" if further else "two columns"
            raise GraphError(
                f"{text.file}: expected weights in the third column (dataset.weighted=true), got "
                f"{got}; networkx.write_weighted_edgelist writes them"
            )
        return ("float64",)


@dataclass(frozen=True, kw_only=True)
class Snap(Structure):
    """File ``<name>.txt`` or ``<name>.txt.gz``; lines that begin with # or % are comments.

    Blanks and tabs, or a comma, separate the ids. Vertex ``i`` is the ``i``-th smallest id. The
    file is read twice, first for the ids. As of SNAP (Leskovec & Krevl, 2014).
    """

    _raw_form: ClassVar[str] = (
        "the file <name>.txt or <name>.txt.gz, as https://snap.stanford.edu/data has it, or the "
        "folder"
    )

    def read_edges(self, writer: StoreWriter) -> None:
        """Push the number of vertices, then the edges; a line ``a b`` is an edge from a to b."""
        (file,) = self.raw_files()
        text = EdgeText.open(file)
        if len(text.first) > 2:
            _LOG.info("%s: columns after the first two are not read", file)
        ids = text.ids()
        writer.set_num_vertices(len(ids), source=file)
        vertices, is_vertex = _vertices_of(ids), text.id_type == "int64" and ids[-1] == len(ids) - 1
        for ends in text.columns():
            src, dst = ends if is_vertex else map(vertices, ends)
            writer.add_edges(src, dst, source=file)

    def raw_files(self) -> list[Path]:
        """Return the path of the edge list."""
        path = self.raw_path()
        if path.is_file():
            return [path]
        for file in (path / f"{self.name}.txt", path / f"{self.name}.txt.gz"):
            if file.exists():
                return [file]
        raise GraphError(f"{path}: has neither {self.name}.txt nor {self.name}.txt.gz")
