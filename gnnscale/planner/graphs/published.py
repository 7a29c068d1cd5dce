"""Sizes and degree skew of the graphs that the papers train on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.graphs.degrees import Degrees, expected_size


@dataclass(frozen=True, kw_only=True)
class PublishedGraph:
    """Sizes and degree distribution of a graph whose data are not needed."""

    num_vertices: int  #: |V|
    num_edges: int  #: |E|, counted once per in-neighbor
    num_features: int  #: f^0
    num_classes: int  #: f^L
    num_train: int  #: training vertices
    skew: float  #: standard deviation of the logarithms of the degrees
    skew_source: str  #: source of ``skew``
    directed: bool = False  #: whether in-degree and out-degree of a vertex are independent
    #: number of vertices that an epoch's mini-batches contain. None: all vertices
    num_reached: int | None = None
    exact_degrees: Degrees | None = None  #: measured degrees. None: lognormal with ``skew``

    @cached_property
    def degrees(self) -> Degrees:
        """Degree classes of the vertices that mini-batches contain."""
        if self.exact_degrees is not None:
            return self.exact_degrees
        mean = self.num_edges / self.num_vertices
        count = self.num_reached or self.num_vertices
        return Degrees.lognormal(count, mean, self.skew, directed=self.directed)

    def size(self, fanouts: Sequence[int], num_seeds: float) -> BatchSize:
        """Return the expected mini-batch of ``num_seeds`` seeds; see ``expected_size``."""
        return expected_size(self.degrees, fanouts, num_seeds)[0]


#: HitGNN reports throughput and epoch time, whose product over ⌈|V| / 1,024⌉ is the number of
#: vertices of a mini-batch. The skew is fitted to the measured GPU rows. The predicted FPGA rows
#: have the same product, so that only one of epoch time and NVTPS is left to predict.
_SKEW_FROM_TABLE_VI = (
    "the vertices of a mini-batch in the GPU rows of HitGNN's Table VI: throughput times epoch "
    "time over its mini-batches"
)
_SKEW_FROM_GNNLAB = (
    "GNNLab's 568,300 inputs of mini-batches of 8,000 seeds, fan-outs 15, 10 and 5, of which an "
    "epoch meets a tenth of all vertices (its repository, exp/fig5a and fig11c)"
)

#: Sizes: HitGNN Table IV and HyScale-GNN Table III. Splits: GraphSAINT for the first three, the
#: Open Graph Benchmark for the rest. Edges of ogbn-products are undirected and count twice here;
#: the first three are published with both directions.
PUBLISHED = {
    "reddit": PublishedGraph(
        num_vertices=232_965,
        num_edges=23_213_838,
        num_features=602,
        num_classes=41,
        num_train=153_932,
        skew=1.57,
        skew_source=_SKEW_FROM_TABLE_VI,
    ),
    "yelp": PublishedGraph(
        num_vertices=716_847,
        num_edges=13_954_819,
        num_features=300,
        num_classes=100,
        num_train=537_635,
        skew=2.0,
        skew_source=_SKEW_FROM_TABLE_VI,
    ),
    "amazon": PublishedGraph(
        num_vertices=1_569_960,
        num_edges=264_339_468,
        num_features=200,
        num_classes=107,
        num_train=1_255_968,
        skew=2.58,
        skew_source=_SKEW_FROM_TABLE_VI,
    ),
    "products": PublishedGraph(
        num_vertices=2_449_029,
        num_edges=2 * 61_859_140,
        num_features=100,
        num_classes=47,
        num_train=196_615,
        skew=1.24,
        skew_source="its degrees' mean of 50.5 and standard deviation of 95.9",
    ),
    "papers100m": PublishedGraph(
        num_vertices=111_059_956,
        num_edges=1_615_685_872,
        num_features=128,
        num_classes=172,
        num_train=1_207_179,
        skew=1.89,
        skew_source=_SKEW_FROM_GNNLAB,
        directed=True,
        num_reached=11_105_996,
    ),
    "mag240m": PublishedGraph(
        num_vertices=121_751_666,
        num_edges=1_297_748_926,
        num_features=756,
        num_classes=153,
        num_train=1_112_392,
        skew=1.89,
        skew_source=f"ogbn-papers100M, also a citation graph: {_SKEW_FROM_GNNLAB}",
        directed=True,
        num_reached=12_175_167,
    ),
}
