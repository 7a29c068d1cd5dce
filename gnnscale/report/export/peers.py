"""Trained models as modules of DGL and PyG."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from gnnscale.core import ConfigError, shown
from gnnscale.model import GNN, options

#: Makes a peer's weight of a layer's own ones, by their names, and of its number of heads.
Weight = Callable[[Mapping[str, Tensor], int], Tensor]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another library."""

    name: str  #: its own
    #: for each architecture a peer's names of the weights of a layer, and how they are made of
    #: ours. Layer i is ``convs.i``.
    layers: Mapping[str, Mapping[str, Weight]]
    #: for each architecture and kind of norm what stands before the weights of a norm; norm i is
    #: ``norms.i``
    norm: Callable[[str, str], str]
    #: makes the program that builds the model and loads the file, from options, widths and file,
    #: and from the number of features of each edge that it reads, if it reads any
    snippet: Callable[..., str]
    note: Mapping[str, str]  #: for each architecture what has no counterpart, in one line
    #: for each architecture the names of further weights of layers that read features of edges
    of_edges: Mapping[str, Mapping[str, Weight]]

    def weights(self, config: options.LayeredModel, model: GNN) -> dict[str, Tensor]:
        """Return the weights of ``model`` under the peer's names.

        Raises:
            ConfigError: the architecture has no counterpart.
        """
        known = self.layers.get(config.name)
        if known is None:
            raise ConfigError(
                f"format={self.name}: layers of {shown(config.name)} have no counterpart there; "
                f"{', '.join(self.layers)} have, and format=safetensors writes any"
            )
        if model.uses_edge_features:
            if config.name not in self.of_edges:
                raise ConfigError(
                    f"format={self.name}: layers of {config.name} that read features of edges have "
                    "no counterpart there; format=pyg and format=safetensors write them"
                )
            known = {**known, **self.of_edges[config.name]}
        heads = getattr(config, "num_heads", 1)
        found = {
            f"convs.{index}.{name}": make(layer.state_dict(), heads)
            for index, layer in enumerate(model.layers)
            for name, make in known.items()
        }
        before = self.norm(config.name, config.norm)
        for index, norm in enumerate(model.norms):
            found |= {f"norms.{index}.{before}{k}": each for k, each in norm.state_dict().items()}
        return {name: each.contiguous().clone() for name, each in found.items()}


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
    "GIN": {
        "lin.weight": renamed("edge_linear.weight"),
        "lin.bias": renamed("edge_linear.bias"),
    },
}

_LOOPS = (
    "a graph with self loops of its own: add_self_loops=False in the model, and edge_index = "
    "torch_geometric.utils.add_self_loops(edge_index, num_nodes=len(x))[0]; PyG else replaces them"
)

NOTES = {
    "GCN": _LOOPS,
    "GAT": _LOOPS,
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

_GIN = """\
from safetensors.torch import load_file
from torch import nn
from torch_geometric.nn import {conv}


class GIN(nn.Module):
    def __init__(self, widths, hidden):
        super().__init__()
        self.convs = nn.ModuleList(
            {conv}(nn.Sequential(nn.Linear(a, hidden), nn.ReLU(), nn.Linear(hidden, b)){edge_dim})
            for a, b in zip(widths, widths[1:])
        )
        self.norms = nn.ModuleList({norm} for width in widths[1:-1])

    def forward(self, x, edge_index{argument}):
        for conv, norm in zip(self.convs, self.norms):
            x = norm(conv(x, edge_index{argument})).relu()
        return self.convs[-1](x, edge_index{argument})


model = GIN({widths}, {hidden})
model.load_state_dict(load_file({file}))
logits = model.eval()(x, edge_index{argument})
"""

#: What builds a norm of ``width`` features in a module.
NORM_MODULES = {
    "none": "nn.Identity()",
    "batch": "nn.BatchNorm1d(width)",
    "layer": "nn.LayerNorm(width)",
}


def _norm_prefix(name: str, norm: str) -> str:
    """PyG's BatchNorm holds torch's."""
    return "module." if norm == "batch" and name != "GIN" else ""


def _snippet(
    config: options.LayeredModel, widths: tuple[int, ...], file: Path, edge_width: int = 0
) -> str:
    if config.name == "GIN":
        norm = NORM_MODULES[config.norm]
        return _GIN.format(
            widths=list(widths),
            hidden=config.hidden,
            norm=norm,
            file=json.dumps(str(file)),
            conv="GINEConv" if edge_width else "GINConv",
            edge_dim=f", edge_dim={edge_width}" if edge_width else "",
            argument=", edge_attr" if edge_width else "",
        )
    heads = getattr(config, "num_heads", None)
    return _BASIC.format(
        name=config.name,
        width=widths[0],
        hidden=config.hidden,
        num_layers=config.num_layers,
        num_classes=widths[-1],
        dropout=config.dropout,
        more=_NORMS[config.norm]
        + ("" if heads is None else f", heads={heads}")
        + (f", edge_dim={edge_width}" if edge_width else ""),
        edges=", edge_attr=edge_attr" if edge_width else "",
        file=json.dumps(str(file)),
    )


PYG = Peer(
    name="pyg",
    layers=LAYERS,
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


def _snippet_for_dgl(
    config: options.LayeredModel, widths: tuple[int, ...], file: Path, _: int = 0
) -> str:
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
    norm=lambda *_: "",
    snippet=_snippet_for_dgl,
    note=NOTES_FOR_DGL,
    of_edges={},
)
