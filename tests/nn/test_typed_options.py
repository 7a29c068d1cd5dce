import pytest
from one_line import one_line

from gnnscale.nn import HGT, RGAT, RGCN, RSAGE


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (RGCN, {"num_bases": 0}, "model.num_bases=0"),
        (RSAGE, {"combine": "cat"}, "model.combine=cat"),
        (RSAGE, {"aggregator": "pool"}, "model.aggregator=pool"),
        (RGAT, {"num_heads": 3}, "model.num_heads=3: expected a divisor of model.hidden=256"),
        (HGT, {"hidden": 4}, "model.num_heads=8: expected a divisor of model.hidden=4"),
        (HGT, {"norm": "graph"}, "model.norm=graph"),
        (HGT, {"encoder": "mlp"}, "model.encoder=mlp"),
        (RGCN, {"hidden": 0}, "model.hidden=0"),
        (RSAGE, {"dropout": 1.0}, "model.dropout=1.0"),
        (HGT, {"edge_features": True}, "model.edge_features=true"),
    ],
)
def test_wrong_options_are_refused_in_one_line(config, options, message) -> None:
    with one_line(message):
        config(**options)


@pytest.mark.parametrize("config", [RGCN, RSAGE, RGAT, HGT])
def test_output_rows_of_edges_have_hidden_features(config) -> None:
    assert config(hidden=24).row_width == 24
    assert not config().takes_bfloat16
