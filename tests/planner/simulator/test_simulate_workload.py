import numpy as np
import pytest

from gnnscale.core.errors import ConfigError
from gnnscale.data.synthetic import RMat
from gnnscale.nn import GCN
from gnnscale.planner.graphs import PUBLISHED
from gnnscale.planner.simulator.simulate import measured_task, published_task, published_workload
from gnnscale.sampling import LayerSampling, NeighborSampling

SAMPLER = NeighborSampling(fanouts=[25, 10])


def test_workloads_of_published_graphs() -> None:
    found = published_workload(PUBLISHED["mag240m"], GCN(hidden=256), [25, 10], batch_size=1024)
    assert found.widths == (756, 256, 153)
    assert found.slices.num_seeds[-1] == 1024
    assert found.slices.sample_seconds(1024, 1) is None
    task = published_task("reddit", PUBLISHED["reddit"], GCN(), SAMPLER, batch_size=512)
    assert (task.name, task.num_train, task.degrees) == ("reddit", 153_932, None)
    whole = PUBLISHED["reddit"].size([25, 10], 512)
    assert task.size(512).vertices == pytest.approx(whole.vertices)
    assert task.size(0.1).num_seeds == 1
    layers = LayerSampling(layer_sizes=[10, 10])
    with pytest.raises(ConfigError, match="expected neighbor sampling"):
        published_task("reddit", PUBLISHED["reddit"], GCN(), layers, batch_size=512)


@pytest.mark.long
def test_a_graph_that_is_here_has_its_degrees(tmp_path) -> None:
    source = RMat(name="r", store=str(tmp_path / "store"), num_vertices=2000, num_edges=20_000)
    given = {"batch_size": 64, "seed": 0, "cores": 1}
    task = measured_task(source, GCN(), SAMPLER, **given, same_machine=False)
    graph = source.open()
    assert task.degrees is not None
    assert task.degrees.counts @ task.degrees.inward == graph.num_edges
    assert task.degrees.counts @ task.degrees.outward == graph.num_edges
    assert task.degrees.counts[task.degrees.inward == 0].sum() == (np.diff(graph.indptr) == 0).sum()
    # Another machine's sampling takes other times.
    assert task.workload.slices.sample_seconds(64, 1) is None
    here = measured_task(source, GCN(), SAMPLER, **given, same_machine=True)
    assert here.workload.slices.sample_seconds(64, 1) > 0
