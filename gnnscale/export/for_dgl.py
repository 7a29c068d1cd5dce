"""Weights for DGL: modules of its layers, as its own examples write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from gnnscale.export.for_pyg import NORM_MODULES
from gnnscale.export.peer import Peer, Weight, per_head, renamed, transposed, zero
from gnnscale.model.options import LayeredModel

__all__ = ["DGL"]

LAYERS: Mapping[str, Mapping[str, Weight]] = {
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

NOTES = {
    "GCN": "where every edge has its reverse, GraphConv(a, b), whose norm is both, gives the same "
    "without edge_weight",
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


def _snippet(config: LayeredModel, widths: tuple[int, ...], file: Path) -> str:
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


DGL = Peer(name="dgl", layers=LAYERS, norm=lambda *_: "", snippet=_snippet, note=NOTES)
