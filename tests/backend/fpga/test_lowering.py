from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import own_layers
import pytest
import torch
from torch import nn

from gnnscale.backend.fpga.lowering import Product, coefficients, kernel_header, lower
from gnnscale.core.errors import ConfigError
from gnnscale.nn import APPNP, GAT, GCN, GIN, GNN, SGC, GATv2, GraphSAGE
from gnnscale.nn.conv.linear import GCNLayer, GraphLayer
from gnnscale.nn.options import ModelConfig
from gnnscale.nn.scatter_gather import Custom, CustomLayer, ScatterGatherUpdate
from gnnscale.sampling import Block


class OwnAndGathered(own_layers.PlainMean):
    """A layer of a user's own with a header."""

    kernel_header: ClassVar[str | Path | None] = __file__

    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__(num_in, num_out)
        self.linear = nn.Linear(2 * num_in, num_out, bias=False)

    def update(self, own: torch.Tensor, gathered: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.cat([own, gathered], dim=1))


def built(config: ModelConfig) -> GNN:
    return config.build(num_features=20, num_classes=3)


def facts(products: tuple[Product, ...]) -> list[tuple[Any, ...]]:
    """Return layer, widths, slots, and which of aggregates, activates and drops are so."""
    flags = ("aggregates", "activates", "drops")
    sizes = attrgetter("layer", "width_in", "width_out", "num_slots")
    return [(*sizes(p), "".join(f[:2] for f in flags if getattr(p, f))) for p in products]


#: Aggregates, activates, drops.
ALL = "agacdr"
OWN = [(0, 20, 8, 2, ALL), (1, 8, 3, 2, "ag")]
MEAN = [(0, 20, 8, 1, ALL), (1, 8, 3, 1, "ag")]


@pytest.mark.parametrize(
    ("config", "gathered", "aggregated"),
    [
        (
            GCN(hidden=8, num_layers=3),
            [(0, 20, 8, 1, ALL), (1, 8, 8, 1, ALL), (2, 8, 3, 1, "ag")],
            [(0, 20, 8, 1, "acdr"), (1, 8, 8, 1, ALL), (2, 8, 3, 1, "ag")],
        ),
        (
            GraphSAGE(hidden=8, dropout=0),
            [(0, 20, 8, 2, "agac"), (1, 8, 3, 2, "ag")],
            # The host has put own and gathered rows beside each other.
            [(0, 40, 8, 1, "ac"), (1, 8, 3, 2, "ag")],
        ),
        (
            GIN(hidden=8),
            [(0, 20, 8, 1, "agac"), (0, 8, 8, 1, "acdr"), (1, 8, 8, 1, "agac"), (1, 8, 3, 1, "")],
            [(0, 20, 8, 1, "ac"), (0, 8, 8, 1, "acdr"), (1, 8, 8, 1, "agac"), (1, 8, 3, 1, "")],
        ),
        (GCN(num_layers=1), [(0, 20, 3, 1, "ag")], [(0, 20, 3, 1, "")]),
        # The host aggregates for none of these.
        (Custom(functions=OwnAndGathered, hidden=8), OWN, OWN),
        (Custom(functions=own_layers.PlainMean, hidden=8), MEAN, MEAN),
    ],
)
def test_stages_by_hand(config: ModelConfig, gathered: Any, aggregated: Any) -> None:
    model = built(config)
    assert facts(lower(model, aggregated=False)) == gathered
    assert facts(lower(model, aggregated=True)) == aggregated
    linears = [each for each in model.modules() if isinstance(each, nn.Linear)]
    assert [each.linear for each in lower(model, aggregated=False)] == linears


@pytest.mark.parametrize(
    ("config", "message"),
    [
        *((SGC(), "model: expected layers with ReLU"), (APPNP(), "model: expected layers")),
        (GCN(jumping="cat"), "model: expected layers"),
        (GraphSAGE(aggregator="pool"), "model: PoolingLayer does not run on an fpga"),
        (GATv2(), "model: GATv2Layer does not run on an fpga"),
        (GAT(hidden=8), "model: GATLayer does not run on an fpga; GCN, GraphSAGE, GIN and custom"),
        (GCN(norm="batch"), "model.norm: expected none on an fpga"),
        (GCN(input_dropout=0.5), "model.input_dropout=0.5: expected 0 on an fpga; model.dropout"),
        (Custom(functions=own_layers.MaxPooling), "MaxPooling: expected on an fpga an update"),
        (Custom(functions=own_layers.PairSum), "PairSum: expected on an fpga a scatter of"),
        (Custom(functions=own_layers.Attention, hidden=9), "Attention: expected on an fpga "),
    ],
)
def test_models_that_are_refused(config: ModelConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}") as caught:
        lower(built(config), aggregated=False)
    assert "\n" not in str(caught.value)


