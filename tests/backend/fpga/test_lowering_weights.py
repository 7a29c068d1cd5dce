import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gnnscale.backend.fpga.lowering import Product, WeightLayout, words


def product(width_in: int, width_out: int, *, num_slots: int = 1, bias: bool = True) -> Product:
    linear = nn.Linear(num_slots * width_in, width_out, bias=bias)
    sizes = {"layer": 0, "num_slots": num_slots, "width_in": width_in}
    return Product(**sizes, linear=linear, aggregates=True, activates=False, drops=False)


def test_words_of_a_row() -> None:
    assert [words(width) for width in (0, 1, 16, 17, 1433)] == [0, 1, 1, 2, 90]


@torch.no_grad()
def test_a_product_by_hand() -> None:
    one = product(2, 3)
    one.linear.weight.copy_(torch.tensor([[1.0, 2], [3, 4], [5, 6]]))
    one.linear.bias.copy_(torch.tensor([7.0, 8, 9]))
    layout = WeightLayout([one])
    packed = layout.pack()
    assert packed.dtype == np.float32
    assert layout.num_bytes == packed.nbytes == 17 * 64
    rows = packed.reshape(17, 16)
    # Sixteen rows of the source rows' columns, and the bias; what is not there is 0.
    assert rows[0].tolist() == [1, 3, 5, *[0] * 13]
    assert rows[1].tolist() == [2, 4, 6, *[0] * 13]
    assert not rows[2:16].any()
    assert rows[16].tolist() == [7, 8, 9, *[0] * 13]


@torch.no_grad()
def test_own_and_gathered_rows_have_a_slot_each() -> None:
    one = product(17, 1, num_slots=2)
    one.linear.weight.copy_(torch.arange(34.0)[None])
    one.linear.bias.fill_(-1)
    rows = WeightLayout([one]).pack().reshape(-1, 16)
    # Each slot begins at a word: 17 columns are 2 words.
    assert len(rows) == 2 * 32 + 1
    assert rows[:17, 0].tolist() == list(range(17))
    assert rows[32:49, 0].tolist() == list(range(17, 34))
    assert rows[64, 0] == -1
    assert not rows[:, 1:].any()
    assert not rows[17:32].any()
    assert not rows[49:64].any()


@torch.no_grad()
def test_products_follow_each_other() -> None:
    layout = WeightLayout([product(3, 17), product(17, 4, bias=False), product(4, 2)])
    # [16][2] and a bias of 2; [32][1] and no bias, which counts as zeros.
    assert [layout.first_word(number) for number in range(3)] == [0, 34, 67]
    assert layout.num_bytes == 64 * (34 + 33 + 17)
    assert not layout.pack().reshape(-1, 16)[66].any()
    one = product(1, 1)
    layout = WeightLayout([one])
    for value in (2.0, 3.0):  # the present weights
        one.linear.weight.fill_(value)
        assert layout.pack()[0] == value


sizes = st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 2), st.booleans())


@settings(max_examples=20)
@given(st.lists(sizes, min_size=1, max_size=4))
def test_gradients_lie_as_the_weights_do(given_sizes: list[tuple[int, int, int, bool]]) -> None:
    products = [product(*widths, num_slots=s, bias=bias) for *widths, s, bias in given_sizes]
    layout = WeightLayout(products)
    packed = layout.pack().copy()
    found = layout.unpack(packed)
    parameters = [each for one in products for each in one.linear.parameters()]
    assert list(found) == parameters
    for parameter in parameters:
        assert torch.equal(found[parameter], parameter.detach())
        assert found[parameter].is_contiguous()
    # They are copies: the buffer is written again in the next step.
    packed[:] = 0
    assert all(torch.equal(found[each], each.detach()) for each in parameters)
