import pytest
from generated_designs import config

from gnnscale.core.errors import ConfigError


@pytest.mark.long
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("mode=theirs", "mode=theirs: allowed are ours, hitgnn"),
        ("system=dgl", "system=dgl"),
        ("graph=cora", "graph=cora"),
        ("cards=0", "cards=0: must be at least 1"),
        ("batch_size=0", "batch_size=0"),
        ("link_share=1.5", "link_share=1.5"),
        ("model.num_layers=3", "model.num_layers=3: the sampler has 2 hops"),
        ("design=/tmp", "design=/tmp: expected null without report=DIR"),
        ("board.clock_hz=0", "board.clock_hz=0"),
        ("board.link_bandwidth=-1", "board.link_bandwidth=-1: expected 0.001 to"),
        ("~board.power_w", "board.power_w: required"),
        ("board.sources.dies=", "board.sources.dies: required; state"),
    ],
)
def test_what_is_not_allowed_is_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(override)
    assert message in str(error.value)
