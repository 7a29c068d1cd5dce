"""Group ``task``: what is predicted, labels of vertices or edges. Read without torch."""

from gnnscale.run.tasks.options import EdgePrediction, LinkPrediction, TaskConfig, VertexPrediction
