"""Calls of a user's module on tiny mini-batches, to find its form and to count its cost."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from gnnscale.core import ConfigError, IntArray
from gnnscale.core.config.user_code import EDGE_ATTR
from gnnscale.graph import GraphSchema
from gnnscale.nn import adapters, cost
from gnnscale.sampling import Block, MiniBatch, TypedBlock, TypedMiniBatch

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


def likely_forms(module: nn.Module, *, typed: bool = False) -> list[str]:
    """Return the names of all conventions to call ``forward``, the likely ones first.

    Likely are those that match the names of its arguments. Conventions are those for graphs without
    types, or with ``typed`` for graphs with types.
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
    if typed:
        by_name = {"pyg_hetero": not by_name["dgl"], "dgl": by_name["dgl"]}
    return sorted(by_name, key=lambda form: not by_name[form])


def takes(module: nn.Module) -> Callable[[str], bool]:
    """Return a function that says whether ``forward`` of ``module`` has an argument of a name."""
    return inspect.signature(module.forward).parameters.__contains__


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
    takes_hops = all(map(takes(module), _HOPS))
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
    "dgl": CallConvention(call=_call_dgl, infer=_infer_dgl),
    "blocks": CallConvention(call=_call_blocks, infer=_infer_blocks),
}
#: Forms whose mini-batches have the weights of edges, and their importance (layer-wise sampling).
WEIGHING_FORMS = ("dgl", "blocks")
#: Forms over graphs with types.
TYPED_FORMS = ("pyg_hetero", "dgl")


#: Vertices, and edges to them, that each hop of the smallest mini-batch adds.
_VERTICES, _EDGES = 4, 6
#: Vertices or edges that are added at one depth, to count their cost.
_ADDED = 16

#: Function from a mini-batch and its input rows, with types a dictionary, to the seeds' logits.
Call = Callable[[Any, Any], Tensor]
#: Function that returns a tiny mini-batch and its input rows. Arguments ``vertices`` and ``edges``
#: are numbers of vertices and edges to add at each depth, seeds first.
TinyBatches = Callable[..., tuple[MiniBatch, Any]]


def tiny_batch(
    num_layers: int, *, vertices: Sequence[int] = (), edges: Sequence[int] = (), edge_width: int = 0
) -> MiniBatch:
    """Return a mini-batch in which a vertex has the same neighbors in every hop.

    All conventions to call a module, and inference layer by layer, then give the same logits. One
    vertex of each hop has no neighbor. ``vertices`` and ``edges`` are numbers of vertices and edges
    to add at each depth, seeds first; edges have ``edge_width`` features, 0: none.
    """
    schema = GraphSchema.homogeneous(0)
    typed = tiny_typed_batch(schema, num_layers, [0], vertices=vertices, edges=edges)
    blocks = [block.relations[0] for block in typed.blocks]
    if edge_width:
        generator = np.random.default_rng(1)
        rows = generator.standard_normal((blocks[0].num_edges, edge_width), np.float32)
        # A hop over fewer vertices has a prefix of all edges.
        blocks = [replace(block, edge_attr=rows[: block.num_edges]) for block in blocks]
    return MiniBatch(
        seed=0,
        step=0,
        num_seeds=typed.num_seeds,
        input_vertices=typed.input_vertices,
        blocks=tuple(blocks),
    )


def tiny_typed_batch(
    schema: GraphSchema,
    num_layers: int,
    targets: Sequence[int],
    *,
    vertices: Sequence[int] = (),
    edges: Sequence[int] = (),
    only_targets: bool = False,
) -> TypedMiniBatch:
    """Return a mini-batch as ``tiny_batch`` does, over the types of ``schema``.

    Seeds are of the vertex types numbered ``targets``. Every edge type has edges at each depth at
    which both ends have vertices; with ``only_targets``, the other types have no vertices.
    """
    added = np.array([_VERTICES + number for number in _padded(vertices, num_layers + 1)])
    sizes = np.tile(np.cumsum(added), (len(schema.vertex_types), 1))
    untargeted = np.setdiff1d(np.arange(len(sizes)), targets)
    # One vertex more in all: rows of another type are not taken for those of the seeds' type.
    sizes[untargeted] -= added[0] - 1
    sizes[untargeted, 0] = 0
    if only_targets:
        sizes[untargeted] = 0
    ends = tuple(zip(schema.sources.tolist(), schema.destinations.tolist(), strict=True))
    added_edges = _padded(edges, num_layers)
    lists = [_tiny_lists(sizes[source], sizes[end], added_edges) for source, end in ends]
    blocks = []
    for hop in range(num_layers, 0, -1):
        src_sizes, dst_sizes = sizes[:, hop].tolist(), sizes[:, hop - 1].tolist()
        relations = tuple(
            _tiny_block(of_type[: dst_sizes[destination]], src_sizes[source])
            for of_type, (source, destination) in zip(lists, ends, strict=True)
        )
        block = TypedBlock(
            relations=relations, src_sizes=tuple(src_sizes), dst_sizes=tuple(dst_sizes)
        )
        blocks.append(block)
    return TypedMiniBatch(
        seed=0,
        step=0,
        num_seeds=int(sizes[:, 0].sum()),
        input_vertices=np.arange(sizes[:, -1].sum(), dtype=np.int64),
        type_sizes=tuple(sizes[:, -1].tolist()),
        seed_sizes=tuple(sizes[:, 0].tolist()),
        blocks=tuple(blocks),
        ends=ends,
    )


