"""Group ``optimizer``: update rules and learning rates."""

from gnnscale.optimizer.adam import Adam
from gnnscale.optimizer.adamw import AdamW
from gnnscale.optimizer.base import SCHEDULES, OptimizerConfig
from gnnscale.optimizer.sgd import Sgd

__all__ = ["SCHEDULES", "Adam", "AdamW", "OptimizerConfig", "Sgd"]
