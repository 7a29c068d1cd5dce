"""Features of a graph with types to predict, arranged and scaled type by type as in training."""

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gnnscale.core import ConfigError
from gnnscale.data.storage import standardize
from gnnscale.data.tables.categories import Column
from gnnscale.data.tables.feature_columns import read_type_columns
from gnnscale.graph import FeatureMatrix, Graph, InputTypes, TypedFeatures
from gnnscale.graph.schema import ONLY_VERTEX
from gnnscale.run.checkpoint.fit_features import ColumnFeatures, FeatureFit, describe, join_names


def check_types(graph: Graph, trained: InputTypes | None, trained_on: str) -> InputTypes:
    """Return the types ``trained``; ConfigError: ``graph`` has others, or in another order.

    ``trained_on`` is the name of the training graph.
    """
    types = graph.input_types
    if types is None or trained is None:
        has, had = ("no types", "types") if types is None else ("types", "no types")
        raise ConfigError(
            f"dataset: vertices of {describe(graph)} have {has}, and the run was trained on "
            f"{trained_on}, whose vertices have {had}"
        )
    for kind, names, expected in (
        ("vertex types", [*types.widths], [*trained.widths]),
        ("edge types", *(["-".join(t) for t in s.edges] for s in (types, trained))),
    ):
        if names != expected:
            raise ConfigError(
                f"dataset: {describe(graph)} has the {kind} {join_names(names)}, and the run "
                f"was trained on {join_names(expected)} of {trained_on}, in this order"
            )
    return trained


def features_by_type(
    widths: Mapping[str, int],
    columns: Mapping[str, tuple[Column, ...]],
    scalings: Mapping[str, standardize.ColumnScaling],
) -> dict[str, ColumnFeatures]:
    """Return number, columns and scaling of the features of each type in ``widths``."""
    return {
        name: ColumnFeatures(
            num_features=width, columns=columns.get(name), scaling=scalings.get(name)
        )
        for name, width in widths.items()
    }


@dataclass(frozen=True, kw_only=True)
class TypeFit:
    """Fit of features of a graph with types, of vertices or of edges, to those of training."""

    graph: Graph
    trained_on: str  #: name of the training graph
    trained: dict[str, ColumnFeatures]  #: features of training by type, in the graph's order
    unseen: str  #: ``refuse`` or ``empty``, for categories that training lacked
    of_edges: bool = False

    @cached_property
    def _columns(self) -> dict[str, tuple[Column, ...]]:
        return read_type_columns(self.graph, edges=self.of_edges)

    @cached_property
    def _scaling(self) -> dict[str, standardize.ColumnScaling]:
        return standardize.read_type_scaling(self.graph, edges=self.of_edges)

    def _fitted(
        self, name: str, matrix: FeatureMatrix, *, is_named: bool, count: int | None = None
    ) -> FeatureMatrix:
        """Return the ``matrix`` of type ``name`` with features as in training.

        ``count`` rows (None: all) have features, and rows of zeros follow. ``is_named``: whether
        messages name the type.
        """
        features = ColumnFeatures(
            num_features=matrix.width,
            columns=self._columns.get(name),
            scaling=self._scaling.get(name),
        )
        fit = FeatureFit(
            graph=self.graph.name,
            description=describe(self.graph),
            trained_on=self.trained_on,
            features=features,
            trained=self.trained[name],
            of_type=name if is_named else None,
            of_edges=self.of_edges,
        )
        count = len(matrix.rows) if count is None else count
        return fit.fitted(matrix, count=count, unseen=self.unseen)

    def vertices(self) -> Graph:
        """Return the graph, features of its vertices arranged and scaled type by type."""
        graph = self.graph
        features: object = graph.features
        assert isinstance(features, TypedFeatures)
        is_named = not graph.schema.is_homogeneous or graph.vertex_types != [ONLY_VERTEX]
        matrices = []
        for name, matrix in zip(self.trained, features.matrices, strict=True):
            assert matrix is not None, "read_by_type gives every type rows"
            matrices.append(self._fitted(name, matrix, is_named=is_named))
        if all(map(operator.is_, matrices, features.matrices)):
            return graph
        rows: Any = TypedFeatures(
            matrices, learned=features.learned, learned_rows=features.learned_rows
        )
        return replace(graph, features=rows)

    def edges(self) -> Graph:
        """Return the graph, features of its edges arranged and scaled type by type.

        Edge types that share features share the result.
        """
        graph, edges = self.graph, self.graph.edges
        if not any(features.num_features for features in self.trained.values()):
            return graph if edges.by_type is None else graph.without_edge_features()
        present = (None,) * len(self.trained) if edges.by_type is None else edges.by_type.matrices
        is_named = graph.vertex_types != [ONLY_VERTEX]
        matrices: list[FeatureMatrix | None] = []
        fitted: dict[int, FeatureMatrix] = {}
        for number, (name, trained) in enumerate(self.trained.items()):
            matrix = present[number]
            key = -1 - number if matrix is None else id(matrix)
            if trained.num_features and key not in fitted:
                if matrix is None:
                    matrix = _without_columns(graph, number, trained.num_features)
                is_labeled = number == edges.labeled_type and edges.ends is not None
                # A row of zeros may follow those of labeled edges.
                count = len(edges.ends) if is_labeled and edges.ends is not None else None
                fitted[key] = self._fitted(name, matrix, is_named=is_named, count=count)
            matrices.append(fitted[key] if trained.num_features else None)
        if edges.by_type is not None and all(map(operator.is_, matrices, present)):
            return graph
        rows = np.zeros(graph.num_edges, np.uint32) if edges.rows is None else edges.rows
        return replace(graph, edges=replace(edges, rows=rows, by_type=TypedFeatures(matrices)))


def _without_columns(graph: Graph, edge_type: int, width: int) -> FeatureMatrix:
    """Return features of an edge type without any: of width 0, or of ``width`` without edges."""
    rows = graph.schema.rows(edge_type)
    has_edges = bool((graph.indptr[1:][rows] != graph.indptr[:-1][rows]).any())
    shape = (0, 0 if has_edges else width)
    return FeatureMatrix(rows=np.empty(shape, np.float32), dtype="float32", width=shape[1])
