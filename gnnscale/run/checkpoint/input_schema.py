"""Input schema of a trained model: sizes, names and scaling of its features and classes."""

import json
import logging
import re
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from msgspec import Meta

from gnnscale.core import ConfigError, binary_metrics, brief, decode, one_line, write_atomically
from gnnscale.core.config.yaml_file import read_regular
from gnnscale.data.storage import standardize
from gnnscale.data.tables.categories import (
    Arrangement,
    Column,
    arrange_edge_features,
    arrange_features,
    arrangement,
    check_kinds,
    count_cells,
    unseen_categories,
)
from gnnscale.data.tables.feature_columns import read_columns, read_edge_columns
from gnnscale.data.tables.vertex_ids import read_classes
from gnnscale.graph import (
    MAX_CLASSES,
    MAX_FEATURES,
    EdgeLabels,
    Graph,
    InputTypes,
    SplitLabels,
    read_meta,
)
from gnnscale.nn.losses import label_kind
from gnnscale.run.checkpoint import INPUT_SCHEMA

_LOG = logging.getLogger(__name__)
_LABELS = Literal["classes", "multilabel", "regression"]
#: Maximum size of the file; names of columns and of classes take at most 1 MiB each.
_MAX_BYTES = 16 << 20
#: End of the JSON object in the file, and pattern of the checksum entry that precedes it.
_END = "\n}"
_CHECKSUM = re.compile(rb',\n "crc32": (\d{1,10})\n}\n\Z')
#: Maximum characters of a path in an error.
_MAX_PATH = 200
#: Maximum number of columns that an error lists.
_MAX_LISTED = 12


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

    def __post_init__(self) -> None:
        if self.scaling is not None and len(self.scaling.mean) != self.num_features:
            raise ValueError(f"scales {len(self.scaling.mean)} of {self.num_features} features")
        scaling, width = self.edge_scaling, self.num_edge_features
        if scaling is not None and len(scaling.mean) != width:
            raise ValueError(f"scales {len(scaling.mean)} of {width} features of edges")
        if self.classes is not None and len(self.classes) != self.num_classes:
            raise ValueError(f"{len(self.classes)} names of {self.num_classes} classes")
        expected = self.num_classes if self.multilabel else 1
        if self.thresholds is not None and len(self.thresholds.values) != expected:
            raise ValueError(f"{len(self.thresholds.values)} thresholds of {expected} classes")

    @classmethod
    def of(cls, graph: Graph, labels: SplitLabels | None = None) -> "InputSchema":
        """Return the schema of a model trained on ``graph`` for ``labels`` (None: of vertices)."""
        labels = labels or graph
        return cls(
            graph=graph.name,
            num_features=graph.num_features,
            num_classes=labels.num_classes,
            labels=cast(_LABELS, label_kind(labels.labels)),
            columns=read_columns(graph),
            classes=read_classes(graph, edges=isinstance(labels, EdgeLabels)),
            scaling=standardize.read_scaling(graph),
            num_edge_features=graph.num_edge_features,
            edge_columns=read_edge_columns(graph),
            edge_scaling=standardize.read_edge_scaling(graph),
            edge_weights=graph.edge_weights is not None,
            types=graph.input_types,
        )

    @property
    def target(self) -> str | None:
        """Vertex type that was trained; None: vertices have no types."""
        return None if self.types is None else self.types.target

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
            self._check_types(graph)
            return graph
        if self.num_edge_features:
            graph = self._fit(graph, unseen, of="edges")
        elif graph.num_edge_features:
            graph = graph.without_edge_features()
        return self._fit(graph, unseen)

    def _check_types(self, graph: Graph) -> None:
        """Raise ConfigError unless ``graph`` has the types and numbers of features of training."""
        types = graph.input_types
        if types is None or self.types is None:
            has, trained = ("no types", "types") if types is None else ("types", "no types")
            raise ConfigError(
                f"dataset: vertices of {_describe(graph)} have {has}, and the run was trained on "
                f"{self.graph}, whose vertices have {trained}"
            )
        for what, names, expected in (
            ("vertex types", [*types.widths], [*self.types.widths]),
            ("edge types", *(["-".join(t) for t in s.edges] for s in (types, self.types))),
        ):
            if names != expected:
                raise ConfigError(
                    f"dataset: {_describe(graph)} has the {what} {_join(names)}, and the run was "
                    f"trained on {_join(expected)} of {self.graph}"
                )
        for name, width in types.widths.items():
            if width != self.types.widths[name]:
                raise ConfigError(
                    f"dataset: {name} of {_describe(graph)} has {width} features, and the run was "
                    f"trained on {self.types.widths[name]} of {self.graph}"
                )

    def check_weights(self, graph: Graph) -> None:
        """Raise ConfigError if only one of ``graph`` and the training graph has edge weights."""
        weighted = graph.edge_weights is not None
        if self.edge_weights is None or self.edge_weights == weighted:
            return
        if weighted:
            raise ConfigError(
                f"dataset: edges of {_describe(graph)} have weights, and the run was trained on "
                f"{self.graph} without; dataset.weight=null reads none of a table"
            )
        raise ConfigError(
            f"dataset: edges of {_describe(graph)} have no weights, and the run was trained on "
            f"those of {self.graph}; name their column in a table by dataset.weight=COLUMN"
        )

    def _fit(self, graph: Graph, unseen: str, *, of: str = "") -> Graph:
        """Return ``graph`` with features, those of edges if ``of``, arranged and scaled."""
        arrange, scale = arrange_features, standardize.scale_features
        scaling, trained = standardize.read_scaling(graph), self.scaling
        if of:
            arrange, scale = arrange_edge_features, standardize.scale_edge_features
            scaling, trained = standardize.read_edge_scaling(graph), self.edge_scaling
        positions = self._arrangement(graph, unseen, of=of)
        _check_scaling(graph.name, scaling, trained, arranged=positions is not None)
        if positions is not None:
            graph = arrange(graph, positions)
        return scale(graph, trained) if scaling is None and trained is not None else graph

    def _arrangement(self, graph: Graph, unseen: str, *, of: str) -> Arrangement | None:
        """Return how features of ``graph`` become those of the model; None: they are equal."""
        columns, trained = read_columns(graph), self.columns
        num_features, num_trained, hint = graph.num_features, self.num_features, ""
        if of:
            columns, trained = read_edge_columns(graph), self.edge_columns
            num_features, num_trained = graph.num_edge_features, self.num_edge_features
            names = [column.name for column in trained or ()]
            hint = f"; set dataset.edge_features=[{_join(names)}]" if names else ""
        positions = None
        if columns is not None and trained is not None:
            _check_columns(graph.name, columns, trained, of=of)
            positions = arrangement(graph.name, columns, trained, unseen=unseen)
            num_features = num_features if positions is None else len(positions.index)
            _warn_of_unseen(graph, columns, trained, of=of)
            _warn_of_gaps(graph, columns, trained, of=of)
        if num_features != num_trained:
            unit = " of each edge" if of else ""
            raise ConfigError(
                f"dataset: {_describe(graph)} has {num_features} features{unit}, and the run was "
                f"trained on {num_trained} of {self.graph}{hint}"
            )
        _warn_without_names(graph, columns, self.graph, trained, of=f" of {of}" if of else "")
        return positions


