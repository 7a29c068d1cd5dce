import torch
from torch import nn

from gnnscale.nn.typed.encoders import make_encoder


def test_a_normalized_encoder_by_hand() -> None:
    """Hidden rows (x, -x) are normalized to about (1, -1) or (-1, 1); ReLU leaves one of both."""
    encoder = make_encoder("normalized", 1, 2)
    first, norm, _, second = encoder
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        second.weight.copy_(torch.tensor([[3.0, 5.0], [0.0, 1.0]]))
        second.bias.copy_(torch.tensor([10.0, 20.0]))
        norm.eps = 0.0
        assert encoder(torch.tensor([[4.0], [-900.0]])).tolist() == [[13, 20], [15, 21]]


def test_a_linear_encoder_is_a_product() -> None:
    assert type(make_encoder("linear", 3, 4)) is nn.Linear


def test_no_rows_are_encoded() -> None:
    assert make_encoder("normalized", 3, 4)(torch.empty(0, 3)).shape == (0, 4)
