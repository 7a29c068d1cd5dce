"""Words of spooled edges: a source above the edge's row number or weight, and what they carry."""

from dataclasses import dataclass

import numpy as np

from gnnscale.core import Array
from gnnscale.core.types import Float32Array, Int32Array, Int64Array, UInt32Array

#: Bytes of memory per edge while words are unpacked and repeated edges merged.
EDGE_BYTES = 40
#: Further bytes per edge while lists are sorted by time: own time, and time from which it is known.
TIME_BYTES = 16

_CARRIED_BITS = 32


@dataclass(frozen=True)
class EdgePayload:
    """Weights, feature row numbers and times of edges, ``[num_edges]`` each; None: edges have none.

    Times are the edges' own until lists are sorted by time, then those from which they are known.
    """

    weights: Float32Array | None = None  #: None: edges have no weights
    rows: UInt32Array | None = None  #: rows of edge features. None: edges have no features.
    times: Int64Array | None = None  #: None: edges are known at all times

    def arrays(self) -> list[Array]:
        """Return weights and rows that are present."""
        return [array for array in (self.weights, self.rows) if array is not None]


def weight_bits(weights: Float32Array) -> UInt32Array:
    """Return finite, non-negative ``weights`` as uint32 bits, which sort like the weights."""
    # Adding plus zero clears the sign bit of minus zero.
    bits: UInt32Array = (weights + np.float32(0)).view(np.uint32)
    return bits


def packed(src: Int64Array, carried: UInt32Array) -> Int64Array:
    """Return words with ``src`` (below 2^31) above 32 bits of ``carried``; they sort like pairs."""
    words: Int64Array = (src << _CARRIED_BITS) | carried
    return words


def unpacked(words: Int64Array) -> tuple[Int32Array, UInt32Array]:
    """Return the sources and the 32 carried bits of ``words`` that ``packed`` returned."""
    return (words >> _CARRIED_BITS).astype(np.int32), words.astype(np.uint32)
