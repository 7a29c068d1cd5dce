"""Layers over edges with types against PyG's modules with the same weights."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_runs import assert_near, edge_index, gradients
from torch_geometric.nn import GATConv, HeteroConv, RGCNConv
from typed_batches import SCHEMA, SEEDS, schemas, typed_sampler

from gnnscale.nn.typed.attention import HGTLayer, RGATLayer
from gnnscale.nn.typed.pyg_weights import read_pyg, to_pyg
from gnnscale.nn.typed.relational import RGCNLayer, RSAGELayer

# PyG warns of vertex types at which no edge type ends.
pytestmark = pytest.mark.filterwarnings("ignore:There exist node types:UserWarning")

LAYERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "rgcn": (RGCNLayer, {}),
    "rgcn_bases": (RGCNLayer, {"num_bases": 2}),
    "rsage": (RSAGELayer, {}),
    "rsage_mean": (RSAGELayer, {"combine": "mean"}),
    "rsage_max": (RSAGELayer, {"combine": "max"}),
    "rsage_sums": (RSAGELayer, {"aggregator": "sum"}),
    "rgat": (RGATLayer, {"num_heads": 2, "average": False}),
    "rgat_last": (RGATLayer, {"num_heads": 3, "average": True}),
    "rgat_edges": (RGATLayer, {"num_heads": 2, "average": False, "edge_widths": 3}),
    "rgat_mean": (RGATLayer, {"num_heads": 2, "average": False, "combine": "mean"}),
    "rgat_max": (RGATLayer, {"num_heads": 2, "average": True, "combine": "max"}),
    "hgt": (HGTLayer, {"num_heads": 2}),
}
WIDTH = 8


def build(schema, kind, width_out=WIDTH):
    layer, options = LAYERS[kind]
    if "edge_widths" in options:  # some edge types have none
        widths = [3 * (number % 2 == 0) for number in range(len(schema.edge_types))]
        options = options | {"edge_widths": widths}
    built = layer(schema, WIDTH, width_out, **options)
    for parameter in built.parameters():  # biases and gates as well
        torch.nn.init.normal_(parameter, std=0.4)
    return built


def by_rgcn(module, schema, block, rows):
    """Outputs of ``RGCNConv``, with self-edges if it has no root weight."""
    firsts = np.cumsum([0, *block.src_sizes])
    edges, types = [], []
    for number, relation in enumerate(block.relations):
        shift = [[firsts[schema.sources[number]]], [firsts[schema.destinations[number]]]]
        edges.append(edge_index(relation) + torch.tensor(shift))
        types.append(torch.full((relation.num_edges,), number))
    if module.root is None:
        edges.append(torch.arange(firsts[-1]).expand(2, -1))
        kinds = torch.arange(len(block.src_sizes)) + len(block.relations)
        types.append(kinds.repeat_interleave(torch.tensor(block.src_sizes)))
    out = module(torch.cat(rows), torch.cat(edges, 1), torch.cat(types))
    return [out[first : first + size] for first, size in zip(firsts, block.dst_sizes, strict=False)]


def by_pyg(module, schema, block, rows):
    """Outputs of PyG's module for the destinations of types at which edge types end."""
    if isinstance(module, RGCNConv):
        return by_rgcn(module, schema, block, rows)
    names = [vertices.name for vertices in schema.vertex_types]
    edges = {
        (ends.source, ends.relation, ends.destination): edge_index(relation)
        for ends, relation in zip(schema.edge_types, block.relations, strict=True)
    }
    attr = {
        triple: torch.from_numpy(relation.edge_attr)
        for triple, relation in zip(edges, block.relations, strict=True)
        if relation.edge_attr is not None
    }
    more = {"edge_attr_dict": attr} if attr else {}
    out = module(dict(zip(names, rows, strict=True)), edges, **more)
    return [
        out[name][:size] if number in schema.destinations else None
        for number, (name, size) in enumerate(zip(names, block.dst_sizes, strict=True))
    ]


def check(schema, layer, module, block):
    x = torch.randn(block.num_src, WIDTH, requires_grad=True)
    rows = x.split(block.src_sizes)
    pairs = [
        (one, other)
        for one, other in zip(layer(rows, block), by_pyg(module, schema, block, rows), strict=True)
        if other is not None and len(other)
    ]
    if pairs:
        ours, theirs = (torch.cat(outputs) for outputs in zip(*pairs, strict=True))
        assert ours.shape == theirs.shape
        assert_near(ours, theirs)
        assert_near(*(gradients(out, [x])[0] for out in (ours, theirs)))


@pytest.mark.parametrize("kind", LAYERS)
@settings(max_examples=8)
@given(schemas(), st.integers(0, 3))
def test_outputs_are_those_of_pyg(kind, schema, seed) -> None:
    torch.manual_seed(seed)
    layer = build(schema, kind, 5 if kind == "rgat_last" else WIDTH)
    seeds = np.arange(0, schema.num_vertices, 1 + seed)
    batch = typed_sampler(schema, [3, 2], seed=seed).sample(seeds, 0)
    module = to_pyg(layer, schema)
    for block in batch.blocks:
        if layer.uses_edge_features:
            shapes = [
                (edges.num_edges, of.edge_dim)
                for edges, of in zip(block.relations, layer.relations, strict=True)
            ]
            block = block.with_edge_attr([torch.randn(shape).numpy() for shape in shapes])
        check(schema, layer, module, block)


@pytest.mark.parametrize("kind", LAYERS)
def test_weights_come_back(kind) -> None:
    layer, fresh = build(SCHEMA, kind), build(SCHEMA, kind)
    read_pyg(fresh, to_pyg(layer, SCHEMA), SCHEMA)
    ours, theirs = layer.state_dict(), fresh.state_dict()
    # No module has weights of types at which nothing ends: c and d. HGT has them of all types.
    lacking = [f"{part}.{number}" for part in ("linears", "roots", "biases") for number in (2, 3)]
    for name, weight in ours.items():
        if not name.startswith(tuple(lacking)):
            torch.testing.assert_close(theirs[name], weight, msg=name)


def test_a_root_weight_is_that_of_all_vertex_types() -> None:
    module = RGCNConv(WIDTH, WIDTH, len(SCHEMA.edge_types), num_bases=3)
    layer = RGCNLayer(SCHEMA, WIDTH, WIDTH, num_bases=3)
    read_pyg(layer, module, SCHEMA)
    for block in typed_sampler(SCHEMA, [3, 2]).sample(SEEDS, 0).blocks:
        check(SCHEMA, layer, module, block)


def test_attention_without_own_rows() -> None:
    triples = [(ends.source, ends.relation, ends.destination) for ends in SCHEMA.edge_types]
    convs = {each: GATConv((8, 8), 4, heads=2, add_self_loops=False) for each in triples}
    module, layer = HeteroConv(convs), build(SCHEMA, "rgat")
    read_pyg(layer, module, SCHEMA)
    for block in typed_sampler(SCHEMA, [3, 2]).sample(SEEDS, 0).blocks:
        check(SCHEMA, layer, module, block)
