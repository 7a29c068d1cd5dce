"""Outputs of rows: those of the graph as it was at each cut-off."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import one_line
from timed_shop import timed_shop

from gnnscale.backend.typed_loading import open_loader
from gnnscale.data.interop import from_arrays
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.graph import Graph, TypedFeatures
from gnnscale.inference import row_predictor
from gnnscale.inference.predictor import Predictor
from gnnscale.inference.row_predictor import RowPredictor, all_allowed
from gnnscale.nn import GAT, GCN, GIN, HGT, RSAGE, GraphSAGE
from gnnscale.run import EvaluationOptions
from gnnscale.sampling import (
    LaborSampling,
    LayerSampling,
    NeighborSampling,
    TimedSampler,
    TimeRule,
)
from gnnscale.sampling.histories import HistorySampler

SHOP = timed_shop(num_users=30, num_items=12, per_user=6)


def options(inference: str = "exact", **sampler: Any) -> EvaluationOptions:
    return EvaluationOptions(
        model_name="own",
        inference=inference,
        sampler=NeighborSampling(**{"fanouts": [3, 2]} | sampler),
        batch_size=7,
        seed=0,
        num_threads=1,
        compute_dtype="float32",
    )


def as_it_was(cutoff: int, *, strict: bool = False) -> Graph:
    """The shop without the purchases after a cut-off."""
    schema, edges = SHOP.schema, {}
    assert SHOP.times is not None
    lists = np.repeat(np.arange(schema.num_rows), np.diff(SHOP.indptr))
    for number, edge_type in enumerate(schema.edge_types):
        rows = schema.rows(number)
        destinations = np.full(schema.num_rows, -1)
        span = schema.vertices(int(schema.destinations[number]))
        destinations[rows] = np.arange(span.stop - span.start)
        to = destinations[lists]
        times = SHOP.times.edges
        chosen = (to >= 0) & ((times < cutoff) if strict else (times <= cutoff))
        first = schema.vertices(int(schema.sources[number])).start
        edges[edge_type.triple] = (SHOP.indices[chosen] - first, to[chosen])
    features: Any = SHOP.features
    assert isinstance(features, TypedFeatures)
    matrices = dict(zip(SHOP.vertex_types, features.matrices, strict=True))
    return from_typed_arrays({name: matrix.rows for name, matrix in matrices.items()}, edges)


@pytest.mark.parametrize("model", [RSAGE(hidden=8), HGT(hidden=8, num_heads=2)])
@pytest.mark.parametrize("bound", ["inclusive", "strict"])
def test_exact_outputs_are_those_of_the_graph_as_it_was(model, bound, monkeypatch) -> None:
    monkeypatch.setattr(row_predictor, "_FIRST", 3)
    torch.manual_seed(0)
    gnn = model.build_for(SHOP.input_types, num_classes=2)
    rows = SHOP.rows
    assert rows is not None
    chosen = options(time="seed", bound=bound)
    found = RowPredictor(gnn, SHOP, chosen).outputs(rows.vertices, rows.cutoffs)
    for cutoff in np.unique(rows.cutoffs):
        of_cutoff = rows.cutoffs == cutoff
        then = as_it_was(int(cutoff), strict=bound == "strict")
        expected = Predictor(gnn, then, options()).logits(rows.vertices[of_cutoff])
        np.testing.assert_allclose(found[of_cutoff], expected, rtol=1e-4, atol=1e-5)


def test_mini_batches_change_no_output(monkeypatch) -> None:
    """Nor does the order of rows, of which several are the same."""
    torch.manual_seed(0)
    gnn = RSAGE(hidden=8).build_for(SHOP.input_types, num_classes=2)
    rows = SHOP.rows
    assert rows is not None
    whole = RowPredictor(gnn, SHOP, options()).outputs(rows.vertices, rows.cutoffs)
    sizes = []
    compute = RowPredictor._compute
    monkeypatch.setattr(
        RowPredictor,
        "_compute",
        lambda self, batch, loader: (
            sizes.append(len(batch.rows.numbers)) or compute(self, batch, loader)
        ),
    )
    for limit in (1, 20_000, 1 << 30):
        monkeypatch.setattr(row_predictor, "_MAX_BYTES", limit)
        monkeypatch.setattr(row_predictor, "_MAX_SHARED_BYTES", limit)
        predictor = RowPredictor(gnn, SHOP, options())
        order = np.random.default_rng(0).integers(0, len(whole), 300)
        found = predictor.outputs(rows.vertices[order], rows.cutoffs[order])
        np.testing.assert_allclose(found, whole[order], rtol=1e-4, atol=1e-5)
        distinct = len(np.unique(order))
        assert sum(sizes) == distinct
        assert (len(sizes) == distinct) == (limit == 1)
        sizes.clear()


@pytest.mark.parametrize("time", ["seed", "none"])
def test_sampled_outputs_depend_on_the_row_alone(time) -> None:
    torch.manual_seed(0)
    gnn = RSAGE(hidden=8).build_for(SHOP.input_types, num_classes=2)
    rows = SHOP.rows
    assert rows is not None
    predictor = RowPredictor(gnn, SHOP, options("sampled", time=time))
    whole = predictor.outputs(rows.vertices, rows.cutoffs)
    some = predictor.outputs(rows.vertices[40:50], rows.cutoffs[40:50])
    np.testing.assert_allclose(some, whole[40:50], rtol=1e-4, atol=1e-5)
    if time == "none":
        for user in range(3):
            of_user = rows.vertices == user
            assert len(np.unique(whole[of_user], axis=0)) == 1


@pytest.mark.parametrize("model", [GraphSAGE(hidden=8), GAT(hidden=8, num_heads=2)])
def test_a_graph_without_types(model) -> None:
    """A chain: as of cut-off 1 vertex 2 has one neighbor, and none of its neighbor's."""
    features = np.eye(4, dtype=np.float32)
    graph = from_arrays(([0, 1, 3], [1, 2, 2]), features, edge_times=[2, 1, 3], time_unit="day")
    then = from_arrays(([1], [2]), features)
    torch.manual_seed(0)
    gnn = model.build(num_features=4, num_classes=3)
    found = RowPredictor(gnn, graph, options()).outputs(np.array([2, 2]), np.array([1, 3]))
    expected = Predictor(gnn, then, options()).logits(np.array([2], np.int32))
    now = Predictor(gnn, replace(graph, times=None), options()).logits(np.array([2], np.int32))
    np.testing.assert_allclose(found, np.concatenate([expected, now]), rtol=1e-4, atol=1e-5)


