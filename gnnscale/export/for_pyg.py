"""Weights for PyTorch Geometric: its basic models, and one of GINConv."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from gnnscale.export.peer import Peer, Weight, per_head, renamed, zero
from gnnscale.model.options import LayeredModel

__all__ = ["PYG"]

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
logits = model.eval()(x, edge_index)
"""

_GIN = """\
from safetensors.torch import load_file
from torch import nn
from torch_geometric.nn import GINConv


class GIN(nn.Module):
    def __init__(self, widths, hidden):
        super().__init__()
        self.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(a, hidden), nn.ReLU(), nn.Linear(hidden, b)))
            for a, b in zip(widths, widths[1:])
        )
        self.norms = nn.ModuleList({norm} for width in widths[1:-1])

    def forward(self, x, edge_index):
        for conv, norm in zip(self.convs, self.norms):
            x = norm(conv(x, edge_index)).relu()
        return self.convs[-1](x, edge_index)


model = GIN({widths}, {hidden})
model.load_state_dict(load_file({file}))
logits = model.eval()(x, edge_index)
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


def _snippet(config: LayeredModel, widths: tuple[int, ...], file: Path) -> str:
    if config.name == "GIN":
        norm = NORM_MODULES[config.norm]
        return _GIN.format(
            widths=list(widths), hidden=config.hidden, norm=norm, file=json.dumps(str(file))
        )
    heads = getattr(config, "num_heads", None)
    return _BASIC.format(
        name=config.name,
        width=widths[0],
        hidden=config.hidden,
        num_layers=config.num_layers,
        num_classes=widths[-1],
        dropout=config.dropout,
        more=_NORMS[config.norm] + ("" if heads is None else f", heads={heads}"),
        file=json.dumps(str(file)),
    )


PYG = Peer(name="pyg", layers=LAYERS, norm=_norm_prefix, snippet=_snippet, note=NOTES)
