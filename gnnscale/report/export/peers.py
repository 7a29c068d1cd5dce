"""Trained models as modules of DGL and PyG."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from gnnscale.core import ConfigError, shown
from gnnscale.model import GNN, ModelConfig, options

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
    joins: bool  #: whether residual and jumping connections have a counterpart
    #: for each model what stands before the weights of a norm; norm i is ``norms.i``
    norm: Callable[[options.LayeredModel], str]
    #: makes the program that builds the model and loads the file, from options, widths and file,
    #: and from the number of features of each edge that it reads, if it reads any
    snippet: Callable[..., str]
    note: Mapping[str, str]  #: for each architecture what has no counterpart, in one line
    #: for each architecture the names of further weights of layers that read features of edges
    of_edges: Mapping[str, Mapping[str, Weight]]

    def weights(self, config: ModelConfig, model: GNN) -> dict[str, Tensor]:
        """Return the weights of ``model`` under the peer's names.

        Raises:
            ConfigError: the architecture has no counterpart.
        """
        name = architecture(config)
        if name not in {**self.layers, **self.models}:
            raise ConfigError(
                f"format={self.name}: layers of {shown(name)} have no counterpart there; "
                f"{', '.join([*self.layers, *self.models])} have, and format=safetensors writes any"
            )
        if model.connections.reads_again and name in self.layers and not self.joins:
            raise ConfigError(
                f"format={self.name}: model.residual and model.jumping have no counterpart there; "
                "format=pyg writes such models, and format=safetensors writes any"
            )
        if model.uses_edge_features and name not in self.of_edges:
            raise ConfigError(
                f"format={self.name}: layers of {name} that read features of edges have no "
                "counterpart there; format=pyg and format=safetensors write them"
            )
        of_edges = self.of_edges[name] if model.uses_edge_features else {}
        heads = getattr(config, "num_heads", 1)
        if name in self.models:
            whole = model.state_dict()
            found = {name: make(whole, heads) for name, make in self.models[name].items()}
        else:
            found = {
                f"convs.{index}.{each}": make(layer.state_dict(), heads)
                for index, layer in enumerate(model.layers)
                for each, make in {**self.layers[name], **of_edges}.items()
            }
        if isinstance(config, options.LayeredModel):
            before = self.norm(config)
            for index, norm in enumerate(model.norms):
                known = norm.state_dict().items()
                found |= {f"norms.{index}.{before}{key}": each for key, each in known}
        if model.output is not None:
            found |= {f"lin.{key}": each for key, each in model.output.state_dict().items()}
        return {name: each.contiguous().clone() for name, each in found.items()}


def architecture(config: ModelConfig) -> str:
    """Return the name of an architecture, with what its layers depend on."""
    if isinstance(config, options.GraphSAGE) and config.aggregator != "mean":
        return f"{config.name} with model.aggregator={config.aggregator}"
    return config.name


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

LAYERS: Mapping[str, Mapping[str, Weight]] = {
    "GCN": {"lin.weight": renamed("linear.weight"), "bias": renamed("linear.bias")},
    "GraphSAGE": {
        "lin_r.weight": renamed("linear.weight", "first"),
        "lin_l.weight": renamed("linear.weight", "second"),
        "lin_l.bias": renamed("linear.bias"),
    },
    "GAT": {
        "lin.weight": renamed("linear.weight"),
        "att_src": per_head("attention_src"),
        "att_dst": per_head("attention_dst"),
        "bias": renamed("bias"),
    },
    "GATv2": {
        "lin_l.weight": renamed("linear.weight"),
        "lin_l.bias": renamed("linear.bias"),
        "lin_r.weight": last_of("linear.weight", "linear_dst.weight"),
        "lin_r.bias": last_of("linear.bias", "linear_dst.bias"),
        "att": per_head("attention"),
        "bias": renamed("bias"),
    },
    POOLING: {
        "lin.weight": renamed("pool.weight"),
        "lin.bias": renamed("pool.bias"),
        "lin_r.weight": renamed("linear.weight", "first"),
        "lin_l.weight": renamed("linear.weight", "second"),
        "lin_l.bias": renamed("linear.bias"),
    },
    "GIN": {
        "nn.0.weight": renamed("first.weight"),
        "nn.0.bias": renamed("first.bias"),
        "nn.2.weight": renamed("second.weight"),
        "nn.2.bias": renamed("second.bias"),
        "eps": zero,
    },
}

EDGE_WEIGHTS: Mapping[str, Mapping[str, Weight]] = {
    "GAT": {
        "lin_edge.weight": renamed("edge_linear.weight"),
        "att_edge": per_head("attention_edge"),
    },
    "GATv2": {"lin_edge.weight": renamed("edge_linear.weight")},
    "GIN": {
        "lin.weight": renamed("edge_linear.weight"),
        "lin.bias": renamed("edge_linear.bias"),
    },
}

MODELS: Mapping[str, Mapping[str, Weight]] = {
    "SGC": {"lin.weight": renamed("layers.0.linear.weight"), "lin.bias": last_bias},
    "APPNP": {
        f"{theirs}.{key}": renamed(f"encoder.{ours}.{key}")
        for theirs, ours in (("lin1", "first"), ("lin2", "second"))
        for key in ("weight", "bias")
    },
}

_LOOPS = (
    "a graph with self loops of its own: add_self_loops=False in the model, and edge_index = "
    "torch_geometric.utils.add_self_loops(edge_index, num_nodes=len(x))[0]; PyG else replaces them"
)

NOTES = {
    "GCN": _LOOPS,
    **dict.fromkeys(("GAT", "GATv2", "SGC", "APPNP"), _LOOPS),
    "GIN": "torch_geometric.nn.models.GIN has other perceptrons: GINConv itself takes ours",
}

#: What a basic model is given for our norms.
_NORMS = {
    "none": "",
    "batch": ', norm="batch_norm"',
    "layer": ', norm="layer_norm", norm_kwargs={"mode": "node"}',
}

_BASIC = """\
from safetensors.torch import load_file
from torch_geometric.nn.models import {name}

