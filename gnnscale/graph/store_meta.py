"""Content of ``meta.json`` in a graph store: sizes, types, labels and arrays."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from gnnscale.core import brief
from gnnscale.core.artifact import ArrayEntry, files
from gnnscale.graph.dtypes import MAX_QUANTIZED, FeatureDtype
from gnnscale.graph.labels import TypeLabels
from gnnscale.graph.schema import (
    MAX_EDGE_TYPES,
    MAX_VERTEX_TYPES,
    EdgeType,
    GraphSchema,
    VertexType,
)
from gnnscale.graph.store_format import GRAPH_STORE, MAX_CLASSES, MAX_FEATURES
from gnnscale.graph.timed_store import RowLabelEntry, TimesEntry
from gnnscale.graph.typed_edge_store import EdgeFeatureEntry
from gnnscale.graph.typed_features import TypedFeatures

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
    #: entries by array name: all of ``ARRAYS``; ``DEGREES``, ``OWNER``, ``EDGE_ARRAYS`` and
    #: ``TIMED_ARRAYS`` if any
    arrays: dict[str, ArrayEntry]
    part: PartEntry | None = None  #: None: the store has the full graph
    edge_labels: EdgeLabelEntry | None = None  #: None: edges have no labels
    types: TypeEntry | None = None  #: types of vertices and edges. None: there are none
    #: labels of each labeled vertex type, in the order of ``types``. None: at most one has labels
    type_labels: Annotated[list[TypeLabelEntry], Meta(min_length=2)] | None = None
    times: TimesEntry | None = None  #: None: vertices and edges are known at all times
    row_labels: RowLabelEntry | None = None  #: labels of a task's rows. None: there are no rows
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
        if self.row_labels is not None and self.times is None:
            raise ValueError("row_labels: expected times beside cut-offs")

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
        if self.times is not None:
            entries.append(("times", self.times.unit))
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
