"""Input schema of a trained model: sizes, names and scaling of its features and classes."""

import json
import re
import zlib
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
from msgspec import Meta

from gnnscale.core import ConfigError, binary_metrics, decode, write_atomically
from gnnscale.core.config.yaml_file import read_regular
from gnnscale.data.storage import standardize
from gnnscale.data.tables.categories import Column, TrainedColumns
from gnnscale.data.tables.feature_columns import (
    read_columns,
    read_edge_columns,
    read_type_columns,
)
from gnnscale.data.tables.vertex_ids import read_classes
from gnnscale.graph import (
    MAX_CLASSES,
    MAX_FEATURES,
    EdgeLabels,
    FeatureMatrix,
    Graph,
    InputTypes,
    SplitLabels,
    TaskRows,
    TimeUnit,
)
from gnnscale.nn.losses import label_kind
from gnnscale.run.checkpoint import INPUT_SCHEMA
from gnnscale.run.checkpoint.fit_features import ColumnFeatures, FeatureFit, describe
from gnnscale.run.checkpoint.fit_types import TypeFit, check_types, features_by_type

_LABELS = Literal["classes", "multilabel", "regression"]
#: Maximum size of the file; names of columns and of classes take at most 1 MiB each.
_MAX_BYTES = 16 << 20
#: End of the JSON object in the file, and pattern of the checksum entry that precedes it.
_END = "\n}"
_CHECKSUM = re.compile(rb',\n "crc32": (\d{1,10})\n}\n\Z')


@dataclass(frozen=True, kw_only=True)
class TargetSchema:
    """Labels of one of several vertex types that a model predicts at once."""

    num_classes: Annotated[int, Meta(ge=1, le=MAX_CLASSES)]  #: classes, or regression targets
    labels: _LABELS  #: kind of the labels
    classes: list[str] | None = None  #: names of the classes by index; None without names


