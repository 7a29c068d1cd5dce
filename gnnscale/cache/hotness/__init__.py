"""Hotness metrics: a number per vertex, by the measure of each system."""

from gnnscale.cache.hotness.degree import degree_ratio, inclusion, out_degree, pagerank, uniform
from gnnscale.cache.hotness.presampled import Presampled, presample
