"""Optimizers: update rules of dense weights and of sparse rows, and learning rates."""

from gnnscale.nn.optim.options import SCHEDULES, Adam, AdamW, OptimizerConfig, Sgd
