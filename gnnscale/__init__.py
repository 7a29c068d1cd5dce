"""Sampled mini-batch training of graph neural networks on heterogeneous machines.

Exported names are imported on first use, so that the command line starts without torch.
"""

from typing import TYPE_CHECKING, Any

from gnnscale.core.lazy import lazy_names

if TYPE_CHECKING:
    from gnnscale.api.loader.link_neighbor_loader import LinkNeighborLoader
    from gnnscale.api.loader.neighbor_loader import NeighborLoader
    from gnnscale.api.result import Result
    from gnnscale.api.run import evaluate, load, train
    from gnnscale.api.seeds import SeedResults
    from gnnscale.core.errors import ConfigError, GraphError
    from gnnscale.data import (
        from_arrays,
        from_dgl,
        from_networkx,
        from_pyg,
        from_scipy,
        from_tables,
        to_dgl,
        to_pyg,
        with_rows,
    )
    from gnnscale.graph import Graph
    from gnnscale.nn.adapters import DGLModel, PyGModel
    from gnnscale.run.records import Observer, StopTraining
    from gnnscale.sampling import Block, LayerSampler, MiniBatch, NeighborSampler

    __version__: str

__all__ = [
    "Block",
    "ConfigError",
    "DGLModel",
    "Graph",
    "GraphError",
    "LayerSampler",
    "LinkNeighborLoader",
    "MiniBatch",
    "NeighborLoader",
    "NeighborSampler",
    "Observer",
    "PyGModel",
    "Result",
    "SeedResults",
    "StopTraining",
    "evaluate",
    "from_arrays",
    "from_dgl",
    "from_networkx",
    "from_pyg",
    "from_scipy",
    "from_tables",
    "load",
    "to_dgl",
    "to_pyg",
    "train",
    "with_rows",
]

_find = lazy_names(
    __name__,
    {
        "gnnscale.api.result": "Result",
        "gnnscale.api.run": "evaluate load train",
        "gnnscale.api.seeds": "SeedResults",
        "gnnscale.core.errors": "ConfigError GraphError",
        "gnnscale.data": "from_arrays from_dgl from_networkx from_pyg from_scipy from_tables "
        "to_dgl to_pyg with_rows",
        "gnnscale.graph": "Graph",
        "gnnscale.api.loader.link_neighbor_loader": "LinkNeighborLoader",
        "gnnscale.api.loader.neighbor_loader": "NeighborLoader",
        "gnnscale.nn.adapters": "DGLModel PyGModel",
        "gnnscale.run.records": "Observer StopTraining",
        "gnnscale.sampling": "Block LayerSampler MiniBatch NeighborSampler",
    },
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("gnnscale")
    return _find(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
