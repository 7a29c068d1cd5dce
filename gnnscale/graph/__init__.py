"""Graphs: adjacency lists, features, labels and splits, in memory or in a graph store."""

from gnnscale.graph.graph import (
    EdgeData,
    EdgeLabels,
    Graph,
    Labelled,
    Origin,
    Split,
    SplitSource,
    list_sums,
)
