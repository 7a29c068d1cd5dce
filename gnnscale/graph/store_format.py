"""Format of graph stores: arrays and ``meta.json``, checked when a store is opened."""

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from gnnscale.core import Array, GraphError, Int64Array, IntArray, UInt32Array, brief, pyarrow
from gnnscale.core.artifact import ArrayEntry, ArtifactType, Form, files, row_slices, write_array
from gnnscale.graph.dtypes import FEATURE_DTYPES, MAX_QUANTIZED, FeatureDtype, row_length
from gnnscale.graph.labels import LabelsByType, TypeLabels
from gnnscale.graph.schema import (
    MAX_EDGE_TYPES,
    MAX_VERTEX_TYPES,
    EdgeType,
    GraphSchema,
    VertexType,
)
from gnnscale.graph.split import array_slices, check_splits
from gnnscale.graph.typed_edge_store import (
    EdgeFeatureEntry,
    check_edge_rows,
    check_row_numbers,
    edge_matrices,
    typed_edge_features,
)
from gnnscale.graph.typed_features import TypedFeatures

METRICS = ("accuracy", "micro_f1", "roc_auc", "rmse")
SPLIT_ARRAYS = ("train_idx", "valid_idx", "test_idx")
ARRAYS = ("indptr", "indices", "features", "labels", *SPLIT_ARRAYS)
#: Further array of a part's store: degrees in the full graph.
DEGREES = "degrees"
#: Further array of a shard, a store with the full topology and the feature rows of one part.
OWNER = "owner"
#: Further array of a graph with edge weights.
WEIGHTS = "edge_weights"
#: Further arrays of a graph with edge features: the row of each edge, and the rows.
EDGE_ROWS, EDGE_FEATURES = "edge_rows", "edge_features"
#: Further arrays of a graph with edge features or labels: both ends of each row, labels, split.
EDGE_ENDS, EDGE_LABELS = "edge_ends", "edge_labels"
EDGE_SPLITS = ("edge_train_rows", "edge_valid_rows", "edge_test_rows")
EDGE_ARRAYS = (WEIGHTS, EDGE_ROWS, EDGE_FEATURES, EDGE_ENDS, EDGE_LABELS, *EDGE_SPLITS)
#: Limit of a row's number, which has 32 bits.
MAX_EDGE_ROWS = 1 << 32
#: Limits of the models.
MAX_CLASSES = 1 << 20
MAX_FEATURES = 1 << 16
GRAPH_STORE = ArtifactType(
    name="graph store",
    header="meta.json",
    version=5,
    folder="graphs",
    option="dataset.store",
    command="gnnscale prepare",
    files=r"meta\.json|\.meta\.json\.tmp|ids\.parquet|"
    r"(ids|labels-[0-9]+|(edge_)?features-[0-9]+|"
    rf"{'|'.join((*ARRAYS, DEGREES, OWNER, *EDGE_ARRAYS))})\.npy",
    max_bytes=4 << 20,
)


def vertex_dtype(num_vertices: int) -> np.dtype[Any]:
    """Return int32 if every vertex id fits, else int64."""
    return np.dtype(np.int32 if num_vertices < 2**31 else np.int64)


def typed_features(vertex_type: int) -> str:
    """Return the name of the array of a vertex type's features, given by its number."""
    return f"features-{vertex_type}"


def typed_labels(vertex_type: int) -> str:
    """Return the name of the array of a vertex type's labels, if several types have labels."""
    return f"labels-{vertex_type}"


_Name = Annotated[str, Meta(min_length=1, max_length=200)]


@dataclass(frozen=True, kw_only=True)
class VertexTypeEntry:
    """Entry of ``meta.json`` for a vertex type."""

    name: _Name
    num_vertices: Annotated[int, Meta(ge=0, le=1 << 40)]
    num_features: Annotated[int, Meta(ge=0, le=MAX_FEATURES)] = 0  #: 0 without features
    feature_dtype: FeatureDtype = "float32"