@dataclass(frozen=True, kw_only=True)
class InputSchema:
    """Features and classes with which a model was trained: numbers, names and scaling."""

    graph: str  #: name of the training graph.
    num_features: Annotated[int, Meta(ge=1, le=MAX_FEATURES)]  #: features of a vertex.
    #: classes, or regression targets; 0 without labels.
    num_classes: Annotated[int, Meta(ge=0, le=MAX_CLASSES)]
    labels: _LABELS  #: kind of the labels, ``classes``, ``multilabel`` or ``regression``.
    #: columns of the features in order, with their categories; None without names.
    columns: tuple[Column, ...] | None = None
    classes: list[str] | None = None  #: names of the classes by index; None without names.
    #: standardization of the features; None without it.
    scaling: standardize.ColumnScaling | None = None
    #: edge features that the model reads; 0 for none.
    num_edge_features: Annotated[int, Meta(ge=0, le=MAX_FEATURES)] = 0
    edge_columns: tuple[Column, ...] | None = None  #: columns of the edge features, in order
    #: standardization of edge features; None without
    edge_scaling: standardize.ColumnScaling | None = None
    edge_weights: bool | None = None  #: whether edges have weights; None: earlier release
    #: thresholds at which classes are predicted; None: none is chosen
    thresholds: binary_metrics.Thresholds | None = None
    #: types of the graph; None: it has none
    types: InputTypes | None = None
    #: columns of the features by vertex type, of types that have names
    type_columns: dict[str, tuple[Column, ...]] = field(default_factory=dict)
    #: standardization of the features by vertex type, of types that have one
    type_scaling: dict[str, standardize.ColumnScaling] = field(default_factory=dict)
    #: labels by vertex type if several types were trained at once; the number of classes is then
    #: the largest, and the kind the first one's
    targets: dict[str, TargetSchema] = field(default_factory=dict)
    #: columns of the features by edge type, of types that have names
    edge_type_columns: dict[str, tuple[Column, ...]] = field(default_factory=dict)
    #: standardization of the features by edge type, of types that have one
    edge_type_scaling: dict[str, standardize.ColumnScaling] = field(default_factory=dict)
    time_unit: TimeUnit | None = None  #: unit of times if task rows are predicted; None: vertices
    #: unit of times if edges are predicted as of their times; None: as of no times
    edge_time_unit: TimeUnit | None = None
    #: by vertex type, or for all vertices, whether their times are an input; empty: no times are
    timed_types: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if self.scaling is not None and len(self.scaling.mean) != self.num_features:
            raise ValueError(f"scales {len(self.scaling.mean)} of {self.num_features} features")
        scaling, width = self.edge_scaling, self.num_edge_features
        if scaling is not None and len(scaling.mean) != width:
            raise ValueError(f"scales {len(scaling.mean)} of {width} features of edges")
        widths = {} if self.types is None else self.types.widths
        for scalings, of_types in (
            (self.type_scaling, widths),
            (self.edge_type_scaling, self._edge_widths),
        ):
            for name, of_type in scalings.items():
                if len(of_type.mean) != of_types.get(name):
                    raise ValueError(f"scales {len(of_type.mean)} of {of_types.get(name)} features")
        if self.classes is not None and len(self.classes) != self.num_classes:
            raise ValueError(f"{len(self.classes)} names of {self.num_classes} classes")
        expected = self.num_classes if self.multilabel else 1
        if self.thresholds is not None and len(self.thresholds.values) != expected:
            raise ValueError(f"{len(self.thresholds.values)} thresholds of {expected} classes")
        count = 1 if self.types is None else len(widths)
        if len(self.timed_types) not in (0, count):
            raise ValueError(f"times of {len(self.timed_types)} of {count} vertex types")

    @classmethod
    def of(
        cls, graph: Graph, labels: SplitLabels | None = None, *, by_type: bool = True
    ) -> "InputSchema":
        """Return the schema of a model trained on ``graph`` for ``labels`` (None: of vertices).

        ``by_type``: whether outputs are those of the labels of several vertex types, if there are.
        """
        labels = labels or graph
        views = {name: graph.of_target(name) for name in graph.targets} if labels is graph else {}
        first = next(iter(views.values()), labels)
        return cls(
            graph=graph.name,
            num_features=graph.num_features,
            num_classes=labels.num_classes,
            labels=cast(_LABELS, label_kind(first.labels)),
            columns=read_columns(graph),
            classes=labels.classes
            if isinstance(labels, TaskRows)
            else read_classes(graph, edges=isinstance(labels, EdgeLabels)),
            scaling=standardize.read_scaling(graph),
            num_edge_features=graph.num_labeled_edge_features,
            edge_columns=read_edge_columns(graph),
            edge_scaling=standardize.read_edge_scaling(graph),
            edge_weights=graph.edge_weights is not None,
            types=graph.input_types,
            type_columns=read_type_columns(graph),
            type_scaling=standardize.read_type_scaling(graph),
            edge_type_columns=read_type_columns(graph, edges=True),
            edge_type_scaling=standardize.read_type_scaling(graph, edges=True),
            time_unit=graph.times.unit
            if isinstance(labels, TaskRows) and graph.times is not None
            else None,
            edge_time_unit=graph.times.unit
            if graph.samples_by_time and graph.times is not None
            else None,
            timed_types=graph.timed_types if isinstance(labels, TaskRows) else (),
            targets={
                name: TargetSchema(
                    num_classes=view.num_classes,
                    labels=cast(_LABELS, label_kind(view.labels)),
                    classes=read_classes(view),
                )
                for name, view in views.items()
                if by_type
            },
        )

    def of_target(self, vertex_type: str | None) -> "InputSchema":
        """Return the schema with the labels of ``vertex_type``, one of several trained types.

        The schema of a run that trained one type is returned unchanged. ConfigError: several types
        were trained, and ``vertex_type`` is none of them.
        """
        if not self.targets:
            return self
        target = self.targets.get(vertex_type or "")
        if target is None:
            raise ConfigError(
                f"vertices={vertex_type}: expected a type that the run has learned, "
                f"{' or '.join(self.targets)}; embeddings (layer=-2) are of any type"
            )
        return replace(self, **asdict(target), targets={vertex_type or "": target})

    @property
    def is_part(self) -> bool:
        """Whether the schema is that of ``of_target``: of some of the model's outputs."""
        return len(self.targets) == 1

    @property
    def _edge_widths(self) -> dict[str, int]:
        """Number of features of each edge type; empty: no edge has any, or there are no types."""
        types = self.types
        if types is None or not types.edge_widths:
            return {}
        return dict(zip(map(str, types.schema.edge_types), types.edge_widths, strict=True))

    @property
    def target(self) -> str | None:
        """Vertex type that was trained; None: vertices have no types."""
        return None if self.types is None else self.types.target

    @property
    def trained_columns(self) -> TrainedColumns:
        """Columns of the features, of vertices, of edges and by vertex type."""
        return TrainedColumns(
            vertices=self.columns,
            edges=self.edge_columns,
            types=self.type_columns,
            edge_types=self.edge_type_columns,
        )

    @property
    def predicts_rows(self) -> bool:
        """Whether the run was trained on task rows."""
        return self.time_unit is not None

    @property
    def multilabel(self) -> bool:
        """Whether a vertex may have several classes."""
        return self.labels == "multilabel"

    @property
    def regression(self) -> bool:
        """Whether labels are numbers."""
        return self.labels == "regression"

    def fitted(self, graph: Graph, *, unseen: str = "refuse") -> Graph:
        """Return ``graph`` with its features arranged and scaled as in training.

        One-hot features of a category move to its position in training, empty cells get the means
        of training; unread edge features are dropped. ConfigError if columns differ in number,
        names, order or scaling, or a category is new and ``unseen`` is ``refuse``.
        """
        if self.types is not None or graph.types is not None:
            return self._fit_types(graph, unseen)
        if self.num_edge_features:
            graph = self._fit_edges(graph, unseen)
        elif graph.num_edge_features:
            graph = graph.without_edge_features()
        return self._fit_vertices(graph, unseen)

    def check_weights(self, graph: Graph) -> None:
        """Raise ConfigError if only one of ``graph`` and the training graph has edge weights."""
        weighted = graph.edge_weights is not None
        if self.edge_weights is None or self.edge_weights == weighted:
            return
        if weighted:
            raise ConfigError(
                f"dataset: edges of {describe(graph)} have weights, and the run was trained on "
                f"{self.graph} without; dataset.weight=null reads none of a table"
            )
        raise ConfigError(
            f"dataset: edges of {describe(graph)} have no weights, and the run was trained on "
            f"those of {self.graph}; name their column in a table by dataset.weight=COLUMN"
        )

    def _fit(
        self,
        graph: Graph,
        matrix: FeatureMatrix,
        features: ColumnFeatures,
        trained: ColumnFeatures,
        *,
        unseen: str,
        count: int | None = None,
        **owner: Any,
    ) -> FeatureMatrix:
        """Return ``matrix`` of ``graph`` with ``features`` arranged and scaled as ``trained``.

        ``count`` rows (None: all) have features, and rows of zeros follow.
        """
        fit = FeatureFit(
            graph=graph.name,
            description=describe(graph),
            trained_on=self.graph,
            features=features,
            trained=trained,
            **owner,
        )
        return fit.fitted(matrix, count=len(matrix.rows) if count is None else count, unseen=unseen)

    def _fit_vertices(self, graph: Graph, unseen: str) -> Graph:
        """Return a graph without types with vertex features as in training."""
        dtype: Any = graph.feature_dtype
        matrix = self._fit(
            graph,
            FeatureMatrix(rows=graph.features, dtype=dtype, width=graph.num_features),
            ColumnFeatures(
                num_features=graph.num_features,
                columns=read_columns(graph),
                scaling=standardize.read_scaling(graph),
            ),
            ColumnFeatures(
                num_features=self.num_features, columns=self.columns, scaling=self.scaling
            ),
            unseen=unseen,
        )
        if matrix.rows is graph.features:
            return graph
        return replace(graph, features=matrix.rows, feature_dtype=matrix.dtype)

    def _fit_edges(self, graph: Graph, unseen: str) -> Graph:
        """Return a graph with edge features as in training; the row of self-loops stays zeros."""
        edges, width = graph.edges, graph.num_edge_features
        rows = np.empty((0, width), np.float32) if edges.features is None else edges.features
        matrix = self._fit(
            graph,
            FeatureMatrix(rows=rows, dtype="float32", width=width),
            ColumnFeatures(
                num_features=width,
                columns=read_edge_columns(graph),
                scaling=standardize.read_edge_scaling(graph),
            ),
            ColumnFeatures(
                num_features=self.num_edge_features,
                columns=self.edge_columns,
                scaling=self.edge_scaling,
            ),
            unseen=unseen,
            count=len(rows) if edges.ends is None else len(edges.ends),
            of_edges=True,
        )
        if matrix.rows is rows:
            return graph
        return replace(graph, edges=replace(edges, features=matrix.rows))

    def _fit_types(self, graph: Graph, unseen: str) -> Graph:
        """Return a graph with types, features of vertices and edges as in training."""
        types = check_types(graph, self.types, self.graph)
        graph = TypeFit(
            graph=graph,
            trained_on=self.graph,
            trained=features_by_type(types.widths, self.type_columns, self.type_scaling),
            unseen=unseen,
        ).vertices()
        widths, scalings = self._edge_widths, self.edge_type_scaling
        return TypeFit(
            graph=graph,
            trained_on=self.graph,
            trained=features_by_type(widths, self.edge_type_columns, scalings),
            unseen=unseen,
            of_edges=True,
        ).edges()


