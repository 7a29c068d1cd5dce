"""Graphs without data: published sizes, degree distributions, and expected mini-batch sizes."""

from gnnscale.planner.graphs.degrees import Degrees, expected_size
from gnnscale.planner.graphs.published import PUBLISHED, PublishedGraph