@dataclass(frozen=True, kw_only=True)
class TypeEntry:
    """Entry of ``meta.json`` for types of vertices and edges.

    GraphError: a name appears twice, or is of no vertex type.
    """

    vertices: Annotated[list[VertexTypeEntry], Meta(min_length=1, max_length=MAX_VERTEX_TYPES)]
    #: source type, relation and destination type of each edge type
    edges: Annotated[
        list[tuple[_Name, _Name, _Name]], Meta(min_length=1, max_length=MAX_EDGE_TYPES)
    ]
    #: features of each edge type, null without; empty: no edge has any
    edge_features: list[EdgeFeatureEntry | None] = field(default_factory=list)
    #: edge type of the labeled edges. None: unknown, or there are none
    labeled_edges: Annotated[int, Meta(ge=0)] | None = None

    def __post_init__(self) -> None:
        _ = self.schema  # checks the names
        entries, count, number = self.edge_features, len(self.edges), self.labeled_edges
        if len(entries) not in (0, count):
            raise ValueError(f"edge_features: {len(entries)} of {count} edge types")
        for entry in entries:
            if entry is not None and (entry.file >= count or entries[entry.file] != entry):
                raise ValueError(f"edge_features: file {entry.file} is of other features")
        if number is not None and number >= count:
            raise ValueError(f"labeled_edges: {number}, there are {count} edge types")

    @cached_property
    def schema(self) -> GraphSchema:
        """Types of vertices and edges."""
        return GraphSchema(
            tuple(VertexType(entry.name, entry.num_vertices) for entry in self.vertices),
            tuple(EdgeType(*names) for names in self.edges),
        )

    @classmethod
    def of(
        cls,
        schema: GraphSchema,
        features: TypedFeatures,
        edge_features: TypedFeatures | None = None,
        labeled_edges: int | None = None,
    ) -> "TypeEntry":
        """Return the entry of the types of ``schema`` with their ``features``.

        ``edge_features`` are those by edge type, ``labeled_edges`` is the type of labeled edges.
        """
        return cls(
            vertices=[
                VertexTypeEntry(name=vertices.name, num_vertices=vertices.num_vertices)
                if matrix is None
                else VertexTypeEntry(
                    name=vertices.name,
                    num_vertices=vertices.num_vertices,
                    num_features=matrix.width,
                    feature_dtype=matrix.dtype,
                )
                for vertices, matrix in zip(schema.vertex_types, features.matrices, strict=True)
            ],
            edges=[
                (edges.source, edges.relation, edges.destination) for edges in schema.edge_types
            ],
            edge_features=EdgeFeatureEntry.of(edge_features),
            labeled_edges=labeled_edges,
        )

    @property
    def optional(self) -> dict[str, Any]:
        """Values of the fields that only stores with data of edges by type have."""
        values: dict[str, Any] = {}
        if self.edge_features:
            values["edge_features"] = [entry and asdict(entry) for entry in self.edge_features]
        if self.labeled_edges is not None:
            values["labeled_edges"] = self.labeled_edges
        return values


@dataclass(frozen=True, kw_only=True)
class PartEntry:
    """Entry of ``meta.json`` for a store that holds one part of a graph."""

    index: Annotated[int, Meta(ge=0)]
    num_parts: Annotated[int, Meta(le=1 << 15)]
    of: Annotated[str, Meta(pattern="^[0-9a-f]{32}\\Z")]  #: digest of the full graph's store
    #: digest of the partition, if the store is a shard: full topology, and the part's feature rows.
    #: None: the store has the part's neighborhoods
    rows_of: Annotated[str, Meta(pattern="^[0-9a-f]{32}\\Z")] | None = None

    def __post_init__(self) -> None:
        if self.index >= self.num_parts:
            raise ValueError(f"index is {self.index}, allowed are 0 to {self.num_parts - 1}")


@dataclass(frozen=True, kw_only=True)
class EdgeLabelEntry:
    """Entry of ``meta.json`` for edge labels: number of classes, and metric."""

    num_classes: Annotated[int, Meta(ge=1, le=MAX_CLASSES)]  #: 1 for regression
    metric: Literal["accuracy", "roc_auc", "rmse"]


@dataclass(frozen=True, kw_only=True)
class TypeLabelEntry:
    """Entry of ``meta.json`` for the labels of one vertex type, if several types have labels.

    ValueError: another number of names than classes.
    """

    vertex_type: _Name
    num_classes: Annotated[int, Meta(ge=1, le=MAX_CLASSES)]  #: or regression targets
    metric: Literal["accuracy", "micro_f1", "roc_auc", "rmse"]
    classes: list[str] | None = None  #: names of the classes. None: they have no names

    def __post_init__(self) -> None:
        if self.classes is not None and len(self.classes) != self.num_classes:
            raise ValueError(f"{len(self.classes)} names of {self.num_classes} classes")


