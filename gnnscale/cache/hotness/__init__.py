"""Hotness metrics: a number per vertex, by the measure of each system."""

from gnnscale.cache.hotness.degree import degree_ratio, out_degree, pagerank, uniform
from gnnscale.cache.hotness.inclusion import inclusion
from gnnscale.cache.hotness.presampled import Presampled, presample
