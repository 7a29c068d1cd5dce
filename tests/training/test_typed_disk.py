"""Rows of vertex types that are read from the disk change nothing that is learnt."""

import pytest
from typed_graphs import shop

pytestmark = pytest.mark.integration


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a store whose tags, users and items have other columns, or none."""
    path = tmp_path_factory.mktemp("shop") / "store"
    shop(num_users=1000, num_items=1500).save(path)
    return str(path)


def common(store: str) -> tuple[str, ...]:
    return (
        *("dataset=store", f"dataset.store={store}", "model=rsage", "model.hidden=8"),
        *("sampler.fanouts=[4,3]", "batch_size=64", "epochs=2", "num_threads=2"),
        *("model.dropout=0.5", "runtime.eval_every=2"),
    )


DISK = ("features=disk", "features.memory_bytes=220_000", "features.window=2")
#: How rows are read, and how mini-batches are prepared.
RUNS = {
    "look_ahead": (*DISK, "runtime.prefetch=none"),
    "two_stage": (*DISK, "runtime.prefetch=two_stage"),
    "static": (*DISK, "features.policy=out_degree", "runtime.prefetch=one_stage"),
    "whole": ("features=disk", "features.memory_bytes=1e8", "runtime.prefetch=two_stage"),
}


def test_the_disk_changes_nothing_learnt(trained_together, store) -> None:
    both = (*common(store), "device_plan=cpu_x2")
    fixed = (*both, "device_plan.split=[60,4]", "runtime.drm=false")
    runs = {
        name: (
            *fixed,
            *how,
        )
        for name, how in RUNS.items()
    }
    found = trained_together(2, {"memory": fixed, **runs})
    expected = found["memory"]["losses"]
    print(len(expected))
    for name in RUNS:
        assert found[name]["losses"] == expected, name
        for epoch in found[name]["epochs"]:
            print(name, epoch)
