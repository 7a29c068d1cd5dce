import logging
from functools import partial
from typing import Any

import pytest
import torch
import typed_modules
from one_line import one_line
from torch import nn
from torch.nn import functional
from typed_batches import SCHEMA, SEEDS, typed_inputs, typed_sampler

import gnnscale
from gnnscale.backend.typed_loading import open_loader
from gnnscale.core import ConfigError
from gnnscale.graph import GraphSchema
from gnnscale.nn import CustomModel
from gnnscale.nn.module_probe import tiny_typed_batch, tiny_typed_rows
from gnnscale.sampling import TypedSampler

pytest.importorskip("torch_geometric", reason="PyG is not installed")

SCHEMA_OF_USERS = GraphSchema.of(
    {"user": 0, "item": 0}, [("user", "buys", "item"), ("item", "bought_by", "user")]
)
WIDTHS = (4, 6)
USERS = torch.arange(0, 60, 4)


def build(module: Any, schema: Any = SCHEMA_OF_USERS, widths: Any = WIDTHS, **options: Any) -> Any:
    torch.manual_seed(0)
    targets = options.pop("targets", ("user",))
    model = CustomModel(module=module, **options)
    return model.build_typed(schema=schema, widths=widths, num_classes=3, targets=targets)


def logits_of(model: Any, graph: Any, fanouts: list[int]) -> torch.Tensor:
    first = graph.schema.vertices(graph.vertex_types.index("user")).start
    batch = TypedSampler(graph, fanouts=fanouts, seed=7).sample(USERS.numpy() + first, 0)
    return model(batch, open_loader(graph, model, num_threads=1).load(batch))


def by_pyg(module: nn.Module, data: Any) -> torch.Tensor:
    """Rows of users by the library's own mini-batch of the same draws."""
    options = {"batch_size": len(USERS), "seed": 7}
    (batch,) = gnnscale.NeighborLoader(data, [5, 3], ("user", USERS), **options)
    out = module(batch.x_dict, batch.edge_index_dict)
    return (out["user"] if isinstance(out, dict) else out)[: batch["user"].batch_size]


def by_dgl(module: nn.Module, graph: Any) -> torch.Tensor:
    options = {"batch_size": len(USERS), "seed": 7, "output_format": "dgl"}
    ((_, _, blocks),) = gnnscale.NeighborLoader(graph, [5, 3], {"user": USERS}, **options)
    return module(blocks, blocks[0].srcdata["x"])["user"]


