"""Predictor of labels of edges as of their times, exact or over sampled neighbors."""

from collections.abc import Iterator

import numpy as np
import torch

from gnnscale.core import Array, ConfigError, Float32Array, Int64Array, IntArray
from gnnscale.graph import Graph
from gnnscale.inference.predictor import EdgePredictor, Predictor
from gnnscale.inference.row_predictor import RowPredictor
from gnnscale.nn import EdgeModel
from gnnscale.sampling.timed_edges import unit_links

#: Approximate bytes of the rows of edges' ends that are decoded together.
_SLICE_BYTES = 64 << 20


class TimedEdgePredictor:
    """Predictor of the labels of edges, from the rows of their ends as of their times.

    Edges are passed in the order of their times, so that edges of one time share vertices.
    """

    def __init__(self, model: EdgeModel, predictor: RowPredictor) -> None:
        """Predict with the network of ``model``, whose rows of units ``predictor`` computes."""
        self._model = model
        self._predictor = predictor

    @torch.no_grad()
    def outputs(
        self, ends: IntArray, times: Int64Array, rows: IntArray, features: Array | None
    ) -> Float32Array:
        """Return the outputs ``[n, width]`` of edges with ``ends`` ``[n, 2]`` as of ``times``.

        ``rows`` ``[n]`` are the edges' row numbers in ``features``; None: the network reads none.
        """
        self._model.network.eval()
        order = np.argsort(times, kind="stable")
        step = max(1, _SLICE_BYTES // (8 * self._model.network.width_in))
        parts = []
        for first in range(0, len(order), step):
            numbers = order[first : first + step]
            units, links = unit_links(ends[numbers], times[numbers], rows[numbers], features)
            vertex_rows = torch.from_numpy(self._predictor.outputs(*units))
            parts.append(self._model.decode(vertex_rows, links).numpy())
        outputs = np.concatenate(parts)
        result = np.empty_like(outputs)
        result[order] = outputs
        return result


def edge_outputs(
    model: EdgeModel, predictor: Predictor, graph: Graph, edges: tuple[IntArray, IntArray]
) -> Iterator[Float32Array]:
    """Yield the outputs of edges of ``graph`` in chunks, as of their times if the graph samples so.

    ``edges`` are both ends ``[n, 2]`` and the rows ``[n]`` of their features and times.
    """
    ends, rows = edges
    takes_features = model.network.width_in > 2 * model.widths[-1]
    features = graph.labeled_edge_features if takes_features else None
    if not graph.samples_by_time:
        yield from EdgePredictor(model, predictor).outputs(ends, rows, features)
        return
    times = graph.edges.row_times
    assert times is not None  # else ``with_edge_cutoffs`` raises
    by_time = TimedEdgePredictor(model, predictor.of_edges())
    yield by_time.outputs(ends, np.asarray(times[rows]), rows, features)


def refuse_pairs(graph: Graph, option: str) -> None:
    """Raise ConfigError that pairs have no times, as of which edges of ``graph`` are predicted."""
    if graph.samples_by_time:
        raise ConfigError(
            f"{option}: expected edges of a graph for a run as of the times of edges, which pairs "
            "have not; name a graph with these edges and times by dataset=..."
        )
