"""Conversion of trained models to modules of DGL."""

from collections.abc import Mapping

from torch import Tensor

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
    transposed,
)
from gnnscale.nn import options


def with_bias(*names: str, sign: int) -> Weight:
    """Return a conversion to a bias: a layer's last bias in ``names``, plus ``sign`` * final bias.

    DGL's ``GATv2Conv`` has no final bias. A source bias is part of every message, and attention
    averages messages, so that a source bias acts as a final bias. Scores add the biases of both
    ends: the opposite destination bias cancels its effect there.
    """

    def make(layer: Mapping[str, Tensor], heads: int) -> Tensor:
        final, bias = layer["bias"], last_of(*names)(layer, heads)
        # Averaged heads share one bias.
        return bias + sign * (final if len(final) == len(bias) else final.repeat(heads))

    return make


LAYERS: Mapping[str, Mapping[str, Weight]] = {
    "GCN": {"weight": transposed("linear.weight"), "bias": renamed("linear.bias")},
    "GraphSAGE": {
        "fc_self.weight": renamed("linear.weight", "first"),
        "fc_self.bias": renamed("linear.bias"),
        "fc_neigh.weight": renamed("linear.weight", "second"),
    },
    POOLING: {
        "fc_pool.weight": renamed("pool.weight"),
        "fc_pool.bias": renamed("pool.bias"),
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
    "GATv2": {
        "fc_src.weight": renamed("linear.weight"),
        "fc_src.bias": with_bias("linear.bias", sign=1),
        "fc_dst.weight": last_of("linear.weight", "linear_dst.weight"),
        "fc_dst.bias": with_bias("linear.bias", "linear_dst.bias", sign=-1),
        "attn": per_head("attention"),
    },
    "GIN": perceptron("apply_func"),
}

#: Weights of layers that read edge features. DGL's attention layers have no counterpart.
OF_EDGES: Mapping[str, Mapping[str, Weight]] = {
    "GIN": {"lin.weight": renamed("edge_linear.weight"), "lin.bias": renamed("edge_linear.bias")}
}

MODELS: Mapping[str, Mapping[str, Weight]] = {
    "SGC": {"fc.weight": renamed("layers.0.linear.weight"), "fc.bias": last_bias},
    "APPNP": APPNP,
}

_BOTH_WAYS = "where every edge has its reverse, "

NOTES = {
    "GCN": f"{_BOTH_WAYS}GraphConv(a, b), whose norm is both, gives the same without edge_weight",
    "APPNP": f"{_BOTH_WAYS}APPNPConv(k, alpha) gives the same as the hops",
    "GATv2": "biases of a layer are those of its two projections; shared weights become two",
}

_IMPORTS = """\
import dgl
import torch
from dgl.nn import {layer}
from safetensors.torch import load_file
from torch import nn"""

_WITH_LOOPS = "        graph = dgl.add_self_loop(graph)\n"
#: An edge's message is divided by the square root of both in-degrees.
_WEIGHT = (
    f"{_WITH_LOOPS}        src, dst = graph.edges()\n"
    "        degrees = graph.in_degrees().float()\n"
    "        weight = (degrees[src] * degrees[dst]).rsqrt()\n"
)
#: Sums of the weights of in-edges replace in-degrees; a loop has weight 1.
_BOTH_SUMS = (
    "        graph = dgl.add_self_loop(graph, fill_data=1.0)\n"
    "        src, dst = graph.edges()\n"
    '        weight = graph.edata["weight"]\n'
    "        sums = dgl.ops.copy_e_sum(graph, weight)\n"
    "        weight = weight * (sums[src] * sums[dst]).rsqrt()\n"
)
#: SAGEConv divides by in-degrees: multiply by them, and divide by the sum of weights.
_MEAN = (
    "        _, dst = graph.edges()\n"
    '        weight = graph.edata["weight"]\n'
    "        sums = dgl.ops.copy_e_sum(graph, weight).clamp(min=torch.finfo(weight.dtype).tiny)\n"
    "        weight = weight / sums[dst] * graph.in_degrees()[dst]\n"
)
_GIN = "nn.Sequential(nn.Linear({a}, {hidden}), nn.ReLU(), nn.Linear({hidden}, {b}))"

#: For each architecture: layer, its construction, preparation of the graph, call of a hidden layer
#: and, if heads are averaged in the last layer, its call.
_PARTS: dict[str, tuple[str, ...]] = {
    "GCN": (
        *("GraphConv", 'GraphConv({a}, {b}, norm="none")', _WEIGHT),
        "{conv}(graph, h, edge_weight=weight)",
    ),
    "GraphSAGE": ("SAGEConv", 'SAGEConv({a}, {b}, "mean")', "", "{conv}(graph, h)"),
    POOLING: ("SAGEConv", 'SAGEConv({a}, {b}, "pool")', "", "{conv}(graph, h)"),
    "GAT": (
        *("GATConv", "GATConv({a}, {head}, {heads})", _WITH_LOOPS),
        *("{conv}(graph, h).flatten(1)", "{conv}(graph, h).mean(1)"),
    ),
    "GATv2": (
        *("GATv2Conv", "GATv2Conv({a}, {head}, {heads})", _WITH_LOOPS),
        *("{conv}(graph, h).flatten(1)", "{conv}(graph, h).mean(1)"),
    ),
    "GIN": ("GINConv", f"GINConv({_GIN})", "", "{conv}(graph, h)"),
}

#: Replacements in ``_PARTS`` for edges with weights.
_WEIGHTED_PARTS: dict[str, tuple[str, ...]] = {
    "GCN": (*_PARTS["GCN"][:2], _BOTH_SUMS, _PARTS["GCN"][3]),
    "GraphSAGE": (*_PARTS["GraphSAGE"][:2], _MEAN, "{conv}(graph, h, edge_weight=weight)"),
    "GIN": (*_PARTS["GIN"][:3], '{conv}(graph, h, edge_weight=graph.edata["weight"])'),
}

_GINE = (
    *("GINEConv", f"Layer({{edge_width}}, {{a}}, {_GIN})", ""),
    '{conv}(graph, h, graph.edata["feat"])',
)

#: Layer that maps edge features to the width of rows, as GINEConv requires.
_LAYER = """\
class Layer(GINEConv):
    def __init__(self, num_edge_features, width, perceptron):
        super().__init__(perceptron)
        self.lin = nn.Linear(num_edge_features, width)

    def forward(self, graph, h, edges):
        return super().forward(graph, h, self.lin(edges))


"""

_SGC = """\
import dgl
from dgl.nn import SGConv
from safetensors.torch import load_file

model = SGConv({width}, {num_classes}, k={num_layers})
model.load_state_dict(load_file({file}))
logits = model.eval()(dgl.add_self_loop(graph), graph.ndata["feat"])
"""

#: SGConv normalizes by the weights of out-edges at sources, and GraphConv by none.
_WEIGHTED_SGC = f"""\
import dgl
from dgl.nn import GraphConv
from safetensors.torch import load_file
from torch import nn


class SGC(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear({{width}}, {{num_classes}})
        self.hop = GraphConv({{width}}, {{width}}, norm="none", weight=False, bias=False)

    def forward(self, graph, h):
{_BOTH_SUMS}\
        for _ in range({{num_layers}}):
            h = self.hop(graph, h, edge_weight=weight)
        return self.fc(h)


model = SGC()
model.load_state_dict(load_file({{file}}))
logits = model.eval()(graph, graph.ndata["feat"])
"""

_APPNP = f"""\
import dgl
from dgl.nn import GraphConv
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional


class APPNP(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin1 = nn.Linear({{width}}, {{hidden}})
        self.lin2 = nn.Linear({{hidden}}, {{num_classes}})
        width = {{num_classes}}
        self.hop = GraphConv(width, width, norm="none", weight=False, bias=False)

    def forward(self, graph, h):
{_WEIGHT}\
        h = functional.dropout(self.lin1(h).relu(), {{dropout}}, self.training)
        z = first = self.lin2(h)
        for _ in range({{num_layers}}):
            z = (1 - {{alpha}}) * self.hop(graph, z, edge_weight=weight) + {{alpha}} * first
        return z


model = APPNP()
model.load_state_dict(load_file({{file}}))
logits = model.eval()(graph, graph.ndata["feat"])
"""


def _snippet(program: Program) -> str:
    config, widths = program.config, program.widths
    if not isinstance(config, options.LayeredModel):
        appnp = _APPNP.replace(_WEIGHT, _BOTH_SUMS) if program.weighted else _APPNP
        sgc = _WEIGHTED_SGC if program.weighted else _SGC
        text = sgc if isinstance(config, options.SGC) else appnp
        values = {"file": program.literal_file, "width": widths[0], "num_classes": widths[-1]}
        return text.format(**vars(config), **values)
    all_parts = _PARTS | _WEIGHTED_PARTS if program.weighted else _PARTS
    parts = _GINE if program.edge_width else all_parts[architecture(config)]
    layer, conv, prepare, call = parts[:4]
    return module_program(
        program,
        conv,
        row="h",
        last=parts[-1].format(conv="self.convs[-1]"),
        imports=_IMPORTS.format(layer=layer),
        before=_LAYER if program.edge_width else "",
        inputs="graph, h",
        prepare=prepare,
        hidden=call.format(conv="conv"),
        activation="norm(out).relu()",
        data='graph, graph.ndata["feat"]',
    )


def _note(program: Program) -> str:
    """Return how DGL's modules differ from the model; empty if they do not, as with weights."""
    return "" if program.weighted else NOTES.get(program.config.name, "")


DGL = Peer(
    name="dgl",
    layers=LAYERS,
    models=MODELS,
    norm=lambda *_: "",
    snippet=_snippet,
    note=_note,
    of_edges=OF_EDGES,
    weighted={},
    weights_note=(
        f'graph.edata["weight"] is [num_edges] in the order of graph.edges(); {WEIGHTS_OF_GRAPH}'
    ),
)
