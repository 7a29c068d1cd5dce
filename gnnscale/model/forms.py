"""The forms in which a user's module takes a mini-batch, and how to find out which it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gnnscale.model import adapters
from gnnscale.sampler import Block, MiniBatch

_HOPS = ("num_sampled_nodes_per_hop", "num_sampled_edges_per_hop")


@dataclass(frozen=True, kw_only=True)
class Form:
    """One way to call a module."""

    #: from a module, a mini-batch and its input rows to output rows, the seeds' first
    call: Callable[[nn.Module, MiniBatch, torch.Tensor], Any]
    #: from a module, the number of a layer, a block and its source rows ``[num_src, f]`` to the
    #: rows ``[num_dst, f']`` that the next layer reads, by the module's ``inference_per_layer``
    infer: Callable[[nn.Module, int, Block, torch.Tensor], Any]
    #: whether output rows after the seeds' are dropped; else there are no such rows
    drops_rows: bool = False
    #: whether the edges' importance (layer-wise sampling) reaches the module
    weighs_edges: bool = False


def likely_forms(module: nn.Module) -> list[str]:
    """Return all forms, those first that the names of ``forward``'s arguments speak for."""
    names = [*inspect.signature(module.forward).parameters, "", ""]
    first, second = names[0].lower(), names[1].lower()
    by_name = {
        "pyg_trimmed": second == "edge_index",
        "pyg_bipartite": "adj" in second,
        "pyg": second.startswith(("edge_ind", "edge_list")) and second != "edge_index",
        "dgl": first in ("blocks", "mfgs", "graphs", "gs"),
        "blocks": "batch" in first,
    }
    return sorted(by_name, key=lambda form: not by_name[form])


def _call_pyg(module: nn.Module, batch: MiniBatch, x: torch.Tensor) -> Any:
    return module(x, adapters.to_edge_indices(batch))


def _call_bipartite(module: nn.Module, batch: MiniBatch, x: torch.Tensor) -> Any:
    return module(x, adapters.to_adjacencies(batch))


def _call_trimmed(module: nn.Module, batch: MiniBatch, x: torch.Tensor) -> Any:
    edge_index, *hops = adapters.to_sampled_subgraph(batch)
    # A module without these computes every layer for all vertices of the sample.
    known = inspect.signature(module.forward).parameters
    takes = all(name in known for name in _HOPS)
    return module(x, edge_index, **(dict(zip(_HOPS, hops, strict=True)) if takes else {}))


def _call_dgl(module: nn.Module, batch: MiniBatch, x: torch.Tensor) -> Any:
    return module(adapters.to_dgl_blocks(batch), x)


def _call_blocks(module: nn.Module, batch: MiniBatch, x: torch.Tensor) -> Any:
    return module(batch, x)


def _infer_pyg(module: Any, index: int, block: Block, x: torch.Tensor) -> Any:
    return module.inference_per_layer(index, x, adapters.block_to_edge_index(block), block.num_dst)


def _infer_dgl(module: Any, index: int, block: Block, x: torch.Tensor) -> Any:
    return module.inference_per_layer(index, adapters.block_to_dgl(block), x)


def _infer_blocks(module: Any, index: int, block: Block, x: torch.Tensor) -> Any:
    return module.inference_per_layer(index, block, x)


#: Every form but ``auto``, by name.
CALLS: dict[str, Form] = {
    "pyg": Form(call=_call_pyg, infer=_infer_pyg, drops_rows=True),
    "pyg_bipartite": Form(call=_call_bipartite, infer=_infer_pyg, drops_rows=True),
    "pyg_trimmed": Form(call=_call_trimmed, infer=_infer_pyg, drops_rows=True),
    "dgl": Form(call=_call_dgl, infer=_infer_dgl, weighs_edges=True),
    "blocks": Form(call=_call_blocks, infer=_infer_blocks, weighs_edges=True),
}
