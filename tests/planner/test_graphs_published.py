import math

import pytest

from gnnscale.planner.graphs import PUBLISHED


def test_mini_batches_are_those_that_were_published() -> None:
    for name, nvtps, epoch_s, off in (
        ("reddit", 15.6e6, 1.29, 0.01),
        ("yelp", 21.6e6, 1.75, 0.01),
        ("amazon", 22.6e6, 4.19, 0.01),
        # Of which only the degrees' mean and standard deviation are known.
        ("products", 97.5e6, 5.03, 0.05),
    ):
        graph = PUBLISHED[name]
        published = nvtps * epoch_s / math.ceil(graph.num_vertices / 1024)
        assert graph.size([25, 10], 1024).num_vertices == pytest.approx(published, rel=off)
    size = PUBLISHED["papers100m"].size([15, 10, 5], 8000)
    assert size.vertices[0] == pytest.approx(568_300, rel=0.02)
