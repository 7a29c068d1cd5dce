"""Feature stores, exchanges and seed orders from outside the package, in runs by worker processes.

They are in ``tests/fakes``.
"""

from pathlib import Path
from typing import Any

import learnt
import pytest
from copying_device import PROPAGATE_S
from devices import ROWS, accelerator, plan_of
from held_rows import HoldEvenVertices, OtherRows
from one_line import one_line
from part_order import Forgetful, Merged, Parts, Tiring

from gnnscale.report.formatting import percent
from gnnscale.sampling.seed_order import labeled_vertices

pytestmark = pytest.mark.integration

STATIC = ("num_threads=2", "device_plan.split=[40,24]", "runtime.drm=false")
HYBRID = plan_of("cpu", accelerator("copying"))


def same(left: Any, right: Any, folder: Path) -> bool:
    """Whether two runs, of those names in ``folder``, learnt the same, bit for bit."""
    losses = [[epoch.train_loss for epoch in run.result.history] for run in (left, right)]
    assert losses[0] == losses[1]
    assert left.losses == right.losses
    return learnt.same(learnt.weights(folder / "own"), learnt.weights(folder / "known"))


def test_a_store_that_holds_rows_tells_what_it_found(launched, tmp_path) -> None:
    options = (*STATIC, "device_plan=cpu_x2", "runtime.prefetch=one_stage")
    run = launched(tmp_path / "own", *options, features=HoldEvenVertices())
    known = launched(tmp_path / "known", *options)
    assert same(run, known, tmp_path)
    assert run.summary["test_metric"] == known.summary["test_metric"]

    for rank in range(2):
        found = [step["traffic"]["rows"] for step in run.of_device(rank)]
        hits, misses = (sum(each[name] for each in found) for name in ("hits", "misses"))
        assert all(each.keys() == {"hits", "misses", "host_bytes"} for each in found)
        assert sum(each["host_bytes"] for each in found) == misses * 8 * 4
        assert min(hits, misses) > 0
        device = run.summary["devices"][rank]
        assert device["feature_hit_rate"] == hits / (hits + misses)
        assert device["topology_hit_rate"] is None
        assert device["traffic"]["rows"]["hits"] == round(hits / 3)
        assert percent(hits / (hits + misses)) in run.page
        assert known.summary["devices"][rank]["feature_hit_rate"] is None
        read = [step["traffic"] for step in known.of_device(rank)]
        assert all(each.keys() == {"rows"} for each in read)
        assert all(each["rows"].keys() == {"host_bytes"} for each in read)
    assert "feature hits" in run.page
    assert "feature hits" not in known.page


STOPS = (
    *("num_threads=2", "optimizer.lr=1e-12", "runtime.patience=1", "epochs=1000"),
    *(plan_of(ROWS, accelerator("copying", host_aggregates=False)), "device_plan.split=[40,24]"),
)


def test_nobody_waits_for_rows_after_the_end(trained_together) -> None:
    """Nothing is learnt, and so the second epoch is no better than the first.

    By then the second device has begun with the third, and waits for the rows of the first, which
    never runs ahead. No connection closes, at which who waits would wake up: processes go on.
    """
    fakes = ("seam.features=row_exchange:NoRows", "seam.exchange=row_exchange:TradeRows")
    runs = {each: [*STOPS, f"runtime.drm={each}", *fakes] for each in ("true", "false")}
    losses = [found["losses"] for found in trained_together(2, runs).values()]
    assert len(losses[0]) == 12
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_seeds_of_parts_stay_on_devices(launched, settings, tmp_path) -> None:
    options = ("num_threads=2", "epochs=4")
    run = launched(tmp_path / "own", *options, HYBRID, "runtime.drm=true", seed_order=Parts())
    config = settings(*options)
    train_idx = labeled_vertices(config.dataset.open(), "train")
    order = Parts().order(train_idx, batch_size=64, num_devices=2, seed=config.seed)
    assert run.seeds == [step.counts for epoch in range(4) for step in order.epoch(epoch)]
    assert not [s["decision"] for s in run.steps if s["decision"] and "seeds" in s["decision"]]

    (propagate_s,) = {s["stage_s"]["propagate"] for s in run.of_device(1)}
    assert propagate_s == pytest.approx(PROPAGATE_S)  # in float32
    alone = launched(tmp_path / "alone", *options, "device_plan=cpu", seed_order=Merged())
    assert run.losses == pytest.approx(alone.losses, rel=1e-4)


def test_what_does_not_fit_the_graph_is_refused_before_any_step(launched, tmp_path) -> None:
    rows = "expected a feature store of 600 rows with 8 features, got 601 rows of 8 (HostFeatures)"
    for seam, message in (
        ({"seed_order": Forgetful()}, "seed_order=PartOrder: trains vertex "),
        ({"features": OtherRows()}, f"planted-partition: {rows}"),
    ):
        with one_line(message):
            launched(tmp_path / "own", *STATIC, "device_plan=cpu_x2", **seam)
        assert list((tmp_path / "own").iterdir()) == []


def test_an_order_that_goes_wrong_ends_a_run(launched, tmp_path) -> None:
    options = (*STATIC, "device_plan=cpu_x2", "epochs=3", "runtime.prefetch=two_stage")
    with one_line("trains vertex ", " twice in epoch 2"):
        launched(tmp_path / "own", *options, seed_order=Tiring())
