"""Graphs that are not here: published sizes, degrees, and the mini-batches to expect of them."""

from gnnscale.plan.graphs.degrees import Degrees, expected_size
from gnnscale.plan.graphs.published import PUBLISHED, PublishedGraph
