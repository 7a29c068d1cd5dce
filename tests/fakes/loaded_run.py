"""What a finished run left, opened as the commands that read it do."""

from pathlib import Path

from gnnscale.graph import Graph
from gnnscale.inference.load_run import load_run, open_run_task
from gnnscale.inference.trained_model import load_trained
from gnnscale.nn import TrainableModel


def loaded(run: Path) -> tuple[Graph, TrainableModel]:
    """Return the graph that a run samples, and its model with the best weights."""
    config = load_run(run)
    graph = open_run_task(config, run).graph
    return graph, load_trained(run, config, graph).model
