from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.cases import accuracy as script
from benchmarks.runner import composed

from gnnscale.core.errors import ConfigError


def test_differences_and_their_limits() -> None:
    figures = {"gnnscale": [80.0, 82.0], "gnnscale-bf16": [80.0, 80.0]}
    figures |= {"dgl": [81.0, 81.4], "published": [82.5]}
    published, dgl, bf16 = script.differences("graph", figures)
    assert published.points == pytest.approx(-1.5)
    assert published.standard_error == pytest.approx(1.0)  # of two runs one point off their mean
    assert not published.allowed
    assert dgl.points == pytest.approx(-0.2)
    assert dgl.allowed
    assert (bf16.system, bf16.reference, bf16.points) == ("gnnscale-bf16", "gnnscale", -1.0)
    assert not bf16.allowed
    assert replace(published, points=5.0).allowed
    assert not replace(dgl, points=0.6).allowed
    assert script.differences("graph", {"gnnscale": [80.0]}) == []  # nothing to compare with


@pytest.mark.long
def test_every_row_names_a_shipped_experiment() -> None:
    for row in script.ROWS.values():
        config, _ = composed(f"config={row.experiment}", "seed=3")
        assert config.seed == 3
        assert set(row.systems) <= set(script.SYSTEMS)


@pytest.mark.long
def test_dgl_refuses_what_it_would_not_follow() -> None:
    for override in (
        *("model=gcn", "model.norm=batch", "optimizer.schedule=cosine"),
        "sampler.replace=true",
    ):
        config, _ = composed("config=tolokers_sage", override)
        with pytest.raises(ConfigError, match=override.partition("=")[0].partition(".")[0]):
            script.check_dgl_does_the_same(config)


@pytest.mark.integration
def test_both_sides_learn_the_same(tmp_path: Path) -> None:
    pytest.importorskip("dgl", reason="dgl is not installed")
    options = (
        *("config=musae_sage", "dataset=planted_partition", "dataset.num_vertices=2000"),
        *("dataset.num_edges=20000", "dataset.num_classes=4", f"dataset.store={tmp_path}/store"),
        *("epochs=20", "optimizer.lr=0.01", "batch_size=100", "num_threads=1"),
    )
    ours, theirs = script.train_gnnscale(*options), script.train_dgl(*options)
    assert ours > 0.8
    assert ours == pytest.approx(theirs, abs=0.03)
