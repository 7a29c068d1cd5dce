"""A tiny mini-batch that finds the form a user's module takes, and what a step takes."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from gnnscale.core import ConfigError
from gnnscale.core.config.user_code import EDGE_ATTR
from gnnscale.nn import adapters, cost
from gnnscale.sampling import Block, MiniBatch

_HOPS = ("num_sampled_nodes_per_hop", "num_sampled_edges_per_hop")


@dataclass(frozen=True, kw_only=True)
class CallConvention:
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


def edge_argument(function: Callable[..., Any]) -> str | None:
    """Return the name of the argument of ``function`` for features of edges; None without one."""
    known = inspect.signature(function).parameters
    return next((name for name in EDGE_ATTR if name in known), None)


def _edges(module: nn.Module, edge_attr: Any) -> dict[str, Any]:
    """Return features of edges as an argument of ``forward``, by its name.

    Raises:
        ConfigError: there is no such argument.
    """
    name = edge_argument(module.forward)
    if name is None:
        raise ConfigError(
            f"model.edge_features: forward has no argument {' or '.join(EDGE_ATTR)}, by which the "
            "forms of PyG hand over features of edges"
        )
    return {name: edge_attr}


def _edges_of_layers(module: nn.Module, batch: MiniBatch) -> dict[str, Any]:
    if batch.blocks[0].edge_attr is None:
        return {}
    return _edges(module, [torch.from_numpy(each.edge_attr) for each in batch.blocks])


def _call_pyg(module: nn.Module, batch: MiniBatch, x: torch.Tensor) -> Any:
    return module(x, adapters.to_edge_indices(batch), **_edges_of_layers(module, batch))


def _call_bipartite(module: nn.Module, batch: MiniBatch, x: torch.Tensor) -> Any:
    return module(x, adapters.to_adjacencies(batch), **_edges_of_layers(module, batch))


def _call_trimmed(module: nn.Module, batch: MiniBatch, x: torch.Tensor) -> Any:
    edge_index, *hops = adapters.to_sampled_subgraph(batch)
    # A module without these computes every layer for all vertices of the sample.
    known = inspect.signature(module.forward).parameters
    takes = all(name in known for name in _HOPS)
    named: dict[str, Any] = dict(zip(_HOPS, hops, strict=True)) if takes else {}
    if batch.blocks[0].edge_attr is not None:
        named |= _edges(module, adapters.sampled_edge_attr(batch))
    return module(x, edge_index, **named)


def _call_dgl(module: nn.Module, batch: MiniBatch, x: torch.Tensor) -> Any:
    return module(adapters.to_dgl_blocks(batch), x)


def _call_blocks(module: nn.Module, batch: MiniBatch, x: torch.Tensor) -> Any:
    return module(batch, x)


def _infer_pyg(module: Any, index: int, block: Block, x: torch.Tensor) -> Any:
    infer, named = module.inference_per_layer, {}
    if block.edge_attr is not None:
        name = edge_argument(infer)
        assert name is not None, "modules without are evaluated over sampled neighbours"
        named = {name: torch.from_numpy(block.edge_attr)}
    return infer(index, x, adapters.block_to_edge_index(block), block.num_dst, **named)


def _infer_dgl(module: Any, index: int, block: Block, x: torch.Tensor) -> Any:
    return module.inference_per_layer(index, adapters.block_to_dgl(block), x)


def _infer_blocks(module: Any, index: int, block: Block, x: torch.Tensor) -> Any:
    return module.inference_per_layer(index, block, x)


#: Every form but ``auto``, by name.
CALLS: dict[str, CallConvention] = {
    "pyg": CallConvention(call=_call_pyg, infer=_infer_pyg, drops_rows=True),
    "pyg_bipartite": CallConvention(call=_call_bipartite, infer=_infer_pyg, drops_rows=True),
    "pyg_trimmed": CallConvention(call=_call_trimmed, infer=_infer_pyg, drops_rows=True),
    "dgl": CallConvention(call=_call_dgl, infer=_infer_dgl, weighs_edges=True),
    "blocks": CallConvention(call=_call_blocks, infer=_infer_blocks, weighs_edges=True),
}


#: Vertices, and edges to them, that each hop of the smallest mini-batch adds.
_VERTICES, _EDGES = 4, 6
#: How many more there are of one kind, to see what these take.
_MORE = 16

#: From a mini-batch and its input rows to the seeds' logits.
Call = Callable[[MiniBatch, torch.Tensor], torch.Tensor]


def tiny_batch(
    num_layers: int,
    *,
    vertices: Sequence[int] = (),
    edges: Sequence[int] = (),
    edge_width: int = 0,
) -> MiniBatch:
    """Return a mini-batch in which every hop draws the same neighbours for a vertex.

    Every form, and inference layer by layer, so have one answer. One vertex of each hop has no
    neighbour. Edges have ``edge_width`` features, the same ones in every hop.
    """
    more_vertices = [*vertices, *[0] * (num_layers + 1 - len(vertices))]
    more_edges = [*edges, *[0] * (num_layers - len(edges))]
    sizes = np.cumsum([_VERTICES + more for more in more_vertices])
    lists: list[list[int]] = [[] for _ in range(sizes[-1])]
    for depth in range(num_layers):
        first = 0 if depth == 0 else int(sizes[depth - 1])
        for number in range(_EDGES + more_edges[depth]):
            # Sources are of the next depth for the most part; the first vertex has none.
            source = int(sizes[depth + 1]) - 1 - number % int(sizes[depth])
            lists[first + 1 + number % (_VERTICES - 1)].append(source)
    blocks = []
    generator = np.random.default_rng(1)
    rows = generator.standard_normal((sum(map(len, lists)), edge_width), np.float32)
    for hop in range(num_layers, 0, -1):
        own = lists[: sizes[hop - 1]]
        indptr = np.cumsum([0, *map(len, own)], dtype=np.int64)
        indices = np.array([each for vertex in own for each in vertex], dtype=np.int32)
        # Lists of fewer vertices are the first of all.
        edge_attr = rows[: len(indices)] if edge_width else None
        num_src = int(sizes[hop])
        blocks.append(Block(indptr=indptr, indices=indices, num_src=num_src, edge_attr=edge_attr))
    return MiniBatch(
        seed=0,
        step=0,
        num_seeds=int(sizes[0]),
        input_vertices=np.arange(sizes[-1], dtype=np.int64),
        blocks=tuple(blocks),
    )


def tiny_rows(batch: MiniBatch, num_features: int) -> torch.Tensor:
    """Return input rows ``[num_input_vertices, num_features]``, without torch's global numbers."""
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((len(batch.input_vertices), num_features), np.float32)
    return torch.from_numpy(rows)