def label_entries(types: Sequence[TypeLabels]) -> list[dict[str, Any]] | None:
    """Return entries of ``meta.json`` for the labels of ``types``. None: there are no types."""
    names = [entry.name for entry in fields(TypeLabelEntry)]
    return [{name: getattr(labels, name) for name in names} for labels in types] or None


@dataclass(frozen=True, kw_only=True)
class StoreMeta:
    """Content of a store's ``meta.json``, with checked types and ranges."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    num_vertices: Annotated[int, Meta(ge=1, le=1 << 40)]
    num_edges: Annotated[int, Meta(ge=0, le=1 << 47)]  #: directed edges
    num_features: Annotated[int, Meta(ge=0, le=MAX_FEATURES)]  #: 0 without features
    num_classes: Annotated[int, Meta(ge=0, le=MAX_CLASSES)]  #: or regression targets; 0: no labels
    feature_dtype: FeatureDtype
    metric: Literal["accuracy", "micro_f1", "roc_auc", "rmse"]
    #: entries by array name: all of ``ARRAYS``; ``DEGREES``, ``OWNER``, ``EDGE_ARRAYS`` if any
    arrays: dict[str, ArrayEntry]
    part: PartEntry | None = None  #: None: the store has the full graph
    edge_labels: EdgeLabelEntry | None = None  #: None: edges have no labels
    types: TypeEntry | None = None  #: types of vertices and edges. None: there are none
    #: labels of each labeled vertex type, in the order of ``types``. None: at most one has labels
    type_labels: Annotated[list[TypeLabelEntry], Meta(min_length=2)] | None = None
    #: best accuracy that the graph's generator allows. None: unknown
    attainable_accuracy: Annotated[float, Meta(ge=0, le=1)] | None = None
    entries: dict[str, Any] = field(default_factory=dict)  #: all of ``meta.json``, unchecked

    def __post_init__(self) -> None:
        if not self.name.isprintable():
            raise ValueError(f"name is {brief(repr(self.name))}, allowed is a printable text")
        if self.types is not None and self.types.schema.num_vertices != self.num_vertices:
            raise ValueError(
                f"num_vertices is {self.num_vertices}, types have "
                f"{self.types.schema.num_vertices} vertices"
            )
        if self.types is not None and self.divides_rows:
            raise ValueError("part: rows of a graph with types are not divided")
        if self.type_labels is not None and len(self.labeled_types) != len(self.type_labels):
            raise ValueError("type_labels: expected vertex types of the graph, each once, in order")

    @property
    def labeled_types(self) -> dict[int, TypeLabelEntry]:
        """Entries of the labels of vertex types by their numbers, if several types have labels."""
        entries = {entry.vertex_type: entry for entry in self.type_labels or ()}
        vertices = () if self.types is None else self.types.vertices
        numbers = {n: entries[of.name] for n, of in enumerate(vertices) if of.name in entries}
        return numbers if [*numbers.values()] == self.type_labels else {}

    @property
    def content(self) -> str:
        """Hex digest of shapes, types and checksums of all arrays."""
        return self._digest(self.arrays)

    @property
    def graph_content(self) -> str:
        """Digest that identifies the graph: ``content``, or for a shard the full store's digest.

        A shard has the full topology, and the feature rows of one part.
        """
        return self.part.of if self.part is not None and self.part.rows_of else self.content

    @property
    def shared_content(self) -> str:
        """Digest of all arrays but the features.

        It is equal for all shards, stores with the full topology and one part's feature rows.
        """
        return self._digest({name for name in self.arrays if name != "features"})

    @property
    def divides_rows(self) -> bool:
        """Whether the store is a shard: the full topology, and the feature rows of one part."""
        return self.part is not None and self.part.rows_of is not None

    def _digest(self, names: Collection[str]) -> str:
        arrays = sorted((name, self.arrays[name]) for name in names)
        entries: list[tuple[object, ...]] = [
            (name, array.shape, array.dtype, array.crc32) for name, array in arrays
        ]
        if self.feature_dtype in MAX_QUANTIZED:  # arrays of bytes do not show type and width
            entries.append((self.feature_dtype, self.num_features))
        if self.types is not None:
            entries.append((repr(self.types.vertices), repr(self.types.edges)))
            entries += sorted(self.types.optional.items())
        return files.digest(entries)


def read_meta(path: Path) -> StoreMeta:
    """Return ``meta.json`` of the store at ``path``; GraphError: missing or invalid."""
    entries = GRAPH_STORE.read_header(path)
    values = {key: value for key, value in entries.items() if key != "entries"}
    return replace(GRAPH_STORE.record(StoreMeta, values, path), entries=entries)


def write_meta(
    folder: Path, arrays: Mapping[str, ArrayEntry], *, name: str, **entries: object
) -> None:
    """Write ``meta.json`` into ``folder``, which has the files of ``arrays``.

    ``entries`` are fields of ``StoreMeta`` that do not follow from the arrays, and further values;
    None is omitted. ``num_features`` is required for int8 and int4, and with ``types``.
    """
    types = entries.get("types")
    sizes = {"num_edges": arrays["indices"].shape[0]}
    if isinstance(types, TypeEntry):
        sizes["num_vertices"] = types.schema.num_vertices
        entries["types"] = {
            "vertices": [asdict(entry) for entry in types.vertices],
            "edges": types.edges,
            **types.optional,
        }
    else:
        sizes["num_vertices"] = arrays["indptr"].shape[0] - 1
        sizes["num_features"] = arrays["features"].shape[1]
    more = {key: value for key, value in entries.items() if value is not None}
    GRAPH_STORE.write_header(folder, {"name": name, **sizes, **more, "arrays": arrays})


#: Metadata in ``meta.json``, and the data that each entry describes.
_NOTES = {"ids": "vertices", "columns": "features", "scaling": "features", "classes": "labels"}
_NOTES |= dict.fromkeys(("edge_columns", "edge_scaling"), "edge_features")
_NOTES |= {"edge_classes": "edge_labels"}
_NOTES |= dict.fromkeys(("type_columns", "type_scaling"), "features")
_NOTES |= dict.fromkeys(("edge_type_columns", "edge_type_scaling"), "edge_features")
#: Files of the users' vertex ids: integers, and texts. A store has at most one of them.
ID_FILES = ("ids.npy", "ids.parquet")


def write_ids(folder: Path, ids: Any) -> dict[str, Any]:
    """Write vertex ids into a graph store; return the entry ``ids`` for its ``meta.json``.

    ``ids`` are an Arrow array of int64, uint64 or large_string.
    """
    if pyarrow.types.is_integer(ids.type):
        path = folder / ID_FILES[0]
        write_array(path, ids.to_numpy())
    else:
        path = folder / ID_FILES[1]
        pyarrow.parquet.write_table(pyarrow.table({"id": ids}), path)
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": files.file_sha256(path)}


def applicable_metadata(
    path: Path, unchanged: Collection[str]
) -> tuple[dict[str, Any], list[Path]]:
    """Return metadata of the store at ``path``, such as column names, that a copy keeps; id files.

    ``unchanged`` names the data that is equal in the copy: ``vertices``, ``features``, ``labels``,
    ``edge_features``, ``edge_labels``. The file of the users' vertex ids, if any, is to be copied.
    """
    entries = read_meta(path).entries
    notes = {n: entries[n] for n, of in _NOTES.items() if n in entries and of in unchanged}
    ids = notes.get("ids")
    name = ids.get("file") if isinstance(ids, dict) else None
    return notes, [path / name] if name in ID_FILES else []


def write_store(
    path: Path,
    arrays: Mapping[str, Array],
    *,
    user_ids: Any = None,
    copied: Sequence[Path] = (),
    **entries: Any,
) -> None:
    """Write a graph in memory to a new store at ``path``, atomically, and check its arrays.

    ``arrays`` have the types of a store, ``user_ids`` are as in ``write_ids`` (or None), ``copied``
    are files to add, and ``entries`` are as in ``write_meta``. GraphError: ``path`` is not empty,
    or an array is invalid.
    """
    path = Path(os.path.abspath(path))
    with files.new_folder(path) as folder:
        if folder is None:
            raise GraphError(f"{path}: exists already; name another directory, or remove it")
        try:
            fill_folder(folder, arrays, user_ids=user_ids, copied=copied, **entries)
        except GraphError as error:
            raise GraphError(str(error).replace(str(folder), str(path))) from None


def fill_folder(
    folder: Path,
    arrays: Mapping[str, Array],
    *,
    user_ids: Any = None,
    copied: Sequence[Path] = (),
    **entries: Any,
) -> None:
    """Write a graph in memory to the empty directory ``folder``, as ``write_store`` does.

    GraphError: an array is invalid.
    """
    written = {name: write_array(folder / f"{name}.npy", array) for name, array in arrays.items()}
    for file in copied:
        with files.open_regular(file) as source, (folder / file.name).open("wb") as copy:
            shutil.copyfileobj(source, copy)
    if user_ids is not None:
        entries["ids"] = write_ids(folder, user_ids)
    write_meta(folder, written, **entries)
    _check_written(folder)


def _check_written(folder: Path) -> None:
    """Raise GraphError for an invalid array of a new store, such as neighbors out of range."""
    meta = read_meta(folder)
    arrays = map_arrays(folder, meta)
    _check_range(f"{folder}: neighbor", arrays["indices"], meta.num_vertices - 1)
    if meta.types is not None:
        check_source_types(folder / "indices.npy", arrays, meta.types.schema)
    if EDGE_FEATURES in arrays:
        last_row = len(arrays[EDGE_FEATURES]) - 1
        _check_range(f"{folder}: row of edge features", arrays[EDGE_ROWS], last_row)
    if meta.types is not None:
        features = edge_matrices(dict(arrays), meta.types.edge_features)
        if features is not None:
            file = folder / f"{EDGE_ROWS}.npy"
            check_row_numbers(file, features, arrays, meta.types.schema)
    if EDGE_ENDS in arrays:
        _check_range(f"{folder}: end of an edge", arrays[EDGE_ENDS], meta.num_vertices - 1)


def _check_range(name: str, ids: Array, last: int) -> None:
    for part in row_slices(len(ids), ids[:1].nbytes):
        low, high = ids[part].min(), ids[part].max()
        if low < 0 or high > last:
            raise GraphError(
                f"{name} {low if low < 0 else high} is out of range, allowed are 0 to {last}"
            )


#: Number of adjacency lists whose sources are checked at a time.
_LISTS = 1 << 16


def check_source_types(file: Path, arrays: Mapping[str, Array], schema: GraphSchema) -> None:
    """Raise GraphError for a list with a source that is not of its edge type's source type."""
    indptr, indices = arrays["indptr"], arrays["indices"]
    for first in range(0, schema.num_rows, _LISTS):
        ends = np.asarray(indptr[first : first + _LISTS + 1])
        ids = np.asarray(indices[ends[0] : ends[-1]])
        edge = schema.wrong_source(first, np.diff(ends), ids)
        if edge is None:
            continue
        row = first + int(np.searchsorted(ends, ends[0] + edge, side="right")) - 1
        edge_type = schema.edge_types[int(schema.edge_type_of(np.array([row]))[0])]
        raise GraphError(
            f"{file}: neighbor {ids[edge]} of vertex {schema.vertex_of(np.array([row]))[0]} by "
            f"{edge_type} is no vertex of type {edge_type.source}"
        )


