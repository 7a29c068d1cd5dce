"""Group ``task``: what is predicted, labels of vertices or edges. Read without torch."""

from gnnscale.runtime.task.options import (
    EdgePrediction,
    LinkPrediction,
    TaskConfig,
    VertexPrediction,
)
