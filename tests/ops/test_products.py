import pytest
import torch
from torch import nn

from gnnscale.ops import products

pytestmark = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")),
    reason="torch without oneDNN",
)


@pytest.fixture
def onednn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    shapes: list[tuple[int, ...]] = []
    multiply = products._multiply

    def noted(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        shapes.append((*x.shape, len(weight)))
        return multiply(x, weight, bias)

    monkeypatch.setattr(products, "multiplies_by_onednn", lambda: True)
    monkeypatch.setattr(products, "_MIN_MACS", 1)
    monkeypatch.setattr(products, "_MIN_INPUTS", 1)
    monkeypatch.setattr(products, "_multiply", noted)
    return shapes


@pytest.mark.parametrize(
    ("inputs", "outputs", "bias", "layout"),
    [
        *[(7, 3, True, "rows"), (3, 7, False, "rows"), (16, 16, True, "columns")],
        *[(7, 3, False, "columns"), (3, 7, True, "slice"), (16, 16, False, "slice")],
        *[(1, 1, True, "expanded"), (7, 3, False, "expanded")],
    ],
)
def test_values_and_gradients_are_those_of_float64(onednn, inputs, outputs, bias, layout) -> None:
    torch.manual_seed(1)
    layer = nn.Linear(inputs, outputs, bias=bias)
    wide = torch.randn(50, 3 * inputs)
    x = {
        "rows": wide[:, :inputs].contiguous(),
        "columns": wide[:, :inputs].t().contiguous().t(),
        "slice": wide[:, inputs : 2 * inputs],
        "expanded": wide[:1, :inputs].expand(50, inputs),
    }[layout].requires_grad_()
    exact, y = nn.Linear(inputs, outputs, bias=bias).double(), x.detach().double().requires_grad_()
    exact.load_state_dict(layer.state_dict())
    for multiplied in (products.product(layer, x), exact(y)):
        # The gradient of a sum is one number, expanded.
        (multiplied.sum() if layout == "expanded" else multiplied.square().sum()).backward()
    found = [x.grad, *(each.grad for each in layer.parameters())]
    expected = [y.grad, *(each.grad for each in exact.parameters())]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)
    assert len(onednn) == 3


def test_what_is_computed_kept_and_left_to_torch(onednn, monkeypatch) -> None:
    layer, x = nn.Linear(4, 4), torch.randn(8, 4)
    layer.weight.requires_grad_(requires_grad=False)
    products.product(layer, x).sum().backward()
    assert onednn == [(8, 4, 4)]
    assert layer.weight.grad is None
    assert layer.bias.grad.tolist() == [8] * 4
    layer, x = nn.Linear(4, 4), torch.randn(8, 4)
    with torch.no_grad():
        assert not products.product(layer, x).requires_grad
    assert not products.multiply(x, layer.weight).requires_grad
    torch.testing.assert_close(products.multiply(x, layer.weight, layer.bias), layer(x).detach())
    assert len(onednn) == 4
    monkeypatch.undo()  # small products and other processors are left to torch
    monkeypatch.setattr(products, "_multiply", None)
    layer, x = nn.Linear(3, 2), torch.randn(5, 3)
    monkeypatch.setattr(products, "multiplies_by_onednn", lambda: True)
    assert torch.equal(products.product(layer, x), layer(x))
    monkeypatch.setattr(products, "_MIN_MACS", 1)
    monkeypatch.setattr(products, "multiplies_by_onednn", lambda: False)
    assert torch.equal(products.product(layer, x), layer(x))
    assert torch.equal(products.product(layer, x[None]), layer(x[None]))


@pytest.mark.usefixtures("onednn")
def test_a_product_repeats_its_bits() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(512, 256), torch.randn(5_000, 512, requires_grad=True)
    results = []
    for _ in range(3):
        layer.zero_grad()
        x.grad = None
        out = products.product(layer, x)
        out.square().sum().backward()
        results.append((out.detach(), x.grad, layer.weight.grad.clone()))
    for again in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(results[0], again, strict=True))