def _warn_of_unseen(
    graph: Graph, columns: tuple[Column, ...], trained: tuple[Column, ...], *, of: str
) -> None:
    """Warn of categories that were not in training, which become empty cells, with their number."""
    for name, unseen, features in unseen_categories(columns, trained):
        _LOG.warning(
            "dataset: column %s of %s: %s cells have a category that was not in training, such as "
            "%s, and are read as empty",
            *(brief(repr(name)), graph.name, f"{_count(graph, features, of):,}"),
            brief(repr(unseen[0])),
        )


def _warn_of_gaps(
    graph: Graph, columns: tuple[Column, ...], trained: tuple[Column, ...], *, of: str
) -> None:
    """Warn of columns with empty cells that had none in training, and get the mean of training."""
    first = 0
    for column, expected in zip(columns, trained, strict=True):
        first += column.width
        if not column.has_gaps or expected.has_gaps or expected.categories is not None:
            continue
        name, count = brief(repr(column.name)), _count(graph, [first - 1], of)
        if expected.mean is None:
            raise ConfigError(
                f"dataset: column {name} of {graph.name}: expected no empty cell, as the run, of "
                f"an earlier release, knows no mean of training, got {count}"
            )
        _LOG.warning(
            "dataset: column %s of %s: %s empty cells get the mean of training; in training none "
            "was empty",
            *(name, graph.name, f"{count:,}"),
        )


