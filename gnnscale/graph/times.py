"""Times of a graph: from when on its vertices and edges are known."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from gnnscale.core import Float32Array, Int64Array, IntArray

#: Unit of all times of a graph, since 1970-01-01 UTC; ``step`` counts from any origin.
TimeUnit = Literal["day", "s", "ms", "us", "ns", "step"]
TIME_UNITS: tuple[str, ...] = get_args(TimeUnit)
#: Time of vertices and edges that are known at all times.
NO_TIME = int(np.iinfo(np.int64).min)
#: NumPy's codes of the units of dates.
DATE_CODES: dict[str, str] = {"day": "D", "s": "s", "ms": "ms", "us": "us", "ns": "ns"}
#: Number of a unit's counts in a day; a step is not converted.
UNITS_PER_DAY: dict[TimeUnit, int] = {
    "day": 1,
    "s": 86_400,
    "ms": 86_400_000,
    "us": 86_400_000_000,
    "ns": 86_400_000_000_000,
    "step": 1,
}
#: Times of which the first is sought at once.
_CHUNK = 1 << 22


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

    @property
    def first(self) -> int | None:
        """First time of an edge or a vertex; None: all are known at all times."""
        arrays = (self.edges,) if self.vertices is None else (self.edges, self.vertices)
        latest = np.iinfo(np.int64).max
        firsts = [
            int(part[part != NO_TIME].min(initial=latest))
            for times in arrays
            for part in (times[at : at + _CHUNK] for at in range(0, len(times), _CHUNK))
        ]
        first = min(firsts, default=latest)
        return None if first == latest else first

    def ages(self, vertices: IntArray, cutoffs: Int64Array) -> Float32Array:
        """Return ``[n]`` float32 days from the times of ``vertices`` ``[n]`` to their ``cutoffs``.

        They are 0 for vertices that are known at all times; with the unit ``step``, they are steps.
        """
        if self.vertices is None:
            return np.zeros(len(vertices), np.float32)
        times = np.asarray(self.vertices)[vertices]
        elapsed = np.where(times == NO_TIME, 0, cutoffs - times)
        days: Float32Array = (elapsed / UNITS_PER_DAY[self.unit]).astype(np.float32)
        return days

    def are_timed(self, vertices: slice) -> bool:
        """Whether the vertices of a type, a range of ids, have times."""
        times = None if self.vertices is None else self.vertices[vertices]
        return times is not None and len(times) > 0 and int(times[0]) != NO_TIME


def format_time(time: int, unit: str) -> str:
    """Return a time in ``unit`` as a date, for messages; a number if the unit is of no date."""
    if unit not in DATE_CODES:
        return f"{time} ({unit})"
    (date,) = np.array([time]).astype(f"datetime64[{DATE_CODES[unit]}]")
    return str(date).replace("T", " ")
