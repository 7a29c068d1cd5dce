import numpy as np
import pytest
from fixture_types import Make
from scipy import stats

from gnnscale.core.errors import ConfigError
from gnnscale.data import from_arrays
from gnnscale.graph import Graph
from gnnscale.sampling import LayerSampler, LayerSampling


def test_large_layers_are_full_neighbourhoods(tiny_graph: Graph) -> None:
    batch = LayerSampler(tiny_graph, layer_sizes=[10, 10]).sample(np.array([4, 0]), 0)
    assert batch.input_vertices.tolist() == [4, 0, 1, 2, 3]
    inner, outer = batch.blocks
    assert outer.indptr.tolist() == [0, 1, 3]
    assert outer.indices.tolist() == [0, 2, 3]
    assert inner.indptr.tolist() == [0, 1, 3, 4, 6]
    assert inner.indices.tolist() == [0, 2, 3, 4, 1, 4]
    for block in batch.blocks:
        assert (block.importance == 1).all()


def test_the_cap_holds_and_every_edge_from_a_kept_vertex_is_there(random_graph: Make) -> None:
    graph = random_graph(500, 8000, num_features=1)
    degrees = np.diff(graph.indptr)
    seeds = np.arange(0, 100)
    batch = LayerSampler(graph, layer_sizes=[40, 90], seed=2).sample(seeds, 7)
    ids = batch.input_vertices
    assert len(set(ids.tolist())) == len(ids)
    assert batch.seeds.tolist() == seeds.tolist()
    for cap, block in zip([40, 90], reversed(batch.blocks), strict=True):
        kept = np.unique(ids[block.indices])
        assert len(kept) == cap
        assert len(block.importance) == block.num_edges
        for dst, v in enumerate(ids[: block.num_dst]):
            all_of_v = graph.indices[slice(*graph.indptr[v : v + 2])]
            found = ids[block.indices[slice(*block.indptr[dst : dst + 2])]]
            assert found.tolist() == all_of_v[np.isin(all_of_v, kept)].tolist()
        # One threshold for the layer: importance is max(1, 1 / (degree * threshold)).
        below = block.importance > 1
        threshold = 1 / (block.importance * np.maximum(degrees[ids[block.indices]], 1))[below]
        np.testing.assert_allclose(threshold, threshold[0], rtol=1e-5)
    again, other = (
        LayerSampler(graph, layer_sizes=[40, 90], seed=2).sample(seeds, step) for step in (7, 8)
    )
    assert np.array_equal(again.input_vertices, ids)
    assert not np.array_equal(other.input_vertices, ids)


def test_weighted_sums_are_unbiased(random_graph: Make) -> None:
    """The mean estimate of each vertex's sum over its neighbours is that sum."""
    graph = random_graph(60, 700, num_features=3, seed=1)
    seeds = np.arange(8)
    num_steps = 4000
    estimates = np.zeros((num_steps, len(seeds), 3))
    sampler = LayerSampler(graph, layer_sizes=[12], seed=3)
    for step in range(num_steps):
        batch = sampler.sample(seeds, step)
        (block,) = batch.blocks
        rows = graph.features[batch.input_vertices[block.indices]] * block.importance[:, None]
        dst = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))
        np.add.at(estimates[step], dst, rows)
    truth = np.stack(
        [graph.features[graph.indices[slice(*graph.indptr[v : v + 2])]].sum(0) for v in seeds]
    )
    error = estimates.mean(0) - truth
    deviation = estimates.std(0) / num_steps**0.5
    assert (deviation > 0).all()
    # 24 means, each at most four standard deviations off, and not all on one side.
    assert (np.abs(error) < 4 * deviation).all()
    assert stats.normaltest((error / deviation).ravel()).pvalue > 1e-4


def test_a_vertex_is_kept_the_more_the_higher_its_degree() -> None:
    # Vertex 0 has neighbours 1 to 20, of which v has v neighbours itself.
    src = [*range(1, 21), *(u for v in range(1, 21) for u in range(21, 21 + v))]
    dst = [*[0] * 20, *(v for v in range(1, 21) for _ in range(v))]
    graph = from_arrays((np.array(src), np.array(dst)), np.zeros((41, 1), np.float32))
    sampler = LayerSampler(graph, layer_sizes=[5])
    counts = np.zeros(41)
    for step in range(2000):
        counts[sampler.sample(np.array([0]), step).input_vertices[1:]] += 1
    assert counts.sum() == 5 * 2000
    assert stats.spearmanr(counts[1:21], np.arange(1, 21)).statistic > 0.98
    assert counts[1:4].sum() / counts[4:8].sum() == pytest.approx(6 / 22, rel=0.15)


def test_sizes_that_are_refused(tiny_graph: Graph) -> None:
    for layer_sizes in ([], [0], [5, -1]):
        with pytest.raises(ConfigError, match=r"sampler\.layer_sizes="):
            LayerSampling(layer_sizes=layer_sizes)
    with pytest.raises(TypeError, match=r"^layer_sizes: "):
        LayerSampler(tiny_graph, layer_sizes=5)  # type: ignore[arg-type]


def test_configuration_builds_the_sampler(tiny_graph: Graph) -> None:
    config = LayerSampling(layer_sizes=[3, 4, 5])
    assert config.num_layers == 3
    sampler = config.sampler(tiny_graph, seed=8, num_threads=2)
    assert (sampler.layer_sizes, sampler.seed) == ([3, 4, 5], 8)
    with pytest.raises(ValueError, match="seeds: 9 is not a vertex"):
        sampler.sample(np.array([9]), 0)