def _count(graph: Graph, features: list[int], of: str) -> int:
    """Return the number of vertices, or edges with ``of``, with a value in one of ``features``."""
    rows, dtype, width = graph.features, graph.feature_dtype, graph.num_features
    if of:
        assert graph.edges.features is not None
        rows, dtype, width = graph.edges.features, "float32", graph.num_edge_features
    return count_cells(rows, features, dtype, width)


def _describe(graph: Graph) -> str:
    """Return the name of a graph and its source, since names are not unique."""
    if graph.path is None:
        return f"the given {graph.name}"
    source = read_meta(graph.path).entries.get("source") or graph.path
    return f"{graph.name} ({one_line(source, _MAX_PATH)})"


def _warn_without_names(
    graph: Graph,
    columns: tuple[Column, ...] | None,
    trained_on: str,
    trained: tuple[Column, ...] | None,
    *,
    of: str = "",
) -> None:
    """Warn if only ``graph`` or only the training graph names its features: order is unchecked."""
    if (columns is None) == (trained is None):
        return
    if columns is None:
        unnamed, named, columns = graph.name, trained_on, trained
    else:
        unnamed, named = trained_on, graph.name
    _LOG.warning(
        "dataset: features%s of %s have no names, and those of %s do: their order must be %s",
        *(of, unnamed, named, _join(column.name for column in columns or ())),
    )


def _check_scaling(
    name: str,
    scaling: standardize.ColumnScaling | None,
    trained: standardize.ColumnScaling | None,
    arranged: bool,
) -> None:
    """Refuse features with another ``scaling`` than training's, or ``arranged`` anew after it."""
    if scaling is not None and (scaling != trained or arranged):
        raise ConfigError(
            f"dataset: {name} has features with a scaling that is not the run's; prepare "
            "it with dataset.standardize=false, so that they get that of the run"
        )


def _check_columns(
    name: str, columns: tuple[Column, ...], trained: tuple[Column, ...], *, of: str = ""
) -> None:
    """Refuse columns that differ from the training columns; ``of``: ``edges`` for edge features."""
    key, categories = ("edge_features", "edge_categories") if of else ("features", "categories")
    trained_by_name = {column.name: column for column in trained}
    features = f"features of {of}" if of else "features"
    for column in columns:
        expected = trained_by_name.get(column.name)
        if expected is None:
            raise ConfigError(
                f"dataset: {name} has {features} {brief(repr(column.name))}, which the run was not "
                f"trained on; set dataset.{key}=[{_join(trained_by_name)}]"
            )
        check_kinds(name, column, expected, categories)
        has_numbers = column.categories is None and expected.categories is None
        if has_numbers and not column.is_empty and column.length != expected.length:
            raise ConfigError(
                f"dataset: {name} has {column.length} numbers in each {brief(repr(column.name))}, "
                f"and the run was trained on {expected.length}"
            )
    names = [column.name for column in columns]
    missing = trained_by_name.keys() - set(names)
    if missing:
        raise ConfigError(
            f"dataset: {name} has no {features} {brief(repr(min(missing)))}, which the run was "
            f"trained on; it has {_join(names)}"
        )
    if names != [*trained_by_name]:
        raise ConfigError(
            f"dataset: the columns of {features} of {name} have another order than those that "
            f"the run was trained on; set dataset.{key}=[{_join(trained_by_name)}]"
        )


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


def _join(names: Iterable[str]) -> str:
    """Return names separated by commas, at most ``_MAX_LISTED``."""
    texts = [brief(name) for name in names]
    more = len(texts) - _MAX_LISTED
    return ",".join(texts[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
