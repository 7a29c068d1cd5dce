import os
from pathlib import Path

import pytest
from benchmarks.paper_tables import locality

from gnnscale.planner.simulator.hitgnn import LOCALITY

pytestmark = pytest.mark.integration


def test_parts_of_a_social_graph_share_what_the_simulator_says() -> None:
    if not Path(os.environ["GNNSCALE_TEST_DATA"]).is_dir():
        pytest.skip("the graphs for tests are not here")
    pytest.importorskip("dgl", reason="dgl is not installed")
    tolokers = next(iter(locality.graphs()))
    for count in (2, 4):
        assert locality.share(tolokers, count) == pytest.approx(count**LOCALITY, abs=0.05)
