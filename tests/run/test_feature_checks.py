from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from devices import ROWS, accelerator, plan_of
from own_layers import MaxPooling

from gnnscale.core.errors import ConfigError
from gnnscale.nn.scatter_gather import Custom
from gnnscale.run.config import RunConfig
from gnnscale.sampling import LayerSampling, without_last_hop

Settings = Callable[..., RunConfig]
READY = ("features=preaggregated", "sampler.fanouts=[5,-1]")


@pytest.mark.long
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("sampler.fanouts=[-1,5]", "expected all neighbors in the first layer, got sampler.fanout"),
        ("model=gat model.num_heads=2", "expected a first layer that aggregates features with coe"),
        (plan_of(ROWS), "expected devices with host_aggregates=true for which the host loads, got"),
        (plan_of("cpu", accelerator(reads_host_memory=True)), "got emulated:1, "),
        ("device_plan=cpu_x2 partitioner=p3", "got partitioner=p3, whose devices aggregate column"),
        ("cache_planner=pagraph", "got caches, which hold rows before aggregation"),
    ],
)
def test_what_does_not_go_with_rows_aggregated_beforehand(settings, overrides, message) -> None:
    with pytest.raises(ConfigError) as error:
        settings(*READY, *overrides.split())
    assert str(error.value).startswith("features=preaggregated: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_rows_aggregated_beforehand_and_what_does_not_go_with_them(settings: Settings) -> None:
    config = settings(*READY)
    with pytest.raises(ConfigError, match="coefficients of the graph alone, got MaxPooling"):
        replace(config, model=Custom(functions=MaxPooling, hidden=8))
    with pytest.raises(ConfigError, match="got LayerSampling; use sampler=full"):
        replace(config, sampler=LayerSampling(layer_sizes=[50, 50]))
    exchange: Any = object()
    message = "^features=shared: expected exchange=null"
    with pytest.raises(ConfigError, match=message):
        replace(settings("features=shared"), exchange=exchange)
    for config in (settings(*READY), settings(READY[0], "sampler=full")):
        assert config.needs_more_than_graph
        assert config.training_sampler == without_last_hop(config.sampler)
        assert config.training_sampler.num_layers == 2
    host = settings("sampler.fanouts=[5,-1]")
    assert host.training_sampler == host.sampler
    assert not host.needs_more_than_graph


@pytest.mark.long
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["features.window=0"], "features.window=0: must be at least 1"),
        (["features.memory_bytes=0"], "features.memory_bytes=0: must be at least 1"),
        (["partitioner=p3", "device_plan=cpu_x2"], "features=shared: expected partitioner=none"),
        (["device_plan.devices=[{kind: cuda}]"], "features=shared: expected devices .*, got cuda:"),
    ],
)
def test_what_does_not_go_with_divided_rows(overrides, message, settings) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        settings("features=shared", *overrides)
