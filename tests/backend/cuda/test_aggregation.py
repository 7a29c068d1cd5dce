from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from padded import SPARE, degrees_of, padded, random_block, random_rows, rows_after, vertices_of

from gnnscale.backend.cuda import aggregation
from gnnscale.backend.cuda.capacity import DeviceGraph
from gnnscale.backend.cuda.host_kernels import HostKernels
from gnnscale.features import HostFeatures
from gnnscale.nn.conv.linear import GCNLayer, GINLayer, SAGELayer
from gnnscale.nn.device_block import Activation, Rule
from gnnscale.nn.functional import aggregate
from gnnscale.sampling import Block

LAYERS = (GCNLayer(4, 2), SAGELayer(4, 2), GINLayer(4, 4, 2))


blocks = st.builds(
    random_block,
    st.integers(0, 999),
    importance=st.booleans(),
    weights=st.booleans(),
    sums=st.booleans(),
)


@pytest.mark.long
@settings(max_examples=15, deadline=None)
@given(
    block=blocks,
    layer=st.sampled_from(LAYERS),
    width=st.sampled_from([1, 3, 4, 20, 36]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    p=st.sampled_from([None, 0.0, 0.5]),
    wide=st.booleans(),
)
def test_it_is_the_hosts(block, layer, width, dtype, p, wide):
    degrees, vertices = degrees_of(block), vertices_of(block, wide=wide)
    on_device = padded(block, vertices, spare=SPARE, step=5)
    x = random_rows(block.num_src, width, dtype)
    known, found = x.clone().requires_grad_(), x.clone().requires_grad_()
    act = moved = None
    if p is not None:
        act = Activation(p=p, seed=3, step=5, layer=1, vertices=vertices)
        # Those of the rows, which are the destinations of the block before.
        before = replace(on_device, num_vertices=on_device.num_vertices[1:])
        moved = before.activation(p, seed=3, step=5, layer=1)
    expected = aggregate(known * 1, block, layer.aggregation(block, degrees), act)
    h = rows_after(found, 2 * SPARE, float("nan"))
    got = on_device.aggregate(h, layer.rule, torch.from_numpy(degrees), moved)
    assert torch.equal(got[: block.num_dst], expected)
    assert not got[block.num_dst :].any()
    grad = random_rows(block.num_dst, expected.shape[1], dtype)
    expected.backward(grad)
    got.backward(rows_after(grad, SPARE, float("nan")))
    assert torch.equal(found.grad, known.grad)


@settings(max_examples=20, deadline=None)
@given(
    block=blocks,
    layer=st.sampled_from(LAYERS),
    width=st.sampled_from([2, 8, 50]),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.uint8]),
    to=st.sampled_from([torch.float32, torch.bfloat16]),
    wide=st.booleans(),
)
def test_rows_are_aggregated_while_they_are_read(block, layer, width, dtype, to, wide):
    degrees, vertices = degrees_of(block), vertices_of(block, wide=wide)
    table = (random_rows(99, width).abs() * 50).to(dtype)
    stored = table.view(torch.int16).numpy().view(np.uint16) if dtype is torch.bfloat16 else table
    store = HostFeatures(np.asarray(stored), str(dtype).removeprefix("torch."))
    known, _ = store.aggregate(
        vertices, block, layer.aggregation(block, degrees), dtype=to, num_threads=1
    )
    found = aggregation.load_aggregated(
        padded(block, vertices, spare=SPARE), table, layer.rule, torch.from_numpy(degrees), dtype=to
    )
    assert torch.equal(found[: block.num_dst], known)
    assert not found[block.num_dst :].any()


def test_a_mean_and_the_gradient_of_a_sum_by_hand():
    block = Block(indptr=np.array([0, 2, 2]), indices=np.array([1, 2], np.int32), num_src=3)
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 8.0]])
    on_device = padded(block, np.arange(3, dtype=np.int32), spare=0)
    found = on_device.aggregate(rows, Rule.MEAN, None, None)
    assert found.tolist() == [[1, 2, 4, 6], [3, 4, 0, 0]]
    # Sources without edges have no gradient.
    block = Block(indptr=np.array([0, 1]), indices=np.array([2], np.int32), num_src=3)
    ones = torch.ones(3, 4, requires_grad=True)
    on_device = padded(block, np.arange(3, dtype=np.int32), spare=0)
    on_device.aggregate(ones, Rule.SUM, torch.ones(3), None).sum().backward()
    assert ones.grad[:, 0].tolist() == [1, 0, 1]


@pytest.mark.parametrize(("known", "dtype"), [(False, torch.int32), (True, torch.int64)])
def test_degrees_are_the_lengths_of_lists_or_those_that_are_known(known, dtype):
    indptr, indices = torch.tensor([0, 2, 2, 7]), torch.zeros(7, dtype=torch.int32)
    graph, kernels = (
        DeviceGraph(name="g", indptr=indptr, indices=indices),
        HostKernels(num_threads=1),
    )
    vertices, count = torch.tensor([2, 0, 1, 999], dtype=dtype), torch.tensor([3])
    table = torch.tensor([9, 8, 7], dtype=torch.int32) if known else None
    found = aggregation.degrees_of(kernels, graph, vertices, count, full_degrees=table)
    assert found.tolist() == ([7, 9, 8, 0] if known else [5, 2, 0, 0])
    floats = aggregation.vertex_floats(kernels, torch.tensor([0.5, 1.5, 2.5]), vertices, count)
    assert floats.tolist() == [2.5, 0.5, 1.5, 0.0]
