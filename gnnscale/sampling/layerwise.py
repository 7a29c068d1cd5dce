"""Layer-wise sampling (FastGCN, Chen et al. 2018), as PaGraph uses it (section 5.1)."""

from dataclasses import dataclass

from gnnscale.core import Array, ConfigError, check_range
from gnnscale.graph import Graph
from gnnscale.ops import NativeSampler
from gnnscale.sampling import minibatch


class LayerSampler:
    """Sampler of at most ``layer_sizes[h]`` vertices among all in-neighbors of hop ``h``.

    A vertex is kept with probability proportional to its in-degree (FastGCN's importance for an
    undirected, unweighted graph), by priority sampling. This is sampling without replacement;
    weighting by inverse probabilities makes sums unbiased (Duffield et al. 2007). The priority of
    vertex ``u`` at hop ``h`` of step ``s`` depends on ``(seed, s, h, u)`` alone. ``layer_sizes``
    limit a whole call, so samples change if the seeds of a step are split over more or fewer
    workers.
    """

    def __init__(self, graph: Graph, *, layer_sizes: list[int], seed: int = 0) -> None:
        """Sample from ``graph`` up to ``layer_sizes[h]`` vertices at hop h, seeds outwards."""
        self._graph = graph
        self._native = NativeSampler(graph)
        self.layer_sizes = minibatch.whole_numbers("layer_sizes", layer_sizes)
        self.seed = seed
        # The cap is on the whole batch; one thread keeps it.
        self.num_threads = 1

    def sample(self, seeds: Array, step: int) -> minibatch.MiniBatch:
        """Return the mini-batch of ``seeds`` (distinct vertex ids) at ``step``."""
        sampled = self._native.sample_layers(
            seeds,
            self.layer_sizes,
            seed=self.seed,
            step=step,
            edge_weights=self._graph.edge_weights is not None,
            edge_rows=self._graph.edge_rows is not None,
        )
        weight_sums = self._graph.weight_sums
        return minibatch.to_minibatch(
            len(seeds), sampled, seed=self.seed, step=step, weight_sums=weight_sums
        )


@dataclass(frozen=True, kw_only=True)
class LayerSampling(minibatch.SamplerConfig):
    """Layer-wise sampling.

    Attributes:
        layer_sizes: vertices a layer, from the seeds outwards (PaGraph: 2,400 each).
    """

    layer_sizes: list[int]

    def __post_init__(self) -> None:
        if not self.layer_sizes or min(self.layer_sizes) < 1:
            raise ConfigError(
                f"sampler.layer_sizes={list(self.layer_sizes)}: "
                "one positive number of vertices a layer is needed"
            )
        check_range("number of sampler.layer_sizes", len(self.layer_sizes), 1, minibatch.MAX_HOPS)
        for size in self.layer_sizes:
            check_range("sampler.layer_sizes", size, 1)

    @property
    def num_layers(self) -> int:
        """Number of hops."""
        return len(self.layer_sizes)

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> LayerSampler:
        """Build the sampler for ``graph``, which runs in one thread whatever ``num_threads`` is.

        ConfigError: the graph has types.
        """
        if graph.types is not None:
            raise ConfigError(
                f"sampler=layerwise: vertices of {graph.name} have types; neighbor, labor, weighted"
                " and full sample such graphs"
            )
        return LayerSampler(graph, layer_sizes=list(self.layer_sizes), seed=seed)
