"""Whether a run reads the features of edges, and what does not go with that."""

import logging
from dataclasses import replace

from gnnscale.core import ConfigError
from gnnscale.graph import Graph
from gnnscale.runtime.settings import TrainConfig

log = logging.getLogger(__name__)


def graph_read(config: TrainConfig, graph: Graph) -> Graph:
    """Return ``graph`` as the model of a run reads it: perhaps without features of edges.

    Raises:
        ConfigError: the model is to read features of edges, which are missing; or a device or an
            option does not go with them.
    """
    model = config.model
    if model.edge_features and not graph.num_edge_features:
        raise ConfigError(
            f"model.edge_features=true: edges of {graph.path or graph.name} have no features"
        )
    read = model.graph_read(graph)
    if read.edge_rows is not None:
        _check(config)
    elif config.task.reads_edge_features and model.edge_features is not False:
        # Layers sample no rows; what predicts an edge reads its own.
        return replace(graph, edges=replace(graph.edges, rows=None))
    return read


def _check(config: TrainConfig) -> None:
    """Refuse what does not go with features of edges."""
    reads = f"model: {config.model.name} reads features of edges"
    otherwise = "model.edge_features=false leaves them out"
    for device in config.device_plan.parsed():
        if not device.takes_edge_features:
            raise ConfigError(
                f"{reads}, and {device.label} computes layers without; devices of kind cpu and "
                f"emulated can take part, and {otherwise}"
            )
    if config.features.preaggregates:
        raise ConfigError(
            f"{reads}, so that its first layer cannot be aggregated before training; "
            f"features=host loads rows as they are, and {otherwise}"
        )


def describe_use(config: TrainConfig, graph: Graph) -> str | None:
    """Return a line on what a run does with the features of the edges of ``graph``.

    None if edges have no features, or the options say that they are left out.
    """
    model, count = config.model, graph.num_edge_features
    if not count or model.edge_features is False:
        return None
    if model.edge_width(count):
        return f"{graph.name}: {model.name} reads {count} features of each edge"
    if config.task.reads_edge_features:
        return (
            f"{graph.name}: {count} features of each edge are read where its label is predicted, "
            f"and not by layers of {model.name}; those of model=gat, gatv2 and gin read them too"
        )
    return (
        f"{graph.name}: {model.name} does not read the {count} features of each edge; layers of "
        "model=gat, gatv2 and gin do, and modules of your own that take them (docs/your-model.md)"
    )