def map_arrays(path: Path, meta: StoreMeta) -> dict[str, Array]:
    """Map all arrays of a store read-only; GraphError if a file is missing, truncated or invalid.

    Ids in ``indices`` and ``edge_rows`` are checked when samplers read them, or by ``doctor``.
    """
    arrays = GRAPH_STORE.arrays(path, meta.arrays, _forms(meta))
    check_offsets(path / "indptr.npy", arrays["indptr"], meta.num_edges)
    for name in _label_forms(meta):
        if arrays[name].dtype.kind == "f":
            _check_targets(path / f"{name}.npy", arrays[name])
        else:
            _check_labels(path / f"{name}.npy", arrays[name], _label_entry(meta, name).num_classes)
    if meta.type_labels is not None:
        arrays["labels"] = _labels_by_type(arrays, meta)
    check_splits(path, arrays, SPLIT_ARRAYS, "labels", "vertex")
    if DEGREES in arrays:
        _check_degrees(path / f"{DEGREES}.npy", arrays[DEGREES], arrays["indptr"])
    if EDGE_FEATURES in arrays:
        _check_edge_features(path, arrays, meta.num_edges)
    if meta.types is not None and meta.types.edge_features:
        types = meta.types
        check_edge_rows(path, arrays, types.schema, types.edge_features)
        labeled = types.labeled_edges
        entry = None if labeled is None else types.edge_features[labeled]
        if entry is not None and EDGE_ENDS in arrays:
            rows, name = len(arrays[EDGE_ENDS]), typed_edge_features(entry.file)
            if rows != len(arrays[name]):
                raise GraphError(f"{path / name}.npy: {len(arrays[name])} rows of {rows} edges")
    if EDGE_LABELS in arrays:
        _check_edge_labels(path, arrays, meta)
    return arrays


