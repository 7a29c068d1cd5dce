"""What a model reads of a graph and says of its vertices: sizes, and the names of both."""

from __future__ import annotations

import json
import logging
import re
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from msgspec import Meta

from gnnscale.core import ConfigError, Int64Array, decode, one_line, shown, write_atomically
from gnnscale.core.config.yaml_file import read_regular
from gnnscale.data.storage.standardize import (
    ColumnScaling,
    read_edge_scaling,
    read_scaling,
    scaled_edges,
    scaled_graph,
)
from gnnscale.data.tables.categories import (
    Column,
    arranged_edges,
    arranged_graph,
    check_kinds,
    places_of,
)
from gnnscale.data.tables.feature_columns import read_columns, read_edge_columns
from gnnscale.data.tables.vertex_ids import read_classes
from gnnscale.graph import EdgeLabels, Graph, SplitLabels
from gnnscale.graph.store_format import MAX_CLASSES, MAX_FEATURES, read_meta
from gnnscale.nn.losses import label_kind
from gnnscale.run.checkpoint import SIGNATURE

_LOG = logging.getLogger(__name__)
_LABELS = Literal["classes", "multilabel", "regression"]
#: Names of columns and of classes take at most 1 MiB each.
_MAX_BYTES = 16 << 20
#: The end of the JSON object in the file, and what stands before it.
_END = "\n}"
_CHECKSUM = re.compile(rb',\n "crc32": (\d{1,10})\n}\n\Z')
#: Characters of a path in an error.
_MAX_PLACE = 200
#: Columns that an error lists.
_MAX_LISTED = 12


