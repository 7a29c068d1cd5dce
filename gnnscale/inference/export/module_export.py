"""Trained models as modules of other libraries: what a library needs to say, and how."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gnnscale.core import ConfigError, shown
from gnnscale.nn import GNN, ModelConfig, options

#: Makes a peer's weight of a layer's own ones, by their names, and of its number of heads.
Weight = Callable[[Mapping[str, Tensor], int], Tensor]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another library."""

    name: str  #: its own
    #: for each architecture a peer's names of the weights of a layer, and how they are made of
    #: ours. Layer i is ``convs.i``.
    layers: Mapping[str, Mapping[str, Weight]]
    #: likewise for architectures whose weights are not those of equal layers, of the whole model
    models: Mapping[str, Mapping[str, Weight]]
    #: for each model what stands before the weights of a norm; norm i is ``norms.i``. The second
    #: argument says whether weights of edges are read
    norm: Callable[[options.LayeredModel, bool], str]
    #: makes the program that builds the model and loads the file, from options, widths and file,
    #: the number of features of each edge that it reads, and whether it reads weights of edges
    snippet: Callable[..., str]
    #: says what has no counterpart, in one line, from options, the number of features of each edge
    #: that are read, and whether weights of edges are
    note: Callable[[ModelConfig, int, bool], str]
    #: for each architecture the names of further weights of layers that read features of edges
    of_edges: Mapping[str, Mapping[str, Weight]]
    #: likewise in place of ``layers``, for architectures that have another layer if edges have
    #: weights
    weighted: Mapping[str, Mapping[str, Weight]]
    weights_note: str  #: how the program gets weights of edges, in one line

    def weights(
        self, config: ModelConfig, model: GNN, *, weighted: bool = False
    ) -> dict[str, Tensor]:
        """Return the weights of ``model`` under the peer's names.

        Args:
            weighted: whether the program reads weights of edges.

        Raises:
            ConfigError: the architecture has no counterpart.
        """
        name = architecture(config)
        if name not in {**self.layers, **self.models}:
            raise ConfigError(
                f"format={self.name}: layers of {shown(name)} have no counterpart there; "
                f"{', '.join([*self.layers, *self.models])} have, and format=safetensors writes any"
            )
        if model.uses_edge_features and name not in self.of_edges:
            raise ConfigError(
                f"format={self.name}: layers of {name} that read features of edges have no "
                "counterpart there; format=pyg and format=safetensors write them"
            )
        if model.uses_edge_features and weighted:
            raise ConfigError(
                f"format={self.name}: layers of {name} that read features of edges take no weights "
                "of edges there; result.model(x, edge_index, edge_weight, edge_attr) takes both, "
                "and format=safetensors writes them"
            )
        of_edges = self.of_edges[name] if model.uses_edge_features else {}
        layers = {**self.layers, **self.weighted} if weighted else self.layers
        heads = getattr(config, "num_heads", 1)
        if name in self.models:
            whole = model.state_dict()
            found = {name: make(whole, heads) for name, make in self.models[name].items()}
        else:
            found = {
                f"convs.{index}.{each}": make(layer.state_dict(), heads)
                for index, layer in enumerate(model.layers)
                for each, make in {**layers[name], **of_edges}.items()
            }
        if isinstance(config, options.LayeredModel):
            before = self.norm(config, weighted)
            for index, norm in enumerate(model.norms):
                known = norm.state_dict().items()
                found |= {f"norms.{index}.{before}{key}": each for key, each in known}
        if model.output is not None:
            found |= {f"lin.{key}": each for key, each in model.output.state_dict().items()}
        return {name: each.contiguous().clone() for name, each in found.items()}


def literal(file: Path) -> str:
    """Return the path of a file as a literal of Python, in ASCII."""
    text = str(file).encode("unicode_escape", "surrogatepass").decode("ascii")
    return '"' + text.replace('"', '\\"') + '"'


def architecture(config: ModelConfig) -> str:
    """Return the name of an architecture, with what its layers depend on."""
    if isinstance(config, options.GraphSAGE) and config.aggregator != "mean":
        return f"{config.name} with model.aggregator={config.aggregator}"
    return config.name


def reads_weights(config: ModelConfig) -> bool:
    """Whether layers count edges by their weights: attention and pooling do not."""
    return not isinstance(config, options.GAT) and architecture(config) != POOLING


def renamed(name: str, columns: str = "all") -> Weight:
    """Take weight ``name``: all of it, or the ``first`` or ``second`` half of its columns."""

    def make(layer: Mapping[str, Tensor], _: int) -> Tensor:
        weight = layer[name]
        if columns == "all":
            return weight
        first, second = weight.chunk(2, dim=1)
        return first if columns == "first" else second

    return make


def transposed(name: str) -> Weight:
    """Take weight ``name`` as ``[num_in, num_out]``."""
    return lambda layer, _: layer[name].T


def per_head(name: str, *, repeats: bool = False) -> Weight:
    """Take ``[num_heads, width]`` as ``[1, num_heads, width]``.

    Args:
        repeats: take a bias as one of all heads: if heads are averaged each has the same.
    """

    def make(layer: Mapping[str, Tensor], heads: int) -> Tensor:
        if not repeats:
            return layer[name][None]
        width = layer["attention_src"].shape[1]
        bias = layer[name]
        return bias if len(bias) == heads * width else bias.repeat(heads)

    return make


def zero(_: Mapping[str, Tensor], __: int) -> Tensor:
    """Make a single zero."""
    return torch.zeros(1)


def last_of(*names: str) -> Weight:
    """Take the last of weights that there is."""
    return lambda weights, _: next(weights[name] for name in reversed(names) if name in weights)


def last_bias(weights: Mapping[str, Tensor], _: int) -> Tensor:
    """Take the only bias of a whole model."""
    return next(each for name, each in weights.items() if name.endswith("bias"))


POOLING = "GraphSAGE with model.aggregator=pool"

#: What builds a norm of ``width`` features in a module.
NORM_MODULES = {
    "none": "nn.Identity()",
    "batch": "nn.BatchNorm1d(width)",
    "layer": "nn.LayerNorm(width)",
}

#: How to get the weights of a run's graph, in the notes of peers.
WEIGHTS_OF_GRAPH = (
    "np.array(g.edge_weights) has those of the edges from g.indices to "
    "np.repeat(np.arange(g.num_vertices), np.diff(g.indptr)), with g = gnnscale.load(DIR).graph"
)
