"""Times of a graph: from when on its vertices and edges are known."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from gnnscale.core import Int64Array

#: Unit of all times of a graph, since 1970-01-01 UTC; ``step`` counts from any origin.
TimeUnit = Literal["day", "s", "ms", "us", "ns", "step"]
TIME_UNITS: tuple[str, ...] = get_args(TimeUnit)
#: Time of vertices and edges that are known at all times.
NO_TIME = int(np.iinfo(np.int64).min)


@dataclass(frozen=True, kw_only=True)
class GraphTimes:
    """Times of a graph's edges and vertices, int64 in one unit.

    An edge is known from the later of its own time and its source's time on. Lists of in-neighbors
    ascend by that time; edges of one time ascend by source. The edges of a list have times all, or
    none has.
    """

    unit: TimeUnit  #: unit of all times
    #: ``[num_edges]`` int64 time from which each edge is known, in the order of ``indices``;
    #: ``NO_TIME``: always
    edges: Int64Array
    #: ``[num_vertices]`` int64 time from which each vertex is known; ``NO_TIME``: always. None: all
    #: vertices always are
    vertices: Int64Array | None = None