def write_input_schema(directory: Path, schema: InputSchema) -> None:
    """Write ``schema`` next to the checkpoints of the run directory."""
    file = directory / INPUT_SCHEMA
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, _with_checksum(json.dumps(asdict(schema), indent=1)))


def _with_checksum(text: str) -> str:
    """Return a JSON object with the CRC-32 of its text as the last entry."""
    return f'{text.removesuffix(_END)},\n "crc32": {zlib.crc32(text.encode())}{_END}\n'


def _check_crc(content: bytes) -> bytes:
    """Return the JSON text without a checksum entry; ValueError: ``content`` is damaged."""
    checksum = _CHECKSUM.search(content)
    if checksum is None:
        # A flipped bit in a file of this release leaves an unknown entry, or no JSON.
        entries = decode(dict[str, Any], content, source="signature")
        intact = entries.keys() <= {field.name for field in fields(InputSchema)}
    else:
        content = content[: checksum.start()] + _END.encode()
        intact = zlib.crc32(content) == int(checksum[1])
    if not intact:
        raise ValueError("damaged, its bytes are not those of its checksum")
    return content


def read_input_schema(directory: Path) -> InputSchema | None:
    """Return the schema in an untrusted run directory; None: no file; ConfigError: damaged."""
    file = directory / INPUT_SCHEMA
    try:
        content = _check_crc(read_regular(file, limit=_MAX_BYTES))
        return decode(InputSchema, content, source="signature")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None
