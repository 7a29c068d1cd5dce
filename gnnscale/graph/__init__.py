"""Graphs: adjacency lists, features, labels and splits, in memory or in a graph store."""

from gnnscale.graph.graph import Graph
from gnnscale.graph.split import Split, SplitLabels, SplitSource
from gnnscale.graph.topology import EdgeData, EdgeLabels, Origin, list_sums
