"""Encoded ages, by hand."""

import math

import pytest
import torch

from gnnscale.core import ConfigError
from gnnscale.graph import GraphSchema
from gnnscale.nn import GAT, HGT, RSAGE, GraphSAGE
from gnnscale.nn.time_encoding import TimeEncoder


def test_sinusoidal() -> None:
    encoder = TimeEncoder("sinusoidal", hidden=4, width=4)
    with torch.no_grad():
        encoder.linear.weight.copy_(torch.eye(4))
    (found,) = encoder(torch.tensor([2.0])).tolist()
    expected = [math.sin(2), math.sin(2e-4), math.cos(2), math.cos(2e-4)]
    assert found == pytest.approx(expected, rel=1e-6)


def test_linear() -> None:
    encoder = TimeEncoder("linear", hidden=4, width=1)
    with torch.no_grad():
        encoder.linear.weight.fill_(3.0)
        encoder.linear.bias.fill_(1.0)
    assert encoder(torch.tensor([0.0, 365.25])).tolist() == [[1.0], [4.0]]


def test_types_without_times_have_no_encoder() -> None:
    schema = GraphSchema.of({"a": 1, "b": 1}, [("a", "to", "b")])
    options = RSAGE(hidden=4, time_encoding="linear")
    model = options.build_typed(schema=schema, widths=(2, 3), num_classes=2)
    options.add_time_encoders(model, (True, False))
    timed, untimed = model.time_encoders
    assert isinstance(timed, TimeEncoder)
    x, ages = torch.ones(5, 2), torch.full((5,), 730.5)
    added = model.encode(0, x, ages) - model.encode(0, x)
    torch.testing.assert_close(added, timed(ages))
    assert isinstance(untimed, torch.nn.Identity)


def test_models_read_ages_if_vertices_have_times() -> None:
    for config, timed, uses in (
        (GraphSAGE(hidden=4), (True,), True),
        (GraphSAGE(hidden=4), (False,), False),
        (GraphSAGE(hidden=4, time_encoding="none"), (True,), False),
        (GAT(hidden=4, num_heads=2), (True,), False),
        (RSAGE(hidden=4), (True,), True),
        (HGT(hidden=4, num_heads=2, time_encoding="linear"), (), False),
    ):
        model = config.build(num_features=3, num_classes=2)
        before = set(model.state_dict())
        config.add_time_encoders(model, timed)
        assert model.uses_ages is uses
        added = set(model.state_dict()) - before
        assert bool(added) is uses
        assert not (uses and model.layer_costs[0].aggregates_on_load)
    with pytest.raises(ConfigError, match=r"model\.time_encoding=cubic"):
        RSAGE(time_encoding="cubic")
