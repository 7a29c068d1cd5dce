"""Published graphs: their sizes, and how skewed their degrees are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.graphs.degrees import Degrees, expected_size


@dataclass(frozen=True, kw_only=True)
class PublishedGraph:
    """What is known of a graph that is not here."""

    num_vertices: int  #: |V|
    num_edges: int  #: in-neighbours of all vertices together
    num_features: int  #: f^0
    num_classes: int  #: f^L
    num_train: int  #: training vertices
    skew: float  #: standard deviation of the logarithms of degrees
    skew_source: str  #: of ``skew``
    directed: bool = False  #: whether in-neighbours and out-neighbours differ
    #: vertices that mini-batches of training vertices meet at all; None for all vertices
    num_reached: int | None = None
    known: Degrees | None = None  #: the degrees of all vertices, if they are here

    @cached_property
    def degrees(self) -> Degrees:
        """Of the vertices that mini-batches meet."""
        if self.known is not None:
            return self.known
        mean = self.num_edges / self.num_vertices
        count = self.num_reached or self.num_vertices
        return Degrees.lognormal(count, mean, self.skew, directed=self.directed)

    def size(self, fanouts: Sequence[int], num_seeds: float) -> BatchSize:
        """Return the mini-batch to expect of ``num_seeds`` vertices; see ``expected_size``."""
        return expected_size(self.degrees, fanouts, num_seeds)[0]


#: HitGNN gives vertices per second and seconds of an epoch over all vertices, whose product over
#: ⌈|V| / 1,024⌉ is the vertices of a mini-batch. Those of the GPU rows are used. The FPGA rows,
#: which are predicted, have the same product: a skew that is fitted to it leaves one figure to
#: predict of epoch time and NVTPS.
_OF_GPU_ROWS = (
    "the vertices of a mini-batch in the GPU rows of HitGNN's Table VI: throughput times epoch "
    "time over its mini-batches"
)
_OF_PAPERS = (
    "GNNLab's 568,300 inputs of mini-batches of 8,000 seeds, fan-outs 15, 10 and 5, of which an "
    "epoch meets a tenth of all vertices (its repository, exp/fig5a and fig11c)"
)

#: HitGNN, Table IV, and HyScale-GNN, Table III. Splits: GraphSAINT's for the first three, the Open
#: Graph Benchmark's for the others. The edges of ogbn-products have no direction: each is two
#: in-neighbours. Those of the first three are counted in both directions already.
PUBLISHED = {
    "reddit": PublishedGraph(
        num_vertices=232_965,
        num_edges=23_213_838,
        num_features=602,
        num_classes=41,
        num_train=153_932,
        skew=1.57,
        skew_source=_OF_GPU_ROWS,
    ),
    "yelp": PublishedGraph(
        num_vertices=716_847,
        num_edges=13_954_819,
        num_features=300,
        num_classes=100,
        num_train=537_635,
        skew=2.0,
        skew_source=_OF_GPU_ROWS,
    ),
    "amazon": PublishedGraph(
        num_vertices=1_569_960,
        num_edges=264_339_468,
        num_features=200,
        num_classes=107,
        num_train=1_255_968,
        skew=2.58,
        skew_source=_OF_GPU_ROWS,
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
        skew_source=_OF_PAPERS,
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
        skew_source=f"that of ogbn-papers100M, also of citations, which is from {_OF_PAPERS}",
        directed=True,
        num_reached=12_175_167,
    ),
}