def test_all_allowed() -> None:
    sampler = LaborSampling(
        fanouts=[2, 3], edge_fanouts={"user-buys-item": [0, 5]}, time="destination", window=4
    )
    expected = NeighborSampling(
        fanouts=[-1, -1], edge_fanouts={"user-buys-item": [0, -1]}, time="destination", window=4
    )
    assert all_allowed(sampler) == expected
    with one_line("sampler", "LayerSampling"):
        all_allowed(LayerSampling(layer_sizes=[3]))


def timed_graphs() -> Any:
    """Graphs without types, whose edges have weights."""
    edge = st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 6), st.integers(1, 3))
    return st.lists(edge, min_size=1, max_size=30).map(graph_of)


def graph_of(edges: list[tuple[int, int, int, int]]) -> Graph:
    src, dst, times, weights = np.array(edges).T
    features = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    return from_arrays(
        (src, dst), features, edge_times=times, time_unit="day", edge_weights=weights.astype("f4")
    )


MODELS = [GraphSAGE(hidden=4), GCN(hidden=4), GAT(hidden=4, num_heads=2), GIN(hidden=4)]


@pytest.mark.parametrize("model", MODELS)
@given(
    graph=timed_graphs(),
    units=st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 8)), min_size=1),
    bound=st.sampled_from(["inclusive", "strict"]),
    num_layers=st.integers(1, 3),
)
@settings(max_examples=20)
def test_equal_histories_change_no_output(model, graph, units, bound, num_layers) -> None:
    """Mini-batches of units with their own last hop, one each, give the same outputs."""
    torch.manual_seed(0)
    gnn = replace(model, num_layers=num_layers).build(num_features=4, num_classes=3)
    gnn.eval()
    vertices, cutoffs = np.array(units).T
    chosen = options(fanouts=[2] * num_layers, time="seed", bound=bound)
    predictor = RowPredictor(gnn, graph, chosen)
    found = predictor.outputs(vertices, cutoffs)
    shares = num_layers > 1 and not gnn.uses_degrees
    assert isinstance(predictor._units, HistorySampler if shares else TimedSampler)
    sampler = TimedSampler(graph, fanouts=[-1] * num_layers, rule=TimeRule(bound=bound))
    loader = open_loader(graph, gnn, num_threads=1, store=None, compute_dtype=torch.float32)
    for row, (vertex, cutoff) in zip(found, units, strict=True):
        batch = sampler.sample_units(np.array([vertex]), np.array([cutoff]), 0)
        with torch.no_grad():
            expected = gnn(batch, loader.load(batch)).numpy()[0]
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-5)


def test_models_with_ages_share_no_histories() -> None:
    gnn = RSAGE(hidden=8, time_encoding="linear").build_for(SHOP.input_types, num_classes=2)
    predictor = RowPredictor(gnn, SHOP, options())
    assert isinstance(predictor._units, TimedSampler) == gnn.uses_ages


def test_checks_of_times_need_units_of_their_own() -> None:
    gnn = RSAGE(hidden=8).build_for(SHOP.input_types, num_classes=2)
    assert isinstance(RowPredictor(gnn, SHOP, options())._units, HistorySampler)
    checked = RowPredictor(gnn, SHOP, options(check_times=True))
    assert isinstance(checked._units, TimedSampler)
