"""The order of seeds of a run: the user's, or two-stage scheduling over parts."""

from gnnscale.core import Array
from gnnscale.partition import Parts
from gnnscale.plan.device_plan import apportion
from gnnscale.runtime.settings import BatchesConfig
from gnnscale.sampler import SeedOrder, TwoStageOrder, seed_order


def checked_order(config: BatchesConfig, seeds: Array, parts: Parts | None) -> SeedOrder:
    """Return the order of the run; its first epoch is looked at before any device starts.

    A permutation trains every seed once by construction, and is not looked at: that takes a
    quarter of a millisecond a step of a large graph.

    Args:
        seeds: ``[n]`` what is trained once an epoch: vertices, or numbers of edges.
        parts: the devices' parts of it; None if it is whole.

    Raises:
        ConfigError: the order does not train every seed once an epoch.
    """
    num_devices = len(config.device_plan.parsed())
    order: SeedOrder
    if parts is not None and parts.owner is not None:
        order = TwoStageOrder(
            parts.train_vertices(seeds),
            batch_sizes=config.device_plan.split or apportion([1] * num_devices, config.batch_size),
            seed=config.seed,
        )
    else:
        order = config.seed_order.order(
            seeds, batch_size=config.batch_size, num_devices=num_devices, seed=config.seed
        )
    if type(order) is seed_order.ShuffledOrder:
        return order
    checked = seed_order.CheckedOrder(order, seeds, num_devices=num_devices)
    for _ in checked.epoch(0):
        pass
    return checked
