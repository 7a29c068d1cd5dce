"""Graphs: adjacency lists, features, labels and splits, in memory or in a graph store."""

from gnnscale.graph.graph import (
    EdgeData,
    EdgeLabels,
    Graph,
    Origin,
    Split,
    SplitLabels,
    SplitSource,
    list_sums,
)
