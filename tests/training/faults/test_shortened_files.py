"""Files of a graph that become shorter while a run, or a command, reads them."""

import os
import re

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ENDLESS = "epochs=1000000"
#: Options of runs that read files in different ways.
READS = {
    "mapped": (),
    "disk": (
        *("features=disk", "features.memory_bytes=160e3", "dataset.num_features=64"),
        "batch_size=8",
    ),
}


@pytest.mark.parametrize(
    ("name", "reads", "left"),
    [
        ("features", "mapped", 0.5),
        ("features", "disk", -1),
        pytest.param("indices", "mapped", -1, marks=pytest.mark.long),
    ],
)
def test_a_file_that_becomes_shorter_is_named(runs, tmp_path, name, reads, left) -> None:
    store = tmp_path / "store"
    run = runs.until_trained(
        tmp_path / "run", ENDLESS, f"dataset.store={store}", *READS[reads], plan="alone"
    )
    file = store / f"{name}.npy"
    size = file.stat().st_size
    os.truncate(file, int(size * left) if left > 0 else size + int(left))
    line = runs.ended(run, 1)
    assert str(file) in line
    assert re.search(r"became shorter|the file ends within|cannot read \d+ bytes", line), line
