"""Group ``loss``: what training minimises."""

from gnnscale.loss.auto import AutoLoss
from gnnscale.loss.base import Loss, LossConfig, label_kind
from gnnscale.loss.classification import BinaryCrossEntropy, CrossEntropy
from gnnscale.loss.custom import CustomLoss
from gnnscale.loss.regression import MeanSquaredError

__all__ = [
    "AutoLoss",
    "BinaryCrossEntropy",
    "CrossEntropy",
    "CustomLoss",
    "Loss",
    "LossConfig",
    "MeanSquaredError",
    "label_kind",
]
