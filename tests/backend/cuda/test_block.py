import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from padded import padded, rows_after

from gnnscale.nn.device_block import Activation
from gnnscale.sampling import Block


@pytest.mark.long
@settings(max_examples=15, deadline=None)
@given(
    count=st.integers(0, 9),
    width=st.sampled_from([1, 2, 4, 7, 20, 64]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    p=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    wide=st.booleans(),
    seeds=st.tuples(*[st.integers(0, 2**63)] * 2, st.integers(0, 9)),
)
def test_it_is_the_hosts(count, width, dtype, p, wide, seeds):
    vertices = np.random.default_rng(count).permutation(1 << 20)[:count]
    vertices = vertices.astype(np.int64 if wide else np.int32)
    block = Block(
        indptr=np.zeros(count + 1, np.int64), indices=np.zeros(0, np.int32), num_src=count
    )
    rows = torch.randn(count, width, generator=torch.Generator().manual_seed(width)).to(dtype)
    seed, step, layer = seeds
    known = Activation(p=p, seed=seed, step=step, layer=layer, vertices=vertices)
    expected = rows.clone()
    scale = known.apply_(expected)
    block = padded(block, vertices, spare=2, step=step)
    for sources, spare in ((False, 2), (True, 4)):
        found = block.activation(p, seed=seed, step=99, layer=layer, sources=sources)
        got = rows_after(rows, spare, float("nan"))
        assert found.apply_(got) == scale
        assert torch.equal(got[:count], expected)
        assert not got[count:].any()
    grad = rows.flip(0)
    assert torch.equal(found.gradient(expected, grad, scale), known.gradient(expected, grad, scale))
