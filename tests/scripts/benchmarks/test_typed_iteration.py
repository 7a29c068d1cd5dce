from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.cases import typed
from benchmarks.cases import typed_iteration as script

SCALE = 1e-4


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(typed, "BATCH_SIZE", 8)
    typed.write(tmp_path, SCALE)
    return tmp_path


def with_weights_of(model: Any, layers: Any, peer: Any) -> None:
    """Give ``model`` the weights of DGL's, whose terms of own rows are summed."""
    for own, theirs in zip(getattr(model, "encoders", ()), peer.encoders.values(), strict=True):
        own.load_state_dict(theirs.state_dict())
    for layer, of_peer in zip(layers, peer.layers, strict=True):
        relations = [of_peer.conv.mods[name] for _, name, _ in typed.EDGES]
        if len(of_peer.own):
            roots = [own.weight for own in of_peer.own.values()]
            layer.root.data.copy_(torch.stack(roots))
            layer.weight.data.copy_(torch.stack([each.weight.t() for each in relations]))
            layer.bias.data.copy_(of_peer.bias)
            continue
        for linear, ends in zip(layer.linears, layer.incoming, strict=True):
            terms = [relations[number] for number in ends]
            weights = [sum(each.fc_self.weight for each in terms)]
            weights += [each.fc_neigh.weight for each in terms]
            linear.weight.data.copy_(torch.cat(weights, 1))
            linear.bias.data.copy_(sum(each.fc_self.bias for each in terms))


@pytest.mark.parametrize("encodes", [False, True])
@pytest.mark.parametrize("name", script.MODELS)
def test_both_systems_compute_the_same(name: str, encodes: bool, folder: Path) -> None:
    pytest.importorskip("dgl", reason="dgl is not installed")
    own, peer = (make(folder, SCALE, 1, [-1, -1]) for make in (script.Own, script.Dgl))
    models = [each.model(name, 16, encodes=encodes) for each in (own, peer)]
    with torch.no_grad():
        for bias in (each for name, each in models[1].named_parameters() if "bias" in name):
            bias.normal_()
    with_weights_of(models[0], getattr(models[0], "layers", models[0]), models[1])
    for _ in range(2):
        (labels, inputs), (expected_labels, peer_inputs) = own.batch(), peer.batch()
        assert labels.tolist() == expected_labels.tolist()
        expected = peer.logits(models[1], *peer_inputs)
        torch.testing.assert_close(own.logits(models[0], *inputs), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("encodes", [False, True])
def test_an_iteration_trains(encodes: bool, folder: Path) -> None:
    own = script.Own(folder, SCALE, 1, [3, 2])
    model, loss_of = script.trainer(own, "rsage", 16, encodes=encodes)
    script.with_adam(model, loss_of)(0)
    gradients = [parameter.grad for parameter in model.parameters()]
    assert any(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients)
