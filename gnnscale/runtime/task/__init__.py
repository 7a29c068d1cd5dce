"""Group ``task``: what is predicted, labels of vertices or edges. Read without torch."""

from gnnscale.runtime.task.options import LinkPrediction, TaskConfig, VertexPrediction
