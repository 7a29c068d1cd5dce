"""Conversion of trained models to modules of PyTorch Geometric."""

from collections.abc import Mapping

from gnnscale.inference.export.module_export import (
    APPNP,
    POOLING,
    WEIGHTS_OF_GRAPH,
    Peer,
    Program,
    Weight,
    architecture,
    last_bias,
    last_of,
    module_program,
    per_head,
    perceptron,
    renamed,
)
from gnnscale.nn import options

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
    "GIN": perceptron("nn"),
}

EDGE_WEIGHTS: Mapping[str, Mapping[str, Weight]] = {
    "GAT": {
        "lin_edge.weight": renamed("edge_linear.weight"),
        "att_edge": per_head("attention_edge"),
    },
    "GATv2": {"lin_edge.weight": renamed("edge_linear.weight")},
    "GIN": {"lin.weight": renamed("edge_linear.weight"), "lin.bias": renamed("edge_linear.bias")},
}

#: PyG's SAGEConv and GINConv ignore edge weights; GraphConv and SimpleConv sum weighted messages.
WEIGHTED: Mapping[str, Mapping[str, Weight]] = {
    "GraphSAGE": {
        "lin_root.weight": renamed("linear.weight", "first"),
        "lin_rel.weight": renamed("linear.weight", "second"),
        "lin_rel.bias": renamed("linear.bias"),
    },
    "GIN": {name: make for name, make in LAYERS["GIN"].items() if name != "eps"},
}

MODELS: Mapping[str, Mapping[str, Weight]] = {
    "SGC": {"lin.weight": renamed("layers.0.linear.weight"), "lin.bias": last_bias},
    "APPNP": APPNP,
}

NOTES = {"GIN": "torch_geometric.nn.models.GIN has other perceptrons: GINConv itself takes ours"}

#: Arguments of PyG's basic models for norms.
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

_IMPORTS = """\
from safetensors.torch import load_file
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.nn import {layer}"""

#: For each architecture that needs a module: its layer and its construction. The last layer
#: averages heads.
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

#: Replacements in ``_CONVS`` for edges with weights.
_WEIGHTED_CONVS = {
    "GraphSAGE": ("GraphConv", "GraphConv({a}, {b})"),
    "GIN": ("SimpleConv", _CONVS["GIN"][1].replace("GINConv", "Layer")),
}

#: Division by the sum of weights, which turns sums of messages into means.
_MEAN = """\
        sums = edge_weight.new_zeros(len(x)).index_add(0, edge_index[1], edge_weight)
        sums = sums.clamp(min=torch.finfo(sums.dtype).tiny)
        edge_weight = edge_weight / sums[edge_index[1]]
"""

_WEIGHTED_GIN = """\
class Layer(nn.Module):
    def __init__(self, perceptron):
        super().__init__()
        self.sum, self.nn = SimpleConv("sum", combine_root="sum"), perceptron

    def forward(self, x, edge_index, edge_weight):
        return self.nn(self.sum(x, edge_index, edge_weight))


"""

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


def _is_basic(config: options.LayeredModel, weighted: bool) -> bool:
    """Whether PyG has a ready-made model, that reads edge weights if ``weighted``."""
    if weighted and architecture(config) in WEIGHTED:
        return False
    return config.name != "GIN" and not config.residual


def _norm_prefix(config: options.LayeredModel, weighted: bool) -> str:
    """Return the prefix of a norm's weight names: ``module.`` in PyG's BatchNorm, or empty.

    Basic models of PyG have PyG's norms; modules written for other architectures have PyTorch's.
    ``weighted``: layers read edge weights, for which PyG may lack a basic model.
    """
    return "module." if config.norm == "batch" and _is_basic(config, weighted) else ""


def _snippet(program: Program) -> str:
    config, widths = program.config, program.widths
    values = {"file": program.literal_file, "width": widths[0], "num_classes": widths[-1]}
    if not isinstance(config, options.LayeredModel):
        text = _SGC if isinstance(config, options.SGC) else _APPNP
        return _add_edge_data(text.format(**vars(config), **values), program)
    if not _is_basic(config, program.weighted):
        return _layered(program, config)
    more = _NORMS[config.norm]
    if isinstance(config, options.GAT):
        more += f", heads={config.num_heads}"
    if isinstance(config, options.GATv2):
        more += f", v2=True, share_weights={config.share_weights}"
    if architecture(config) == POOLING:
        more += ', aggr="max", project=True'
    if config.jumping != "none":
        more += f', jk="{config.jumping}"'
    if program.edge_width:
        more += f", edge_dim={program.edge_width}"
    edges = ", edge_attr=edge_attr" if program.edge_width else ""
    return _BASIC.format(
        name="GAT" if config.name == "GATv2" else config.name,
        hidden=config.hidden,
        num_layers=config.num_layers,
        dropout=config.dropout,
        more=more,
        edges=", edge_weight=edge_weight" if program.weighted else edges,
        **values,
    )


def _add_edge_data(text: str, program: Program) -> str:
    """Return program ``text`` whose calls also pass the edge features or weights of ``program``."""
    name = "edge_attr" if program.edge_width else "edge_weight" if program.weighted else ""
    return text.replace("edge_index)", f"edge_index, {name})") if name else text


def _layered(program: Program, config: options.LayeredModel) -> str:
    """Return a program that defines a module of PyG's layers and loads the weights."""
    name, weighted = architecture(config), program.weighted
    layer, conv = (_CONVS | _WEIGHTED_CONVS if weighted else _CONVS)[name]
    if program.edge_width:
        layer, conv = (text.replace("GINConv", "GINEConv") for text in (layer, conv))
        conv = f"{conv[:-1]}, edge_dim={program.edge_width})"
    text = module_program(
        program,
        conv,
        row="x",
        last="self.convs[-1](x, edge_index)",
        imports=_IMPORTS.format(layer=layer),
        before=_WEIGHTED_GIN if weighted and name == "GIN" else "",
        inputs="x, edge_index",
        prepare=_MEAN if weighted and name == "GraphSAGE" else "",
        hidden="conv(x, edge_index)",
        activation=f"functional.dropout(norm(out).relu(), {config.dropout}, self.training)",
        data="x, edge_index",
    )
    return _add_edge_data(text, program)


def _note(program: Program) -> str:
    """Return how PyG differs from the model, as for graphs with self-loops; empty: not at all."""
    if isinstance(program.config, options.GIN | options.GraphSAGE):
        return "" if program.weighted else NOTES.get(program.config.name, "")
    data, loops = "edge_index", "edge_index, num_nodes=len(x))[0]"
    if program.weighted:
        data, loops = "edge_index, edge_weight", "edge_index, edge_weight, num_nodes=len(x))"
    if program.edge_width:
        data = "edge_index, edge_attr"
        loops = 'edge_index, edge_attr, fill_value="mean", num_nodes=len(x))'
    return (
        f"a graph with self loops of its own: add_self_loops=False in the model, and {data} = "
        f"torch_geometric.utils.add_self_loops({loops}; PyG else replaces them"
    )


PYG = Peer(
    name="pyg",
    layers=LAYERS,
    models=MODELS,
    norm=_norm_prefix,
    snippet=_snippet,
    note=_note,
    of_edges=EDGE_WEIGHTS,
    weighted=WEIGHTED,
    weights_note=f"edge_weight is [num_edges] in the order of edge_index; {WEIGHTS_OF_GRAPH}",
)
