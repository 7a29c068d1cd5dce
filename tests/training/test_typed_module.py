"""Modules of a user's own over graphs with types: shared out, resumed, evaluated, predicted."""

from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

OPTIONS = (
    *("dataset=typed_partition", "dataset.num_vertices=1500", "dataset.num_classes=4"),
    *("dataset.signal=1", "dataset.within=0.8", "sampler.fanouts=[5,3]", "batch_size=64"),
    *("num_threads=2", "optimizer.lr=0.01", "model=custom", "model.hidden=16"),
)


def custom(name: str, *more: str) -> list[str]:
    return [*OPTIONS, f"model.module=typed_modules:{name}", *more]


@pytest.mark.parametrize("module", ["sage", "DGLConvs"])
def test_modules_learn_from_types(launched, tmp_path: Path, module: str) -> None:
    pytest.importorskip("dgl" if module == "DGLConvs" else "torch_geometric")
    run = launched(tmp_path / "run", *custom(module, "epochs=6"))
    assert run.losses[-1] < 0.7 * run.losses[0]
    assert run.result.test_metric > 0.6
