"""How rows of a file are read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale.core.artifact.npy import map_npy
from gnnscale.features import HostFeatures
from gnnscale.inference import streamed_inputs as inputs
from gnnscale.inference.streamed_inputs import FeatureReader


@pytest.mark.parametrize(("gap", "num_requests"), [(4096, 2), (0, 3)])
def test_a_gap_is_read_if_the_disk_takes_less_time_for_it(
    random_graph: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gap: int, num_requests: int
) -> None:
    graph = random_graph(300, num_features=1024)
    expected, file = graph.features, tmp_path / "features.npy"
    np.save(file, expected)
    graph = replace(graph, features=map_npy(file))
    store = HostFeatures(graph.features, "float32", from_disk=True)
    monkeypatch.setattr(inputs, "max_read_gap", {file: gap}.__getitem__)
    reader = FeatureReader(store, graph, num_threads=1)
    # One row of 4,096 bytes is between the first two, and 296 rows are before the last one.
    rows = reader.start(np.array([0, 2, 299]))()
    assert torch.equal(rows, torch.from_numpy(expected[[0, 2, 299]]))
    assert reader._file.take_reads().num_requests == num_requests
    reader.close()
