"""Exchange of the weights of a layer over edges with types with PyG's modules.

A weight of a layer stands for one or several weights of the module: an own-row matrix of GraphSAGE
is the sum of those of PyG's convolutions of all edge types. PyG's ``HeteroConv`` has no output for
vertex types at which no edge type ends, and so no weights.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gnnscale.graph import EdgeType, GraphSchema
from gnnscale.nn.typed.attention import HGTLayer, RGATLayer
from gnnscale.nn.typed.layer import TypedLayer
from gnnscale.nn.typed.relational import RelationalLayer, RGCNLayer, RSAGELayer

#: A weight of a layer, and equally shaped views of the module's weights that it stands for.
Pair = tuple[Tensor, Sequence[Tensor]]


def to_pyg(layer: TypedLayer, schema: GraphSchema) -> nn.Module:
    """Return PyG's module with the weights of ``layer``, whose types have the names in ``schema``.

    R-GCN is ``RGCNConv`` without a root weight: edge type ``R + t``, after all R edge types, is the
    self-edge of each vertex of type t. GraphSAGE and GAT are ``HeteroConv`` of ``SAGEConv``, and of
    ``GATConv`` with ``residual=True``. HGT is ``HGTConv``.
    """
    module: nn.Module = _module(layer, schema)
    with torch.no_grad():
        for ours, theirs in _pairs(layer, module, schema):
            share = max(1, len(theirs)) if _adds(layer) else 1
            for weight in theirs:
                weight.copy_(ours / share)
    return module


def read_pyg(layer: TypedLayer, module: nn.Module, schema: GraphSchema) -> None:
    """Overwrite the weights of ``layer`` by those of PyG's ``module``.

    The module is as ``to_pyg`` returns it. An ``RGCNConv`` with a root weight gives it to all
    vertex types; ``GATConv`` without ``residual`` gives own-row weights of 0.
    """
    with torch.no_grad():
        for ours, theirs in _pairs(layer, module, schema):
            if theirs:
                total = torch.stack(list(theirs)).sum(0)
                ours.copy_(total if _adds(layer) else total / len(theirs))


def _adds(layer: TypedLayer) -> bool:
    """Whether the outputs of edge types are added, so that each has a share of common weights."""
    return not isinstance(layer, RelationalLayer) or layer.combine == "sum"


def _triple(edge_type: EdgeType) -> tuple[str, str, str]:
    return edge_type.source, edge_type.relation, edge_type.destination


def _module(layer: TypedLayer, schema: GraphSchema) -> Any:
    """Return PyG's module for ``layer``, with initial weights."""
    from torch_geometric.nn import GATConv, HeteroConv, HGTConv, SAGEConv

    widths, triples = (layer.width_in, layer.width_in), list(map(_triple, schema.edge_types))
    if isinstance(layer, RGCNLayer):
        return _rgcn_module(layer)
    if isinstance(layer, RSAGELayer):
        aggregator = "sum" if layer.sums else "mean"
        convs = {triple: SAGEConv(widths, layer.width_out, aggregator) for triple in triples}
        return HeteroConv(convs, aggr=layer.combine)
    if isinstance(layer, RGATLayer):
        options = {"heads": layer.num_heads, "concat": not layer.average}
        options |= {"add_self_loops": False, "residual": True}
        convs = {
            triple: GATConv(widths, layer.width, edge_dim=relation.edge_dim or None, **options)
            for triple, relation in zip(triples, layer.relations, strict=True)
        }
        return HeteroConv(convs, aggr=layer.combine)
    assert isinstance(layer, HGTLayer)
    names = [vertices.name for vertices in schema.vertex_types]
    return HGTConv(layer.width_in, layer.width_out, (names, triples), heads=layer.num_heads)


def _rgcn_module(layer: RGCNLayer) -> Any:
    """Return ``RGCNConv`` with an additional edge type for each vertex type: self-edges."""
    from torch_geometric.nn import RGCNConv

    num_relations, num_bases = len(layer.sources), None
    if layer.coefficients is not None:
        num_bases = len(layer.weight) + layer.num_types
    module = RGCNConv(
        layer.width_in,
        layer.width_out,
        num_relations + layer.num_types,
        num_bases=num_bases,
        root_weight=False,
    )
    if num_bases is not None:
        with torch.no_grad():
            module.comp.zero_()
            # A self-edge has a basis of its own.
            module.comp[num_relations:, len(layer.weight) :] = torch.eye(layer.num_types)
    return module


