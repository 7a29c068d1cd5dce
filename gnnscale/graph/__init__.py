"""Graphs: adjacency lists, features, labels and splits, in memory or in a graph store."""

from gnnscale.graph.edges import EdgeData, EdgeLabels
from gnnscale.graph.graph import Graph
from gnnscale.graph.split import Split, SplitLabels, SplitSource
from gnnscale.graph.topology import Origin, list_sums