def _forms(meta: StoreMeta) -> dict[str, Form]:
    """Return the expected type and shape of each array; a split has any length."""
    rows, ids = meta.num_vertices, vertex_dtype(meta.num_vertices)
    num_lists = rows if meta.types is None else meta.types.schema.num_rows
    forms: dict[str, Form] = {
        "indptr": (np.dtype(np.int64), (num_lists + 1,)),
        "indices": (ids, (meta.num_edges,)),
        **_feature_forms(meta),
        **_label_forms(meta),
        **dict.fromkeys(SPLIT_ARRAYS, (ids, (None,))),
    }
    if meta.divides_rows:
        forms[OWNER] = np.dtype(np.int16), (rows,)
        forms["features"] = FEATURE_DTYPES[meta.feature_dtype], (None, meta.num_features)
    elif meta.part is not None:
        forms[DEGREES] = np.dtype(np.uint32), (num_lists,)
    if WEIGHTS in meta.arrays:
        forms[WEIGHTS] = np.dtype(np.float32), (meta.num_edges,)
    of_types = None if meta.types is None else meta.types.edge_features
    if EDGE_ROWS in meta.arrays or EDGE_FEATURES in meta.arrays or of_types:
        forms[EDGE_ROWS] = np.dtype(np.uint32), (meta.num_edges,)
        if not of_types:
            forms[EDGE_FEATURES] = np.dtype(np.float32), (None, None)
    for entry in of_types or ():
        if entry is not None:
            dtype = FEATURE_DTYPES[entry.feature_dtype]
            forms[typed_edge_features(entry.file)] = dtype, (None, entry.num_features)
    if meta.edge_labels is not None or EDGE_ENDS in meta.arrays:
        forms[EDGE_ENDS] = ids, (None, 2)
    if meta.edge_labels is not None:
        value = np.float32 if meta.edge_labels.metric == "rmse" else np.int64
        forms[EDGE_LABELS] = np.dtype(value), (None,)
        labels = meta.arrays.get(EDGE_LABELS)
        count = labels.shape[0] if labels is not None and labels.shape else 0
        forms |= dict.fromkeys(EDGE_SPLITS, (vertex_dtype(count), (None,)))
    return forms


