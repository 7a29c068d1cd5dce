import logging
from dataclasses import replace
from typing import Any

import numpy as np
import own_modules
import pytest
import torch
from one_line import one_line
from torch import nn

from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.core.errors import ConfigError
from gnnscale.nn import CustomModel, Inputs
from gnnscale.nn.module_probe import tiny_batch, tiny_rows
from gnnscale.sampling import LayerSampler


class Small(nn.Module):
    """A layer without neighbors; each test changes what matters to it."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels)

    def forward(self, batch: Any, x: torch.Tensor) -> Any:
        return self.linear(x[: batch.num_seeds])


class Raises(Small):
    def forward(self, batch: Any, x: torch.Tensor) -> Any:
        raise RuntimeError("no such thing\nat all")


class Fails(Small):
    def __init__(self, in_channels: int, out_channels: int, heads: int) -> None:
        super().__init__(in_channels, out_channels)


class FailsInside(Small):
    def __init__(self, width: int = 4, **others: int) -> None:
        raise ValueError("no such width")


class NoParameters(Small):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.requires_grad_(False)


class Doubles(Small):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.other = nn.Parameter(torch.zeros(2, dtype=torch.float64))


class OtherInference(own_modules.OwnBlocks):
    """Forgets what is between layers."""

    def inference_per_layer(self, layer: int, block: Any, x: torch.Tensor) -> torch.Tensor:
        return own_modules.OwnBlocks.inference_per_layer(self, layer, block, x) + 1

    def forward(self, batch: Any, x: torch.Tensor) -> torch.Tensor:
        for index, block in enumerate(batch.blocks):
            x = own_modules.OwnBlocks.inference_per_layer(self, index, block, x)
        return x


class BrokenInference(own_modules.WithoutInference):
    def inference_per_layer(self, layer: int, block: Any, x: torch.Tensor) -> torch.Tensor:
        raise KeyError("conv")


class Frozen(own_modules.OwnBlocks):
    def __init__(self, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__(in_channels, hidden, out_channels, 2)
        self.convs[0].requires_grad_(False)


def build(module: Any, **options: Any) -> Any:
    return CustomModel(module=module, **options).build(num_features=5, num_classes=3)


@pytest.mark.parametrize(
    ("module", "options", "said"),
    [
        (dict, {}, "expected a torch.nn.Module, got a dict"),
        (Fails, {}, r"Fails: heads is required; set model.arguments.heads=VALUE$"),
        (
            Small,
            {"arguments": {"in_chanels": 3}},
            r"^model.arguments.in_chanels: .*Small, one of in_channels, out.*, did you mean 'in_",
        ),
        (FailsInside, {}, r"FailsInside\(\) fails with ValueError: no such width \(/.*:4\d\)"),
        (Small, {"hidden": 8}, r"model.hidden=8: expected an argument of .*Small named"),
        (Frozen, {}, r"model.hidden: required, .*Frozen takes hidden$"),
        (Small, {"dropout": 0.5}, r"model.dropout=0.5: expected an argument of .*Small"),
        (Small(5, 3), {"arguments": {"heads": 3}}, "is built already"),
        (Small(4, 3), {"form": "blocks"}, r"forward fails with RuntimeError: mat1 and mat2"),
        (Raises, {"form": "blocks"}, r"forward fails with RuntimeError: no such thing \(.*:3\d\)"),
        (Raises, {}, r"takes none of the forms of model.form; model.form=blocks: forward fails"),
        (Small, {"form": "pyg"}, r"model.form=pyg: forward fails with AttributeError"),
        (NoParameters, {}, "expected parameters to train, got none"),
        (Doubles, {}, r"parameter other: expected torch.float32, got torch.float64"),
        (nn.Module, {}, "expected a forward that takes a graph"),
        (nn.Linear(5, 3), {}, "takes none of the forms"),
        (OtherInference, {"hidden": 4}, "expected the result of forward in evaluation mode"),
        (BrokenInference, {"hidden": 4}, "inference_per_layer fails with KeyError: 'conv'"),
    ],
)
def test_modules_that_cannot_be_trained_are_refused(module: Any, options: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        build(module, **options)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        (lambda layer, batch, x: (x,), "forward returned a tuple, expected a tensor"),
        (lambda layer, batch, x: layer.linear(x), r"\[12, 3\] for 4 vertices, expected \[4, 3\]"),
        (lambda *given: Small.forward(*given) / 0 * 0, "forward returned NaN or infinity"),
        (lambda *given: Small.forward(*given).detach(), "returned logits without a gradient"),
    ],
)
def test_results_of_forward_are_checked(forward, said) -> None:
    with pytest.raises(ConfigError, match=said):
        build(type("Other", (Small,), {"forward": forward}), form="blocks")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"module": "SAGE"}, "model.module=SAGE: expected MODULE:NAME"),
        ({"module": 3}, "model.module=3: expected MODULE:NAME"),
        ({"form": "pygg"}, "model.form=pygg: allowed are auto, pyg, pyg_bipartite"),
        ({"hidden": 0}, "model.hidden=0: must be at least 1"),
        ({"dropout": 1.0}, "model.dropout=1.0: expected at least 0 and below 1"),
        ({"arguments": {"a b": 1}}, "model.arguments.a b: expected the name of an argument"),
    ],
)
def test_options_are_checked_before_anything_is_imported(options: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        CustomModel(**{"module": "no_such:Module", **options})


def test_arguments_that_a_run_knows_are_filled() -> None:
    seen = {}

    def made(in_feats, n_hidden, out_dim, n_layers, dropout=0.1, heads=1):
        seen.update(locals())
        return Small(in_feats, out_dim)

    build(made, hidden=7, num_layers=3, arguments={"heads": 4, "n_hidden": 9})
    assert seen == {
        **{"in_feats": 5, "n_hidden": 9, "out_dim": 3, "n_layers": 3, "dropout": 0.1},
        **{"heads": 4, "seen": seen},
    }


def test_the_form_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    model = build(own_modules.OwnBlocks, hidden=4)
    assert model.form == "blocks"
    assert "own_modules:OwnBlocks: called as model.form=blocks" in caplog.text
    assert model.infers_by_layer
    assert model.widths == (5, 4, 3)
    # Weights are there once, under the module's names.
    assert next(iter(model.state_dict())) == "module.convs.0.weight"
    assert len(model.state_dict()) == 4
    assert not build(own_modules.WithoutInference, hidden=4).infers_by_layer


class Lazy(Small):
    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.linear = nn.LazyLinear(3)


def test_parameters_are_copied_stay_frozen_and_are_made_where_they_are_lazy() -> None:
    module = own_modules.OwnBlocks(5, 4, 3, 2)
    model = build(module)
    assert model.training
    assert torch.equal(model.module.convs[0].weight, module.convs[0].weight)
    assert model.module.convs[0].weight is not module.convs[0].weight
    frozen = build(Frozen, hidden=4).shared_parameters
    assert [each.shape for each in frozen] == [(3, 8), (3,)]
    assert build(Lazy).module.linear.weight.shape == (3, 5)


def test_dropout_follows_seed_step_and_slice() -> None:
    model = build(own_modules.OwnBlocks, hidden=16, dropout=0.5)
    batch = tiny_batch(2)
    other = batch.input_vertices + 1

    def out(**changed: Any) -> torch.Tensor:
        torch.manual_seed(int(torch.randint(100, ())))  # whatever it was before
        x = tiny_rows(batch, 5)
        return model(replace(batch, **changed), Inputs(x=x, aggregated=False))

    assert torch.equal(out(), out())
    for changed in ({"step": 1}, {"seed": 1}, {"input_vertices": other}):
        assert not torch.equal(out(), out(**changed))
    model.eval()
    before = torch.get_rng_state()
    model(batch, Inputs(x=tiny_rows(batch, 5), aggregated=False))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_batch_normalization_that_cannot_train_says_why() -> None:
    class Normalized(Small):
        def __init__(self, in_channels: int, out_channels: int) -> None:
            super().__init__(in_channels, out_channels)
            self.norm = nn.BatchNorm1d(out_channels)

        def forward(self, batch: Any, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.linear(x)[: batch.num_seeds])

    model, batch = build(Normalized, form="blocks").train(), tiny_batch(2)
    inputs = Inputs(x=tiny_rows(batch, 5), aggregated=False)
    assert model(batch, inputs).shape == (batch.num_seeds, 3)
    with one_line("expected more than one row, got a slice of 1 seeds with one; drop_last=true"):
        model(replace(batch, num_seeds=1), inputs)


def test_a_slice_without_seeds_has_a_gradient_of_nothing() -> None:
    model, batch = build(own_modules.OwnBlocks, hidden=4), tiny_batch(2)
    empty = replace(batch, num_seeds=0)
    out = model(empty, Inputs(x=tiny_rows(batch, 5), aggregated=False))
    assert out.shape == (0, 3)
    out.sum().backward()
    assert all(each.grad is None for each in model.parameters())


def test_layer_wise_sampling_needs_a_place_for_its_weights(random_graph) -> None:
    pytest.importorskip("torch_geometric")
    graph = random_graph()
    sizes = {"num_features": graph.num_features, "num_classes": 5}
    batch = LayerSampler(graph, layer_sizes=[20, 20]).sample(np.arange(30), 0)
    for module, fits in ((own_modules.OwnBlocks, True), (own_modules.PyGBipartite, False)):
        model = CustomModel(module=module, hidden=8).build(**sizes)
        loader = FeatureLoader(graph, model, num_threads=1)
        if fits:
            assert model(batch, loader.load(batch)).shape == (30, 5)
            continue
        with pytest.raises(ConfigError, match=r"pyg_bipartite, got layer-wise sampling"):
            loader.load(batch)
