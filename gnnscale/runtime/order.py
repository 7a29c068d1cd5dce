"""The order of seeds of a run: the user's, or two-stage scheduling over parts."""

from gnnscale.core import Array, ConfigError
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
        ConfigError: the order does not train every seed once an epoch; or ``drop_last`` leaves no
            mini-batch.
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
    if type(order) is not seed_order.ShuffledOrder:
        order = seed_order.CheckedOrder(order, seeds, num_devices=num_devices)
        for _ in order.epoch(0):
            pass
    return _full_batches(order, len(seeds)) if config.drop_last else order


def _full_batches(order: SeedOrder, num_seeds: int) -> SeedOrder:
    """Return ``order`` without incomplete mini-batches, refused if no mini-batch is left."""
    full = seed_order.FullBatches(order)
    if not full.steps_per_epoch:
        raise ConfigError(
            f"drop_last=true: expected a full mini-batch in an epoch, got batch_size="
            f"{order.batch_size} for {num_seeds} training seeds; a smaller batch_size, or "
            "drop_last=false"
        )
    return full