model = {name}({width}, {hidden}, {num_layers}, {num_classes}, dropout={dropout}{more})
model.load_state_dict(load_file({file}))
logits = model.eval()(x, edge_index{edges})
"""

_LAYERED = """\
from safetensors.torch import load_file
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.nn import {layer}


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(
            [
{convs}
            ]
        )
        self.norms = nn.ModuleList({norm} for _ in range({num_norms}))
{output}
    def forward(self, x, edge_index):
        rows = []
        for conv, norm in zip(self.convs, self.norms):
{hidden}
            rows.append(x)
        return {last}


model = {name}()
model.load_state_dict(load_file({file}))
logits = model.eval()(x, edge_index)
"""

#: For each architecture that is written as a module: its layer, and how it is built. Those with
#: heads average them in the layer that ends the model.
_CONVS = {
    "GCN": ("GCNConv", "GCNConv({a}, {b})"),
    "GraphSAGE": ("SAGEConv", "SAGEConv({a}, {b})"),
    POOLING: ("SAGEConv", 'SAGEConv({a}, {b}, aggr="max", project=True)'),
    "GAT": ("GATConv", "GATConv({a}, {head}, {heads}, concat={concat})"),
    "GATv2": (
        "GATv2Conv",
        "GATv2Conv({a}, {head}, {heads}, concat={concat}, share_weights={shares})",
    ),
    "GIN": (
        "GINConv",
        "GINConv(nn.Sequential(nn.Linear({a}, {hidden}), nn.ReLU(), nn.Linear({hidden}, {b})))",
    ),
}

_SGC = """\
from safetensors.torch import load_file
from torch_geometric.nn import SGConv

model = SGConv({width}, {num_classes}, K={num_layers})
model.load_state_dict(load_file({file}))
logits = model.eval()(x, edge_index)
"""

_APPNP = """\
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional
from torch_geometric import nn as pyg


