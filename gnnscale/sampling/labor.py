"""Layer-neighbor sampling (LABOR-0, Balin and Çatalyürek, NeurIPS 2023)."""

from dataclasses import dataclass

from gnnscale.core import Array
from gnnscale.graph import Graph
from gnnscale.ops import NativeSampler
from gnnscale.sampling import minibatch
from gnnscale.sampling.neighbor import FanoutSampling
from gnnscale.sampling.typed import Draws, TypedSampler


class LaborSampler:
    """Sampler of up to ``fanouts[h]`` in-neighbors of a vertex, by one random number a neighbor.

    Every vertex ``t`` has a random number ``r_t`` at a hop. A vertex of degree ``d`` keeps its
    ``k`` neighbors of the smallest numbers: sequential Poisson sampling, as GraphBolt's
    ``sample_layer_neighbors`` does, in place of the paper's all with ``r_t <= k / d``. So it has as
    many edges as in uniform sampling, while vertices that share neighbors keep the same ones: a
    mini-batch has fewer input vertices.

    A vertex keeps each of its edges with probability ``k / d``, as in uniform sampling. So a mean
    over the kept neighbors is unbiased, and blocks have no ``importance``. But vertices with common
    neighbors do not choose independently: the mean over a mini-batch's vertices has 2 to 20 times
    the variance of uniform sampling, growing with the neighbors that the vertices share
    (docs/choosing-options.md). Over two hops the mean of a single vertex varies more as well,
    because its neighbors keep the same vertices.

    Copies of a neighbor follow each other in a sorted list. The number of copy ``i`` is determined
    by ``t`` and ``i``, and is the same in all lists: with one number for all copies, the edges of
    such a neighbor would be kept too rarely.

    ``r_t`` depends on ``(seed, step, hop, t)`` alone. With ``layer_dependency`` it depends on
    ``(seed, step, t)``: all hops have the same numbers, and input vertices are fewer still. Means
    over one hop are then unbiased, means over several hops are biased: a vertex that one hop keeps
    has a small number, and the next hop keeps it more often than ``k / d``.

    Either way a sample does not depend on the number of threads, nor on the split of the seeds over
    workers.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        fanouts: list[int],
        layer_dependency: bool = False,
        seed: int = 0,
        num_threads: int = 1,
    ) -> None:
        """Prepare to sample.

        Args:
            graph: whose in-neighbors are sampled.
            fanouts: neighbors per vertex, from the seeds outwards; -1 takes all.
            layer_dependency: whether all hops have the same random numbers.
            seed: fixes every choice, together with the step.
            num_threads: threads of one call.
        """
        self._graph = graph
        self._native = NativeSampler(graph)
        self.fanouts = minibatch.whole_numbers("fanouts", fanouts)
        self.layer_dependency = layer_dependency
        self.seed = seed
        self.num_threads = num_threads

    def sample(self, seeds: Array, step: int) -> minibatch.MiniBatch:
        """Return the mini-batch of ``seeds`` (distinct vertex ids) at ``step``."""
        sampled = self._native.sample_labor(
            seeds,
            self.fanouts,
            layer_dependency=self.layer_dependency,
            seed=self.seed,
            step=step,
            num_threads=self.num_threads,
            edge_weights=self._graph.edge_weights is not None,
            edge_rows=self._graph.edge_rows is not None,
        )
        return minibatch.to_minibatch(
            len(seeds),
            sampled,
            seed=self.seed,
            step=step,
            weight_sums=self._graph.weight_sums,
            num_threads=self.num_threads,
        )

    def reach(self, seeds: Array, step: int) -> minibatch.InputFrontier:
        """Return the input vertices and block offsets of ``sample(seeds, step)``.

        This is faster than ``sample``, since no edges are stored.
        """
        vertices, indptrs = self._native.reach_labor(
            seeds,
            self.fanouts,
            layer_dependency=self.layer_dependency,
            seed=self.seed,
            step=step,
            num_threads=self.num_threads,
        )
        return minibatch.InputFrontier(input_vertices=vertices, indptrs=tuple(indptrs))


@dataclass(frozen=True, kw_only=True)
class LaborSampling(FanoutSampling):
    """Layer-neighbor sampling (LABOR).

    Attributes:
        layer_dependency: whether all hops of a mini-batch draw by the same random numbers. Input
            vertices are fewer still, and means over two hops and more are biased.
    """

    layer_dependency: bool = False

    @property
    def _draws(self) -> Draws:
        return "labor_batch" if self.layer_dependency else "labor_hop"

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> minibatch.Sampler:
        """Build the sampler for ``graph``."""
        if graph.types is not None:
            return TypedSampler(
                graph,
                fanouts=self.fanouts_for(graph),
                draws=self._draws,
                seed=seed,
                num_threads=num_threads,
            )
        return LaborSampler(
            graph,
            fanouts=self.fanouts_for(graph),
            layer_dependency=self.layer_dependency,
            seed=seed,
            num_threads=num_threads,
        )
