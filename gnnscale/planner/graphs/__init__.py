"""Graphs that are not here: published sizes, degrees, and the mini-batches to expect of them."""

from gnnscale.planner.graphs.degrees import Degrees, expected_size
from gnnscale.planner.graphs.published import PUBLISHED, PublishedGraph
