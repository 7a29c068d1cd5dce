"""Goals of design-space explorations."""

from gnnscale.fpga_design.dse import Goal, make_goal
from gnnscale.nn import GCN
from gnnscale.nn.options import LayeredModel
from gnnscale.planner.graphs import PUBLISHED
from gnnscale.planner.simulator.simulate import published_task
from gnnscale.sampling import NeighborSampling

HITGNN = ("reddit", "yelp", "amazon", "products")


def goal(
    graphs: tuple[str, ...] = ("products",),
    *,
    fanouts: tuple[int, ...] = (25, 10),
    local: float = 1.0,
    link: float = 12e9,
    model: LayeredModel | None = None,
) -> Goal:
    sampler = NeighborSampling(fanouts=list(fanouts))
    chosen = model or GCN(hidden=128)
    tasks = [
        (published_task(name, PUBLISHED[name], chosen, sampler, batch_size=1024), local)
        for name in graphs
    ]
    return make_goal(tasks, batch_size=1024, link_bandwidth=link)
