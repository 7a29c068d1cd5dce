"""Description of other libraries' modules, into which trained models are converted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch

from gnnscale.core import ConfigError, brief
from gnnscale.nn import GNN, ModelConfig, options


@dataclass(frozen=True, kw_only=True)
class Program:
    """Program that builds a trained model with another library's modules and loads its weights."""

    config: ModelConfig  #: options of the model
    widths: tuple[int, ...]  #: features of the inputs and of each layer's rows
    file: Path  #: the weights
    edge_width: int = 0  #: number of edge features that layers read
    weighted: bool = False  #: whether layers read edge weights

    @property
    def literal_file(self) -> str:
        """Path of ``file`` as a string literal."""
        return literal(self.file)


#: Conversion: computes a peer's weight from a layer's weights by name and its number of heads.
Weight = Callable[[Mapping[str, torch.Tensor], int], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Other library, such as PyG: conversions of weights to its modules, programs to load them."""

    name: str  #: name of the library in ``format``
    #: weights of layer i, ``convs.i.NAME``, by architecture and name
    layers: Mapping[str, Mapping[str, Weight]]
    #: weights of the model by architecture and name, for models without a list of layers
    models: Mapping[str, Mapping[str, Weight]]
    #: prefix of a norm's weights in ``norms.i``; the second argument says whether edge weights are
    #: read
    norm: Callable[[options.LayeredModel, bool], str]
    snippet: Callable[[Program], str]  #: text of the program
    note: Callable[[Program], str]  #: parts without a counterpart, in one line
    #: additional weights of layers that read edge features, by architecture
    of_edges: Mapping[str, Mapping[str, Weight]]
    #: replacement of ``layers`` for architectures that use another layer with edge weights
    weighted: Mapping[str, Mapping[str, Weight]]
    weights_note: str  #: how the program gets edge weights, in one line

    def weights(
        self, config: ModelConfig, model: GNN, *, weighted: bool = False
    ) -> dict[str, torch.Tensor]:
        """Return the weights of ``model`` under the library's names, converted to its shapes.

        ``weighted`` says whether the program reads edge weights. ConfigError: the architecture has
        no counterpart.
        """
        name = architecture(config)
        if name not in {**self.layers, **self.models}:
            raise ConfigError(
                f"format={self.name}: layers of {brief(name)} have no counterpart there; "
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
            state = model.state_dict()
            weights = {key: make(state, heads) for key, make in self.models[name].items()}
        else:
            weights = {
                f"convs.{index}.{key}": make(layer.state_dict(), heads)
                for index, layer in enumerate(model.layers)
                for key, make in {**layers[name], **of_edges}.items()
            }
        if isinstance(config, options.LayeredModel):
            prefix = self.norm(config, weighted)
            for index, norm in enumerate(model.norms):
                state = norm.state_dict()
                weights |= {f"norms.{index}.{prefix}{key}": state[key] for key in state}
        if model.output is not None:
            state = model.output.state_dict()
            weights |= {f"lin.{key}": state[key] for key in state}
        return {key: tensor.contiguous().clone() for key, tensor in weights.items()}


def literal(file: Path) -> str:
    """Return the path of ``file`` as an ASCII string literal of Python, in double quotes."""
    text = str(file).encode("unicode_escape", "surrogatepass").decode("ascii")
    return '"' + text.replace('"', '\\"') + '"'


def architecture(config: ModelConfig) -> str:
    """Return the name of an architecture, including an aggregator other than mean."""
    if isinstance(config, options.GraphSAGE) and config.aggregator != "mean":
        return f"{config.name} with model.aggregator={config.aggregator}"
    return config.name


def reads_weights(config: ModelConfig) -> bool:
    """Whether layers multiply messages by edge weights; attention and pooling do not."""
    return not isinstance(config, options.GAT) and architecture(config) != POOLING


def renamed(name: str, columns: str = "all") -> Weight:
    """Return the conversion that takes weight ``name``: all ``columns``, first or second half."""

    def make(layer: Mapping[str, torch.Tensor], _: int) -> torch.Tensor:
        weight = layer[name]
        if columns == "all":
            return weight
        first, second = weight.chunk(2, dim=1)
        return first if columns == "first" else second

    return make


def transposed(name: str) -> Weight:
    """Return the conversion that transposes weight ``name`` to ``[num_in, num_out]``."""
    return lambda layer, _: layer[name].T


def per_head(name: str, *, repeats: bool = False) -> Weight:
    """Return the conversion that adds a first dimension of 1 to weight ``name``, a row per head.

    With ``repeats``, the conversion returns bias ``name`` of all heads, ``[num_heads * width]``: it
    repeats a bias that heads share.
    """

    def make(layer: Mapping[str, torch.Tensor], heads: int) -> torch.Tensor:
        if not repeats:
            return layer[name][None]
        width = layer["attention_src"].shape[1]
        bias = layer[name]
        return bias if len(bias) == heads * width else bias.repeat(heads)

    return make


def zero(_: Mapping[str, torch.Tensor], __: int) -> torch.Tensor:
    """Return a tensor with a single zero, for a weight that the trained layer lacks."""
    return torch.zeros(1)


def last_of(*names: str) -> Weight:
    """Return the conversion that takes the last of ``names`` that the layer has."""
    return lambda weights, _: next(weights[name] for name in reversed(names) if name in weights)


def perceptron(prefix: str) -> dict[str, Weight]:
    """Return the conversions of a GIN layer, by weight name in the other library.

    There, the layer's perceptron is the module ``prefix``.
    """
    weights = {
        f"{prefix}.{index}.{key}": renamed(f"{name}.{key}")
        for index, name in ((0, "first"), (2, "second"))
        for key in ("weight", "bias")
    }
    return {**weights, "eps": zero}


#: Weights of APPNP, whose products have the names ``lin1`` and ``lin2``.
APPNP: Mapping[str, Weight] = {
    f"{theirs}.{key}": renamed(f"encoder.{ours}.{key}")
    for theirs, ours in (("lin1", "first"), ("lin2", "second"))
    for key in ("weight", "bias")
}


def last_bias(weights: Mapping[str, torch.Tensor], _: int) -> torch.Tensor:
    """Return the only bias in ``weights`` of a model."""
    return next(tensor for name, tensor in weights.items() if name.endswith("bias"))


POOLING = "GraphSAGE with model.aggregator=pool"

#: Expressions for a norm of ``width`` features.
NORM_MODULES = {
    "none": "nn.Identity()",
    "batch": "nn.BatchNorm1d(width)",
    "layer": "nn.LayerNorm(width)",
}


_MODULE = """\
{imports}


{before}class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(
            [
{convs}
            ]
        )
        self.norms = nn.ModuleList({norm} for _ in range({num_norms}))
{output}
    def forward(self, {inputs}):
{prepare}\
        rows = []
        for conv, norm in zip(self.convs, self.norms):
            out = {hidden}
{residual}\
            {row} = {activation}
            rows.append({row})
        return {last}


model = {name}()
model.load_state_dict(load_file({file}))
logits = model.eval()({data})
"""


def module_program(program: Program, conv: str, *, row: str, last: str, **texts: str) -> str:
    """Return a program that defines a module of layers and norms, and loads its weights.

    Args:
        conv: template that constructs a layer.
        row: variable of the rows of a layer.
        last: call of the last layer.
        texts: further texts by placeholder of ``_MODULE``.
    """
    config, widths = program.config, program.widths
    assert isinstance(config, options.LayeredModel)
    joins, heads = config.jumping != "none", getattr(config, "num_heads", 1)
    ends = (*widths[:-1], config.hidden) if joins else widths
    values = {"hidden": config.hidden, "shares": getattr(config, "share_weights", False)}
    convs: list[str] = []
    for a, b in pairwise(ends):
        averages = len(convs) + 1 == config.num_layers and not joins
        sizes = {"a": a, "b": b, "head": b if averages else b // heads, "heads": heads}
        edge_width = program.edge_width
        convs.append(conv.format(**values, **sizes, concat=not averages, edge_width=edge_width))
    output = ""
    if joins:
        width = config.hidden * (config.num_layers if config.jumping == "cat" else 1)
        output = f"        self.lin = nn.Linear({width}, {widths[-1]})\n"
        joined = "torch.cat(rows, 1)" if config.jumping == "cat" else "torch.stack(rows).amax(0)"
        last = f"self.lin({joined})"
    added = f"            out = out + {row} if rows else out\n"
    return _MODULE.format(
        **texts,
        name=config.name,
        convs="\n".join(f"                {text}," for text in convs),
        norm=NORM_MODULES[config.norm].replace("width", str(config.hidden)),
        num_norms=config.num_layers - 1 + joins,
        output=output,
        residual=added if config.residual else "",
        row=row,
        last=last,
        file=program.literal_file,
    )


#: Hint for notes: where to find the edge weights of a run's graph.
WEIGHTS_OF_GRAPH = (
    "np.array(g.edge_weights) has those of the edges from g.indices to "
    "np.repeat(np.arange(g.num_vertices), np.diff(g.indptr)), with g = gnnscale.load(DIR).graph"
)
