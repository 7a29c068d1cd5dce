"""What loaders tell of edges, and how they are taken by others' training loops."""

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from gnnscale import ConfigError, GraphError, LinkNeighborLoader, NeighborLoader
from gnnscale.api.loader.minibatch_loader import FIXED, WITHOUT_EFFECT
from gnnscale.data import from_arrays

pytest.importorskip("torch_geometric", reason="PyG is not installed")

from torch_geometric.data import Data

NUM_EDGES = 3000


@pytest.fixture
def data() -> Data:
    """Edges in no order, some of them repeated, which their attributes tell apart."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.rand(2, 2, NUM_EDGES, generator=generator).prod(0)
    return Data(
        x=torch.randn(300, 20, generator=generator),
        edge_index=(ends * 300).long(),
        edge_attr=torch.arange(NUM_EDGES * 2.0).reshape(-1, 2),
        edge_weight=torch.rand(NUM_EDGES, generator=generator),
        edge_kind=torch.arange(NUM_EDGES, dtype=torch.int16),
    )


def as_dgl(data: Data) -> Any:
    dgl = pytest.importorskip("dgl", reason="DGL is not installed")
    source = dgl.graph(tuple(data.edge_index), num_nodes=300)
    source.ndata["feat"] = data.x
    source.edata["attr"], source.edata["weight"] = data.edge_attr, data.edge_weight
    return source


@pytest.mark.parametrize(("fanouts", "replace"), [([-1, -1], False), ([4, 3, 2], True)])
def test_attributes_are_those_of_the_edges(data: Data, fanouts: list[int], replace: bool) -> None:
    for batch in NeighborLoader(data, fanouts, batch_size=70, replace=replace, shuffle=True):
        assert batch.e_id.dtype == torch.int64
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        for name in ("edge_attr", "edge_weight", "edge_kind"):
            assert torch.equal(batch[name], data[name][batch.e_id])
            assert batch[name].dtype == data[name].dtype
        assert replace or len(batch.e_id.unique()) == len(batch.e_id)


@pytest.mark.parametrize("numbered", [False, True])
def test_a_graphs_own_weights_and_numbers(data: Data, numbered: bool) -> None:
    src, dst = data.edge_index.numpy()
    weights = data.edge_weight.numpy()
    graph = from_arrays((src, dst), data.x, edge_weights=weights, number_edges=numbered)
    in_order = np.repeat(np.arange(300), np.diff(graph.indptr))
    own_order = torch.from_numpy(np.stack([graph.indices.astype(np.int64), in_order]))
    sources = data.edge_index if numbered else own_order
    known = weights if numbered else graph.edge_weights
    for batch in NeighborLoader(graph, [4, 3], batch_size=70, edge_ids=True):
        assert torch.equal(batch.n_id[batch.edge_index], sources[:, batch.e_id])
        assert np.array_equal(batch.edge_weight, known[batch.e_id])
    (plain,) = NeighborLoader(graph, [4, 3], batch_size=300)
    assert "e_id" not in plain
    assert len(plain.edge_weight) == plain.num_edges


def test_edges_are_numbered_where_that_is_asked_for(data: Data) -> None:
    graph = from_arrays(
        tuple(data.edge_index), data.x, edge_features=data.edge_attr, number_edges=True
    )
    for batch in NeighborLoader(graph, [4, 3], batch_size=70, edge_ids=True):
        assert batch.edge_attr.dtype == torch.float32
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
    (plain,) = NeighborLoader(graph, [4, 3], batch_size=300)
    assert "e_id" not in plain
    assert plain.edge_attr.shape == (plain.num_edges, 2)
    bare = Data(x=data.x, edge_index=data.edge_index)
    assert "e_id" not in next(iter(NeighborLoader(bare, [3])))
    for batch in NeighborLoader(bare, [3, 2], batch_size=100, edge_ids=True):
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])


def test_blocks_of_dgls_form_carry_data_of_edges(dgl: Any, data: Data) -> None:
    for source in (as_dgl(data), as_dgl(data).int(), data):
        for _, _, blocks in NeighborLoader(source, [4, 3], batch_size=70, output_format="dgl"):
            for block in blocks:
                numbers = block.edata[dgl.EID]
                assert numbers.dtype == block.idtype
                src, dst = (ends.long() for ends in block.edges())
                named = (block.srcdata[dgl.NID][src], block.dstdata[dgl.NID][dst])
                assert torch.equal(torch.stack(named).long(), data.edge_index[:, numbers.long()])
                assert torch.equal(block.edata["weight"], data.edge_weight[numbers.long()])
                attr = block.edata["feat" if source is data else "attr"]
                assert torch.equal(attr, data.edge_attr[numbers.long()])
    bare = dgl.graph(tuple(data.edge_index), num_nodes=300)
    _, _, (block,) = next(iter(NeighborLoader(bare, [3], edge_ids=True, output_format="dgl")))
    assert dgl.EID in block.edata
    _, _, (block,) = next(iter(NeighborLoader(bare, [3], output_format="dgl")))
    assert dgl.EID not in block.edata
    source = as_dgl(data).formats("csc")
    for _, _, (block,) in NeighborLoader(source, [4], batch_size=70, output_format="dgl"):
        sources = data.edge_index[0, block.edata[dgl.EID]]
        assert torch.equal(block.srcdata[dgl.NID][block.edges()[0]], sources)
    with pytest.raises(GraphError, match=r"expected .* a block of a mini-batch is no graph"):
        NeighborLoader(block, [2])


@pytest.mark.parametrize("attribute", ["edge_weight", "edge_kind"])
def test_neighbours_are_drawn_by_an_attribute(data: Data, attribute: str) -> None:
    # One edge of each list has almost all of the weight.
    heavy = torch.zeros(NUM_EDGES, dtype=torch.bool)
    for v in range(300):
        edges = (data.edge_index[1] == v).nonzero()[:, 0]
        heavy[edges[len(edges) // 2 :][:1]] = True
    data[attribute] = torch.where(heavy, 30000, 0).to(data[attribute].dtype)
    loader = NeighborLoader(data, [3, 3], batch_size=100, weight_attr=attribute)
    for batch in loader:
        assert heavy[batch.e_id].all()
        assert torch.equal(batch[attribute], data[attribute][batch.e_id])
    assert sum(batch.num_edges for batch in loader) > 300
    graph = from_arrays(data.edge_index.numpy(), data.x, edge_weights=heavy.float())
    for batch in NeighborLoader(graph, [3], batch_size=100, weight_attr="edge_weight"):
        assert (batch.edge_weight == 1).all()


def test_dgls_name_of_the_probabilities_is_taken(data: Data) -> None:
    given: dict[str, Any] = {"num_neighbors": [3, 2], "batch_size": 100, "seed": 2}
    ours = NeighborLoader(data, weight_attr="edge_weight", **given)
    for one, other in zip(ours, NeighborLoader(as_dgl(data), prob="weight", **given), strict=True):
        assert torch.equal(one.e_id, other.e_id)


def test_equal_generators_give_equal_batches(random_graph: Any) -> None:
    def batches(seed: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed)
        given = {"num_neighbors": [3, 2], "batch_size": 50, "shuffle": True}
        graphs = (random_graph(), random_graph())
        loaders = [NeighborLoader(each, **given, generator=generator) for each in graphs]
        return [batch.n_id.tolist() for loader in loaders for batch in loader]

    assert batches(1) == batches(1)
    assert batches(1) != batches(2)
    assert batches(1)[:6] != batches(1)[6:]


def test_a_data_loader_takes_it_as_a_data_set(random_graph: Any) -> None:
    graph = random_graph()
    ours = NeighborLoader(graph, [3, 2], batch_size=50)
    assert isinstance(ours, IterableDataset)
    outer = DataLoader(ours, batch_size=None, num_workers=0)
    assert len(outer) == len(ours) == 6
    plain = NeighborLoader(graph, [3, 2], batch_size=50)
    for _ in range(2):
        found = [batch.n_id.tolist() for batch in outer]
        assert found == [batch.n_id.tolist() for batch in plain]
        assert len(found) == 6
    outer = DataLoader(NeighborLoader(random_graph(), [3]), batch_size=None, num_workers=1)
    with pytest.raises(ConfigError, match="num_workers=1 of DataLoader: expected 0"):
        next(iter(outer))


def test_no_argument_of_others_is_unknown(dgl: Any, random_graph: Any) -> None:
    loaders = pytest.importorskip("torch_geometric.loader")
    others = ("graph", "indices", "graph_sampler", "fanouts", "kwargs", "dataset", "prob")
    known = {*FIXED, *WITHOUT_EFFECT, *others, "node_sampler", "link_sampler"}
    own = known.union(inspect.signature(NeighborLoader.__init__).parameters)
    of_links = known.union(inspect.signature(LinkNeighborLoader.__init__).parameters)
    for theirs in (loaders.LinkNeighborLoader, loaders.LinkLoader):
        assert set(inspect.signature(theirs.__init__).parameters) <= of_links
    for theirs in (
        *(loaders.NeighborLoader, loaders.NodeLoader, DataLoader),
        *(dgl.dataloading.DataLoader, dgl.dataloading.NeighborSampler),
    ):
        assert set(inspect.signature(theirs.__init__).parameters) <= own