def _feature_forms(meta: StoreMeta) -> dict[str, Form]:
    """Return the form of the feature matrix, or of the matrices of the types that have features."""
    if meta.types is None:
        width = row_length(meta.feature_dtype, meta.num_features)
        return {"features": (FEATURE_DTYPES[meta.feature_dtype], (meta.num_vertices, width))}
    return {
        typed_features(number): (
            FEATURE_DTYPES[entry.feature_dtype],
            (entry.num_vertices, row_length(entry.feature_dtype, entry.num_features)),
        )
        for number, entry in enumerate(meta.types.vertices)
        if entry.num_features
    }


def _label_entry(meta: StoreMeta, name: str) -> StoreMeta | TypeLabelEntry:
    """Return the number of classes and the metric of the array ``name`` of labels."""
    entries = {typed_labels(number): entry for number, entry in meta.labeled_types.items()}
    return entries.get(name, meta)


def _label_forms(meta: StoreMeta) -> dict[str, Form]:
    """Return the form of the array of labels, or of each of the labeled vertex types."""
    names = [typed_labels(number) for number in meta.labeled_types] or ["labels"]
    return {name: _label_form(meta, name) for name in names}


def _labels_by_type(arrays: dict[str, Array], meta: StoreMeta) -> Any:
    """Remove the arrays of labels of types from ``arrays``; return them as ``LabelsByType``."""
    assert meta.types is not None
    return LabelsByType(
        TypeLabels(
            vertices=meta.types.schema.vertices(number),
            values=arrays.pop(typed_labels(number)),
            **asdict(entry),
        )
        for number, entry in meta.labeled_types.items()
    )


