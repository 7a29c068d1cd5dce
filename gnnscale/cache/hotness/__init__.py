"""How hot each vertex is: one number a vertex, by the measure of each system."""

from gnnscale.cache.hotness.degree_ratio import degree_ratio
from gnnscale.cache.hotness.inclusion import inclusion
from gnnscale.cache.hotness.out_degree import out_degree
from gnnscale.cache.hotness.pagerank import pagerank
from gnnscale.cache.hotness.presampled import Presampled, presample
from gnnscale.cache.hotness.random import uniform

__all__ = [
    "Presampled",
    "degree_ratio",
    "inclusion",
    "out_degree",
    "pagerank",
    "presample",
    "uniform",
]