def _padded(numbers: Sequence[int], length: int) -> list[int]:
    return [*numbers, *[0] * (length - len(numbers))]


def _tiny_lists(
    src_sizes: IntArray, dst_sizes: IntArray, added_edges: Sequence[int]
) -> list[list[int]]:
    """Return the sources of each destination; sizes are numbers of vertices up to each depth."""
    lists: list[list[int]] = [[] for _ in range(dst_sizes[-1])]
    for depth, added in enumerate(added_edges):
        first = int(dst_sizes[depth - 1]) if depth else 0
        num_src = int(src_sizes[depth + 1])
        if not num_src or dst_sizes[depth] == first:
            continue
        for number in range(_EDGES + added):
            # Most sources are of the next depth; the depth's first vertex gets no edge.
            source = num_src - 1 - number % (int(src_sizes[depth]) or num_src)
            lists[first + 1 + number % (_VERTICES - 1)].append(source)
    return lists


def _tiny_block(lists: Sequence[Sequence[int]], num_src: int) -> Block:
    return Block(
        indptr=np.cumsum([0, *map(len, lists)], dtype=np.int64),
        indices=np.array(list(chain.from_iterable(lists)), dtype=np.int32),
        num_src=num_src,
    )


def tiny_rows(batch: MiniBatch, num_features: int) -> Tensor:
    """Return input rows ``[num_input_vertices, num_features]`` for ``batch``, by a fixed seed."""
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((len(batch.input_vertices), num_features), np.float32)
    return torch.from_numpy(rows)


def tiny_typed_rows(
    batch: TypedMiniBatch, names: Sequence[str], widths: Sequence[int]
) -> dict[str, Tensor]:
    """Return input rows for ``batch`` by name of the vertex type, of ``widths`` features."""
    generator = np.random.default_rng(0)
    sizes = zip(names, batch.type_sizes, widths, strict=True)
    return {
        name: torch.from_numpy(generator.standard_normal((size, width), np.float32))
        for name, size, width in sizes
    }


def count_cost(
    module: nn.Module, call: Call, batches: TinyBatches, widths: tuple[int, int]
) -> cost.CostModel:
    """Count the cost of a step, forward and backward, per vertex and per edge of each depth.

    Torch's operations are counted for a tiny mini-batch and for mini-batches with ``_ADDED`` more
    vertices or edges (of each type) at one depth. No clock is read: the result is the same every
    time. ``call`` returns the logits of a mini-batch; ``module`` has the parameters; ``widths`` are
    features of an input row and of the logits.
    """
    tiny, x = batches()
    num_layers = len(tiny.blocks)
    base = _count_step(module, call, tiny, x)
    zero = np.zeros_like(base)

    def slope(kind: str, depth: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        batch, x = batches(**{kind: [*[0] * depth, _ADDED]})
        number = len(batch.input_vertices) - len(tiny.input_vertices)
        if kind == "edges":
            number = batch.blocks[0].num_edges - tiny.blocks[0].num_edges
        # No edges of a depth: no edge type ends at the seeds' type.
        return (_count_step(module, call, batch, x) - base) / max(number, 1)

    def count_by_depth(kind: str, depths: int) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
        # A vertex or an edge of a depth is in the blocks of all later hops too: differences of
        # neighboring depths count one block.
        slopes = [slope(kind, depth) for depth in range(depths)]
        pairs = zip(slopes, [*slopes[1:], zero], strict=True)
        return [np.maximum(slope - deeper, 0) for slope, deeper in pairs][::-1]

    rows = [*count_by_depth("vertices", num_layers + 1), *count_by_depth("edges", num_layers)]
    macs, written, saved = np.array(rows).T
    # Only torch's operations count as written; saved tensors of other kernels were written too.
    streamed = 2 * np.maximum(written, saved)
    return cost.CostModel(
        widths=widths,
        macs=tuple(macs.tolist()),
        stream_bytes=tuple(streamed.tolist()),
        kept_bytes=tuple(saved.tolist()),
    )


def _count_step(
    module: nn.Module, call: Call, batch: MiniBatch, x: Any
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return multiply-accumulates, bytes written, and bytes saved for backward, of one step."""
    saved: dict[int, int] = {}
    fixed = [*module.parameters(), *module.buffers(), *_tensors(x)]
    inputs = {tensor.data_ptr() for tensor in fixed}

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
    if isinstance(values, Mapping):
        return _tensors(list(values.values()))
    return []
