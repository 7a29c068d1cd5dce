"""How rows of a file are read."""

import numpy as np
import pytest
import torch

from gnnscale.inference import streamed_inputs as inputs
from gnnscale.inference.streamed_inputs import FeatureReader


@pytest.mark.parametrize(("gap", "num_requests"), [(4096, 2), (0, 3)])
def test_a_gap_is_read_if_the_disk_takes_less_time_for_it(
    random_graph, on_disk, tmp_path, monkeypatch, gap, num_requests
) -> None:
    graph, store = on_disk(random_graph(300, num_features=1024))
    file, expected = tmp_path / "features.npy", np.array(graph.features)
    monkeypatch.setattr(inputs, "max_read_gap", {file: gap}.__getitem__)
    reader = FeatureReader(store, graph, num_threads=1)
    # One row of 4,096 bytes is between the first two, and 296 rows are before the last one.
    rows = reader.start(np.array([0, 2, 299]))()
    assert torch.equal(rows, torch.from_numpy(expected[[0, 2, 299]]))
    assert reader._file.take_reads().num_requests == num_requests
    reader.close()