def _label_form(meta: StoreMeta, name: str) -> Form:
    labels, entry = meta.arrays.get(name), _label_entry(meta, name)
    rows, columns = meta.num_vertices, entry.num_classes
    matrix = labels is not None and len(labels.shape) == 2
    if columns and entry.metric == "rmse":
        return np.dtype(np.float32), (rows, columns) if matrix or columns > 1 else (rows,)
    if columns and matrix:
        return np.dtype(np.uint8), (rows, columns)
    return np.dtype(np.int64), (rows,)


def check_offsets(file: Path, indptr: Int64Array, num_edges: int) -> None:
    """Raise GraphError unless ``indptr`` begins with 0, ends with ``num_edges`` and never falls.

    ``file`` names it in the message.
    """
    if indptr[0] != 0 or indptr[-1] != num_edges:
        raise GraphError(
            f"{file}: expected offsets from 0 to {num_edges}, the number of edges, got "
            f"{indptr[0]} to {indptr[-1]}"
        )
    for first, part in array_slices(indptr, overlap=1):
        falls = part[1:] < part[:-1]
        if falls.any():
            row = int(falls.argmax())
            raise GraphError(
                f"{file}: falls from {part[row]} to {part[row + 1]} after vertex {first + row}"
            )


def _check_degrees(file: Path, degrees: UInt32Array, indptr: Int64Array) -> None:
    """Raise GraphError for a degree that differs from the length of a non-empty adjacency list."""
    for first, part in array_slices(degrees):
        lengths = np.diff(indptr[first : first + len(part) + 1])
        wrong = (lengths > 0) & (lengths != part)
        if wrong.any():
            i = int(wrong.argmax())
            raise GraphError(
                f"{file}: vertex {first + i} has degree {part[i]}, and {lengths[i]} neighbors"
            )


def _check_edge_features(path: Path, arrays: Mapping[str, Array], num_edges: int) -> None:
    file = path / f"{EDGE_FEATURES}.npy"
    rows, width = arrays[EDGE_FEATURES].shape
    if not 1 <= width <= MAX_FEATURES:
        raise GraphError(f"{file}: {width} features an edge, allowed are 1 to {MAX_FEATURES}")
    least = min(num_edges, 1)
    if not least <= rows <= MAX_EDGE_ROWS:
        raise GraphError(
            f"{file}: {rows} rows for {num_edges} edges, allowed are {least} to {MAX_EDGE_ROWS}"
        )
    # A row of zeros may follow the rows of published edges.
    if EDGE_ENDS in arrays and rows - len(arrays[EDGE_ENDS]) not in (0, 1):
        raise GraphError(f"{file}: {rows} rows, edge_ends.npy has {len(arrays[EDGE_ENDS])}")


def _check_edge_labels(path: Path, arrays: Mapping[str, Array], meta: StoreMeta) -> None:
    file, labels = path / f"{EDGE_LABELS}.npy", arrays[EDGE_LABELS]
    if len(labels) != len(arrays[EDGE_ENDS]):
        raise GraphError(
            f"{file}: {len(labels)} labels, edge_ends.npy has {len(arrays[EDGE_ENDS])} rows"
        )
    assert meta.edge_labels is not None
    if labels.dtype.kind == "f":
        _check_targets(file, labels, "edge")
    else:
        _check_labels(file, labels, meta.edge_labels.num_classes, "edge")
    check_splits(path, arrays, EDGE_SPLITS, EDGE_LABELS, "edge")


def _check_labels(file: Path, labels: IntArray, num_classes: int, of: str = "vertex") -> None:
    low, high = (0, 1) if labels.ndim == 2 else (-1, num_classes - 1)
    for first, part in array_slices(labels):
        if part.min() < low or part.max() > high:
            index = tuple(np.argwhere((part < low) | (part > high))[0])
            raise GraphError(
                f"{file}: label {part[index]} of {of} {first + index[0]} is out of range, "
                f"allowed are {low} to {high}"
            )


def _check_targets(file: Path, labels: NDArray[np.floating], of: str = "vertex") -> None:
    for first, part in array_slices(labels):
        if np.isinf(part).any():
            index = tuple(np.argwhere(np.isinf(part))[0])
            raise GraphError(
                f"{file}: label {part[index]} of {of} {first + index[0]}, allowed are finite "
                "numbers, and NaN if unknown"
            )
