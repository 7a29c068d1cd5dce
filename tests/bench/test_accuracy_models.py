"""The comparison with PyG: every model is built, and learns the same on both sides."""

from pathlib import Path

import pytest
from bench.cases import accuracy_models as script
from bench.cases.accuracy import differences, train_gnnscale
from bench.runner import composed

PLANTED = (
    *("dataset.num_vertices=500", "dataset.num_edges=5000", "dataset.num_classes=4"),
    *(*script.COMMON, "num_threads=1", "epochs=20"),
)


def test_limits_are_a_point_each_way() -> None:
    (found,) = differences("graph", {"gnnscale": [80.0], "pyg": [81.5]})
    assert (found.points, found.lowest, found.highest) == (-1.5, -1.0, 1.0)
    assert not found.allowed


@pytest.mark.parametrize("model", script.MODELS)
def test_options_are_known(model: str) -> None:
    config, _ = composed(*PLANTED, *script.MODELS[model])
    assert config.sampler.num_layers == config.model.num_layers


@pytest.mark.integration
def test_both_sides_learn_the_same(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    options = (*PLANTED, *script.MODELS["sage-jumping"], f"dataset.store={tmp_path}/store")
    ours, theirs = train_gnnscale(*options), script.train_pyg(*options)
    assert ours > 0.6
    assert ours == pytest.approx(theirs, abs=0.1)