def test_a_layer_without_a_bias_is_refused() -> None:
    model = built(GCN())
    model.layer(1).linear.bias = None
    with pytest.raises(ConfigError, match="GCNLayer does not run on an fpga"):
        lower(model, aggregated=False)


#: Two destinations of three and no edges, of five sources.
BLOCK = Block(indptr=np.array([0, 3, 3]), indices=np.array([2, 3, 4], np.int32), num_src=5)
WEIGHED = replace(BLOCK, importance=np.array([1, 2, 4], np.float32))
DEGREES = np.array([6, 3, 1, 1, 1], np.float32)


@pytest.mark.parametrize("config", [GCN(), GraphSAGE(), GIN()])
@pytest.mark.parametrize("block", [BLOCK, WEIGHED])
def test_coefficients_are_the_layers(config: ModelConfig, block: Block) -> None:
    layer: Any = built(config).layer(0)
    found, known = coefficients(layer, block, DEGREES), layer.aggregation(block, DEGREES)
    assert found.self_term == known.self_term
    for name in ("weights", "dst_scale", "self_scale"):
        left, right = getattr(found, name), getattr(known, name)
        assert (left is None) == (right is None)
        assert left is None or np.array_equal(left, right)


@pytest.mark.parametrize(
    ("gather", "block", "degrees", "weights", "scale"),
    [
        ("mean", BLOCK, None, None, [1 / 3, 1]),
        # Over the number that was sampled, or over the degree where edges have weights.
        ("mean", BLOCK, DEGREES, None, [1 / 3, 1]),
        ("mean", WEIGHED, DEGREES, [1, 2, 4], [1 / 6, 1 / 3]),
        ("mean", WEIGHED, None, [1, 2, 4], [1 / 3, 1]),
        ("sum", BLOCK, None, None, None),
        ("sum", BLOCK, DEGREES, None, [2, 3]),
        ("sum", WEIGHED, DEGREES, [1, 2, 4], None),
        ("max", BLOCK, DEGREES, None, None),
        ("max", WEIGHED, DEGREES, None, None),
    ],
)
def test_coefficients_of_ones_own(gather, block, degrees, weights, scale) -> None:
    functions = OwnAndGathered(4, 3)
    functions.gather = gather
    alone = CustomLayer(own_layers.PlainMean(4, 3), 4, 3)
    assert coefficients(alone, block, degrees).self_term is None
    found = coefficients(CustomLayer(functions, 4, 3), block, degrees)
    assert (found.self_term, found.self_scale) == ("concat", None)
    for given, wanted in ((found.weights, weights), (found.dst_scale, scale)):
        if wanted is None:
            assert given is None
        else:
            assert (given.dtype, given.tolist()) == (np.float32, pytest.approx(wanted))


def headed(name: str, header: str | Path | None) -> type[ScatterGatherUpdate]:
    return type(name, (OwnAndGathered,), {"kernel_header": header})


def of_layers(*functions: type[ScatterGatherUpdate] | None) -> GNN:
    layers: list[GraphLayer] = [
        GCNLayer(4, 4) if each is None else CustomLayer(each(4, 4), 4, 4) for each in functions
    ]
    norms = [nn.Identity() for _ in layers[1:]]
    return GNN(layers, norms, 0.0, [4] * (len(layers) + 1))


def test_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.hpp").touch()
    monkeypatch.chdir(tmp_path)
    assert kernel_header(built(GCN())) is None
    for given in ("own.hpp", tmp_path / "own.hpp"):
        own = headed("Own", given)
        assert kernel_header(of_layers(own, own)) == tmp_path / "own.hpp"


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ((headed("Own", None),), "Own.kernel_header=None: an fpga needs a C.. header"),
        ((headed("Own", "no.hpp"),), "Own.kernel_header=no.hpp: no such file"),
        ((headed("Own", "/"),), "Own.kernel_header=/: no such file"),
        ((headed("A", __file__), headed("B", __file__)), "model: expected one kernel_header"),
        ((headed("A", __file__), None), "model: expected one kernel_header for all layers"),
    ],
)
def test_headers_that_are_refused(functions: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}") as caught:
        kernel_header(of_layers(*functions))
    assert "\n" not in str(caught.value)