def count_cost(
    module: nn.Module,
    call: Call,
    *,
    num_layers: int,
    num_features: int,
    num_classes: int,
    edge_width: int = 0,
) -> cost.CostModel:
    """Count what a step takes, forward and backward: by how much more each kind of thing takes.

    It counts the operations of torch, and needs no clock: the result is the same every time.
    """

    def count(**more: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
        batch = tiny_batch(num_layers, **more, edge_width=edge_width)
        return _counted_step(module, call, batch, tiny_rows(batch, num_features))

    base = count()
    nothing = np.zeros_like(base)

    def each(kind: str, depths: int) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
        # What is added at a depth is in the blocks of all hops after it as well.
        found = [
            (count(**{kind: [_MORE if at == depth else 0 for at in range(depths)]}) - base) / _MORE
            for depth in range(depths)
        ]
        pairs = zip(found, [*found[1:], nothing], strict=True)
        return [np.maximum(one - other, 0) for one, other in pairs][::-1]

    rows = [*each("vertices", num_layers + 1), *each("edges", num_layers)]
    macs, written, kept = np.array(rows).T
    # Kernels that are none of torch's write as well; what is kept was written at least.
    streamed = 2 * np.maximum(written, kept)
    return cost.CostModel(
        widths=(num_features, num_classes),
        macs=tuple(macs.tolist()),
        stream_bytes=tuple(streamed.tolist()),
        kept_bytes=tuple(kept.tolist()),
    )


def _counted_step(
    module: nn.Module, call: Call, batch: MiniBatch, x: torch.Tensor
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return multiply-accumulates, bytes written, and bytes kept, of one step."""
    kept: dict[int, int] = {}
    own = {each.data_ptr() for each in [*module.parameters(), *module.buffers(), x]}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.nbytes
        return tensor

    written = _WrittenBytes()
    with FlopCounterMode(display=False) as products, written:
        with saved_tensors_hooks(keep, _unchanged):
            loss = call(batch, x).square().sum()
        held = sum(kept.values())
        loss.backward()  # type: ignore[no-untyped-call]
    module.zero_grad(set_to_none=True)
    return np.array([products.get_total_flops() / 2, written.num_bytes, held])


class _WrittenBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the bytes of what operations return; a view of their arguments is no result."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count its results."""
        result = func(*args, **(kwargs or {}))
        known = {each.untyped_storage().data_ptr() for each in _tensors(args)}
        for each in _tensors(result):
            if each.untyped_storage().data_ptr() not in known:
                self.num_bytes += each.nbytes
        return result


def _unchanged(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _tensors(values: Any) -> list[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, (list, tuple)):
        return [each for each in values if isinstance(each, torch.Tensor)]
    return []
