"""Whether a run reads the features of edges, and what does not go with that."""

import logging

from gnnscale.core import ConfigError
from gnnscale.graph import Graph
from gnnscale.model import ModelConfig
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
    if read.num_edge_features:
        _check(config)
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


def describe_use(model: ModelConfig, graph: Graph) -> str | None:
    """Return a line on what ``model`` does with the features of the edges of ``graph``.

    None if edges have no features, or the options say that they are left out.
    """
    count = graph.num_edge_features
    if not count or model.edge_features is False:
        return None
    if model.edge_width(count):
        return f"{graph.name}: {model.name} reads {count} features of each edge"
    return (
        f"{graph.name}: {model.name} does not read the {count} features of each edge; layers of "
        "model=gat, gatv2 and gin do, and modules of your own that take them (docs/your-model.md)"
    )
