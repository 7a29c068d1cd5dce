"""Prediction tasks: labels of vertices, labels of edges, or edges; importable without torch."""

from gnnscale.run.tasks.options import EdgePrediction, LinkPrediction, VertexPrediction
from gnnscale.run.tasks.task_config import TaskConfig, TaskInputs