def check_step(model: Any, labels: torch.Tensor, *calls: Any) -> None:
    """Compare the loss and the gradients of two ways to compute the rows of users."""
    steps = []
    for call in calls:
        model.zero_grad()
        loss = functional.cross_entropy(call(), labels[USERS])
        loss.backward()
        parts = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        steps.append((loss.detach(), parts))
    assert len(steps[0][1]) > 2
    torch.testing.assert_close(steps[1], steps[0], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("module", [typed_modules.sage, typed_modules.Convs])
def test_a_step_is_that_of_pyg(module: Any) -> None:
    data, model = typed_modules.purchases(), build(module, hidden=8)
    graph = gnnscale.from_pyg(data)
    ways = partial(by_pyg, model.module, data), partial(logits_of, model, graph, [5, 3])
    check_step(model, data["user"].y, *ways)


def test_a_step_is_that_of_dgl() -> None:
    dgl: Any = pytest.importorskip("dgl", reason="DGL is not installed")
    data = typed_modules.purchases()
    ends = {triple: tuple(data[triple].edge_index) for triple in data.edge_types}
    heterograph = dgl.heterograph(ends, {"user": 60, "item": 40})
    for name in ("user", "item"):
        heterograph.nodes[name].data["x"] = data[name].x
    graph = gnnscale.from_dgl(heterograph, features="x")
    model = build(typed_modules.DGLConvs, graph.schema, WIDTHS[::-1], hidden=8)
    ways = partial(by_dgl, model.module, heterograph), partial(logits_of, model, graph, [5, 3])
    check_step(model, data["user"].y, *ways)


@pytest.mark.parametrize("module", [typed_modules.sage, typed_modules.Trimmed])
def test_all_neighbors_give_the_rows_of_the_whole_graph(module: Any) -> None:
    data, model = typed_modules.purchases(), build(module, hidden=8).eval()
    out = model.module(data.x_dict, data.edge_index_dict)
    expected = (out["user"] if isinstance(out, dict) else out)[USERS]
    rows = logits_of(model, gnnscale.from_pyg(data), [-1, -1])
    torch.testing.assert_close(rows, expected, atol=1e-5, rtol=1e-4)


def test_a_module_that_trims_computes_fewer_rows() -> None:
    rows = [
        build(module, hidden=8).counted for module in (typed_modules.Convs, typed_modules.Trimmed)
    ]
    vertices = [100, 50, 10], [200, 40]
    assert rows[1].work(*vertices).macs < rows[0].work(*vertices).macs


def test_lazy_weights_are_those_of_the_seed() -> None:
    first, second = (build(typed_modules.sage, hidden=8).state_dict() for _ in range(2))
    assert {name: tuple(part.shape) for name, part in first.items()}[
        "module.convs.0.user__buys__item.lin_l.weight"
    ] == (8, 4)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    built = typed_modules.sage(([*"xy"], [("x", "r", "y"), ("y", "s", "x")]), 8, 3, 2)
    schema = GraphSchema.of({"x": 0, "y": 0}, [("x", "r", "y"), ("y", "s", "x")])
    assert build(built, schema, targets=("y",)).form == "pyg_hetero"
    assert any(map(nn.parameter.is_lazy, built.parameters())), "the caller's module is unchanged"


class Rows(nn.Module):
    """A product of the rows of each type; tests change what it returns."""

    def __init__(self, in_channels: Any, out_channels: int) -> None:
        super().__init__()
        self.linears = nn.ModuleDict(
            {name: nn.Linear(width, out_channels) for name, width in in_channels.items()}
        )

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return {name: self.linears[name](x) for name, x in x_dict.items()}


class Items(Rows):
    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return {"item": super().forward(x_dict, edge_index_dict)["item"]}


class OtherRows(Items):
    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return super().forward(x_dict, edge_index_dict)["item"]


class Wide(Rows):
    def __init__(self, in_channels: Any, out_channels: int) -> None:
        super().__init__(in_channels, out_channels + 1)


class Infinite(Rows):
    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return super().forward(x_dict, edge_index_dict)["user"] / 0


class Pairs(Rows):
    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return list(super().forward(x_dict, edge_index_dict).items())


class Unused(Rows):
    def __init__(self, in_channels: Any, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.other = nn.LazyLinear(2)


class WithEdges(Rows):
    def __init__(self, in_channels: Any, out_channels: int, edge_dim: int) -> None:
        super().__init__(in_channels, out_channels)


@pytest.mark.parametrize(
    ("module", "options", "words"),
    [
        (Items, {}, ("forward returned rows of item, expected rows of user, the type of the",)),
        (OtherRows, {}, ("returned [9, 3] for 4 vertices of type user, expected [4, 3]",)),
        (Wide, {}, ("returned [4, 4] for 4 vertices of type user, expected [4, 3]",)),
        (Infinite, {}, ("forward returned NaN or infinity",)),
        (Pairs, {}, ("returned a list, expected a dictionary of rows by vertex type", "user")),
        (OtherRows, {"targets": ("user", "item")}, ("returned a Tensor", "user and item")),
        (Unused, {}, ("parameter other.weight: expected forward to initialize it",)),
        (WithEdges, {}, ("expected edge features for its argument edge_dim, got none",)),
        (Rows, {"form": "pyg"}, ("model.form=pyg: expected auto, pyg_hetero or dgl",)),
        (Rows, {"hidden": 8}, ("model.hidden=8: expected an argument of", "Rows")),
    ],
)
def test_what_is_refused(module: Any, options: Any, words: tuple[str, ...]) -> None:
    with one_line(*words, error=ConfigError):
        build(module, **options)


def test_what_is_refused_without_types() -> None:
    for options in ({"form": "pyg_hetero"}, {"without_features": "degrees"}):
        with one_line("expected a graph with types, got one without"):
            CustomModel(module=Rows, **options).build(num_features=4, num_classes=3)


def test_rows_of_several_types_come_type_after_type() -> None:
    model = build(Rows, SCHEMA, (3, 4, 5, 2), targets=("a", "b"))
    batch = typed_sampler(SCHEMA, [2, 2]).sample(SEEDS, 0)
    inputs = typed_inputs(SCHEMA, (3, 4, 5, 2), batch)
    assert batch.type_sizes[3] == 0
    expected = [
        linear(rows[:size])
        for linear, rows, size in zip(
            model.module.linears.values(), inputs.rows, batch.seed_sizes, strict=True
        )
    ]
    torch.testing.assert_close(model(batch, inputs), torch.cat(expected))


def test_a_module_that_needs_every_type_is_told_of(caplog: Any) -> None:
    class Means(Rows):
        def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
            rows = super().forward(x_dict, edge_index_dict)
            return rows["user"] + rows["item"].max(0).values

    with caplog.at_level(logging.WARNING):
        build(Rows)
        assert not caplog.messages
        build(Means)
    assert "fails on seeds without neighbors of other types" in caplog.text


def test_tiny_batches_have_every_type_and_the_same_neighbors_in_each_hop() -> None:
    batch = tiny_typed_batch(SCHEMA, 2, [1])
    assert batch.seed_sizes == (0, 4, 0, 0)
    assert batch.type_sizes == (9, 12, 9, 9)
    rows = tiny_typed_rows(batch, [*"abcd"], [1, 2, 3, 4])
    assert [tuple(part.shape) for part in rows.values()] == [(9, 1), (12, 2), (9, 3), (9, 4)]
    first, last = batch.blocks
    assert first.dst_sizes == last.src_sizes == (5, 8, 5, 5)
    for relation, later, (source, destination) in zip(
        first.relations, last.relations, batch.ends, strict=True
    ):
        assert relation.num_src == first.src_sizes[source]
        assert relation.num_dst == first.dst_sizes[destination]
        assert relation.num_edges > 0
        edges = later.num_edges
        assert relation.indices[:edges].tolist() == later.indices.tolist()
    alone = tiny_typed_batch(SCHEMA, 2, [1], only_targets=True)
    assert alone.type_sizes == (0, 12, 0, 0)
    assert alone.num_edges == 0
    more = tiny_typed_batch(SCHEMA, 2, [1], edges=[0, 5])
    assert more.blocks[0].num_edges - first.num_edges == 5 * len(SCHEMA.edge_types)