class APPNP(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin1 = nn.Linear({width}, {hidden})
        self.lin2 = nn.Linear({hidden}, {num_classes})
        self.propagation = pyg.APPNP(K={num_layers}, alpha={alpha})

    def forward(self, x, edge_index):
        x = functional.dropout(self.lin1(x).relu(), {dropout}, self.training)
        return self.propagation(self.lin2(x), edge_index)


model = APPNP()
model.load_state_dict(load_file({file}))
logits = model.eval()(x, edge_index)
"""

#: What builds a norm of ``width`` features in a module.
NORM_MODULES = {
    "none": "nn.Identity()",
    "batch": "nn.BatchNorm1d(width)",
    "layer": "nn.LayerNorm(width)",
}


def _is_basic(config: options.LayeredModel) -> bool:
    """Whether one of PyG's basic models is the same, and no module has to be written."""
    return config.name != "GIN" and not config.residual


def _norm_prefix(config: options.LayeredModel) -> str:
    """PyG's BatchNorm holds torch's."""
    return "module." if config.norm == "batch" and _is_basic(config) else ""


def _snippet(config: ModelConfig, widths: tuple[int, ...], file: Path, edge_width: int = 0) -> str:
    known = {"file": json.dumps(str(file)), "width": widths[0], "num_classes": widths[-1]}
    if not isinstance(config, options.LayeredModel):
        text = _SGC if isinstance(config, options.SGC) else _APPNP
        return text.format(**vars(config), **known)
    if not _is_basic(config):
        return _layered(config, widths, file, edge_width)
    more = _NORMS[config.norm]
    if isinstance(config, options.GAT):
        more += f", heads={config.num_heads}"
    if isinstance(config, options.GATv2):
        more += f", v2=True, share_weights={config.share_weights}"
    if architecture(config) == POOLING:
        more += ', aggr="max", project=True'
    if config.jumping != "none":
        more += f', jk="{config.jumping}"'
    if edge_width:
        more += f", edge_dim={edge_width}"
    return _BASIC.format(
        name="GAT" if config.name == "GATv2" else config.name,
        hidden=config.hidden,
        num_layers=config.num_layers,
        dropout=config.dropout,
        more=more,
        edges=", edge_attr=edge_attr" if edge_width else "",
        **known,
    )


def _layered(
    config: options.LayeredModel, widths: tuple[int, ...], file: Path, edge_width: int
) -> str:
    """Return a program with a module of PyG's layers."""
    layer, conv = _CONVS[architecture(config)]
    if edge_width:
        layer, conv = (each.replace("GINConv", "GINEConv") for each in (layer, conv))
        conv = f"{conv[:-1]}, edge_dim={edge_width})"
    joins, heads = config.jumping != "none", getattr(config, "num_heads", 1)
    ends = (*widths[:-1], config.hidden) if joins else widths
    convs: list[str] = []
    for a, b in pairwise(ends):
        averages = len(convs) + 1 == config.num_layers and not joins
        known = {"a": a, "b": b, "head": b if averages else b // heads, "heads": heads}
        shares = getattr(config, "share_weights", False)
        convs.append(conv.format(**known, concat=not averages, hidden=config.hidden, shares=shares))
    output, last = "", "self.convs[-1](x, edge_index)"
    if joins:
        width = config.hidden * (config.num_layers if config.jumping == "cat" else 1)
        output = f"        self.lin = nn.Linear({width}, {widths[-1]})\n"
        joined = "torch.cat(rows, 1)" if config.jumping == "cat" else "torch.stack(rows).amax(0)"
        last = f"self.lin({joined})"
    hidden = ["            out = conv(x, edge_index)"]
    if config.residual:
        hidden.append("            out = out + x if rows else out")
    dropout = f"{config.dropout}, self.training"
    hidden.append(f"            x = functional.dropout(norm(out).relu(), {dropout})")
    text = _LAYERED.format(
        layer=layer,
        name=config.name,
        convs="\n".join(f"                {each}," for each in convs),
        norm=NORM_MODULES[config.norm].replace("width", str(config.hidden)),
        num_norms=config.num_layers - 1 + joins,
        output=output,
        hidden="\n".join(hidden),
        last=last,
        file=json.dumps(str(file)),
    )
    return text.replace("edge_index)", "edge_index, edge_attr)") if edge_width else text


PYG = Peer(
    name="pyg",
    layers=LAYERS,
    models=MODELS,
    joins=True,
    norm=_norm_prefix,
    snippet=_snippet,
    note=NOTES,
    of_edges=EDGE_WEIGHTS,
)

LAYERS_FOR_DGL: Mapping[str, Mapping[str, Weight]] = {
    "GCN": {"weight": transposed("linear.weight"), "bias": renamed("linear.bias")},
    "GraphSAGE": {
        "fc_self.weight": renamed("linear.weight", "first"),
        "fc_self.bias": renamed("linear.bias"),
        "fc_neigh.weight": renamed("linear.weight", "second"),
    },
    "GAT": {
        "fc.weight": renamed("linear.weight"),
        "attn_l": per_head("attention_src"),
        "attn_r": per_head("attention_dst"),
        "bias": per_head("bias", repeats=True),
    },
    "GIN": {
        "apply_func.0.weight": renamed("first.weight"),
        "apply_func.0.bias": renamed("first.bias"),
        "apply_func.2.weight": renamed("second.weight"),
        "apply_func.2.bias": renamed("second.bias"),
        "eps": zero,
    },
}

NOTES_FOR_DGL = {
    "GCN": "where every edge has its reverse, GraphConv(a, b), whose norm is both, gives the same "
    "without edge_weight"
}

_MODEL = """\
import dgl
from dgl.nn import {layer}
from safetensors.torch import load_file
from torch import nn


class {name}(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.convs = nn.ModuleList(
            [
{convs}
            ]
        )
        self.norms = nn.ModuleList({norm} for width in widths[1:-1])

    def forward(self, graph, h):
{prepare}\
        for conv, norm in zip(self.convs, self.norms):
            h = norm({hidden}).relu()
        return {last}


model = {name}({widths})
model.load_state_dict(load_file({file}))
logits = model.eval()(graph, graph.ndata["feat"])
"""

_WITH_LOOPS = "        graph = dgl.add_self_loop(graph)\n"

#: For each architecture: its layer, how it is built, what is done with the graph, and how the
#: layer is called between layers and at the end.
_PARTS = {
    "GCN": (
        "GraphConv",
        'GraphConv({a}, {b}, norm="none")',
        f"{_WITH_LOOPS}        src, dst = graph.edges()\n"
        "        degrees = graph.in_degrees().float()\n"
        "        weight = (degrees[src] * degrees[dst]).rsqrt()\n",
        "conv(graph, h, edge_weight=weight)",
        "self.convs[-1](graph, h, edge_weight=weight)",
    ),
    "GraphSAGE": (
        "SAGEConv",
        'SAGEConv({a}, {b}, "mean")',
        "",
        "conv(graph, h)",
        "self.convs[-1](graph, h)",
    ),
    "GAT": (
        "GATConv",
        "GATConv({a}, {head}, {heads})",
        _WITH_LOOPS,
        "conv(graph, h).flatten(1)",
        "self.convs[-1](graph, h).mean(1)",
    ),
    "GIN": (
        "GINConv",
        "GINConv(nn.Sequential(nn.Linear({a}, {hidden}), nn.ReLU(), nn.Linear({hidden}, {b})))",
        "",
        "conv(graph, h)",
        "self.convs[-1](graph, h)",
    ),
}


def _snippet_for_dgl(config: ModelConfig, widths: tuple[int, ...], file: Path, _: int = 0) -> str:
    assert isinstance(config, options.LayeredModel)
    layer, conv, prepare, hidden, last = _PARTS[config.name]
    heads = getattr(config, "num_heads", 1)
    convs: list[str] = []
    for a, b in pairwise(widths):
        averages = len(convs) == len(widths) - 2
        head = b if averages else b // heads
        convs.append(conv.format(a=a, b=b, head=head, heads=heads, hidden=config.hidden))
    return _MODEL.format(
        name=config.name,
        layer=layer,
        convs="\n".join(f"                {each}," for each in convs),
        norm=NORM_MODULES[config.norm],
        prepare=prepare,
        hidden=hidden,
        last=last,
        widths=list(widths),
        file=json.dumps(str(file)),
    )


DGL = Peer(
    name="dgl",
    layers=LAYERS_FOR_DGL,
    models={},
    joins=False,
    norm=lambda _: "",
    snippet=_snippet_for_dgl,
    note=NOTES_FOR_DGL,
    of_edges={},
)
