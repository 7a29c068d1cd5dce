from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import own_layers
import own_losses
import pytest
import torch
from held_rows import HoldEvenVertices
from own_parts import Dealt

from gnnscale import api
from gnnscale.api.hitgnn.design import compose_run, name_code
from gnnscale.core.config.typed import typed
from gnnscale.core.config.user_code import load_named
from gnnscale.core.errors import ConfigError
from gnnscale.features import HostFeaturesConfig
from gnnscale.nn import GAT, GCN, GIN, GraphSAGE
from gnnscale.nn.scatter_gather import Custom
from gnnscale.partition import EdgeCut, Hash, PartitionerConfig
from gnnscale.sampling import NeighborSampling

SMALL, COMPUTATION = api.gnn_parameters(2, 8), api.gnn_computation("GCN")
NO_LAYER = api.gnn_computation("customize", torch.nn.Linear)


@pytest.mark.long
def test_an_architecture_with_the_defaults_of_its_file() -> None:
    parameters = api.gnn_parameters(L=3, hidden=[16, 16])
    known = {"GCN": GCN, "GraphSAGE": GraphSAGE, "GAT": GAT, "GIN": GIN}
    for name, model in known.items():
        choice = api.gnn_model(api.gnn_computation(name), parameters)
        assert choice.config == model(num_layers=3, hidden=16)
        assert choice.group == "model"
        assert choice.values["_target_"] == f"gnnscale.nn.options.{name}"
    heads = api.gnn_parameters(2, 16, num_heads=4, dropout=0.25, norm="batch")
    expected = GAT(hidden=16, num_heads=4, dropout=0.25, norm="batch")
    assert api.gnn_model(api.gnn_computation("GAT"), heads).config == expected
    alone = api.gnn_parameters(L=1, hidden=[])
    assert api.gnn_model(api.gnn_computation("GCN"), alone).config == GCN(num_layers=1)


class Update(str, Enum):
    SGD = "sgd"


@pytest.mark.long
def test_options_are_scalars_of_numpy_and_texts_of_an_enumeration() -> None:
    """As a grid of a program has them."""
    count, rate = np.int64(3), np.logspace(-1, -2, 2)[1]
    asked = {"optimizer": Update.SGD, "optimizer.lr": rate, "drop_last": np.bool_(True)}
    asked |= {"epochs": count, "sampler.fanouts": [count, count], "metrics": (Update.SGD,)}
    node, hydra = compose_run([], asked)
    plain = {"optimizer": "sgd", "optimizer.lr": 0.01, "drop_last": True, "epochs": 3}
    expected, same = compose_run([], plain | {"sampler.fanouts": [3, 3], "metrics": ["sgd"]})
    assert node == expected
    assert hydra.overrides == same.overrides
    parameters = api.gnn_parameters(L=count, hidden=[np.int32(8)] * 2, dropout=np.float64(0.25))
    assert parameters == api.gnn_parameters(3, [8, 8], dropout=0.25)
    model = api.gnn_model(api.gnn_computation("GCN"), parameters).config
    assert model == GCN(num_layers=3, hidden=8, dropout=0.25)
    given = api.load_input_graph("planted_partition", num_vertices=np.int64(50)).values
    assert given["num_vertices"] == 50
    assert type(given["num_vertices"]) is int


def test_a_layer_of_ones_own_and_devices() -> None:
    computation = api.gnn_computation("customize", own_layers.MaxPooling)
    choice = api.gnn_model(computation, api.gnn_parameters(2, 16, dropout=0.25))
    assert choice.config == Custom(functions=own_layers.MaxPooling, hidden=16, dropout=0.25)
    sizes = {"hidden": 16, "num_layers": 2, "dropout": 0.25, "input_dropout": 0.0, "norm": "none"}
    sizes |= {"residual": False, "jumping": "none", "edge_features": None}
    assert choice.values == {"_target_": "own_layers.MaxPooling", **sizes}
    assert issubclass(own_layers.MaxPooling, api.Layer)
    assert api.platform_metadata("cpu_x2").config.devices == ["cpu", "cpu"]
    rates = {"macs_per_s": 1e10, "memory_bandwidth": 77e9, "link_bandwidth": 16e9}
    emulated = {"kind": "emulated", "memory_bytes": 1 << 30, **rates}
    platform = api.platform_metadata(["cpu", emulated], split=[4, 60]).config
    assert [each.kind for each in platform.parsed()] == ["cpu", "emulated"]
    assert platform.parsed()[1].link_bandwidth == 16e9
    assert platform.split == [4, 60]


