"""Options of the group ``runtime``."""

import math
from dataclasses import dataclass

from gnnscale.core import ConfigError, check_choice, check_range
from gnnscale.planner import PREFETCH

#: Types of matrix products; bfloat16 is lossy and never the default.
COMPUTE_DTYPES = ("float32", "bfloat16")

#: Evaluation over all neighbors, layer by layer, or over sampled neighbors.
INFERENCE = ("exact", "sampled")

_MAX_PREFETCH_DEPTH = 1024


@dataclass(frozen=True, kw_only=True)
class UpdateConfig:
    """Options of the group ``runtime`` that affect the trained weights.

    Attributes:
        compute_dtype: type of matrix products, one of ``COMPUTE_DTYPES``; processors without
            bfloat16 instructions use float32.
        clip_norm: maximum global L2 norm, to which gradients are scaled down; None: no clipping.
        accumulate: mini-batches per update of the weights. The gradient is of the mean over all
            their seeds; the last update of an epoch may have fewer mini-batches.
    """

    compute_dtype: str = "float32"
    clip_norm: float | None = None
    accumulate: int = 1

    def __post_init__(self) -> None:
        check_choice("runtime.compute_dtype", self.compute_dtype, COMPUTE_DTYPES)
        check_range("runtime.accumulate", self.accumulate, 1)
        if self.clip_norm is not None and not 0 < self.clip_norm < math.inf:
            raise ConfigError(
                f"runtime.clip_norm={self.clip_norm}: expected a number above 0, or null"
            )


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig(UpdateConfig):
    """Options of the execution of a run.

    Only the options of ``UpdateConfig`` change the computation; the remaining ones change time,
    checkpoints and validation.

    Attributes:
        inference: neighbors of validation and test, one of ``INFERENCE``: all, or sampled.
        eval_every: epochs between validations; the last epoch is always validated.
        patience: stop after this number of validations without a better metric; None never stops
            early.
        checkpoint: write ``checkpoints/last.safetensors`` during training and at its end, and
            ``checkpoints/best.safetensors`` with the best weights.
        checkpoint_every_s: seconds between checkpoints, also inside epochs; 0 begins the next
            checkpoint as soon as the disk has the previous one. None writes checkpoints only after
            epochs, at least 1 s and 10 write times after the previous one. The first epoch always
            ends with a checkpoint.
        prefetch: steps that run in the background, one of ``PREFETCH``; ``auto`` takes the fastest
            by the performance model.
        prefetch_depth: maximum number of mini-batches that a worker prepares in advance.
        drm: dynamic resource management: shift work and threads between devices while training.
        stall_limit_s: maximum seconds without a heartbeat, or without progress in a training step
            while other workers wait. Then the worker is killed and the run ends. None: no limit.
            Loading, validation and test have no limit as long as heartbeats arrive.
        deterministic: make no decision by measured times, so that equal options give equal
            weights, bit for bit, on processors of one vendor with equal libraries. Device plans use
            nominal rates without calibration and profiling runs, and resource management counts
            work instead of seconds.
    """

    inference: str = "exact"
    eval_every: int = 1
    patience: int | None = None
    checkpoint: bool = True
    checkpoint_every_s: float | None = None
    prefetch: str = "auto"
    prefetch_depth: int = 4
    drm: bool = True
    stall_limit_s: float | None = 600.0
    deterministic: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("runtime.inference", self.inference, INFERENCE)
        check_range("runtime.eval_every", self.eval_every, 1)
        if self.patience is not None:
            check_range("runtime.patience", self.patience, 1)
        every_s, limit_s = self.checkpoint_every_s, self.stall_limit_s
        if every_s is not None and not 0 <= every_s < math.inf:
            raise ConfigError(
                f"runtime.checkpoint_every_s={every_s}: expected 0 or more, or null for "
                "checkpoints after epochs"
            )
        if limit_s is not None and not 0 < limit_s < math.inf:
            raise ConfigError(
                f"runtime.stall_limit_s={limit_s}: expected a number above 0, or null for no limit"
            )
        check_choice("runtime.prefetch", self.prefetch, ("auto", *PREFETCH))
        check_range("runtime.prefetch_depth", self.prefetch_depth, 1, _MAX_PREFETCH_DEPTH)
