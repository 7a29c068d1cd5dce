"""Group ``task``: what is predicted, labels of vertices or edges. Read without torch."""

from gnnscale.task.options import LinkPrediction, TaskConfig, VertexPrediction
