import numpy as np
import pytest
import torch

from gnnscale.backend.fpga.csim.build import SimulatedDesign, library
from gnnscale.backend.fpga.layout import ChipLimits
from gnnscale.backend.fpga.step_result import train_alone
from gnnscale.core import ConfigError
from gnnscale.nn import GCN
from gnnscale.sampling import NeighborSampler

pytestmark = pytest.mark.integration


def test_a_step_has_torchs_loss(random_graph) -> None:
    graph = random_graph(num_features=20)
    torch.manual_seed(0)
    model = GCN(hidden=9, dropout=0).build(num_features=20, num_classes=graph.num_classes)
    batch = NeighborSampler(graph, fanouts=[5, 5], seed=1).sample(np.arange(12), 0)
    design = SimulatedDesign(compute_units=1)
    found = train_alone(library(design), ChipLimits(n=design.n), graph, model, batch)
    assert 0 < found.counters["loss"] < found.counters["cycles"]
    assert np.isfinite(found.gradients.view(np.float32)).all()
    assert found.gradients.any()
    with pytest.raises(ConfigError, match="row"):
        train_alone(library(design), ChipLimits(n=2, row_words=4), graph, model, batch)
