import numpy as np
import pytest
import torch
from model_runs import edge_index
from torch import nn

from gnnscale.nn import GraphSAGE, Inputs
from gnnscale.nn.module_probe import count_cost, tiny_batch, tiny_rows


@pytest.mark.parametrize("num_layers", [1, 2, 4])
def test_every_hop_draws_the_same_neighbours(num_layers: int) -> None:
    batch = tiny_batch(num_layers, vertices=[1, 2], edges=[3])
    assert len(batch.blocks) == num_layers
    assert batch.num_seeds == 5
    sources = len(batch.input_vertices)
    last: list[list[int]] = []
    for block in batch.blocks:
        assert block.num_src == sources
        assert block.indices.max() < block.num_src
        lists = [each.tolist() for each in np.split(block.indices, block.indptr[1:-1])]
        assert [] in lists
        assert last[: block.num_dst] == lists or not last
        last, sources = lists, block.num_dst
    assert sources == batch.num_seeds


def sizes_of(batch):
    return [(each.num_dst, each.num_edges) for each in batch.blocks]


def test_more_of_one_kind_is_more_of_it_alone() -> None:
    base, seeds, edges = tiny_batch(2), tiny_batch(2, vertices=[5]), tiny_batch(2, edges=[0, 5])
    assert sizes_of(seeds) == [(13, 12), (9, 6)]
    assert sizes_of(base) == [(8, 12), (4, 6)]
    assert sizes_of(edges) == [(8, 17), (4, 6)]


def test_counted_products_are_those_that_layers_state() -> None:
    torch.manual_seed(0)
    model = GraphSAGE(hidden=8, dropout=0.0).build(num_features=6, num_classes=3).eval()

    def call(batch, x):
        return model(batch, Inputs(x=x, aggregated=False))

    cost = count_cost(model, call, num_layers=2, num_features=6, num_classes=3)
    # Forward, and backward of the weights; of the second layer's input as well.
    assert cost.macs[:3] == (0, 2 * 12 * 8, 3 * 16 * 3)
    assert cost.macs[3:] == (0, 0)
    assert cost.widths == (6, 3)
    assert all(each.grad is None for each in model.parameters())
    size = {"vertices": [100, 50, 10], "edges": [300, 60]}
    assert cost.work(**size).macs == 50 * cost.macs[1] + 10 * cost.macs[2]
    names = "edges", "targets", "sources"
    amounts = [dict(zip(names, each, strict=True)) for each in ((300, 50, 100), (60, 10, 50))]
    stated = [
        layer.forward(**each, aggregated=False) + layer.backward(**each, first=index == 0)
        for index, (layer, each) in enumerate(zip(model.layer_costs, amounts, strict=True))
    ]
    assert cost.work(**size).macs == sum(each.macs for each in stated)
    assert cost.work(**size).operations == sum(each.operations for each in stated)
    assert 0 < cost.activation_bytes(**size) <= cost.work(**size).stream_bytes


def test_edges_count_where_messages_are_made() -> None:
    class Messages(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, batch, x):
            src, dst = edge_index(batch.blocks[0])
            return torch.zeros(batch.num_seeds, 2).index_add(0, dst, self.linear(x[src]))

    module = Messages()
    cost = count_cost(module, module, num_layers=1, num_features=4, num_classes=2)
    assert cost.macs == (0, 0, 2 * 4 * 2)
    assert cost.kept_bytes[2] >= 4 * 4


def test_rows_leave_torch_s_numbers_alone() -> None:
    before = torch.get_rng_state()
    rows = tiny_rows(tiny_batch(2), 7)
    assert rows.shape == (12, 7)
    assert torch.equal(torch.get_rng_state(), before)
