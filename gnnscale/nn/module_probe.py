"""Calls of a user's module on tiny mini-batches, to find its form and to count its cost."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
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
    """A way to call ``forward`` and ``inference_per_layer`` of a user's module."""

    #: calls ``forward`` with a mini-batch and its input rows; returns output rows, seeds first
    call: Callable[[nn.Module, MiniBatch, Tensor], Any]
    #: calls ``inference_per_layer`` with the number of a layer, a block and its source rows
    #: ``[num_src, f]``; returns the rows ``[num_dst, f']`` that the next layer reads
    infer: Callable[[nn.Module, int, Block, Tensor], Any]
    #: whether ``forward`` may return rows after the seeds', which are dropped
    drops_rows: bool = False
    #: whether the module gets the importance of edges (layer-wise sampling)
    weighs_edges: bool = False


def likely_forms(module: nn.Module) -> list[str]:
    """Return the names of all conventions to call ``forward``, the likely ones first.

    Likely are those that match the names of its arguments.
    """
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
    """Return the name of the argument of ``function`` for edge features; None: it has none."""
    parameters = inspect.signature(function).parameters
    return next((name for name in EDGE_ATTR if name in parameters), None)


def _edge_keyword(module: nn.Module, edge_attr: Any) -> dict[str, Any]:
    """Return ``{name: edge_attr}``, by the argument of ``forward`` for edge features.

    ConfigError: ``forward`` has no such argument.
    """
    name = edge_argument(module.forward)
    if name is None:
        raise ConfigError(
            f"model.edge_features: expected an argument {' or '.join(EDGE_ATTR)} of forward, by "
            "which the forms of PyG pass edge features"
        )
    return {name: edge_attr}


def _layer_edge_keyword(module: nn.Module, batch: MiniBatch) -> dict[str, Any]:
    """Return the keyword argument of ``forward`` that lists the edge features of each block.

    The dictionary is empty if the mini-batch has no edge features.
    """
    if batch.blocks[0].edge_attr is None:
        return {}
    return _edge_keyword(module, [torch.from_numpy(block.edge_attr) for block in batch.blocks])


def _call_pyg(module: nn.Module, batch: MiniBatch, x: Tensor) -> Any:
    return module(x, adapters.to_edge_indices(batch), **_layer_edge_keyword(module, batch))


def _call_bipartite(module: nn.Module, batch: MiniBatch, x: Tensor) -> Any:
    return module(x, adapters.to_adjacencies(batch), **_layer_edge_keyword(module, batch))


def _call_trimmed(module: nn.Module, batch: MiniBatch, x: Tensor) -> Any:
    edge_index, *hops = adapters.to_sampled_subgraph(batch)
    # Without them, the module computes every layer for all vertices of the subgraph.
    parameters = inspect.signature(module.forward).parameters
    takes_hops = all(name in parameters for name in _HOPS)
    keywords: dict[str, Any] = dict(zip(_HOPS, hops, strict=True)) if takes_hops else {}
    if batch.blocks[0].edge_attr is not None:
        keywords |= _edge_keyword(module, adapters.sampled_edge_attr(batch))
    return module(x, edge_index, **keywords)


def _call_dgl(module: nn.Module, batch: MiniBatch, x: Tensor) -> Any:
    return module(adapters.to_dgl_blocks(batch), x)


def _call_blocks(module: nn.Module, batch: MiniBatch, x: Tensor) -> Any:
    return module(batch, x)


def _infer_pyg(module: Any, index: int, block: Block, x: Tensor) -> Any:
    infer, keywords = module.inference_per_layer, {}
    if block.edge_attr is not None:
        name = edge_argument(infer)
        assert name is not None, "other modules are evaluated over sampled neighbors"
        keywords = {name: torch.from_numpy(block.edge_attr)}
    return infer(index, x, adapters.block_to_edge_index(block), block.num_dst, **keywords)


def _infer_dgl(module: Any, index: int, block: Block, x: Tensor) -> Any:
    return module.inference_per_layer(index, adapters.block_to_dgl(block), x)


def _infer_blocks(module: Any, index: int, block: Block, x: Tensor) -> Any:
    return module.inference_per_layer(index, block, x)


#: Call conventions by form, without ``auto``.
CALLS: dict[str, CallConvention] = {
    "pyg": CallConvention(call=_call_pyg, infer=_infer_pyg, drops_rows=True),
    "pyg_bipartite": CallConvention(call=_call_bipartite, infer=_infer_pyg, drops_rows=True),
    "pyg_trimmed": CallConvention(call=_call_trimmed, infer=_infer_pyg, drops_rows=True),
    "dgl": CallConvention(call=_call_dgl, infer=_infer_dgl, weighs_edges=True),
    "blocks": CallConvention(call=_call_blocks, infer=_infer_blocks, weighs_edges=True),
}


#: Vertices, and edges to them, that each hop of the smallest mini-batch adds.
_VERTICES, _EDGES = 4, 6
#: Vertices or edges that are added at one depth, to count their cost.
_ADDED = 16

