"""Group ``optimizer``: update rules and learning rates."""

from gnnscale.optimizer.base import SCHEDULES, OptimizerConfig
from gnnscale.optimizer.optimizers import Adam, AdamW, Sgd

__all__ = ["SCHEDULES", "Adam", "AdamW", "OptimizerConfig", "Sgd"]
