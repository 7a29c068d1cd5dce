from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from benchmarks.cases import accuracy_models as script
from benchmarks.cases.accuracy import differences, train_gnnscale
from benchmarks.runner import composed

#: PyG makes sparse matrices, too, and does not say whether torch is to check them.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse")

PLANTED = (
    *("dataset.num_vertices=500", "dataset.num_edges=5000", "dataset.num_classes=4"),
    *(*script.COMMON, "num_threads=1", "epochs=20"),
)


def test_limits_are_a_point_each_way() -> None:
    (found,) = differences("graph", {"gnnscale": [80.0], "pyg": [81.5]})
    assert (found.points, found.lowest, found.highest) == (-1.5, -1.0, 1.0)
    assert not found.allowed


@pytest.mark.long
@pytest.mark.parametrize("model", script.MODELS)
def test_options_are_known(model: str) -> None:
    config, _ = composed(*PLANTED, *script.MODELS[model])
    assert config.sampler.num_layers == config.model.num_layers


def test_edges_by_hand() -> None:
    # 0 <- 1; 1 <- 0, 2.
    graph = SimpleNamespace(
        indptr=np.array([0, 1, 3, 3]), indices=np.int32([1, 0, 2]), num_vertices=3
    )
    assert script.edges(graph, in_rows=False).tolist() == [[1, 0, 2], [0, 1, 1]]
    assert script.edges(graph, in_rows=True).to_dense().tolist() == [[0, 1, 0], [1, 0, 1], [0] * 3]


@pytest.mark.long
@pytest.mark.parametrize("model", script.MODELS)
def test_pyg_begins_with_the_same_weights(model: str) -> None:
    pytest.importorskip("torch_geometric")
    config, _ = composed(*PLANTED, *script.MODELS[model])
    module = script.pyg_module(config, 5, 4, start="gnnscale").eval()
    torch.manual_seed(config.seed)
    ours = config.model.build(num_features=5, num_classes=4).eval()
    graph = SimpleNamespace(
        indptr=np.array([0, 1, 3, 4]), indices=np.int32([1, 0, 2, 1]), num_vertices=3
    )
    x = torch.arange(15.0).view(3, 5) / 10
    expected = ours(x, script.edges(graph, in_rows=False))
    found = module(x, script.edges(graph, in_rows=model != "gatv2"))
    torch.testing.assert_close(found, expected)


@pytest.mark.integration
def test_both_sides_learn_the_same(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    options = (*PLANTED, *script.MODELS["sage-jumping"], f"dataset.store={tmp_path}/store")
    ours, theirs = train_gnnscale(*options), script.train_pyg(*options)
    assert ours > 0.6
    assert ours == pytest.approx(theirs, abs=0.1)