#: Function from a mini-batch and its input rows to the seeds' logits.
Call = Callable[[MiniBatch, Tensor], Tensor]


def tiny_batch(
    num_layers: int, *, vertices: Sequence[int] = (), edges: Sequence[int] = (), edge_width: int = 0
) -> MiniBatch:
    """Return a mini-batch in which a vertex has the same neighbors in every hop.

    All conventions to call a module, and inference layer by layer, then give the same logits. One
    vertex of each hop has no neighbor. ``vertices`` and ``edges`` are numbers of vertices and edges
    to add at each depth, seeds first; edges have ``edge_width`` features, 0: none.
    """
    added_vertices = [*vertices, *[0] * (num_layers + 1 - len(vertices))]
    added_edges = [*edges, *[0] * (num_layers - len(edges))]
    sizes = np.cumsum([_VERTICES + added for added in added_vertices])
    lists: list[list[int]] = [[] for _ in range(sizes[-1])]
    for depth in range(num_layers):
        first = 0 if depth == 0 else int(sizes[depth - 1])
        for number in range(_EDGES + added_edges[depth]):
            # Most sources are of the next depth; the depth's first vertex gets no edge.
            source = int(sizes[depth + 1]) - 1 - number % int(sizes[depth])
            lists[first + 1 + number % (_VERTICES - 1)].append(source)
    blocks = []
    generator = np.random.default_rng(1)
    rows = generator.standard_normal((sum(map(len, lists)), edge_width), np.float32)
    for hop in range(num_layers, 0, -1):
        hop_lists = lists[: sizes[hop - 1]]
        indptr = np.cumsum([0, *map(len, hop_lists)], dtype=np.int64)
        indices = np.array(list(chain.from_iterable(hop_lists)), dtype=np.int32)
        # A hop over fewer vertices has a prefix of all edges.
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


def tiny_rows(batch: MiniBatch, num_features: int) -> Tensor:
    """Return input rows ``[num_input_vertices, num_features]`` for ``batch``, by a fixed seed."""
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
    """Count the cost of a step, forward and backward, per vertex and per edge of each depth.

    Torch's operations are counted for a tiny mini-batch and for mini-batches with ``_ADDED`` more
    vertices or edges at one depth. No clock is read: the result is the same every time. ``call``
    returns the logits of a mini-batch; ``module`` has the parameters.
    """

    def count(**added: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
        batch = tiny_batch(num_layers, **added, edge_width=edge_width)
        return _count_step(module, call, batch, tiny_rows(batch, num_features))

    base = count()
    zero = np.zeros_like(base)

    def count_by_depth(kind: str, depths: int) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
        # A vertex or an edge of a depth is in the blocks of all later hops too: differences of
        # neighboring depths count one block.
        slopes = [
            (count(**{kind: [_ADDED if i == depth else 0 for i in range(depths)]}) - base) / _ADDED
            for depth in range(depths)
        ]
        pairs = zip(slopes, [*slopes[1:], zero], strict=True)
        return [np.maximum(slope - deeper, 0) for slope, deeper in pairs][::-1]

    rows = [*count_by_depth("vertices", num_layers + 1), *count_by_depth("edges", num_layers)]
    macs, written, saved = np.array(rows).T
    # Only torch's operations count as written; saved tensors of other kernels were written too.
    streamed = 2 * np.maximum(written, saved)
    return cost.CostModel(
        widths=(num_features, num_classes),
        macs=tuple(macs.tolist()),
        stream_bytes=tuple(streamed.tolist()),
        kept_bytes=tuple(saved.tolist()),
    )


def _count_step(
    module: nn.Module, call: Call, batch: MiniBatch, x: Tensor
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return multiply-accumulates, bytes written, and bytes saved for backward, of one step."""
    saved: dict[int, int] = {}
    inputs = {tensor.data_ptr() for tensor in [*module.parameters(), *module.buffers(), x]}

    def record(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in inputs:
            saved[tensor.data_ptr()] = tensor.nbytes
        return tensor

    written = _WrittenBytes()
    with FlopCounterMode(display=False) as products, written:
        with saved_tensors_hooks(record, _unchanged):
            loss = call(batch, x).square().sum()
        saved_bytes = sum(saved.values())
        loss.backward()  # type: ignore[no-untyped-call]
    module.zero_grad(set_to_none=True)
    return np.array([products.get_total_flops() / 2, written.num_bytes, saved_bytes])


class _WrittenBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counter of the bytes that operations return, without views of their arguments."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count the bytes of results that are no views of its arguments."""
        result = func(*args, **(kwargs or {}))
        arguments = {tensor.untyped_storage().data_ptr() for tensor in _tensors(args)}
        for tensor in _tensors(result):
            if tensor.untyped_storage().data_ptr() not in arguments:
                self.num_bytes += tensor.nbytes
        return result


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor


def _tensors(values: Any) -> list[Tensor]:
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, (list, tuple)):
        return [value for value in values if isinstance(value, Tensor)]
    return []