@dataclass(frozen=True, kw_only=True)
class InputSchema:
    """The inputs and the outputs of models that are trained on a graph.

    Attributes:
        graph: name of the graph.
        num_features: length of a row of features.
        num_classes: classes, or targets of regression; 0 if nothing was labelled.
        labels: ``classes``, ``multilabel`` or ``regression``.
        columns: the features, in order, with their categories; None without names.
        classes: names of the classes, in the order of their numbers; None without names.
        scaling: what standardized the features; None if nothing did.
        num_edge_features: features of each edge that models read; 0 if they read none.
        edge_columns: these features, in order, with their categories; None without names.
        edge_scaling: what standardized them; None if nothing did.
        edge_weights: whether edges have weights; None in files of releases that did not say it.
    """

    graph: str
    num_features: Annotated[int, Meta(ge=1, le=MAX_FEATURES)]
    num_classes: Annotated[int, Meta(ge=0, le=MAX_CLASSES)]
    labels: _LABELS
    columns: tuple[Column, ...] | None = None
    classes: list[str] | None = None
    scaling: ColumnScaling | None = None
    num_edge_features: Annotated[int, Meta(ge=0, le=MAX_FEATURES)] = 0
    edge_columns: tuple[Column, ...] | None = None
    edge_scaling: ColumnScaling | None = None
    edge_weights: bool | None = None

    def __post_init__(self) -> None:
        if self.scaling is not None and len(self.scaling.mean) != self.num_features:
            raise ValueError(f"scales {len(self.scaling.mean)} of {self.num_features} features")
        of_edges, width = self.edge_scaling, self.num_edge_features
        if of_edges is not None and len(of_edges.mean) != width:
            raise ValueError(f"scales {len(of_edges.mean)} of {width} features of edges")
        if self.classes is not None and len(self.classes) != self.num_classes:
            raise ValueError(f"{len(self.classes)} names of {self.num_classes} classes")

    @classmethod
    def of(cls, graph: Graph, labels: SplitLabels | None = None) -> InputSchema:
        """Return the signature of models that are trained on ``graph``.

        Args:
            graph: whose vertices and edges are read.
            labels: what is predicted; None for the labels of the vertices.

        Raises:
            GraphError: its store holds names that this program has not written.
        """
        labels = labels or graph
        return cls(
            graph=graph.name,
            num_features=graph.num_features,
            num_classes=labels.num_classes,
            labels=cast(_LABELS, label_kind(labels.labels)),
            columns=read_columns(graph),
            classes=read_classes(graph, edges=isinstance(labels, EdgeLabels)),
            scaling=read_scaling(graph),
            num_edge_features=graph.num_edge_features,
            edge_columns=read_edge_columns(graph),
            edge_scaling=read_edge_scaling(graph),
            edge_weights=graph.edge_weights is not None,
        )

    @property
    def multilabel(self) -> bool:
        """Whether a vertex may have several classes."""
        return self.labels == "multilabel"

    @property
    def regression(self) -> bool:
        """Whether labels are numbers, not classes."""
        return self.labels == "regression"

    def fitted(self, graph: Graph) -> Graph:
        """Return ``graph`` with its features as the model reads them.

        Those of a category have the place that they had when the model was trained, and all are
        scaled if those were.

        Raises:
            ConfigError: their number differs, or names or order of their columns, or those of
                features of edges; or a column has a category that is not known; or they have a
                scaling, and not that of the run.
            GraphError: as ``of`` does.
        """
        graph = self._fitted_edges(graph)
        places = self._places(graph)
        found = read_scaling(graph)
        _check_scaling(graph.name, found, self.scaling, arranged=places is not None)
        arranged = graph if places is None else arranged_graph(graph, places)
        if found is None and self.scaling is not None:
            return scaled_graph(arranged, self.scaling)
        return arranged

    def check_weights(self, graph: Graph) -> None:
        """Refuse ``graph`` unless its edges have weights if and only if those of the run have.

        Raises:
            ConfigError: weights are missing, or the run had no weights.
        """
        weighted = graph.edge_weights is not None
        if self.edge_weights is None or self.edge_weights == weighted:
            return
        if weighted:
            raise ConfigError(
                f"dataset: edges of {_placed(graph)} have weights, and the run was trained on "
                f"{self.graph} without; dataset.weight=null reads none of a table"
            )
        raise ConfigError(
            f"dataset: edges of {_placed(graph)} have no weights, and the run was trained on "
            f"those of {self.graph}; name their column in a table by dataset.weight=COLUMN"
        )

    def _fitted_edges(self, graph: Graph) -> Graph:
        """Return ``graph`` with the features of edges as the model reads them, none if it does not.

        It raises as ``fitted`` does.
        """
        if not self.num_edge_features:
            return graph.without_edge_features() if graph.num_edge_features else graph
        places = self._places_of_edges(graph)
        found = read_edge_scaling(graph)
        _check_scaling(graph.name, found, self.edge_scaling, arranged=places is not None)
        arranged = graph if places is None else arranged_edges(graph, places)
        if found is None and self.edge_scaling is not None:
            return scaled_edges(arranged, self.edge_scaling)
        return arranged

    def _places(self, graph: Graph) -> Int64Array | None:
        """Return the places of features of categories, None if there are none; check all."""
        columns, places = read_columns(graph), None
        if columns is not None and self.columns is not None:
            _check_columns(graph.name, columns, self.columns)
            places = places_of(graph.name, columns, self.columns)
        num_features = graph.num_features if places is None else len(places)
        if num_features != self.num_features:
            raise ConfigError(
                f"dataset: {_placed(graph)} has {num_features} features, and the run was trained "
                f"on {self.num_features} of {self.graph}"
            )
        _warn_without_names(graph, columns, self.graph, self.columns)
        return places

    def _places_of_edges(self, graph: Graph) -> Int64Array | None:
        """Return the places of features of categories of edges, as ``_places`` does."""
        columns, places = read_edge_columns(graph), None
        if columns is not None and self.edge_columns is not None:
            _check_columns(graph.name, columns, self.edge_columns, of="edges")
            places = places_of(graph.name, columns, self.edge_columns)
        num_features = graph.num_edge_features if places is None else len(places)
        if num_features != self.num_edge_features:
            own = [each.name for each in self.edge_columns or ()]
            advice = f"; set dataset.edge_features=[{_listed(own)}]" if own else ""
            raise ConfigError(
                f"dataset: {_placed(graph)} has {num_features} features of each edge, and "
                f"the run was trained on {self.num_edge_features} of {self.graph}{advice}"
            )
        _warn_without_names(graph, columns, self.graph, self.edge_columns, of=" of edges")
        return places


def _placed(graph: Graph) -> str:
    """Return the name of a graph, and what it was made of, as others may have this name."""
    if graph.path is None:
        return f"the given {graph.name}"
    made_of = read_meta(graph.path).entries.get("source") or graph.path
    return f"{graph.name} ({one_line(made_of, _MAX_PLACE)})"


