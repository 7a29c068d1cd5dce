"""Checks of a run's options for task rows and edges with times: mini-batches are as of cut-offs."""

from gnnscale.backend.exchange import ExchangeConfig
from gnnscale.core import ConfigError
from gnnscale.features import SharedFeaturesConfig, StructuralFeaturesConfig
from gnnscale.graph import Graph
from gnnscale.nn import APPNP, GCN, GIN, SGC
from gnnscale.partition import PartitionerConfig
from gnnscale.run.tasks.task_config import TaskInputs

#: Models whose layers multiply by in-degrees in the whole graph.
_COUNTS_EDGES = (GCN, GIN, SGC, APPNP)


def check_rows(inputs: TaskInputs, graph: Graph) -> None:
    """Raise ConfigError unless devices, features and model predict as of cut-offs, if there are.

    Cut-offs are those of the rows of ``graph``, or the times of predicted edges. Features computed
    of all edges would tell of edges after a cut-off. Without cut-offs, no option may need them.
    """
    if not graph.has_cutoffs:
        if inputs.time_options:
            raise ConfigError(
                f"{inputs.time_options[0]}: expected cut-offs, as of task rows or edges predicted "
                f"by time, got {graph.name} without"
            )
        return
    rows = f"{'edges by time' if graph.rows is None else 'task rows'} of {graph.name}"
    for device in inputs.device_plan.parsed():
        if not device.takes_types:
            raise ConfigError(
                f"device_plan: expected devices of kind cpu or emulated for the {rows}, got "
                f"{device.label}, which samples no vertices as of a cut-off"
            )
    features = inputs.features
    if isinstance(features, SharedFeaturesConfig):
        raise ConfigError(f"features=shared: expected features=host or disk for the {rows}")
    if inputs.time == "none":
        return
    option = None
    if features.preaggregates or isinstance(features, StructuralFeaturesConfig):
        option = f"features={features.name}"
    elif getattr(inputs.model, "without_features", None) == "degrees":
        option = "model.without_features=degrees"
    elif isinstance(inputs.model, _COUNTS_EDGES) and (
        graph.edge_weights is not None or inputs.time == "walk"
    ):
        # In-degrees are as of cut-offs; sums of weights are not, nor those along a walk.
        option = f"model={inputs.model.name}"
    if option is not None:
        raise ConfigError(
            f"{option}: expected an option that counts no edges after the cut-offs of the {rows}; "
            "sampler.time=none takes all edges"
        )


def check_undivided(
    name: str, partitioner: PartitionerConfig, exchange: ExchangeConfig | None
) -> None:
    """Raise ConfigError if devices have columns of features, or exchange rows, of the graph."""
    if partitioner.divides == "columns":
        raise ConfigError(
            f"partitioner={partitioner.algorithm}: expected none, or parts of vertices, for the "
            f"task rows of {name}; columns are aggregated before cut-offs are known"
        )
    if exchange is not None:
        raise ConfigError(f"exchange: expected null for the task rows of {name}, got an exchange")