@pytest.mark.long
def test_partitions_and_features() -> None:
    partition: Any = api.graph_partition("hash", num_parts=2)
    assert partition.config == Hash(num_parts=2)
    # A system that is no partitioner stands for the one it uses.
    distdgl: Any = api.graph_partition("distdgl")
    assert isinstance(distdgl.config, EdgeCut)

    def owners(graph: Any, num_parts: int) -> Any:
        raise AssertionError("asked before there is a graph")

    assert api.graph_partition(owners) == api.OwnerFunction(function=owners)
    assert api.feature_storing().config == HostFeaturesConfig()
    own = api.feature_storing(HoldEvenVertices())
    assert own.config == HoldEvenVertices()
    assert own.values == {"_target_": "held_rows:HoldEvenVertices"}
    options = {"partitioner": "own_parts:Dealt", "partitioner.at_once": 2}
    node, _ = compose_run([], options)
    assert typed(node.partitioner, PartitionerConfig, group="partitioner") == Dealt(at_once=2)
    with pytest.raises(ConfigError, match=r"^optimizer=own_parts:Dealt: "):
        compose_run([], {"optimizer": "own_parts:Dealt"})


@pytest.mark.long
@pytest.mark.parametrize(
    ("call", "given", "message"),
    [
        (api.gnn_computation, ["GGN"], "=GGN: allowed are GCN, GraphSAGE, GAT"),
        (api.gnn_computation, ["GCN", own_layers.MaxPooling], "=<.*: expected None without cust"),
        (api.gnn_model, [NO_LAYER, SMALL], "expected a subclass of ScatterGatherUpdate"),
        (api.gnn_model, [None, SMALL], "^computation=None: expected the result of gnn_comp"),
        (api.gnn_model, [COMPUTATION, api.gnn_parameters(2, 8, heads=2)], r"model\.heads: unknown"),
        (api.gnn_parameters, [2, [16, 16]], r"=\[16, 16\]: expected a width for each of 1 hidden"),
        (api.gnn_parameters, ["2", 16], "^L=2: expected a number of layers from"),
        (api.gnn_parameters, [3, "88"], "^hidden=88: expected a width for each of 2"),
        (api.gnn_parameters, [3, [16, 8]], r"=\[16, 8\]: expected equal widths"),
        (api.platform_metadata, [[3]], r"^platform_metadata=\[3\]: expected a device plan"),
        (api.platform_metadata, ["cpu_x3"], "device_plan=cpu_x3: allowed are cpu, cpu_each"),
        (api.platform_metadata, [[{"name": "x"}]], r"device_plan\.devices\.0=.* a kind"),
        (api.platform_metadata, [[]], r"device_plan\.devices=\[\]: expected at least one"),
        (api.graph_partition, ["metris"], "partitioner=metris: allowed are distdgl, "),
        (partial(api.graph_partition, parts=2), ["hash"], r"partitioner\.parts: unknown option"),
        (api.load_input_graph, ["ogbn-products"], "dataset=ogbn-products: allowed are arrays, csr"),
        (partial(api.load_input_graph, name=print), ["ogb"], "^name=<built-in function print>: "),
    ],
)
def test_errors_are_one_line(call: Callable[..., Any], given: list[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        call(*given)
    assert "\n" not in str(caught.value)


def test_options_take_code_in_place_of_its_name() -> None:
    smooth = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    for loss, name in (
        (own_losses.hinge, "own_losses:hinge"),
        (smooth, "torch.nn.modules.loss:CrossEntropyLoss"),
    ):
        options, groups = name_code({"loss": loss, "metrics": ["accuracy", min], "seed": 3})
        assert options == {
            **{"loss": "custom", "loss.function": name, "seed": 3},
            "metrics": ["accuracy", "builtins:min"],
        }
        assert not groups
        assert load_named(name, option="loss.function") is loss
    assert name_code({"loss": "custom", "loss.function": min})[0]["loss.function"] == "builtins:min"
    options, (group,) = name_code({"partitioner": Dealt(num_parts=3), "seed": 3})
    assert options == {"seed": 3}
    assert group.values["_target_"] == "own_parts:Dealt"
    assert group.values["num_parts"] == 3
    node = compose_run([group], options)[0]
    assert typed(node.partitioner, PartitionerConfig, group="partitioner") == Dealt(num_parts=3)
    (group,) = name_code({"sampler": NeighborSampling(fanouts=(4, 2))})[1]
    assert group.values["_target_"] == "gnnscale.sampling.neighbor.NeighborSampling"
    assert group.values["fanouts"] == [4, 2]
    assert name_code({"partitioner": Dealt}) == ({"partitioner": "own_parts:Dealt"}, [])
    with pytest.raises(ConfigError, match=r"^<lambda>: expected one function of this name, got tw"):
        name_code({"metrics": [lambda o, t: 0.0, lambda o, t: 1.0]})
    with pytest.raises(ConfigError, match=r"^sampler=Dealt.*: expected an object of a subclass of"):
        name_code({"sampler": Dealt()})