def _warn_without_names(
    graph: Graph,
    found: tuple[Column, ...] | None,
    trained_on: str,
    trained: tuple[Column, ...] | None,
    *,
    of: str = "",
) -> None:
    """Warn if one graph has names of features and the other has none: their order is unchecked.

    Args:
        graph: that is predicted.
        found: its columns of features ``of`` edges.
        trained_on: name of the graph that the run was trained on.
        trained: the columns of that graph.
    """
    if (found is None) == (trained is None):
        return
    named, columns = (trained_on, trained) if found is None else (graph.name, found)
    unnamed = trained_on if found is not None else graph.name
    _LOG.warning(
        "dataset: features%s of %s have no names, and those of %s do: their order must be %s",
        *(of, unnamed, named, _listed(each.name for each in columns or ())),
    )


def _check_scaling(
    name: str, found: ColumnScaling | None, own: ColumnScaling | None, arranged: bool
) -> None:
    """Raise ConfigError if features have a scaling, and not that of the run, ``own``.

    ``name`` is that of the graph, and ``arranged`` whether features change their places.
    """
    if found is not None and (found != own or arranged):
        raise ConfigError(
            f"dataset: {name} has features with a scaling that is not the run's; prepare "
            "it with dataset.standardize=false, so that they get that of the run"
        )


def _check_columns(
    name: str,
    found: tuple[Column, ...],
    trained: tuple[Column, ...],
    *,
    of: str = "",
) -> None:
    """Raise ConfigError unless the columns of features ``of`` edges are those ``trained`` on.

    ``name`` is that of the graph.
    """
    key, categories = ("edge_features", "edge_categories") if of else ("features", "categories")
    own = {each.name: each for each in trained}
    features = f"features of {of}" if of else "features"
    for each in found:
        if each.name not in own:
            raise ConfigError(
                f"dataset: {name} has {features} {shown(repr(each.name))}, which the run was not "
                f"trained on; set dataset.{key}=[{_listed(own)}]"
            )
        check_kinds(name, each, own[each.name], categories)
        if each.categories is None and each.width != own[each.name].width:
            raise ConfigError(
                f"dataset: {name} has {each.width} numbers in each {shown(repr(each.name))}, "
                f"and the run was trained on {own[each.name].width}"
            )
    missing = own.keys() - {each.name for each in found}
    if missing:
        raise ConfigError(
            f"dataset: {name} has no {features} {shown(repr(min(missing)))}, which the run was "
            f"trained on; it has {_listed(each.name for each in found)}"
        )
    if [each.name for each in found] != [*own]:
        raise ConfigError(
            f"dataset: the columns of {features} of {name} have another order than those that "
            f"the run was trained on; set dataset.{key}=[{_listed(own)}]"
        )


def write_signature(directory: Path, signature: InputSchema) -> None:
    """Write ``signature`` into a run directory, beside the checkpoints.

    Raises:
        OSError: it cannot be written.
    """
    file = directory / SIGNATURE
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, _with_checksum(json.dumps(asdict(signature), indent=1)))


def _with_checksum(text: str) -> str:
    """Return a JSON object with the CRC-32 of its text as the last entry."""
    return f'{text.removesuffix(_END)},\n "crc32": {zlib.crc32(text.encode())}{_END}\n'


def _checked(content: bytes) -> bytes:
    """Return the JSON object in a file, which earlier releases wrote without a checksum.

    Raises:
        ValueError: it is not the object of which the checksum was made.
    """
    found = _CHECKSUM.search(content)
    if found is None:
        # A flipped bit leaves an entry that no release wrote, or no JSON at all.
        entries = decode(dict[str, Any], content, source="signature")
        whole = entries.keys() <= {each.name for each in fields(InputSchema)}
    else:
        content = content[: found.start()] + _END.encode()
        whole = zlib.crc32(content) == int(found[1])
    if not whole:
        raise ValueError("damaged, its bytes are not those of its checksum")
    return content


def read_signature(directory: Path) -> InputSchema | None:
    """Return the signature in a run directory, which is not trusted; None without one.

    Raises:
        ConfigError: the file cannot be read, is damaged, or is no signature.
    """
    file = directory / SIGNATURE
    try:
        content = _checked(read_regular(file, limit=_MAX_BYTES))
        return decode(InputSchema, content, source="signature")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None


def _listed(names: Iterable[str]) -> str:
    found = [shown(each) for each in names]
    more = len(found) - _MAX_LISTED
    return ",".join(found[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