def _pairs(layer: TypedLayer, module: Any, schema: GraphSchema) -> Iterator[Pair]:
    """Yield all weights of ``layer`` with those of the module for which they stand."""
    if isinstance(layer, RGCNLayer):
        return _rgcn_pairs(layer, module)
    if isinstance(layer, RSAGELayer):
        return _sage_pairs(layer, module, schema)
    if isinstance(layer, RGATLayer):
        return _gat_pairs(layer, module, schema)
    assert isinstance(layer, HGTLayer)
    return _hgt_pairs(layer, module, schema)


def _rgcn_pairs(layer: RGCNLayer, module: Any) -> Iterator[Pair]:
    num_matrices = len(layer.weight)
    for ours, theirs in zip(layer.weight, module.weight, strict=False):
        yield ours, [theirs.t()]
    for vertex_type, ours in enumerate(layer.root):
        root = module.root
        yield ours, [(module.weight[num_matrices + vertex_type] if root is None else root).t()]
    if layer.coefficients is not None:
        yield layer.coefficients, [module.comp[: len(layer.sources), :num_matrices]]
    yield layer.bias, [module.bias]


def _sage_pairs(layer: RSAGELayer, module: Any, schema: GraphSchema) -> Iterator[Pair]:
    convs = [module.convs[_triple(edge_type)] for edge_type in schema.edge_types]
    for conv, ours in zip(convs, layer.relation_weights(), strict=True):
        yield ours, [conv.lin_l.weight]
    for root, bias, numbers in zip(
        layer.root_weights(), layer.biases(), layer.incoming, strict=True
    ):
        yield root, [convs[number].lin_r.weight for number in numbers]
        yield bias, [convs[number].lin_l.bias for number in numbers]


def _gat_pairs(layer: RGATLayer, module: Any, schema: GraphSchema) -> Iterator[Pair]:
    convs = [module.convs[_triple(edge_type)] for edge_type in schema.edge_types]
    relations: Any = layer.relations
    for conv, ours in zip(convs, relations, strict=True):
        yield ours.linear.weight, [conv.lin_src.weight]
        yield ours.linear_dst.weight, [conv.lin_dst.weight]
        yield ours.attention_src, [conv.att_src[0]]
        yield ours.attention_dst, [conv.att_dst[0]]
        if ours.edge_dim:
            yield ours.edge_linear.weight, [conv.lin_edge.weight]
            yield ours.attention_edge, [conv.att_edge[0]]
    for roots, biases, numbers in zip(layer.roots, layer.biases, layer.incoming, strict=True):
        for root, bias, number in zip(roots, biases, numbers, strict=False):
            residual = convs[number].res
            yield root, [torch.zeros_like(root) if residual is None else residual.weight]
            yield bias, [convs[number].bias]


def _hgt_pairs(layer: HGTLayer, module: Any, schema: GraphSchema) -> Iterator[Pair]:
    parts: Any = (layer.keys_values, layer.queries, layer.out)
    for number, vertices in enumerate(schema.vertex_types):
        keys_values, queries, out = (part[number] for part in parts)
        joint = module.kqv_lin.lins[vertices.name]
        for name in ("weight", "bias"):
            key, query, value = getattr(joint, name).chunk(3)
            ours = getattr(keys_values, name).chunk(2)
            yield from ((ours[0], [key]), (ours[1], [value]), (getattr(queries, name), [query]))
            yield getattr(out, name), [getattr(module.out_lin.lins[vertices.name], name)]
        yield layer.skips[number], [module.skip[vertices.name][0]]
    for weight, related in (
        (layer.key_relations, module.k_rel),
        (layer.value_relations, module.v_rel),
    ):
        # PyG's matrices are numbered by head first.
        by_head = related.weight.unflatten(0, (layer.num_heads, -1))
        yield weight, [by_head.transpose(0, 1)]
    for prior, edge_type in zip(layer.priors, schema.edge_types, strict=True):
        yield prior, [module.p_rel["__".join(_triple(edge_type))][0]]
